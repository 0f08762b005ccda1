"""What a chapter draws from records: curves over seeds, two arms compared, one example.

A mean over a few seeds hides much, so a curve keeps each seed's own beside it. Two arms
are compared by their differences, one a seed: both arms of a seed start from the same
weights and are evaluated on the same problems.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.experiments.report import Estimate, Record, as_estimate, rates
from rstar2.rollout.groups import Rollout
from rstar2.rollout.serialise import rollout_from_json

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric against the RL step.

    Attributes:
        steps: RL steps from 1, shape [steps].
        seeds: Values of each seed, shape [steps]; NaN where the metric is undefined.
        mean: Mean over the seeds that have a value, shape [steps].
    """

    steps: Array
    seeds: Mapping[int, Array]
    mean: Array

    def first(self, steps: int) -> dict[int, float]:
        """Mean of each seed over the first steps."""
        return {seed: _nanmean(values[:steps]) for seed, values in self.seeds.items()}

    def last(self, steps: int) -> dict[int, float]:
        """Mean of each seed over the last steps."""
        return {seed: _nanmean(values[-steps:]) for seed, values in self.seeds.items()}


def curve(records: Sequence[Record], metric: str, *, window: int = 1) -> Curve:
    """A metric of one arm's runs.

    Args:
        records: Runs of one arm, one a seed.
        metric: A column of ``metrics.parquet``.
        window: Steps of a centred moving mean; fewer at the ends. 1 leaves values as they are.

    Raises:
        ValueError: There is no run, two have the same seed, or one lacks the metric.
    """
    if not records:
        raise ValueError(f"a curve of {metric!r} needs at least one run")
    columns: dict[int, pd.Series[float]] = {}
    for record in records:
        table = record.metrics
        if metric not in table:
            raise ValueError(f"{record.path} has no metric {metric!r}")
        if record.seed in columns:
            raise ValueError(f"{record.path}: a second run with seed {record.seed}")
        columns[record.seed] = table.set_index("step")[metric].astype(float)
    table = pd.DataFrame(columns)
    smooth = table.rolling(window, center=True, min_periods=1).mean()
    return Curve(
        steps=table.index.to_numpy(dtype=float),
        seeds={seed: smooth[seed].to_numpy() for seed in columns},
        mean=smooth.mean(axis=1).to_numpy(),
    )


def stage_starts(records: Sequence[Record]) -> tuple[int, ...]:
    """First step of each stage.

    Raises:
        ValueError: There is no run, or two change stage at different steps.
    """
    found = {
        tuple(int(step) for step in record.metrics.groupby("stage")["step"].min())
        for record in records
    }
    if len(found) != 1:
        raise ValueError(f"the runs change stage at different steps: {sorted(found)}")
    return found.pop()


def by_seed(records: Sequence[Record], problem_set: str, rate: str) -> dict[int, float]:
    """A held-out rate of each run, as ``report.rates`` has it; NaN where it is undefined."""
    return {record.seed: rates(record, problem_set)[rate] for record in records}


class Finding(StrEnum):
    """What an interval of a difference says."""

    LOWER = "lower"
    """The whole interval lies below 0."""
    HIGHER = "higher"
    """The whole interval lies above 0."""
    UNDECIDED = "undecided"
    """The interval contains 0: these seeds do not tell the two apart."""
    NO_INTERVAL = "no interval"
    """Fewer than two seeds have both values: nothing is known of the spread."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value minus another, paired by seed.

    Attributes:
        differences: Of each seed that has both values.
        interval: Mean and 95% t interval; NaN where there is none.
    """

    differences: Mapping[int, float]
    interval: Interval

    @property
    def finding(self) -> Finding:
        """What may be said."""
        if math.isnan(self.interval.low):
            return Finding.NO_INTERVAL
        if self.interval.high < 0:
            return Finding.LOWER
        return Finding.HIGHER if self.interval.low > 0 else Finding.UNDECIDED

    @property
    def estimate(self) -> Estimate:
        """Mean, low and high."""
        return as_estimate(self.interval)


def compare(values: Mapping[int, float], reference: Mapping[int, float]) -> Comparison:
    """Values minus reference values, over the seeds that have both."""
    differences = {
        seed: values[seed] - reference[seed]
        for seed in sorted(values.keys() & reference.keys())
        if math.isfinite(values[seed] - reference[seed])
    }
    if not differences:
        return Comparison({}, Interval(math.nan, math.nan, math.nan))
    return Comparison(differences, mean_interval(list(differences.values())))


def overlap(first: Estimate, second: Estimate) -> bool | None:
    """Whether two intervals have a point in common; None if one is no interval."""
    _, low, high = first
    _, other_low, other_high = second
    if low is None or high is None or other_low is None or other_high is None:
        return None
    return low <= other_high and other_low <= high


def show_estimate(estimate: Estimate, digits: int = 2, *, signed: bool = False) -> str:
    """An estimate for people: ``0.53 [0.48, 0.58]``, the mean alone, or a dash.

    A line may break before the bracket, not inside it.
    """
    mean, low, high = estimate
    form = f"{'+' if signed else ''}.{digits}f"
    if mean is None:
        return "–"
    if low is None or high is None:
        return f"{mean:{form}}"
    return f"{mean:{form}} [{low:{form}},\u00a0{high:{form}}]"


def examples(record: Record) -> list[Rollout]:
    """The rollouts that a record keeps of its evaluation, in order."""
    lines = (record.path / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    return [rollout_from_json(json.loads(line)) for line in lines]


def most_telling(rollouts: Sequence[Rollout]) -> Rollout:
    """The rollout from which a reader learns most; the first of equals.

    Best is an error, a later call that works, and a right answer; then such a recovery with
    a wrong answer; then any error. Of what is left, right comes before wrong; of equals,
    one with a call before one without.

    Raises:
        ValueError: There is no rollout.
    """
    if not rollouts:
        raise ValueError("there is no rollout to choose from")
    return max(rollouts, key=_tells)


def recovers(rollout: Rollout) -> bool:
    """Whether a failed call is followed by one that works."""
    failed = [call.status.is_error for call in rollout.trajectory.calls]
    return True in failed and not all(failed[failed.index(True) :])


def _tells(rollout: Rollout) -> tuple[bool, ...]:
    path, right = rollout.trajectory, rollout.verdict.correct
    return (
        recovers(rollout) and right,
        recovers(rollout),
        path.num_errors > 0,
        right,
        bool(path.calls),
    )


def _nanmean(values: Array) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan
