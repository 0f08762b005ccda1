"""The smallest policy on which Resample-on-Correct can act: a bandit with one logit.

Each rollout has the habit with probability sigmoid(logit); whether it is right depends
on that alone and on chance. Groups are sampled, thinned out by the race
and the quota of ``roc``, and the logit climbs the group-relative gradient. The mean of
many such runs checks ``drift``; their spread shows how far a run wanders by luck alone.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from rstar2.algorithm.drift import Habit, Sampling

REFILLS = 3
"""Further batches of problems from which a step may replace its groups of equal reward."""


def simulate(
    habit: Habit,
    sampling: Sampling,
    *,
    rate: float,
    steps: int,
    problems: int,
    seeds: int,
    seed: int,
    refilled: bool = False,
) -> NDArray[np.float64]:
    """Train ``seeds`` independent policies by plain gradient steps on one logit.

    A step moves the logit by ``rate`` times the mean of σ̂ (ē₊ - ē₋) over its groups.
    Groups of equal reward count as 0. With ``refilled`` they are replaced by later ones,
    from at most ``REFILLS`` further batches; the mean is over the mixed groups found.

    Args:
        habit: Where each policy starts; q and c stay as they are.
        sampling: How groups are sampled and thinned out.
        rate: Learning rate, logits per unit of drift.
        steps: Steps to take.
        problems: Groups a step.
        seeds: Policies to train.
        seed: Seed of all random numbers.
        refilled: Whether groups of equal reward are replaced.

    Returns:
        p after 0 to ``steps`` steps, shape [seeds, steps + 1].

    Raises:
        ValueError: If ``rate`` is not positive and finite, ``steps`` is negative, or
            ``problems`` or ``seeds`` is less than 1.
    """
    if not 0 < rate < np.inf or steps < 0 or problems < 1 or seeds < 1:
        raise ValueError(
            f"rate {rate}, {steps} steps, {problems} problems, {seeds} seeds: rate must be "
            "positive, steps 0 or more, problems and seeds 1 or more"
        )
    rng = np.random.default_rng(seed)
    groups = problems * (1 + REFILLS) if refilled else problems
    logits = np.full(seeds, logit(habit.probability))
    course = [expit(logits)]
    for _ in range(steps):
        shape = (seeds, groups, sampling.sampled)
        has_habit = rng.random(shape) < course[-1][:, None, None]
        right = rng.random(shape) < np.where(has_habit, habit.success - habit.cost, habit.success)
        drifts = group_drifts(right, has_habit, rng.exponential(size=shape), sampling)
        if refilled:
            mixed = right.any(axis=-1) & ~right.all(axis=-1)
            used = mixed & (mixed.cumsum(axis=-1) <= problems)
            means = (drifts * used).sum(axis=-1) / np.maximum(used.sum(axis=-1), 1)
        else:
            means = drifts.mean(axis=-1)
        logits = logits + rate * means
        course.append(expit(logits))
    return np.stack(course, axis=1)


def group_drifts(
    right: NDArray[np.bool_],
    has_habit: NDArray[np.bool_],
    clocks: NDArray[np.float64],
    sampling: Sampling,
) -> NDArray[np.float64]:
    """σ̂ (ē₊ - ē₋) of many groups after their selection, as ``resample_on_correct`` makes it.

    Args:
        right: Whether each rollout is right, shape [..., N].
        has_habit: Whether it has the habit, shape [..., N].
        clocks: Standard exponential numbers, shape [..., N]; the first arrivals are kept.
        sampling: How groups are thinned out.

    Returns:
        Logits per group, shape [...]; 0 where all rollouts are right or all wrong.
    """
    num_right = right.sum(axis=-1)
    right_kept = sampling.right_kept[num_right]
    weights = np.where(has_habit, 1.0, sampling.ratio)
    share_right = _share_of_first(has_habit, np.where(right, clocks / weights, np.inf), right_kept)
    wrong_times = np.where(right, np.inf, clocks)
    share_wrong = _share_of_first(has_habit, wrong_times, sampling.kept - right_kept)
    drifts: NDArray[np.float64] = sampling.spreads[num_right] * (share_right - share_wrong)
    return drifts


def _share_of_first(
    has_habit: NDArray[np.bool_], times: NDArray[np.float64], first: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Share with the habit among the first arrivals of each group; 0 where none is kept."""
    arrived = np.take_along_axis(has_habit, np.argsort(times, axis=-1), axis=-1)
    kept = np.arange(times.shape[-1]) < first[..., None]
    shares: NDArray[np.float64] = (arrived & kept).sum(axis=-1) / np.maximum(first, 1)
    return shares
