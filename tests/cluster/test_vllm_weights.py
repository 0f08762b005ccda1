"""New weights in vLLM's CPU build: what a reload takes, and the trap of tied embeddings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from installed import cpu_environment
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.protocol import TokenTemplate
from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec

PROMPT = tuple(range(5, 25))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """This process as verl's servers have it, with the engine inside it."""
    site = tmp_path_factory.mktemp("environment") / "site"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cpu_environment(site).items():
            if name.startswith(("VLLM_", "TORCHDYNAMO_")):
                patch.setenv(name, value)
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.syspath_prepend(site)
        yield


def tied_model(tokenizer: PreTrainedTokenizerFast, end_id: int, seed: int) -> Qwen3ForCausalLM:
    spec = ModelSpec(
        vocab_size=360,
        hidden_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=32,
        intermediate_size=128,
        max_positions=512,
    )
    model = new_model(spec, vocab_size=len(tokenizer), end_id=end_id, seed=seed).eval()
    assert model.config.tie_word_embeddings
    with torch.no_grad():  # far enough from uniform for weights to matter
        for weight in model.parameters():
            weight.mul_(3)
    return model


@pytest.fixture(scope="module")
def models(
    tokenizer: PreTrainedTokenizerFast, template: TokenTemplate
) -> tuple[Qwen3ForCausalLM, Qwen3ForCausalLM]:
    old, new = (tied_model(tokenizer, template.end_id, seed) for seed in (0, 1))
    return old, new


@pytest.fixture(scope="module")
def engine(
    environment: None,
    models: tuple[Qwen3ForCausalLM, Qwen3ForCausalLM],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    from vllm import LLM

    folder = tmp_path_factory.mktemp("old")
    models[0].save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return LLM(str(folder), dtype="float32", max_model_len=256, enforce_eager=True, max_num_seqs=4)


def gap(engine: Any, model: Qwen3ForCausalLM) -> float:
    """The largest difference of the log-probs of sampled tokens."""
    from vllm import SamplingParams

    engine.reset_prefix_cache()
    params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, logprobs=0, seed=3)
    [said] = engine.generate([{"prompt_token_ids": list(PROMPT)}], params, use_tqdm=False)
    ids = list(said.outputs[0].token_ids)
    theirs = [at[token].logprob for token, at in zip(ids, said.outputs[0].logprobs, strict=True)]
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *ids]])).logits[0, len(PROMPT) - 1 : -1]
    ours = torch.log_softmax(logits.float(), -1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
    return float((ours - torch.tensor(theirs)).abs().max())


def reload(engine: Any, weights: Mapping[str, Tensor]) -> None:
    engine.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})


def test_a_reload_without_the_output_layer_leaves_the_old_one(
    engine: Any, models: tuple[Qwen3ForCausalLM, Qwen3ForCausalLM], tmp_path: Path
) -> None:
    from rstar2.verl_plugin.cpu_vllm import with_head

    old, new = models
    weights = {name: weight.detach() for name, weight in new.named_parameters()}
    assert "lm_head.weight" not in weights
    assert gap(engine, old) < 1e-5
    reload(engine, weights)
    assert gap(engine, new) > 0.1, "the trap is gone: cpu_vllm.with_head is not needed any more"
    reload(engine, with_head(weights, tied=True))
    assert gap(engine, new) < 1e-5
