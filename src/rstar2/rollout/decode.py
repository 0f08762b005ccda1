"""An inference-only forward of ``Qwen3ForCausalLM`` over the same weights.

Differences from the library's forward, all tested equal to it: projections of one input
are fused, the KV cache is one block per layer in which each head of a row is a contiguous
strip, and a step takes one token per row at that row's own position.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3ForCausalLM

_GROWTH = 64


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class KVCache:
    """Keys and values of all layers, ``[rows, kv_heads, capacity, head_dim]`` each."""

    def __init__(self, num_layers: int, num_kv: int, head_dim: int) -> None:
        self.keys = [torch.zeros(0, num_kv, 0, head_dim) for _ in range(num_layers)]
        self.values = [torch.zeros(0, num_kv, 0, head_dim) for _ in range(num_layers)]

    @property
    def capacity(self) -> int:
        """Positions that a row can hold."""
        return self.keys[0].shape[2]

    def reserve(self, length: int) -> None:
        """Makes room for positions below ``length``; a cache in use never shrinks."""
        missing = length - self.capacity
        if missing <= 0:
            return
        growth = -(-missing // _GROWTH) * _GROWTH
        self.keys = [F.pad(block, (0, 0, 0, growth)) for block in self.keys]
        self.values = [F.pad(block, (0, 0, 0, growth)) for block in self.values]

    def keep(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order."""
        index = torch.tensor(rows, dtype=torch.long)
        self.keys = [block.index_select(0, index) for block in self.keys]
        self.values = [block.index_select(0, index) for block in self.values]

    def append(self, keys: list[Tensor], values: list[Tensor]) -> None:
        """Adds rows whose first positions are given, ``[rows, kv_heads, length, head_dim]``."""
        self.reserve(keys[0].shape[2])
        spare = self.capacity - keys[0].shape[2]

        def add(block: Tensor, new: Tensor) -> Tensor:
            return torch.cat([block, F.pad(new, (0, 0, 0, spare))])

        self.keys = [add(*pair) for pair in zip(self.keys, keys, strict=True)]
        self.values = [add(*pair) for pair in zip(self.values, values, strict=True)]


class DecodeModel:
    """The weights of a ``Qwen3ForCausalLM``, laid out for sampling.

    The layout copies the weights: after a training step make a new one.
    """

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        config = model.config
        self.num_heads = int(config.num_attention_heads)
        self.num_kv = int(config.num_key_value_heads or config.num_attention_heads)
        first: Any = model.model.layers[0]
        self.head_dim = int(first.self_attn.head_dim)
        self.eps = float(config.rms_norm_eps)
        self.max_positions = int(config.max_position_embeddings)
        self.embedding = model.model.embed_tokens.weight.detach().clone()
        self.final_norm = model.model.norm.weight.detach().clone()
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        self.head = self.embedding if tied else model.lm_head.weight.detach().clone()
        self.layers = [_fuse(layer) for layer in model.model.layers]
        positions = torch.arange(self.max_positions)[None]
        cos, sin = model.model.rotary_emb(torch.zeros(1), positions)
        self._cos, self._sin = cos[0], sin[0]

    def new_cache(self) -> KVCache:
        """An empty cache."""
        return KVCache(len(self.layers), self.num_kv, self.head_dim)

    @torch.no_grad()
    def prefill(self, ids: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of right-padded prompts.

        Args:
            ids: ``[prompts, length]``; what stands at the padding does not matter.

        Returns:
            Keys and values of each layer, ``[prompts, kv_heads, length, head_dim]``.
        """
        rows, length = ids.shape
        cos, sin = self._cos[:length, None], self._sin[:length, None]
        x = self.embedding[ids]
        keys, values = [], []
        for layer in self.layers:
            q, k, v = self._project(layer, x, cos, sin)
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            keys.append(k)
            values.append(v)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = self._finish(layer, x, mixed.transpose(1, 2).reshape(rows, length, -1))
        return keys, values

    @torch.no_grad()
    def step(self, tokens: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Feeds one token per row and returns the logits that follow it.

        Args:
            tokens: ``[rows]`` ids.
            positions: ``[rows]`` position of each id; the cache must have room for it.
            cache: Its row ``i`` gets the key and value of ``tokens[i]``.

        Returns:
            ``[rows, vocabulary]`` logits.
        """
        rows = len(tokens)
        span = int(positions.max()) + 1
        cos, sin = self._cos[positions][:, None, None], self._sin[positions][:, None, None]
        visible = torch.arange(span)[None] <= positions[:, None]
        mask = visible[:, None, None]
        index = torch.arange(rows)
        x = self.embedding[tokens][:, None]
        for number, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, cos, sin)
            keys, values = cache.keys[number], cache.values[number]
            keys[index, :, positions] = k[:, 0]
            values[index, :, positions] = v[:, 0]
            mixed = F.scaled_dot_product_attention(
                q.view(rows, self.num_kv, -1, self.head_dim),
                keys[:, :, :span],
                values[:, :, :span],
                attn_mask=mask,
            )
            x = self._finish(layer, x, mixed.reshape(rows, 1, -1))
        return F.linear(self._norm(x[:, 0], self.final_norm), self.head)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _project(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, length, _ = x.shape
        heads = F.linear(self._norm(x, layer.input_norm), layer.qkv)
        heads = heads.view(rows, length, -1, self.head_dim)
        q, k, v = heads.split([self.num_heads, self.num_kv, self.num_kv], dim=2)
        q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def _finish(self, layer: _Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + F.linear(mixed, layer.output)
        gate, up = F.linear(self._norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def _fuse(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    return _Layer(
        input_norm=layer.input_layernorm.weight.detach().clone(),
        qkv=torch.cat([projection.weight.detach() for projection in projections]),
        query_norm=attention.q_norm.weight.detach().clone(),
        key_norm=attention.k_norm.weight.detach().clone(),
        output=attention.o_proj.weight.detach().clone(),
        mlp_norm=layer.post_attention_layernorm.weight.detach().clone(),
        gate_up=torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()]),
        down=mlp.down_proj.weight.detach().clone(),
    )
