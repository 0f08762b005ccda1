"""Resample-on-Correct: oversample 2G rollouts of a problem, keep G (paper, section 2.2.3).

Wrong answers are kept as they come, so that the policy sees its failures in all
their variety; right answers are drawn with a preference for clean ones. The
reward stays 0 or 1: the quality of a trajectory decides only whether it is kept.

What the paper leaves open, and what is done here:

1. A penalty of 0 makes ``1 / p_total`` infinite: the weight is ``1 / (p_total + epsilon)``.
2. Positives are drawn without replacement, one after the other.
3. ``floor(negatives / 2)`` and half of the positives need not add up to G: the
   positives fill up to G, and a sign that exists keeps at least one rollout.
4. A group whose rewards are all equal has no advantage and is dropped.

Errors, calls, turns and tags come from the records of the rollout, never from
its text: what a model or a program prints changes no penalty.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rstar2.protocol.types import Trajectory


@dataclass(frozen=True, slots=True)
class Penalty:
    """How unclean a trajectory is (paper, Eq. 4 and 5).

    Attributes:
        error: ``p_err``, in [0, 1].
        format: ``p_format``, in [0, 1].
    """

    error: float
    format: float

    @property
    def total(self) -> float:
        """``p_total = p_err + p_format``, in [0, 2]."""
        return self.error + self.format


def error_penalty(num_calls: int, num_errors: int) -> float:
    """Share of tool calls that failed; 0.5 when there was no call (paper, Eq. 4).

    Args:
        num_calls: All tool calls of the trajectory.
        num_errors: Those that were malformed, raised, or ran out of time.

    Raises:
        ValueError: If ``num_errors`` is not between 0 and ``num_calls``.
    """
    if not 0 <= num_errors <= num_calls:
        raise ValueError(f"{num_errors} errors in {num_calls} calls: must be 0 to {num_calls}")
    return num_errors / num_calls if num_calls else 0.5


def format_penalty(answer_tags: int, num_turns: int) -> float:
    """1 without an answer tag, else ``min(1, (tags - 1) / turns)`` (paper, Eq. 5).

    Args:
        answer_tags: ``<answer>`` tags that the model wrote.
        num_turns: Assistant turns as the agent loop counted them, a cut one included.

    Raises:
        ValueError: If a count is negative, or if there are tags but no turn to hold them.
    """
    if answer_tags < 0 or num_turns < 0 or (answer_tags and not num_turns):
        raise ValueError(f"{answer_tags} answer tags in {num_turns} turns: impossible counts")
    return min(1.0, (answer_tags - 1) / num_turns) if answer_tags else 1.0


def penalty(trajectory: Trajectory) -> Penalty:
    """Penalty of one trajectory, from its records (paper, Eq. 4 and 5)."""
    return Penalty(
        error=error_penalty(len(trajectory.calls), trajectory.num_errors),
        format=format_penalty(trajectory.answer_tags, len(trajectory.turns)),
    )


class Draw(StrEnum):
    """How the rollouts of a group are drawn; the paper's way, and two that it is held against."""

    WEIGHTED = "weighted"
    """Positives by their weights, negatives uniformly (paper, section 2.2.3)."""
    WEIGHTED_BOTH_SIGNS = "weighted_both_signs"
    """Negatives by their weights too, which the authors say they tried without profit."""
    CLEANEST_FIRST = "cleanest_first"
    """The positives of least penalty, no chance in it, and the first negatives: the public
    release's way."""


class DropReason(StrEnum):
    """Why a group gives nothing to the update."""

    EQUAL_REWARD = "equal_reward"
    """All answers right or all wrong: every advantage would be 0."""
    INCOMPLETE = "incomplete"
    """Fewer rollouts than the group size could be finished."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rollouts of a group enter the update.

    Attributes:
        kept: Sample ids in ascending order; empty if the group is dropped.
        dropped: Why the group is dropped; None if it is kept.
    """

    kept: tuple[int, ...]
    dropped: DropReason | None


