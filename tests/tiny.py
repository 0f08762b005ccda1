"""A model and a tokenizer as small as can be, of real parts, for the tests of every environment."""

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec
from rstar2.training.tokenizer import train_tokenizer

TEXTS = (
    "How many divisors does 360 have? Let me count the divisors.",
    '{"name": "python", "arguments": {"code": "n = 360\\nfor d in range(1, n):\\n    print(d)"}}',
    "The output is 24. So the answer is \\boxed{24}.",
    "Traceback (most recent call last):\n  NameError: name 'x' is not defined",
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of some 350 entries with the protocol's tags."""
    return train_tokenizer(TEXTS * 4, vocab_size=360)


def tiny_policy(tokenizer: PreTrainedTokenizerFast, end_id: int) -> Qwen3ForCausalLM:
    """A ``Qwen3ForCausalLM`` with fresh weights, always the same."""
    spec = ModelSpec(
        vocab_size=360,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=64,
        max_positions=512,
    )
    return new_model(spec, vocab_size=len(tokenizer), end_id=end_id, seed=0)
