"""Makes the laptop model: the class of Qwen3-14B, small."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rstar2.training.spec import ModelSpec


def new_model(spec: ModelSpec, *, vocab_size: int, end_id: int, seed: int) -> Qwen3ForCausalLM:
    """A model with fresh weights.

    Args:
        spec: Its shape.
        vocab_size: Length of its tokenizer.
        end_id: Id of ``<|im_end|>``.
        seed: Seed of the weights.
    """
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=None,
        dtype="float32",
    )
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embed" not in name:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                weight.normal_(0.0, (0.5 if last else 1.0) * weight.shape[1] ** -0.5)
    torch.set_rng_state(generator_state)
    return model
