"""Packed rows say what the library's padded forward says, and leave the model as it was."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AttentionInterface, Qwen3ForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from rstar2.training.examples import Example
from rstar2.training.model import new_model
from rstar2.training.packed import (
    TokenSequence,
    micro_batches,
    next_token_loss,
    token_log_probs,
)
from rstar2.training.spec import ModelSpec

VOCABULARY = 40


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    torch.set_num_threads(1)
    spec = ModelSpec(
        vocab_size=301,  # the tokenizer's; the model here is smaller
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_positions=512,
    )
    return new_model(spec, vocab_size=VOCABULARY, end_id=2, seed=0)


@st.composite
def sequence(draw: st.DrawFn, longest: int = 200) -> TokenSequence:
    """Any ids, any mask; two prompts and no prompt occur again and again."""
    length = draw(st.integers(1, longest))
    rng = draw(st.randoms(use_true_random=False))
    prompt = draw(st.sampled_from([(), (7,), (5, 6, 7, 8, 9)]))[:length]
    ids = prompt + tuple(rng.randrange(VOCABULARY) for _ in range(length - len(prompt)))
    share = draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    mask = tuple(int(rng.random() < share) for _ in ids)
    return TokenSequence(ids, mask, len(prompt))


def padded(model: Qwen3ForCausalLM, sequences: Sequence[TokenSequence], heat: float) -> Tensor:
    """The library's own forward over a padded batch, the usual way."""
    longest = max(len(one.ids) for one in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    counted = torch.zeros(len(sequences), longest, dtype=torch.bool)
    for number, one in enumerate(sequences):
        ids[number, : len(one.ids)] = torch.tensor(one.ids)
        counted[number, : len(one.ids)] = torch.tensor(one.mask, dtype=torch.bool)
    logs = torch.log_softmax(model(input_ids=ids).logits[:, :-1] / heat, dim=-1)
    return logs.gather(2, ids[:, 1:, None])[..., 0][counted[:, 1:]]


def gradient(model: Qwen3ForCausalLM, log_probs: Tensor) -> Tensor:
    """Gradient of a sum in which every token weighs something else."""
    model.zero_grad()
    weights = torch.linspace(-1, 1, len(log_probs), dtype=log_probs.dtype)
    (log_probs * weights).sum().backward()
    gradients = [weight.grad for weight in model.parameters()]
    return torch.cat([one.flatten() for one in gradients if one is not None])


def greedy(model: Qwen3ForCausalLM, ids: Tensor) -> Tensor:
    written = model.generate(ids, max_new_tokens=6, do_sample=False)
    assert isinstance(written, Tensor)
    return written


def rollouts() -> list[TokenSequence]:
    """Three prompts with four responses each, tool tokens inside."""
    rng = torch.Generator().manual_seed(3)
    out = []
    for prompt in ((1, 2, 3, 4), (1, 2, 3, 5), tuple(range(30))):
        for length in (1, 9, 40, 70):
            response = torch.randint(VOCABULARY, (length,), generator=rng).tolist()
            mask = (0,) * len(prompt) + tuple(int(not 5 <= place < 8) for place in range(length))
            out.append(TokenSequence((*prompt, *response), mask, len(prompt)))
    return out


@given(
    sequences=st.lists(sequence(), min_size=1, max_size=7), heat=st.sampled_from([0.6, 1.0, 2.0])
)
@settings(max_examples=60, deadline=None)
def test_log_probs_equal_the_padded_forward(
    model: Qwen3ForCausalLM, sequences: list[TokenSequence], heat: float
) -> None:
    with torch.no_grad():
        packed = token_log_probs(model, sequences, heat)
        usual = padded(model, sequences, heat)
    assert packed.shape == usual.shape
    assert torch.allclose(packed, usual, rtol=0, atol=1e-5)


@given(sequences=st.lists(sequence(60), min_size=1, max_size=9), budget=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_a_cut_keeps_every_sequence_in_order_and_holds_the_budget(
    model: Qwen3ForCausalLM, sequences: list[TokenSequence], budget: int
) -> None:
    cuts = list(micro_batches(sequences, budget))
    assert [one for cut in cuts for one in sequences[cut]] == sequences
    tokens: list[int] = []
    hook = model.model.register_forward_hook(
        lambda _model, _inputs, output: tokens.append(output.last_hidden_state.shape[1])
    )
    with torch.no_grad():
        parts = [token_log_probs(model, sequences[cut], 1.0) for cut in cuts]
        whole = token_log_probs(model, sequences, 1.0)
    hook.remove()
    assert torch.allclose(torch.cat(parts), whole, rtol=0, atol=1e-5)
    rows = [sequences[cut] for cut, part in zip(cuts, parts, strict=True) if len(part)]
    for row, seen in zip(rows, tokens, strict=False):
        assert seen <= budget or len([one for one in row if one.counted]) == 1


def test_an_empty_batch_has_no_cut() -> None:
    assert list(micro_batches([], 100)) == []


def test_gradients_equal_those_of_the_padded_forward_and_of_rows_that_share_nothing(
    model: Qwen3ForCausalLM,
) -> None:
    exact = Qwen3ForCausalLM(model.config).double()
    exact.load_state_dict(model.state_dict())
    shared = rollouts()
    alone = [TokenSequence(one.ids, one.mask) for one in shared]
    usual = gradient(exact, padded(exact, shared, 0.8))
    for sequences in (shared, alone):  # 1e-6: norms are float32 in a float64 model too
        packed = token_log_probs(exact, sequences, 0.8)
        assert (gradient(exact, packed) - usual).norm() < 1e-6 * usual.norm()
    parts = token_log_probs(exact, shared[::-1], 0.8).split(
        [len(one.counted) for one in shared[::-1]]
    )
    assert (gradient(exact, torch.cat(parts[::-1])) - usual).norm() < 1e-6 * usual.norm()
    single = gradient(model, token_log_probs(model, shared, 0.8)).double()
    assert (single - usual).norm() < 1e-6 * usual.norm()


@pytest.mark.parametrize("budget", [1, 50, 130, 10**6])
def test_gradients_of_micro_batches_add_up(model: Qwen3ForCausalLM, budget: int) -> None:
    sequences = rollouts()
    whole = gradient(model, token_log_probs(model, sequences, 1.0))
    counts = [len(one.counted) for one in sequences]
    weights = torch.linspace(-1, 1, sum(counts)).split(counts)
    model.zero_grad()
    for cut in micro_batches(sequences, budget):
        log_probs = token_log_probs(model, sequences[cut], 1.0)
        (log_probs * torch.cat(weights[cut])).sum().backward()
    parts = torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])
    assert (parts - whole).norm() < 1e-6 * whole.norm()


