"""First-order drift of a habit under group-relative updates: when RoC must matter, and when not.

A *habit* is something a trajectory has or has not, such as a failed tool call. A policy
of one parameter shows it with probability p = sigmoid(logit). With the advantages
A_i = (r_i - mean) / std of the G kept rollouts (paper, Eq. 7), the policy gradient of the
logit over one group is

    (1/G) sum_i A_i (e_i - p)  =  σ̂ (ē₊ - ē₋),

where e_i is 1 for a rollout with the habit, ē₊ and ē₋ are the shares with it among the
kept right and the kept wrong rollouts, and σ̂ = sqrt(q̂ (1 - q̂)) with q̂ the share of
right ones among the kept. Its expectation is the drift. It has two parts:

    drift  =  E[ σ̂ (-p (1 - p) c / (Q (1 - Q)) - Δ) ].

The first is what the reward says: right rollouts have the habit less often than wrong
ones if it costs success, c > 0. The second is what the selection says: Δ is how far the
share of the habit falls when k right rollouts are thinned out to the quota with a
preference for clean ones. Plain GRPO has Δ = 0: a habit that costs nothing does not drift.

Logits have no unit; drifts are logits per group and unit of learning rate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import binom

from rstar2.algorithm.roc import quota


@dataclass(frozen=True, slots=True)
class Habit:
    """How often a policy shows a habit, and what that does to its success.

    Attributes:
        probability: p, that a rollout has the habit.
        success: q, probability that a clean rollout is right.
        cost: c; a rollout with the habit is right with probability q - c. Negative
            where the habit helps.

    Raises:
        ValueError: If ``probability``, ``success`` or ``success - cost`` is no probability.
    """

    probability: float
    success: float
    cost: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability of the habit is {self.probability}: must be 0 to 1")
        if not 0 <= self.success <= 1:
            raise ValueError(f"success of clean rollouts is {self.success}: must be 0 to 1")
        if not 0 <= self.success_with_habit <= 1:
            raise ValueError(
                f"success {self.success} minus cost {self.cost} is {self.success_with_habit}: "
                "must be 0 to 1, the success of rollouts with the habit"
            )

    @property
    def success_with_habit(self) -> float:
        """Probability q - c that a rollout with the habit is right."""
        return self.success - self.cost

    @property
    def overall_success(self) -> float:
        """Q = q - p c, probability that a rollout is right."""
        p = self.probability
        return (1 - p) * self.success + p * self.success_with_habit

    @property
    def overall_failure(self) -> float:
        """1 - Q, probability that a rollout is wrong; no digits lost where Q is near 1."""
        p = self.probability
        return (1 - p) * (1 - self.success) + p * (1 - self.success_with_habit)

    @property
    def share_among_right(self) -> float:
        """Probability of the habit, given a right rollout; nan if none is right."""
        right = self.overall_success
        return self.probability * self.success_with_habit / right if right else np.nan

    @property
    def share_among_wrong(self) -> float:
        """Probability of the habit, given a wrong rollout; nan if none is wrong."""
        wrong = self.overall_failure
        return self.probability * (1 - self.success_with_habit) / wrong if wrong else np.nan


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a group is sampled and thinned out.

    Attributes:
        sampled: N, rollouts of a group.
        kept: G of them, by ``roc.quota``; N for plain GRPO, N/2 for RoC.
        ratio: ρ, weight of a clean right rollout over that of one with the habit; 1 for
            equal weights. Without effect where all are kept.

    Raises:
        ValueError: If ``kept`` is not between 2 and ``sampled``, or ``ratio`` is not
            positive and finite.
    """

    sampled: int
    kept: int
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 2 <= self.kept <= self.sampled:
            raise ValueError(f"cannot keep {self.kept} of {self.sampled}: keep 2 or more of them")
        if not 0 < self.ratio < np.inf:
            raise ValueError(f"ratio of weights is {self.ratio}: must be positive and finite")

    @property
    def right_kept(self) -> NDArray[np.intp]:
        """Right rollouts kept when k of N are right, shape [N + 1], indexed by k."""
        size = self.sampled
        kept = [quota(right, size - right, self.kept)[0] for right in range(size + 1)]
        return np.array(kept, dtype=np.intp)

    @property
    def spreads(self) -> NDArray[np.float64]:
        """σ̂, standard deviation of the kept rewards, shape [N + 1], indexed like ``right_kept``.

        0 where all rollouts are right or all are wrong.
        """
        right = self.right_kept
        deviations: NDArray[np.float64] = np.sqrt(right * (self.kept - right)) / self.kept
        return deviations


