"""The policy loss equals its equation, and no split of the batch changes it."""

from collections import defaultdict
from dataclasses import fields
from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.algorithm.advantage import group_advantages
from rstar2.algorithm.loss import ClipRange, PolicyLoss, policy_loss
from rstar2.algorithm.weights import Normaliser, row_weights

SEEDED = settings(deadline=None, derandomize=True)
CLIP = ClipRange(low=0.2, high=0.28)


def make_batch(seed, rows=12, tokens=9, group_size=4):
    """Log-probs whose ratios lie on both sides of both bounds, masks with gaps."""
    rng = np.random.default_rng(seed)
    old = rng.uniform(-3, -0.1, size=(rows, tokens))
    new = old + rng.normal(0, 0.35, size=(rows, tokens))
    mask = rng.random((rows, tokens)) < 0.6
    mask[:, 0] = True
    groups = [row // group_size for row in range(rows)]
    rewards = rng.integers(0, 2, size=rows)
    rewards[::group_size], rewards[1::group_size] = 0, 1
    advantages = np.concatenate(
        [group_advantages(part.tolist()) for part in np.split(rewards, rows // group_size)]
    )
    return new, old, advantages, mask, groups


def clipped_objective(new, old, advantage):
    ratio = exp(new - old)
    bounded = min(max(ratio, 1 - 0.2), 1 + 0.28)
    return min(ratio * advantage, bounded * advantage)


def design_loss(new, old, advantages, mask):
    """``-(1/N) sum over tokens`` in plain floats, N the model tokens of the step."""
    terms = [clipped_objective(new[i, t], old[i, t], advantages[i]) for i, t in np.argwhere(mask)]
    return -sum(terms) / len(terms)


def paper_loss(new, old, advantages, mask, groups):
    """Eq. 6 of the paper for each group, then the mean over groups (its expectation)."""
    terms = defaultdict(list)
    for i, t in np.argwhere(mask):
        terms[groups[i]].append(clipped_objective(new[i, t], old[i, t], advantages[i]))
    return -sum(sum(each) / len(each) for each in terms.values()) / len(terms)


def compute(new, old, advantages, mask, groups, normaliser, rows=slice(None), total_rows=None):
    """Loss and gradient of ``rows`` as a micro-batch of the step ``total_rows``."""
    step = total_rows if total_rows is not None else slice(None)
    counts = mask.sum(axis=1)
    weights = np.zeros(len(groups))
    weights[step] = row_weights(counts[step].tolist(), np.array(groups)[step].tolist(), normaliser)
    log_probs = torch.tensor(new, requires_grad=True)
    result = policy_loss(
        log_probs[rows],
        torch.tensor(old)[rows],
        torch.tensor(advantages)[rows],
        torch.tensor(weights)[rows],
        torch.tensor(mask)[rows],
        CLIP,
    )
    result.loss.backward()
    return result, log_probs.grad


# --- the equation -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_batch_normaliser_equals_the_designs_equation(seed):
    batch = make_batch(seed)
    result, _ = compute(*batch, Normaliser.BATCH)
    assert result.loss.item() == pytest.approx(design_loss(*batch[:4]), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_group_normaliser_equals_the_papers_eq_6(seed):
    batch = make_batch(seed)
    result, _ = compute(*batch, Normaliser.GROUP)
    assert result.loss.item() == pytest.approx(paper_loss(*batch), rel=1e-12)


def test_float32_agrees_with_the_float64_reference():
    new, old, advantages, mask, groups = make_batch(7)
    weights = row_weights(mask.sum(axis=1).tolist(), groups, Normaliser.BATCH)
    single = [torch.tensor(a, dtype=torch.float32) for a in (new, old, advantages, weights)]
    loss = policy_loss(*single, torch.tensor(mask), CLIP).loss
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(design_loss(new, old, advantages, mask), abs=1e-6)


def test_the_two_normalisers_differ_when_groups_have_unequal_lengths():
    assert row_weights([10, 30], [0, 1], Normaliser.BATCH).tolist() == [1 / 40, 1 / 40]
    assert row_weights([10, 30], [0, 1], Normaliser.GROUP).tolist() == [1 / 20, 1 / 60]


@SEEDED
@given(
    rows=st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 5)), min_size=1, max_size=40),
    normaliser=st.sampled_from(Normaliser),
)
def test_the_weights_of_all_tokens_add_up_to_one(rows, normaliser):
    counts, groups = zip(*rows, strict=True)
    weights = row_weights(counts, groups, normaliser)
    assert np.dot(weights, counts) == pytest.approx(1.0)


def test_a_row_without_tokens_is_allowed_beside_others():
    assert row_weights([0, 8], [3, 3], Normaliser.GROUP).tolist() == [1 / 8, 1 / 8]
    assert row_weights([0, 8], [3, 4], Normaliser.BATCH).tolist() == [1 / 8, 1 / 8]


def test_without_any_token_there_is_nothing_to_average():
    with pytest.raises(ValueError, match="no model token"):
        row_weights([0, 0], [1, 1], Normaliser.BATCH)
    with pytest.raises(ValueError, match=r"groups \[3\]"):
        row_weights([0, 8], [3, 4], Normaliser.GROUP)
    with pytest.raises(ValueError, match="no model token"):
        row_weights([], [], Normaliser.GROUP)


# --- the gradient -----------------------------------------------------------------------


@pytest.mark.parametrize("normaliser", Normaliser)
def test_the_gradient_passes_torchs_numerical_check(normaliser):
    new, old, advantages, mask, groups = make_batch(3, rows=4, tokens=5)
    weights = torch.tensor(row_weights(mask.sum(axis=1).tolist(), groups, normaliser))

    def loss(log_probs):
        fixed = torch.tensor(old), torch.tensor(advantages), weights, torch.tensor(mask)
        return policy_loss(log_probs, *fixed, CLIP).loss

    assert torch.autograd.gradcheck(loss, torch.tensor(new, requires_grad=True))


def test_the_gradient_is_minus_weight_times_advantage_times_ratio_where_not_clipped():
    new, old, advantages, mask, groups = make_batch(4)
    _, gradient = compute(new, old, advantages, mask, groups, Normaliser.BATCH)
    ratio, advantage = np.exp(new - old), advantages[:, None]
    clipped = ((advantage > 0) & (ratio > 1.28)) | ((advantage < 0) & (ratio < 0.8))
    expected = np.where(mask & ~clipped, -advantage * ratio / mask.sum(), 0.0)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-15)


