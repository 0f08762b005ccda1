"""The regimes of a habit: where a preference for clean rollouts matters, predicted and measured.

A regime is the success q of clean rollouts and the cost c of the habit. For each one the formula
of ``rstar2.algorithm.drift`` says where two ways of sampling end, and the bandit how far single
runs stray from that. Records say where a language model has been, and how it moved there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import brentq
from scipy.stats import t as student

from rstar2.algorithm.bandit import simulate
from rstar2.algorithm.drift import Habit, Sampling, expected_drift, measured_drift, predicted_course

Array = NDArray[np.float64]

SUCCESSES = (0.02, 0.05, *(k / 20 for k in range(2, 20)), 0.98)
"""q of the map."""

COST_SHARES = tuple((k / 16) ** 2 for k in range(17))
"""c / q of the map, closer together where errors are nearly free."""

_SIMULATED_SUCCESSES = (0.02, 0.15, 0.5, 0.85, 0.98)
_SIMULATED_SHARES = (0.0, 0.05, 0.25, 1.0)
_RATES = (1e-3, 1e2)


@dataclass(frozen=True, slots=True)
class RegimeMap:
    """Where two ways of sampling end in every regime: p of the first minus p of the second.

    Attributes:
        success: q, shape [rows].
        cost_share: c / q, shape [columns].
        difference: By the formula, after 0 to ``steps`` steps, shape [steps + 1, rows, columns].
        spread: Standard deviation of that difference between pairs of bandit runs, same shape.
        largest_gap: Largest difference of formula and mean of the bandit runs, after all steps.
    """

    success: Array
    cost_share: Array
    difference: Array
    spread: Array
    largest_gap: float

    @property
    def cost(self) -> Array:
        """c, shape [rows, columns]."""
        return self.success[:, None] * self.cost_share

    def certainty(self, step: int, runs: int) -> Array:
        """Size of the difference over half the 95% t interval that so many paired runs have.

        Returns:
            Shape [rows, columns]; below 1 the interval around the predicted difference contains 0.
        """
        half = student.ppf(0.975, runs - 1) * self.spread[step] / math.sqrt(runs)
        tiny = np.finfo(float).tiny
        ratios: Array = np.abs(self.difference[step]) / np.maximum(half, tiny)
        return ratios


def regime_map(
    probability: float,
    first: Sampling,
    second: Sampling,
    *,
    rate: float,
    steps: int,
    problems: int,
    runs: int,
    seed: int,
    successes: Sequence[float] = SUCCESSES,
) -> RegimeMap:
    """Predicts the difference of two ways of sampling in every regime; q and c stay as they are.

    Args:
        probability: p of the habit at the start.
        first: How groups are sampled by the one.
        second: By the other.
        rate: Learning rate of the formula, logits per unit of drift.
        steps: Steps to take.
        problems: Groups a step, from which groups of equal reward are refilled.
        runs: Bandit runs of each, at a few regimes between which their spread is interpolated.
        seed: Of the bandit.
        successes: q of the map; the spread beyond the outermost simulated ones is theirs.

    Raises:
        ValueError: As ``predicted_course`` and ``simulate``.
    """
    grid, shares = np.array(successes, dtype=float), np.array(COST_SHARES)
    few, few_shares = np.array(_SIMULATED_SUCCESSES), np.array(_SIMULATED_SHARES)

    def predicted(some: Array, some_shares: Array) -> Array:
        one, other = (
            [
                predicted_course(habit, sampling, rate=rate, steps=steps, refilled=True)
                for habit in _habits(probability, some, some_shares)
            ]
            for sampling in (first, second)
        )
        return np.array(one).T - np.array(other).T

    def simulated(habit: Habit) -> Array:
        one, other = (
            simulate(
                habit,
                sampling,
                rate=rate,
                steps=steps,
                problems=problems,
                seeds=runs,
                seed=seed + number,
                refilled=True,
            )
            for number, sampling in enumerate((first, second))
        )
        return one - other

    bandits = np.array([simulated(habit) for habit in _habits(probability, few, few_shares)])
    gaps = bandits[..., -1].mean(axis=1) - predicted(few, few_shares)[-1]
    spreads = bandits.std(axis=1, ddof=1).reshape(len(few), len(few_shares), steps + 1)
    between = RegularGridInterpolator((few, few_shares), spreads)
    inside = np.clip(grid, few[0], few[-1])
    everywhere = np.stack(np.meshgrid(inside, shares, indexing="ij"), axis=-1)
    return RegimeMap(
        success=grid,
        cost_share=shares,
        difference=predicted(grid, shares).reshape(steps + 1, len(grid), len(shares)),
        spread=np.moveaxis(between(everywhere), -1, 0),
        largest_gap=float(np.abs(gaps).max()),
    )


def _habits(probability: float, successes: Array, shares: Array) -> list[Habit]:
    """A habit of each success and share of it that an error costs, shares within successes."""
    return [Habit(probability, q, share * q) for q in successes for share in shares]


def fitted_rate(habit: Habit, sampling: Sampling, *, steps: int, end: float) -> float:
    """The learning rate at which the predicted course ends where a run has ended.

    Args:
        habit: Where it starts.
        sampling: How groups are sampled and thinned out; those of equal reward are refilled.
        steps: Steps of the run.
        end: p after them.

    Raises:
        ValueError: If no rate leads there, as when ``end`` lies on the other side of the start.
    """

    def beyond(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return float(predicted_course(habit, sampling, rate=rate, steps=steps, refilled=True)[-1])

    low, high = (math.log(rate) for rate in _RATES)
    if not min(beyond(low), beyond(high)) < end < max(beyond(low), beyond(high)):
        raise ValueError(
            f"no rate leads from {habit.probability:.3g} to {end:.3g} in {steps} steps: the habit "
            f"drifts by {expected_drift(habit, sampling, refilled=True):.3g} at the start"
        )
    return math.exp(brentq(lambda log_rate: beyond(log_rate) - end, low, high))


def within_budget(rollouts: pd.DataFrame, max_response_tokens: int) -> pd.DataFrame:
    """The rollouts as a smaller budget would have graded them: a longer one is wrong.

    Args:
        rollouts: Rows of ``rollouts.parquet``, sampled with a larger budget.
        max_response_tokens: Tokens after the prompt, those of tool responses included.
    """
    fits = rollouts["response_tokens"] <= max_response_tokens
    return rollouts.assign(correct=rollouts["correct"] & fits)


def step_drifts(sampled: pd.DataFrame, regime: Habit, sampling: Sampling) -> pd.DataFrame:
    """What the groups of every step did to the habit, beside the drift that the formula expects.

    Args:
        sampled: Rows of ``sampled.parquet``.
        regime: Its success and cost are taken; its probability is that of each step.
        sampling: How the arm samples.

    Returns:
        A row a step: ``step``; ``probability``, share of all its rollouts with a failed call;
        ``measured``, mean of σ̂ (ē₊ - ē₋) over the groups that the update used, nan if none;
        ``predicted``, the exact drift at that probability. Drifts are logits per group.
    """
    shares = (sampled["errors"] > 0).groupby(sampled["step"]).mean()
    measured = _group_drifts(sampled).groupby("step")["drift"].mean()
    predicted = [
        expected_drift(replace(regime, probability=float(share)), sampling, refilled=True)
        for share in shares
    ]
    table = pd.DataFrame({"probability": shares, "measured": measured, "predicted": predicted})
    return table.reset_index()


def _group_drifts(sampled: pd.DataFrame) -> pd.DataFrame:
    """``step`` and ``drift`` of every group that has a kept rollout."""
    rows = sampled.sort_values(["step", "group"], kind="stable")
    names = rows[["step", "group"]].to_numpy()
    starts = np.flatnonzero(np.r_[True, (names[1:] != names[:-1]).any(axis=1)])
    rewards = rows["correct"].astype(int).tolist()
    has_habit = (rows["errors"] > 0).tolist()
    kept = rows["kept"].to_numpy(dtype=bool)
    drifts = [
        (step, measured_drift(rewards[a:b], has_habit[a:b], np.flatnonzero(kept[a:b]).tolist()))
        for step, a, b in zip(names[starts, 0], starts, [*starts[1:], len(rows)], strict=True)
        if kept[a:b].any()
    ]
    return pd.DataFrame(drifts, columns=["step", "drift"])
