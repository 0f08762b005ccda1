"""Holds what was claimed in ``sweeps/claims.yaml`` against the records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.experiments.claims import Claim, ClaimsError, LogMeasure, Verdict
from rstar2.experiments.curves import compare
from rstar2.experiments.report import Estimate, Record, as_estimate, evaluated, held_out, logs
from rstar2.training.monitor import Signal, alarms, fall_of_reward


@dataclass(frozen=True, slots=True)
class Outcome:
    """A claim and what came of it.

    Attributes:
        claim: The claim.
        values: The level or the difference of each seed that has it.
        interval: Mean and 95% t interval over the seeds; NaN where there is none.
        verdict: What it says.
        why: One sentence; empty until somebody has written it.
    """

    claim: Claim
    values: Mapping[int, float]
    interval: Interval
    verdict: Verdict
    why: str = ""

    @property
    def effect(self) -> Estimate:
        """Mean, low and high; None where there is none."""
        return as_estimate(self.interval)

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "id": self.claim.id,
            "claim": self.claim.claim,
            "paper": self.claim.paper,
            "effect": self.effect,
            "seeds": len(self.values),
            "verdict": self.verdict.value,
            "why": self.why,
        }


def outcomes(
    claims: Sequence[Claim],
    records: Mapping[str, Sequence[Record]],
    reasons: Mapping[str, str],
) -> list[Outcome]:
    """What the records say of each claim.

    Args:
        claims: The claims.
        records: Of each sweep; a sweep without records may be left out.
        reasons: Sentences by the id of their claim.

    Raises:
        ClaimsError: If a record lacks the set, the metric or the steps of a claim.
    """
    return [_outcome(claim, records, reasons.get(claim.id, "")) for claim in claims]


def _outcome(claim: Claim, records: Mapping[str, Sequence[Record]], why: str) -> Outcome:
    values = _values(claim, claim.arm, records.get(claim.sweep, ()))
    if claim.minus is None:
        interval = mean_interval(list(values.values())) if values else None
    else:
        other = records.get(claim.minus_sweep or claim.sweep, ())
        comparison = compare(values, _values(claim, claim.minus, other))
        values = dict(comparison.differences)
        interval = comparison.interval if values else None
    if interval is None:
        nothing = Interval(math.nan, math.nan, math.nan)
        return Outcome(claim, {}, nothing, Verdict.NOT_MEASURED, why)
    verdict = claim.expect.verdict(interval, is_level=claim.minus is None)
    return Outcome(claim, values, interval, verdict, why)


def _values(claim: Claim, arm: str, records: Sequence[Record]) -> dict[int, float]:
    """The metric of each seed that has a finite one."""
    population = claim.population
    if (name := population.held_out) is not None:
        found = {r.seed: _held_out(claim, r, name) for r in evaluated(records, arm)}
    elif (steps := population.sampled_last) is not None:
        found = {
            s: _sampled(claim, f"{arm}-seed{s}", log, steps)
            for s, log in logs(records, arm).items()
        }
    else:
        found = {
            s: _monitored(LogMeasure(claim.metric), log) for s, log in logs(records, arm).items()
        }
    return {seed: value for seed, value in found.items() if math.isfinite(value)}


def _held_out(claim: Claim, record: Record, name: str) -> float:
    sets = held_out(record)
    if name not in sets:
        raise ClaimsError(
            f"claim {claim.id}: {record.path.name} was evaluated on {', '.join(sets)}, not {name}"
        )
    return sets[name][claim.metric]


def _sampled(claim: Claim, run: str, log: pd.DataFrame, steps: int) -> float:
    if claim.metric not in log:
        raise ClaimsError(f"claim {claim.id}: {run} logs no {claim.metric!r}")
    if len(log) < steps:
        raise ClaimsError(f"claim {claim.id}: {run} has {len(log)} steps, less than {steps}")
    values = log[claim.metric].to_numpy(dtype=float)[-steps:]
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def _monitored(measure: LogMeasure, log: pd.DataFrame) -> float:
    rows = [{str(name): row[name] for name in row} for row in log.to_dict("records")]
    warnings = alarms(rows)
    if measure is LogMeasure.WARNINGS:
        return len(warnings)
    reward_counts = measure is LogMeasure.WARNING_LEAD
    heard = [one.step for one in warnings if reward_counts or one.signal is not Signal.REWARD]
    fall = fall_of_reward(rows)
    return math.nan if fall is None else float(fall - min(heard, default=log["step"].max()))
