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

SUCCESSES = (0.02, *(round(0.05 + 0.05 * k, 2) for k in range(19)), 0.98)
"""q of the map."""

COST_SHARES = tuple((k / 16) ** 2 for k in range(17))
"""c / q of the map, closer together where errors are nearly free."""

_SIMULATED_SUCCESSES = (0.02, 0.1, 0.3, 0.6, 0.9, 0.98)
_SIMULATED_SHARES = (0.0, 0.02, 0.1, 0.3, 1.0)
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
        successes: q of the map.

    Raises:
        ValueError: As ``predicted_course`` and ``simulate``.
    """
    grid = np.array(successes, dtype=float)
    shares = np.array(COST_SHARES)
    habits = [[Habit(probability, q, share * q) for share in shares] for q in grid]

    def courses(sampling: Sampling) -> Array:
        told = [
            [
                predicted_course(habit, sampling, rate=rate, steps=steps, refilled=True)
                for habit in row
            ]
            for row in habits
        ]
        return np.moveaxis(np.array(told), -1, 0)

    difference = courses(first) - courses(second)

    def differences_of_runs(q: float, share: float) -> Array:
        one, other = (
            simulate(
                Habit(probability, q, share * q),
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

    pairs = [[differences_of_runs(q, s) for s in _SIMULATED_SHARES] for q in _SIMULATED_SUCCESSES]
    simulated = np.array(pairs)
    places = (np.array(_SIMULATED_SUCCESSES), np.array(_SIMULATED_SHARES))
    everywhere = np.stack(np.meshgrid(grid, shares, indexing="ij"), axis=-1)
    spreads = simulated.std(axis=2, ddof=1)
    spread = RegularGridInterpolator(places, spreads)
    ends = RegularGridInterpolator((grid, shares), difference[-1])
    met = ends(np.stack(np.meshgrid(*places, indexing="ij"), axis=-1))
    return RegimeMap(
        success=grid,
        cost_share=shares,
        difference=difference,
        spread=np.moveaxis(spread(everywhere), -1, 0),
        largest_gap=float(np.nanmax(np.abs(simulated[..., -1].mean(axis=2) - met))),
    )


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
    rows = []
    for step, rollouts in sampled.groupby("step", sort=True):
        used = rollouts.groupby("group")["kept"].transform("any")
        drifts = [_group_drift(group) for _, group in rollouts[used].groupby("group", sort=True)]
        probability = float((rollouts["errors"] > 0).mean())
        habit = replace(regime, probability=probability)
        rows.append(
            {
                "step": step,
                "probability": probability,
                "measured": float(np.mean(drifts)) if drifts else math.nan,
                "predicted": expected_drift(habit, sampling, refilled=True),
            }
        )
    return pd.DataFrame(rows)


def _group_drift(group: pd.DataFrame) -> float:
    rewards = group["correct"].to_numpy(dtype=int).tolist()
    has_habit = (group["errors"].to_numpy() > 0).tolist()
    return measured_drift(rewards, has_habit, np.flatnonzero(group["kept"]).tolist())
