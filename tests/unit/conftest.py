"""Real parts, small: a tokenizer, a template for each manifest, a model."""

import shutil
from pathlib import Path

import pytest
from hypothesis import settings
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.protocol import LAPTOP, PAPER, TokenTemplate
from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec
from rstar2.training.tokenizer import train_tokenizer

# The same examples every time, and no clock.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

TEXTS = (
    "How many divisors does 360 have? Let me count the divisors.",
    '{"name": "python", "arguments": {"code": "n = 360\\nfor d in range(1, n):\\n    print(d)"}}',
    "The output is 24. So the answer is \\boxed{24}.",
    "Traceback (most recent call last):\n  NameError: name 'x' is not defined",
)


@pytest.fixture
def own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without runs and records, in which the test stands."""
    here, root = Path(__file__).resolve().parents[2], tmp_path / "a checkout"
    for name in ("presets", "notebooks", "sweeps"):
        shutil.copytree(here / name, root / name)
    shutil.copy(here / "pyproject.toml", root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of some 350 entries with the protocol's tags."""
    return train_tokenizer(TEXTS * 4, vocab_size=360)


@pytest.fixture(scope="session")
def laptop(tokenizer: PreTrainedTokenizerFast) -> TokenTemplate:
    """The template of the laptop preset."""
    return TokenTemplate(tokenizer, LAPTOP)


@pytest.fixture(scope="session")
def paper(tokenizer: PreTrainedTokenizerFast) -> TokenTemplate:
    """The template of the paper's presets."""
    return TokenTemplate(tokenizer, PAPER)


@pytest.fixture(scope="session")
def tiny_model(tokenizer: PreTrainedTokenizerFast, laptop: TokenTemplate) -> Qwen3ForCausalLM:
    """A ``Qwen3ForCausalLM`` with fresh weights; tests must not change them."""
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
    model = new_model(spec, vocab_size=len(tokenizer), end_id=laptop.end_id, seed=0)
    model.eval()
    return model
