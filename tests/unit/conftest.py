"""Real parts, small: a tokenizer, a template for each manifest, a model."""

import shutil
from pathlib import Path

import pytest
from hypothesis import settings
from tiny import tiny_policy, tiny_tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.protocol import LAPTOP, PAPER, TokenTemplate

# The same examples every time, and no clock.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


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
    return tiny_tokenizer()


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
    model = tiny_policy(tokenizer, laptop.end_id)
    model.eval()
    return model