def test_on_policy_with_advantage_one_it_is_the_gradient_of_torchs_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, 11, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (3, 7), generator=generator)
    mask = torch.rand(3, 7, generator=generator) < 0.7
    log_probs = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    weights = torch.tensor(row_weights(mask.sum(1).tolist(), [0, 0, 1], Normaliser.BATCH))
    ones = torch.ones(3, dtype=torch.float64)
    loss = policy_loss(log_probs, log_probs.detach(), ones, weights, mask, CLIP).loss
    likelihood = torch.nn.functional.cross_entropy(logits[mask], targets[mask])
    (ours,) = torch.autograd.grad(loss, logits)
    (torchs,) = torch.autograd.grad(likelihood, logits)
    torch.testing.assert_close(ours, torchs)


def test_no_gradient_reaches_the_old_policy_the_advantages_or_the_weights():
    new, old, advantages, mask, _ = make_batch(5)
    inputs = [torch.tensor(a, requires_grad=True) for a in (new, old, advantages, advantages)]
    policy_loss(*inputs, torch.tensor(mask), CLIP).loss.backward()
    assert inputs[0].grad is not None
    assert [each.grad for each in inputs[1:]] == [None, None, None]


# --- the clip ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "ratio", "learns", "side"),
    [
        (+1.0, 1.00, True, None),
        (+1.0, 1.27, True, None),
        (+1.0, 1.29, False, "high"),  # already likely enough: stop
        (+1.0, 0.50, True, None),  # a good token became rare: pull it back up
        (-1.0, 0.81, True, None),
        (-1.0, 0.79, False, "low"),  # already rare enough: stop
        (-1.0, 2.00, True, None),  # a bad token became likely: no bound, no dual clip
        (-1.0, 9.00, True, None),
        (0.0, 9.00, False, None),
    ],
)
def test_the_clip_acts_on_the_side_that_the_advantage_pushes_to(advantage, ratio, learns, side):
    new = torch.tensor([ratio], dtype=torch.float64).log().requires_grad_()
    one = torch.ones(1, dtype=torch.float64)
    result = policy_loss(new, torch.zeros_like(new), one * advantage, one, one, CLIP)
    result.loss.backward()
    assert new.grad.item() == pytest.approx(-advantage * ratio if learns else 0.0)
    assert result.clipped_high.item() == (side == "high")
    assert result.clipped_low.item() == (side == "low")


def test_with_one_update_a_batch_every_ratio_is_one_and_nothing_is_clipped():
    new, _, advantages, mask, groups = make_batch(6)
    result, _ = compute(new, new, advantages, mask, groups, Normaliser.BATCH)
    assert result.clipped_low.item() == result.clipped_high.item() == 0
    assert result.tokens.item() == mask.sum()
    assert result.kl.item() == 0


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.2), (1.0, 0.2), (0.2, -0.1)])
def test_impossible_clip_ranges_are_refused(low, high):
    with pytest.raises(ValueError, match="clip range"):
        ClipRange(low, high)


# --- micro-batches and minibatches ------------------------------------------------------