def weight_ratio(epsilon: float, penalty: float = 0.5) -> float:
    """ρ = (penalty + ε) / ε: weight of a rollout without penalty over one with it.

    Args:
        epsilon: ε of the weights ``1 / (p_total + ε)``.
        penalty: ``p_total`` of a rollout with the habit; 0.5 for one failed call of two.

    Raises:
        ValueError: If ``epsilon`` is not positive and finite, or ``penalty`` not in [0, 2].
    """
    if not 0 < epsilon < np.inf:
        raise ValueError(f"epsilon is {epsilon}: must be positive and finite")
    if not 0 <= penalty <= 2:
        raise ValueError(f"penalty is {penalty}: p_total lies between 0 and 2")
    return (penalty + epsilon) / epsilon


def expected_drift(habit: Habit, sampling: Sampling, *, refilled: bool = False) -> float:
    """Exact drift E[σ̂ (ē₊ - ē₋)] of the habit's logit.

    The number k of right rollouts is binomial, and so is, given k, the number of them
    with the habit. The quota keeps m of the k; how many of those have the habit follows
    Wallenius' non-central hypergeometric distribution (successive weighted draws without
    replacement). Wrong rollouts are kept uniformly, which changes no expected share.
    Groups of equal reward count as 0.

    Args:
        habit: The policy's habit.
        sampling: How groups are sampled and thinned out.
        refilled: Mean over groups of mixed rewards alone, as when others are replaced by
            further problems; otherwise over all groups.

    Returns:
        Logits per group; 0 if every rollout is right or every one wrong.
    """
    right, wrong = habit.overall_success, habit.overall_failure
    if not right or not wrong:
        return 0.0
    counts = np.arange(sampling.sampled + 1)
    of_right = binom.pmf(counts, sampling.sampled, right)
    with_habit = binom.pmf(counts, counts[:, None], habit.share_among_right)
    gaps = 0.0 - _reward_gap(habit) - (with_habit * _losses(sampling)).sum(axis=1)
    drift = float(of_right @ (sampling.spreads * gaps))
    mixed = float(of_right[1:-1].sum())
    return drift / mixed if refilled and mixed else drift


def fluid_drift(habit: Habit, ratio: float = 1.0) -> float:
    """Closed form of the drift for large groups of which half are kept, or all at ratio 1.

    Half of each sign is kept, so σ̂² = Q (1 - Q). Read the draws as a race: at time t a
    clean right rollout is still waiting with probability exp(-ρ t), one with the habit
    with exp(-t) = x. With s for the share of the habit among the right, the race stops
    when half of them have arrived, (1 - s) x^ρ + s x = 1/2. Of those that arrived
    2 s (1 - x) have the habit; the share has fallen by Δ = s - 2 s (1 - x) = s (2 x - 1), and

        drift  =  -p (1 - p) c / sqrt(Q (1 - Q)) - sqrt(Q (1 - Q)) s (2 x - 1).

    With c = 0, s is p. Δ is 0 at ρ = 1 and tends to min(s, 1 - s) as ρ grows.

    Args:
        habit: The policy's habit.
        ratio: ρ, positive and finite.

    Returns:
        Logits per group; 0 if every rollout is right or every one wrong.

    Raises:
        ValueError: If ``ratio`` is not positive and finite.
    """
    if not 0 < ratio < np.inf:
        raise ValueError(f"ratio of weights is {ratio}: must be positive and finite")
    right, wrong = habit.overall_success, habit.overall_failure
    if not right or not wrong:
        return 0.0
    share = habit.share_among_right
    waiting = float(brentq(lambda x: (1 - share) * x**ratio + share * x - 0.5, 0.0, 1.0))
    loss = 0.0 if ratio == 1 else share * (2 * waiting - 1)
    return float(np.sqrt(right * wrong)) * (0.0 - _reward_gap(habit) - loss)


def hidden_cost(habit: Habit, sampling: Sampling) -> float:
    """Cost c' at which plain GRPO on groups of G would drift as much as this sampling does.

    It says what a preference among right rollouts is worth in success: with c' in place
    of c, and nothing thinned out, the habit would be unlearned as fast.

    Args:
        habit: The policy's habit, its own cost included.
        sampling: How groups are sampled and thinned out.

    Returns:
        c' with 0 <= q - c' <= 1.

    Raises:
        ValueError: If the policy always or never has the habit, so that no cost moves it,
            or if no possible cost moves it as much as this sampling does.
    """
    p, q = habit.probability, habit.success
    if p in (0, 1):
        raise ValueError(f"probability of the habit is {p}: no cost makes it drift")
    wanted = expected_drift(habit, sampling)
    plain = Sampling(sampling.kept, sampling.kept)

    def excess(success_with_habit: float) -> float:
        return expected_drift(Habit(p, q, q - success_with_habit), plain) - wanted

    if not excess(0.0) <= 0 <= excess(1.0):
        raise ValueError(
            f"no cost between {q - 1:.3g} and {q:.3g} makes plain GRPO drift by {wanted:.3g}, "
            f"as {sampling.kept} of {sampling.sampled} with ratio {sampling.ratio:.3g} do"
        )
    return q - float(brentq(excess, 0.0, 1.0))


