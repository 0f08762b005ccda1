"""An inference-only forward of ``Qwen3ForCausalLM`` over the same weights.

Differences from the library's forward, all tested equal to it:

1. Projections of one input are one product; the weights of a norm are folded into the product
   behind it, and the attention's scale into the query norm.
2. A head's two halves are interleaved, so that the rotation is one complex product.
3. A step takes one token a row at that row's own position, and reads the prompt's keys and
   values once for all rows that begin with it (``KVCache``).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.errors import UserError
from rstar2.rollout.kv_cache import KVCache


class UnsupportedModelError(UserError):
    """The model's configuration asks for something that this forward does not compute."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer, laid out as ``[in, out]``.

    Attributes:
        qkv: Queries, keys and values of all heads, the input norm folded in.
        head_norm: ``[query and kv heads, head_dim]``, interleaved, the scale folded in.
        output: Of the attention.
        gate_up: Both, the norm before them folded in.
        down: Of the MLP.
    """

    qkv: Tensor
    head_norm: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor


class DecodeModel:
    """The weights of a ``Qwen3ForCausalLM``, laid out for sampling.

    The layout copies the weights: after a training step make a new one.

    Raises:
        UnsupportedModelError: If the model has biases, a sliding window, another activation
            than SiLU, positions that are not plain rotary ones, or weights other than float32.
    """

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        config = model.config
        _refuse_others(config, model.dtype)
        self.num_heads = int(config.num_attention_heads)
        self.num_kv = int(config.num_key_value_heads or config.num_attention_heads)
        first: Any = model.model.layers[0]
        self.head_dim = int(first.self_attn.head_dim)
        self.max_positions = int(config.max_position_embeddings)
        self._eps = torch.tensor(float(config.rms_norm_eps))
        self._embedding = model.model.embed_tokens.weight.detach().clone()
        final_norm = model.model.norm.weight.detach()
        self._head = _transposed(model.lm_head.weight.detach() * final_norm)
        self._layers = [self._lay_out(layer) for layer in model.model.layers]
        cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(self.max_positions)[None])
        half = self.head_dim // 2
        self._rotation = torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())

    def new_cache(self) -> KVCache:
        """An empty cache."""
        return KVCache(len(self._layers), self.num_kv, self.head_dim)

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of right-padded prompts.

        Args:
            ids: ``[prompts, length]``; what stands at the padding does not matter.

        Returns:
            Keys and values of each layer, ``[prompts, kv_heads, length, head_dim]``.
        """
        rows, length = ids.shape
        rotation = self._rotation[:length, None].repeat(rows, 1, 1)
        x = self._embedding[ids.flatten()]
        keys, values = [], []
        for number, layer in enumerate(self._layers):
            heads = self._project(layer, x, rotation).unflatten(0, (rows, length)).transpose(1, 2)
            q, k, v = heads.split([self.num_heads, self.num_kv, self.num_kv], dim=1)
            keys.append(k)
            values.append(v)
            if number + 1 == len(self._layers):
                break
            mixed = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True, scale=1.0
            )
            x = self._finish(layer, x, mixed.transpose(1, 2).reshape(rows * length, -1))
        return keys, values

    @torch.inference_mode()
    def extend(
        self, rows: Tensor, ids: Tensor, counts: Tensor, starts: Tensor, cache: KVCache
    ) -> None:
        """Feeds some rows several known tokens each, as tool responses are.

        Args:
            rows: ``[n]`` numbers of the rows.
            ids: ``[n, length]`` tokens, right-padded; the padding changes nothing.
            counts: ``[n]`` tokens of each row.
            starts: ``[n]`` position of each row's first token here.
            cache: Must have room for them.
        """
        offsets = torch.arange(ids.shape[1])
        places = (starts - cache.prompt_lengths[cache.prompt_of[rows]])[:, None] + offsets
        real = offsets < counts[:, None]
        slots = cache.slots(rows[:, None].expand_as(places)[real], places[real])
        positions = (starts[:, None] + offsets).clamp_max_(self.max_positions - 1)
        rotation = self._rotation[positions.flatten()][:, None]
        span = int((places[:, 0] + counts).max())
        bias = _bias(cache, rows, places, span)
        x = self._embedding[ids.flatten()]
        for number, layer in enumerate(self._layers):
            heads = self._project(layer, x, rotation).unflatten(0, ids.shape)
            cache.write(number, slots, heads[:, :, self.num_heads :][real])
            if number + 1 == len(self._layers):
                break
            keys, values = cache.whole(number, rows, span)
            queries = heads[:, :, : self.num_heads].transpose(1, 2)
            mixed = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=bias, enable_gqa=True, scale=1.0
            )
            x = self._finish(layer, x, mixed.transpose(1, 2).flatten(2).flatten(0, 1))

    @torch.inference_mode()
    def step(self, tokens: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Feeds one token per row and returns the logits that follow it.

        Args:
            tokens: ``[rows]`` ids.
            positions: ``[rows]`` position of each id, counted from the conversation's first
                token; the cache must have room for it.
            cache: Its row ``i`` gets the key and value of ``tokens[i]``.

        Returns:
            ``[rows, vocabulary]`` logits.
        """
        rows = torch.arange(len(tokens))
        places = positions - cache.prompt_lengths[cache.prompt_of]
        bias = _bias(cache, rows, places[:, None], int(places.max()) + 1)
        rotation = self._rotation[positions][:, None]
        slots = cache.slots(rows, places)
        x = self._embedding[tokens]
        for number, layer in enumerate(self._layers):
            heads = self._project(layer, x, rotation)
            cache.write(number, slots, heads[:, self.num_heads :])
            mixed = self._attend(heads[:, : self.num_heads], number, cache, bias)
            x = self._finish(layer, x, mixed)
        return self._normalise(x) @ self._head

    def _attend(self, queries: Tensor, number: int, cache: KVCache, bias: Tensor) -> Tensor:
        """Attention of one query a row to its prompt and to its own strip.

        Args:
            queries: ``[rows, heads, head_dim]``.
            number: The layer.
            cache: Keys and values, those of this step included.
            bias: ``[rows, 1, 1, longest prompt + own span]``, minus infinity where a row has
                nothing.

        Returns:
            ``[rows, heads * head_dim]``.
        """
        rows, prompt = len(queries), cache.longest_prompt
        units, share = rows * self.num_kv, self.num_heads // self.num_kv
        keys, values = cache.strips(number, bias.shape[-1] - prompt)
        q = queries.reshape(units, share, self.head_dim)
        own = torch.bmm(q, keys.transpose(1, 2))
        # On the prompt, the queries of all rows of a prompt are one matrix.
        grid = (len(cache.prompt_keys[number]), cache.seats * share)
        seated = q.view(units, -1).index_select(0, cache.unit_of_cell).view(*grid, -1)
        on_prompt = torch.bmm(seated, cache.prompt_keys[number]).view(-1, share * prompt)
        on_prompt = on_prompt.index_select(0, cache.cell_of_unit).view(units, share, prompt)
        scores = torch.cat([on_prompt, own], dim=-1).view(rows, self.num_kv, share, -1)
        weights = torch.softmax(scores.add_(bias), dim=-1).view(units, share, -1)
        seated = weights[:, :, :prompt].reshape(units, -1)
        seated = seated.index_select(0, cache.unit_of_cell).view(*grid, prompt)
        mixed = torch.bmm(seated, cache.prompt_values[number]).view(-1, share * self.head_dim)
        mixed = mixed.index_select(0, cache.cell_of_unit).view(units, share, -1)
        return torch.baddbmm(mixed, weights[:, :, prompt:], values).view(rows, -1)

    def _project(self, layer: _Layer, x: Tensor, rotation: Tensor) -> Tensor:
        """Queries, keys and values: ``[tokens, query + 2 * kv heads, head_dim]``."""
        heads: Tensor = (self._normalise(x) @ layer.qkv).unflatten(-1, (-1, self.head_dim))
        turned = heads[:, : self.num_heads + self.num_kv]
        turned.mul_(self._inverse_rms(turned)).mul_(layer.head_norm)
        torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(rotation)
        return heads

    def _normalise(self, x: Tensor) -> Tensor:
        return x * self._inverse_rms(x)

    def _inverse_rms(self, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.rsqrt(torch.addcmul(self._eps, norm, norm, value=1 / x.shape[-1]))

    def _finish(self, layer: _Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = torch.addmm(x, mixed, layer.output)
        gate, up = (self._normalise(x) @ layer.gate_up).chunk(2, dim=-1)
        return torch.addmm(x, F.silu(gate).mul_(up), layer.down)

    def _lay_out(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        order = _interleaved(self.head_dim)
        q, k = (
            projection.weight.detach().unflatten(0, (-1, self.head_dim))[:, order].flatten(0, 1)
            for projection in (attention.q_proj, attention.k_proj)
        )
        qkv = torch.cat([q, k, attention.v_proj.weight.detach()])
        gate_up = torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()])
        query_norm = attention.q_norm.weight.detach()[order] * self.head_dim**-0.5
        key_norm = attention.k_norm.weight.detach()[order]
        norms = [query_norm.expand(self.num_heads, -1), key_norm.expand(self.num_kv, -1)]
        return _Layer(
            qkv=_transposed(qkv * layer.input_layernorm.weight.detach()),
            head_norm=torch.cat(norms),
            output=_transposed(attention.o_proj.weight.detach()),
            gate_up=_transposed(gate_up * layer.post_attention_layernorm.weight.detach()),
            down=_transposed(mlp.down_proj.weight.detach()),
        )


def _bias(cache: KVCache, rows: Tensor, places: Tensor, span: int) -> Tensor:
    """0 where a query has a key, minus infinity where it has none.

    Args:
        cache: Names each row's prompt.
        rows: ``[n]`` the rows.
        places: ``[n, length]`` place of each query behind its row's prompt.
        span: Places that are looked at.

    Returns:
        ``[n, 1, length, longest prompt + span]``.
    """
    lengths = cache.prompt_lengths[cache.prompt_of[rows]]
    on_prompt = torch.arange(cache.longest_prompt) < lengths[:, None, None]
    own = torch.arange(span) <= places[:, :, None]
    visible = torch.cat([on_prompt.expand(-1, places.shape[1], -1), own], dim=2)
    return torch.where(visible, 0.0, float("-inf"))[:, None]


def _transposed(weight: Tensor) -> Tensor:
    """A copy of ``[out, in]`` as ``[in, out]``: products of few rows are faster so."""
    return weight.t().clone(memory_format=torch.contiguous_format)


def _interleaved(head_dim: int) -> Tensor:
    """The order in which dimension ``i`` stands beside its partner ``i + head_dim / 2``."""
    return torch.arange(head_dim).view(2, -1).t().flatten()


def _refuse_others(config: Any, dtype: torch.dtype) -> None:
    faults = {
        f"weights in {dtype}": dtype is not torch.float32,
        "attention_bias": config.attention_bias,
        "use_sliding_window": config.use_sliding_window,
        "hidden_act other than silu": config.hidden_act != "silu",
        "rope_type other than default": config.rope_parameters["rope_type"] != "default",
    }
    if wrong := [name for name, present in faults.items() if present]:
        raise UnsupportedModelError(
            f"the model has {', '.join(wrong)}, which the laptop engine does not compute: "
            "use a plain Qwen3 model in float32"
        )
