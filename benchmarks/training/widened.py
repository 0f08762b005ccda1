"""A trained policy laid into a larger model that computes the same function.

Random weights never call a tool, and the committed policies are smaller than the model that the
benchmark is about. So the weights of one stand in the corner of larger matrices and the rest is
zero: dense arithmetic of the larger size, conversations of the trained policy.
"""

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec


def widened(small: Qwen3ForCausalLM, spec: ModelSpec, end_id: int) -> Qwen3ForCausalLM:
    """Lay a model with tied embeddings into a larger shape.

    Args:
        small: The trained model.
        spec: The shape. Width and head size grow by one factor, the numbers of heads stay; the
            vocabulary is the small model's.
        end_id: Id of ``<|im_end|>``.

    Raises:
        ValueError: The shape does not allow it.
    """
    config = small.config
    factor = spec.hidden_size / config.hidden_size
    heads = (config.num_attention_heads, config.num_key_value_heads)
    if spec.head_dim != factor * config.head_dim or heads != (spec.num_heads, spec.num_kv_heads):
        raise ValueError("width and head size must grow by one factor, the numbers of heads stay")
    large = new_model(spec, vocab_size=config.vocab_size, end_id=end_id, seed=0)
    # The zeros halve (say) a mean square: the norm sees the same with eps and scale made for it.
    large.config.rms_norm_eps = config.rms_norm_eps / factor
    for module in large.modules():
        if isinstance(module, Qwen3RMSNorm):
            module.variance_epsilon = large.config.rms_norm_eps
    width = torch.arange(config.hidden_size)
    inner = torch.arange(config.intermediate_size)
    head = head_places(config.head_dim, spec.head_dim)
    queries = torch.cat([n * spec.head_dim + head for n in range(spec.num_heads)])
    keys = torch.cat([n * spec.head_dim + head for n in range(spec.num_kv_heads)])
    source, target = dict(small.named_parameters()), dict(large.named_parameters())
    places = {
        "q_proj": (queries, width),
        "k_proj": (keys, width),
        "v_proj": (keys, width),
        "o_proj": (width, queries),
        "gate_proj": (inner, width),
        "up_proj": (inner, width),
        "down_proj": (width, inner),
        "embed_tokens": (torch.arange(config.vocab_size), width),
    }
    with torch.no_grad():
        for name, weight in target.items():
            kind = name.split(".")[-2]
            if name not in source:  # a further layer adds nothing to what passes by
                if kind in ("o_proj", "down_proj"):
                    weight.zero_()
            elif kind in places:
                weight.copy_(_laid(source[name], weight, *places[kind]))
            elif kind == "q_norm":  # norm and the scale of attention cancel
                weight.zero_()[head] = source[name]
            else:
                at = head if kind == "k_norm" else width
                weight.zero_()[at] = source[name] / factor**0.5
    large.eval()
    return large


def head_places(small: int, large: int) -> Tensor:
    """Where the places of a small head stand in a large one, so that they rotate alike."""
    step, half = large // small, torch.arange(small // 2)
    return torch.cat([step * half, large // 2 + step * half])


def _laid(source: Tensor, target: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    laid = torch.zeros_like(target)
    laid[rows[:, None], columns[None]] = source
    return laid