def predicted_course(
    habit: Habit, sampling: Sampling, *, rate: float, steps: int, refilled: bool = False
) -> NDArray[np.float64]:
    """Course of p when the logit moves by ``rate`` times the exact drift at each step.

    It leaves the noise of the groups out: the limit of many problems a step.

    Args:
        habit: Where it starts; q and c stay as they are.
        sampling: How groups are sampled and thinned out.
        rate: Learning rate, logits per unit of drift.
        steps: Steps to take.
        refilled: As in ``expected_drift``.

    Returns:
        p after 0 to ``steps`` steps, shape [steps + 1].

    Raises:
        ValueError: If ``rate`` is not positive and finite, or ``steps`` is negative.
    """
    if not 0 < rate < np.inf or steps < 0:
        raise ValueError(f"rate {rate}, {steps} steps: rate must be positive, steps 0 or more")
    course = [habit.probability]
    position = float(logit(habit.probability))
    for _ in range(steps):
        now = replace(habit, probability=course[-1])
        position += rate * expected_drift(now, sampling, refilled=refilled)
        course.append(float(expit(position)))
    return np.array(course)


def measured_drift(
    rewards: Sequence[float], has_habit: Sequence[bool], kept: Sequence[int]
) -> float:
    """σ̂ (ē₊ - ē₋) of the kept rollouts of one group that was really sampled.

    Args:
        rewards: 0 or 1 for each sampled rollout.
        has_habit: Whether each has the habit, such as a failed tool call.
        kept: Positions of the kept ones; empty if the group was dropped.

    Returns:
        Logits per group; 0 if no right or no wrong rollout is kept.

    Raises:
        ValueError: If the inputs differ in length, a reward is neither 0 nor 1, or
            ``kept`` names a position twice or one that does not exist.
    """
    if len(rewards) != len(has_habit):
        raise ValueError(f"{len(rewards)} rewards, {len(has_habit)} entries of has_habit")
    if any(reward not in (0, 1) for reward in rewards):
        raise ValueError(f"rewards {list(rewards)}: each must be 0 or 1")
    if len(set(kept)) != len(kept) or not set(kept) <= set(range(len(rewards))):
        raise ValueError(f"kept {list(kept)}: need distinct positions among {len(rewards)}")
    right = [has_habit[position] for position in kept if rewards[position] == 1]
    wrong = [has_habit[position] for position in kept if rewards[position] == 0]
    if not right or not wrong:
        return 0.0
    spread = np.sqrt(len(right) * len(wrong)) / len(kept)
    return float(spread * (np.mean(right) - np.mean(wrong)))


def _reward_gap(habit: Habit) -> float:
    """Share of the habit among the wrong minus among the right: p (1 - p) c / (Q (1 - Q))."""
    p = habit.probability
    return p * (1 - p) * habit.cost / habit.overall_success / habit.overall_failure


@lru_cache(maxsize=64)
def _losses(sampling: Sampling) -> NDArray[np.float64]:
    """Expected loss of the habit's share from k right rollouts, h with it, to those kept.

    Returns:
        Shares, shape [N + 1, N + 1], indexed by k and h, read-only; 0 where h > k.
    """
    size = sampling.sampled
    losses = np.zeros((size + 1, size + 1))
    if sampling.ratio != 1 and sampling.kept < size:
        right_kept = sampling.right_kept
        for drawn, means in enumerate(_means_drawn(size, sampling.ratio, sampling.kept), start=1):
            for right in np.flatnonzero(right_kept == drawn):
                habits = np.arange(right + 1)
                kept_share = means[habits, right - habits] / drawn
                losses[right, : right + 1] = habits / right - kept_share
    losses.setflags(write=False)
    return losses


def _means_drawn(size: int, ratio: float, draws: int) -> Iterator[NDArray[np.float64]]:
    """Mean number of habits among the first 1, 2, … ``draws`` successive weighted draws.

    Conditions on the first draw: from h rollouts with the habit and n clean ones it takes
    a habit with probability h / (h + ρ n), and leaves the same problem with one fewer.

    Yields:
        Means, shape [size + 1, size + 1], indexed by h and n; valid where there are enough to draw.
    """
    habits, clean = np.ogrid[: size + 1, : size + 1]
    first = habits / np.maximum(habits + ratio * clean, np.finfo(float).tiny)
    means = np.zeros((size + 1, size + 1))
    for _ in range(draws):
        after_habit, after_clean = np.zeros_like(means), np.zeros_like(means)
        after_habit[1:], after_clean[:, 1:] = means[:-1], means[:, :-1]
        means = first * (1 + after_habit) + (1 - first) * after_clean
        yield means
