"""The instant check: the drift of a habit in rollouts of one policy, without any training.

One sample of a policy is enough for every arm: each arm's selection is applied to the same
groups, again and again where it draws, and what it would do to the habit is measured. The
exact drift of ``rstar2.algorithm.drift`` stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rstar2.algorithm.drift import Habit, Sampling, expected_drift, measured_drift, weight_ratio
from rstar2.algorithm.roc import Penalty, error_penalty, format_penalty
from rstar2.errors import UserError
from rstar2.training.selection import choose
from rstar2.training.spec import Arm, RLSpec

EPSILONS = (0.01, 0.05, 0.2, 0.5, 1.0)
"""The ε of Resample-on-Correct that are checked."""


class PremiseError(UserError):
    """A sample of rollouts says nothing of a habit."""


@dataclass(frozen=True, slots=True)
class Premise:
    """What a policy does before RL, and whether the habit is free.

    Attributes:
        habit: Share of rollouts with a failed call, and what it does to success.
        cost_error: Standard error of the habit's cost.
        mixed: Share of groups with right and wrong rollouts.
        other_errors: Failed calls that are not the habit's, over calls.
    """

    habit: Habit
    cost_error: float
    mixed: float
    other_errors: float


@dataclass(frozen=True, slots=True)
class DriftCheck:
    """An arm's measured drift beside the exact one.

    Attributes:
        arm: The arm.
        epsilon: Its ε; None where it has no part in it.
        measured: Mean over groups, logits a group.
        standard_error: Of that mean, over problems.
        predicted: The exact drift of a free habit.
    """

    arm: Arm
    epsilon: float | None
    measured: float
    standard_error: float
    predicted: float

    @property
    def deviation(self) -> float:
        """Measured minus predicted, in standard errors."""
        return (self.measured - self.predicted) / self.standard_error


def premise(rollouts: pd.DataFrame, error_type: str = ModuleNotFoundError.__name__) -> Premise:
    """Reads the premise off rollouts of one policy on one set.

    Args:
        rollouts: Rows of ``rollouts.parquet``.
        error_type: What a failed call of the habit is recorded as.

    Raises:
        PremiseError: If no rollout, or every one, has a failed call.
    """
    has_habit = rollouts["errors"] > 0
    right = rollouts["correct"].astype(float)
    if has_habit.all() or not has_habit.any():
        raise PremiseError(f"{has_habit.sum()} of {len(rollouts)} rollouts have a failed call")
    clean, erring = right[~has_habit], right[has_habit]
    failed = rollouts["error_types"].str.split()
    others = failed.map(lambda types: sum(one != error_type for one in types)).sum()
    by_problem = right.groupby(rollouts["problem_id"]).mean()
    return Premise(
        habit=Habit(
            float(has_habit.mean()), float(clean.mean()), float(clean.mean() - erring.mean())
        ),
        cost_error=math.hypot(_standard_error(clean), _standard_error(erring)),
        mixed=float(((by_problem > 0) & (by_problem < 1)).mean()),
        other_errors=float(others / max(1, rollouts["calls"].sum())),
    )


def instant_check(
    rollouts: pd.DataFrame,
    spec: RLSpec,
    *,
    epsilons: Sequence[float] = EPSILONS,
    redraws: int = 20,
) -> list[DriftCheck]:
    """Measures the drift under every arm of the laboratory.

    Args:
        rollouts: Rows of ``rollouts.parquet``, 2G rollouts of each problem.
        spec: Group sizes.
        epsilons: ε of Resample-on-Correct.
        redraws: Selections of each group, where an arm draws.

    Raises:
        PremiseError: If a problem has not 2G rollouts, or there is no habit to see.
    """
    groups = [_facts(group) for _, group in rollouts.groupby("problem_id", sort=True)]
    sizes = {len(facts.rewards) for facts in groups}
    if sizes != {spec.oversample}:
        raise PremiseError(f"groups of {sorted(sizes)} rollouts: give {spec.oversample} of each")
    habit = premise(rollouts).habit
    free = Habit(habit.probability, habit.overall_success)
    arms: list[tuple[Arm, float | None]] = [
        (Arm.GRPO, None),
        (Arm.GRPO_2G, None),
        (Arm.ROC_UNIFORM, None),
        *((Arm.GRPO_ROC, epsilon) for epsilon in epsilons),
    ]
    checks = []
    for arm, epsilon in arms:
        used = spec if epsilon is None else spec.model_copy(update={"epsilon": epsilon})
        means = [_drift_of(facts, arm, used, redraws) for facts in groups]
        checks.append(
            DriftCheck(
                arm,
                epsilon,
                float(np.mean(means)),
                float(np.std(means, ddof=1) / np.sqrt(len(means))),
                expected_drift(free, sampling_of(arm, used)),
            )
        )
    return checks


def sampling_of(arm: Arm, spec: RLSpec) -> Sampling:
    """How an arm of the laboratory samples a habit of one failed call of two.

    Raises:
        ValueError: If the arm is none of the laboratory's.
    """
    match arm:
        case Arm.GRPO | Arm.GRPO_2G:
            return Sampling(arm.samples(spec), arm.samples(spec))
        case Arm.ROC_UNIFORM:
            return Sampling(spec.oversample, spec.group_size)
        case Arm.GRPO_ROC:
            return Sampling(spec.oversample, spec.group_size, weight_ratio(spec.epsilon))
    raise ValueError(f"{arm} is no arm of the laboratory")


def _standard_error(values: "pd.Series[float]") -> float:
    return float(np.std(values.to_numpy(), ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the selection and the measure need of the rollouts of one problem."""

    rewards: list[float]
    has_habit: list[bool]
    penalties: list[Penalty]

    def part(self, start: int, size: int) -> "_Facts":
        """Some of them, in order."""
        cut = slice(start, start + size)
        return _Facts(self.rewards[cut], self.has_habit[cut], self.penalties[cut])


def _facts(group: pd.DataFrame) -> _Facts:
    columns = (group[name].tolist() for name in ("calls", "errors", "answer_tags", "turns"))
    return _Facts(
        [float(right) for right in group["correct"]],
        [errors > 0 for errors in group["errors"]],
        [
            Penalty(error_penalty(calls, errors), format_penalty(tags, turns))
            for calls, errors, tags, turns in zip(*columns, strict=True)
        ],
    )


def _drift_of(facts: _Facts, arm: Arm, spec: RLSpec, redraws: int) -> float:
    """Mean drift of the groups that the rollouts of a problem make, over redraws."""
    size = arm.samples(spec)
    draws = redraws if arm not in (Arm.GRPO, Arm.GRPO_2G) else 1
    groups = [facts.part(start, size) for start in range(0, len(facts.rewards), size)]
    return float(
        np.mean([_selected_drift(one, arm, spec, draw) for one in groups for draw in range(draws)])
    )


def _selected_drift(facts: _Facts, arm: Arm, spec: RLSpec, draw: int) -> float:
    ids = range(len(facts.rewards))
    chosen = choose(ids, facts.rewards, facts.penalties, arm, spec, (draw, 0, 0))
    return measured_drift(facts.rewards, facts.has_habit, chosen.kept)