def quota(num_positive: int, num_negative: int, keep: int) -> tuple[int, int]:
    """Numbers of positives and negatives to keep; they add up to ``keep``.

    ``floor(num_negative / 2)`` negatives and positives for the rest, moved by as
    little as is needed to keep at least one of each sign that exists and to ask
    for no more rollouts of a sign than there are. When ``keep`` is half of the
    group, as in the paper, only a single negative moves it: it is kept, not halved to 0.

    Args:
        num_positive: Rollouts with reward 1.
        num_negative: Rollouts with reward 0.
        keep: Rollouts to keep, G.

    Returns:
        Positives to keep, negatives to keep.

    Raises:
        ValueError: If ``keep`` is less than 1 or more than there are, or if it is 1
            while both signs exist.
    """
    if num_positive < 0 or num_negative < 0 or not 1 <= keep <= num_positive + num_negative:
        raise ValueError(f"cannot keep {keep} of {num_positive} positives + {num_negative}")
    if num_positive == 0 or num_negative == 0:
        return (keep, 0) if num_positive else (0, keep)
    if keep == 1:
        raise ValueError("cannot keep one of each sign with keep = 1: set keep to 2 or more")
    fewest = max(1, keep - num_positive)
    most = min(num_negative, keep - 1)
    negatives = min(max(num_negative // 2, fewest), most)
    return keep - negatives, negatives


def sampling_weights(penalties: Sequence[Penalty], epsilon: float) -> NDArray[np.float64]:
    """Weights ``1 / (p_total + epsilon)``, one a penalty, shape [n].

    Raises:
        ValueError: If ``epsilon`` is not a positive finite number.
    """
    if not 0 < epsilon < np.inf:
        raise ValueError(f"epsilon is {epsilon}: must be positive, or p_total = 0 has no weight")
    totals = np.array([each.total for each in penalties], dtype=np.float64)
    return 1.0 / (totals + epsilon)


def race(clocks: NDArray[np.float64], weights: NDArray[np.float64], draws: int) -> NDArray[np.intp]:
    """Successive weighted draws without replacement, as an exponential race.

    Runner i arrives at ``clocks[i] / weights[i]``. With standard exponential clocks
    each next arrival is i with probability ``weights[i] / sum of those still running``,
    and the clock of a runner does not depend on who else runs.

    Args:
        clocks: Standard exponential numbers, shape [n].
        weights: Positive weights, shape [n].
        draws: How many of the first arrivals to return.

    Returns:
        Indices of the first arrivals in order of arrival, shape [draws].
    """
    return np.argsort(clocks / weights, kind="stable")[:draws]


def resample_on_correct(
    sample_ids: Sequence[int],
    rewards: Sequence[float],
    penalties: Sequence[Penalty],
    *,
    group_size: int,
    keep: int,
    epsilon: float,
    seed: tuple[int, ...],
    draw: Draw = Draw.WEIGHTED,
) -> Selection:
    """Choose ``keep`` of the rollouts of one problem (paper, section 2.2.3).

    Negatives are drawn uniformly, positives by successive draws without replacement
    in proportion to ``1 / (p_total + epsilon)``. The random numbers belong to the
    sorted sample ids: the order of the input changes nothing.

    Args:
        sample_ids: Distinct ids of the finished rollouts of the group.
        rewards: 0 or 1 for each.
        penalties: Penalty of each.
        group_size: Rollouts that were asked for, 2G.
        keep: Rollouts to keep, G.
        epsilon: Added to ``p_total``; the smaller, the stronger the preference.
        seed: Non-negative integers, always equally many: ``(seed, step, problem)``.
        draw: The way of drawing.

    Returns:
        ``keep`` ids, or the reason why the group is dropped.

    Raises:
        ValueError: If the inputs differ in length, an id comes twice, a reward is
            neither 0 nor 1, there are more rollouts than ``group_size``, or ``keep``
            or ``epsilon`` is out of range.
    """
    if any(reward not in (0, 1) for reward in rewards):
        raise ValueError(f"rewards {list(rewards)}: each must be 0 or 1 (paper, Eq. 3)")
    dropped = _drop_reason(sample_ids, rewards, group_size)
    if len(penalties) != len(sample_ids):
        raise ValueError(f"{len(sample_ids)} sample ids, {len(penalties)} penalties")
    weights = sampling_weights(penalties, epsilon)
    if dropped:
        return Selection((), dropped)
    order = np.argsort(sample_ids)
    ids, right, weights = (np.asarray(a)[order] for a in (sample_ids, rewards, weights))
    if draw is Draw.CLEANEST_FIRST:
        clocks = np.ones(group_size)
    else:
        clocks = np.random.default_rng(seed).exponential(size=group_size)
    positives, negatives = np.flatnonzero(right == 1), np.flatnonzero(right == 0)
    num_positive, num_negative = quota(len(positives), len(negatives), keep)
    kept_positives = positives[race(clocks[positives], weights[positives], num_positive)]
    both = draw is Draw.WEIGHTED_BOTH_SIGNS
    preferred = weights[negatives] if both else np.ones(len(negatives))
    kept_negatives = negatives[race(clocks[negatives], preferred, num_negative)]
    kept = np.concatenate([kept_positives, kept_negatives])
    return Selection(tuple(sorted(ids[kept].tolist())), None)


def select_all(
    sample_ids: Sequence[int], rewards: Sequence[float], *, group_size: int
) -> Selection:
    """Keep the whole group, as plain GRPO does; drop it for the same reasons as RoC.

    Args:
        sample_ids: Distinct ids of the finished rollouts of the group.
        rewards: One finite number each.
        group_size: Rollouts that were asked for, G.

    Raises:
        ValueError: If the inputs differ in length, an id comes twice, a reward is
            not finite, or there are more rollouts than ``group_size``.
    """
    dropped = _drop_reason(sample_ids, rewards, group_size)
    return Selection(() if dropped else tuple(sorted(sample_ids)), dropped)


def inclusion_probabilities(weights: Sequence[float], draws: int) -> NDArray[np.float64]:
    """Probability of each item to be among ``draws`` successive weighted draws, exactly.

    Follows every set of items that the draws can reach: ``binomial(n, draws)`` sets,
    well up to about 16 items.

    Args:
        weights: Positive weights, n of them.
        draws: Items drawn without replacement, 0 to n.

    Returns:
        Probabilities, shape [n]; they add up to ``draws``.

    Raises:
        ValueError: If a weight is not positive and finite, or ``draws`` is not between 0 and n.
    """
    if not all(0 < weight < np.inf for weight in weights):
        raise ValueError(f"weights {list(weights)}: all must be positive and finite")
    if not 0 <= draws <= len(weights):
        raise ValueError(f"cannot draw {draws} of {len(weights)} items without replacement")
    reached: dict[frozenset[int], float] = {frozenset(): 1.0}
    for _ in range(draws):
        after: defaultdict[frozenset[int], float] = defaultdict(float)
        for drawn, probability in reached.items():
            left = [item for item in range(len(weights)) if item not in drawn]
            total = sum(weights[item] for item in left)
            for item in left:
                after[drawn | {item}] += probability * weights[item] / total
        reached = after
    included = np.zeros(len(weights))
    for drawn, probability in reached.items():
        included[list(drawn)] += probability
    return included


def _drop_reason(
    sample_ids: Sequence[int], rewards: Sequence[float], group_size: int
) -> DropReason | None:
    """Why the group cannot be used, after a check that it is a group at all."""
    if len(rewards) != len(sample_ids):
        raise ValueError(f"{len(sample_ids)} sample ids, {len(rewards)} rewards")
    if len(set(sample_ids)) != len(sample_ids):
        raise ValueError(f"sample ids {list(sample_ids)}: one comes twice")
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards {list(rewards)}: each must be a finite number")
    if group_size < 1 or len(sample_ids) > group_size:
        raise ValueError(f"{len(sample_ids)} rollouts in a group of size {group_size}")
    if len(sample_ids) < group_size:
        return DropReason.INCOMPLETE
    return DropReason.EQUAL_REWARD if len(set(rewards)) == 1 else None