@SEEDED
@given(
    seed=st.integers(0, 1000),
    owner=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    normaliser=st.sampled_from(Normaliser),
)
def test_no_split_into_micro_batches_changes_loss_gradient_or_sums(seed, owner, normaliser):
    batch = make_batch(seed)
    whole, gradient = compute(*batch, normaliser)
    parts = [
        compute(*batch, normaliser, rows=[row for row in range(12) if owner[row] == part])
        for part in sorted(set(owner))
    ]
    for field in fields(PolicyLoss):
        total = sum(getattr(part, field.name).item() for part, _ in parts)
        assert total == pytest.approx(getattr(whole, field.name).item(), rel=1e-9, abs=1e-12)
    torch.testing.assert_close(sum(each for _, each in parts), gradient)


@pytest.mark.parametrize("normaliser", Normaliser)
def test_two_minibatches_normalise_each_by_its_own_tokens(normaliser):
    new, old, advantages, mask, groups = batch = make_batch(8)
    mask[8:, 2:] = False  # the second minibatch is much shorter
    for step in (slice(0, 8), slice(8, 12)):
        result, gradient = compute(*batch, normaliser, rows=step, total_rows=step)
        alone = new[step], old[step], advantages[step], mask[step]
        expected = (
            design_loss(*alone)
            if normaliser is Normaliser.BATCH
            else paper_loss(*alone, groups[step])
        )
        assert result.loss.item() == pytest.approx(expected, rel=1e-12)
        outside = [row for row in range(12) if row not in range(12)[step]]
        assert gradient[outside].abs().sum() == 0


def test_padding_and_packing_change_nothing():
    new, old, advantages, mask, groups = make_batch(9)
    padded, gradient = compute(new, old, advantages, mask, groups, Normaliser.BATCH)
    weights = row_weights(mask.sum(axis=1).tolist(), groups, Normaliser.BATCH)
    row_of = np.argwhere(mask)[:, 0]
    flat = torch.tensor(new[mask], requires_grad=True)
    packed = policy_loss(
        flat,
        torch.tensor(old[mask]),
        torch.tensor(advantages[row_of]),
        torch.tensor(weights[row_of]),
        torch.ones(len(row_of)),
        CLIP,
    )
    packed.loss.backward()
    assert packed.loss.item() == pytest.approx(padded.loss.item(), rel=1e-12)
    torch.testing.assert_close(flat.grad, gradient[torch.tensor(mask)])


# --- environment tokens and shapes ------------------------------------------------------


@pytest.mark.parametrize("garbage", [0.0, -1e4, 1e4, float("inf"), float("-inf"), float("nan")])
def test_environment_tokens_change_neither_loss_nor_gradient_nor_sums(garbage):
    new, old, advantages, mask, groups = make_batch(10)
    clean, clean_gradient = compute(new, old, advantages, mask, groups, Normaliser.GROUP)
    dirty_new, dirty_old = np.where(mask, new, garbage), np.where(mask, old, -0.5)
    dirty, gradient = compute(dirty_new, dirty_old, advantages, mask, groups, Normaliser.GROUP)
    assert gradient[torch.tensor(~mask)].tolist() == [0.0] * int((~mask).sum())
    torch.testing.assert_close(gradient, clean_gradient, rtol=0, atol=0)
    for field in fields(PolicyLoss):
        assert getattr(dirty, field.name).item() == getattr(clean, field.name).item()


def test_rows_of_environment_tokens_alone_have_no_loss():
    tokens = torch.randn(2, 3, requires_grad=True)
    zeros = torch.zeros(2, 3)
    result = policy_loss(tokens, zeros, torch.ones(2), torch.ones(2), zeros, CLIP)
    assert result.loss.item() == result.tokens.item() == 0
    result.loss.backward()
    assert tokens.grad.tolist() == zeros.tolist()


def test_only_the_loss_carries_a_gradient():
    result, _ = compute(*make_batch(11), Normaliser.BATCH)
    carriers = [f.name for f in fields(PolicyLoss) if getattr(result, f.name).requires_grad]
    assert carriers == ["loss"]


def test_shapes_that_do_not_fit_are_refused():
    square, row = torch.zeros(3, 3), torch.zeros(3)
    with pytest.raises(ValueError, match="one shape"):
        policy_loss(square, torch.zeros(3, 2), row, row, square, CLIP)
    with pytest.raises(ValueError, match="advantages"):
        policy_loss(square, square, torch.zeros(2), row, square, CLIP)
    with pytest.raises(ValueError, match="weights"):
        policy_loss(square, square, row, torch.zeros(1, 3), square, CLIP)
    with pytest.raises(ValueError, match="2 token counts, 1 groups"):
        row_weights([1, 2], [0], Normaliser.BATCH)