def test_sequences_do_not_see_each_other(model: Qwen3ForCausalLM) -> None:
    sequences = rollouts()
    sizes = [len(one.counted) for one in sequences]
    with torch.no_grad():
        before = token_log_probs(model, sequences, 1.0).split(sizes)
        for changed, one in enumerate(sequences):
            ids = one.ids[: one.prompt_length] + tuple(
                (token + 1) % VOCABULARY for token in one.ids[one.prompt_length :]
            )
            others = list(sequences)
            others[changed] = TokenSequence(ids, one.mask, one.prompt_length)
            after = token_log_probs(model, others, 1.0).split(sizes)
            same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
            assert same == [number != changed for number in range(len(sequences))]


def test_a_shared_prompt_goes_through_the_layers_once_and_the_end_not_at_all(
    model: Qwen3ForCausalLM,
) -> None:
    tokens: list[int] = []
    hook = model.model.register_forward_hook(
        lambda _model, _inputs, output: tokens.append(output.last_hidden_state.shape[1])
    )
    prompt = (1, 2, 3)
    ids = (*prompt, 4, 5, 6, 7)
    token_log_probs(model, [TokenSequence(ids, (0, 0, 0, 1, 1, 0, 0), 3)] * 4, 1.0)
    token_log_probs(model, [TokenSequence(ids, (0, 0, 0, 1, 1, 0, 0))] * 4, 1.0)
    hook.remove()
    assert tokens == [3 + 4 * 1, 4 * 4]


def test_the_model_is_as_before(model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    setting = model.config._attn_implementation
    with torch.no_grad():
        logits = model(ids).logits
    written = greedy(model, ids)
    config = model.config.to_dict()
    token_log_probs(model, rollouts(), 1.0).sum().backward()
    with torch.no_grad():
        assert torch.equal(model(ids).logits, logits)
    assert torch.equal(greedy(model, ids), written)
    assert model.config.to_dict() == config
    assert model.config._attn_implementation == setting
    model.save_pretrained(tmp_path)
    for file in tmp_path.glob("*.json"):
        assert "rstar2" not in json.dumps(json.loads(file.read_text()))
    assert "rstar2_packed" in AttentionInterface()
    assert "rstar2_packed" not in ALL_MASK_ATTENTION_FUNCTIONS  # so the library makes no mask


def test_the_setting_comes_back_after_an_error(model: Qwen3ForCausalLM) -> None:
    setting = model.config._attn_implementation
    with pytest.raises(IndexError):
        token_log_probs(model, [TokenSequence((1, VOCABULARY + 1, 2), (0, 1, 1))], 1.0)
    assert model.config._attn_implementation == setting


def test_nothing_counted_gives_an_empty_result(model: Qwen3ForCausalLM) -> None:
    silent = TokenSequence((1, 2, 3), (1, 0, 0), 2)  # nothing comes before the first token
    assert token_log_probs(model, [silent, silent], 1.0).shape == (0,)
    assert token_log_probs(model, [], 1.0).shape == (0,)
    spoken = TokenSequence((1, 2, 3), (0, 0, 1), 2)
    alone = token_log_probs(model, [spoken], 1.0)
    assert torch.equal(token_log_probs(model, [silent, spoken, silent], 1.0), alone)


def test_a_sequence_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="3 ids, 2 places in the mask"):
        TokenSequence((1, 2, 3), (0, 1))
    with pytest.raises(ValueError, match="a prompt of 4 among 3 ids"):
        TokenSequence((1, 2, 3), (0, 1, 1), 4)


def test_the_next_token_loss_is_the_mean_over_the_counted_tokens(model: Qwen3ForCausalLM) -> None:
    batch = [Example(one.ids, one.mask) for one in rollouts()]
    expected = -padded(model, rollouts(), 1.0).mean()
    assert next_token_loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-6)
    with pytest.raises(ValueError, match="no counted token in a batch of 1 examples"):
        next_token_loss(model, [Example((1, 2), (1, 0))])
