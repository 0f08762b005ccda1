"""Holds what was claimed in ``sweeps/claims.yaml`` against the records.

    - id: lab-calm-grpo
      claim: where errors are free, grpo-roc leaves fewer of them than grpo
      paper: Figure 4, no table
      sweep: laptop-laboratory
      arm: calm-grpo-roc
      minus: calm-grpo
      metric: tool_error_in_correct
      population: {held_out: hidden}
      expect: {below: 0}
      exclusions: none

The claims are written before the runs, the sentences of ``sweeps/verdicts.yaml`` after them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.errors import UserError
from rstar2.experiments.curves import compare
from rstar2.experiments.report import Estimate, Record, evaluated, held_out, of_arm
from rstar2.training.spec import Spec


class ClaimsError(UserError):
    """The claims cannot be read, or speak of what no record has."""


class Verdict(StrEnum):
    """What the records say of a claim."""

    REPRODUCED = "reproduced"
    """A difference: its whole interval is as expected. A level: its mean is."""
    NOT_AT_THIS_SCALE = "not at this scale"
    """These seeds do not decide it."""
    OPPOSITE = "opposite"
    """The whole interval lies on the other side."""
    NOT_MEASURED = "not measured"
    """There are no records of it."""


class HeldOutRate(StrEnum):
    """The metrics of a held-out set."""

    ACCURACY = "accuracy"
    TOOL_ERROR_IN_CORRECT = "tool_error_in_correct"
    TOKENS = "tokens"
    TOKENS_IN_CORRECT = "tokens_in_correct"
    TRUNCATED = "truncated"


class Population(Spec):
    """Which rollouts a claim speaks of; one of the two.

    Attributes:
        held_out: Those of a held-out set, after RL.
        sampled_last: Every rollout sampled in the last RL steps, this many; mean over steps.
    """

    held_out: str | None = None
    sampled_last: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.held_out is None) == (self.sampled_last is None):
            raise ValueError("give held_out or sampled_last")
        return self


class Expectation(Spec):
    """Where a difference or a level is to lie; one of the three, ends not included.

    Attributes:
        below: Below this number.
        above: Above this number.
        within: Between these two.
    """

    below: float | None = None
    above: float | None = None
    within: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.below, self.above, self.within)) != 1:
            raise ValueError("give one of below, above and within")
        if self.within is not None and self.within[0] >= self.within[1]:
            raise ValueError(f"within is {list(self.within)}: give the lower end first")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The open interval that is expected."""
        if self.within is not None:
            return self.within
        if self.below is not None:
            return -math.inf, self.below
        assert self.above is not None
        return self.above, math.inf

    def verdict(self, interval: Interval, *, is_level: bool) -> Verdict:
        """What a measured mean with its interval says; NaN ends tell no spread."""
        low, high = self.ends
        lower, upper = interval.low, interval.high
        met = (interval.mean, interval.mean) if is_level else (lower, upper)
        if low < met[0] and met[1] < high:
            return Verdict.REPRODUCED
        if upper < low or lower > high:
            return Verdict.OPPOSITE
        return Verdict.NOT_AT_THIS_SCALE


class Claim(Spec):
    """One claim.

    Attributes:
        id: Its name.
        claim: A sentence.
        paper: What the paper says of it, with its number if it prints one.
        sweep: Where its records are.
        arm: An arm of the sweep.
        minus: The arm that is subtracted, paired by seed; none for a level.
        minus_sweep: The sweep of that arm, if it is another.
        metric: A rate of a held-out set, or a column of the metrics log.
        population: Which rollouts it is of.
        expect: Where the difference or the level is to lie.
        exclusions: What is left out, in words.
    """

    id: str = Field(min_length=1)
    claim: str = Field(min_length=1)
    paper: str = Field(min_length=1)
    sweep: str
    arm: str
    minus: str | None = None
    minus_sweep: str | None = None
    metric: str
    population: Population
    expect: Expectation
    exclusions: str

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.minus_sweep is not None and self.minus is None:
            raise ValueError("minus_sweep without minus: a level is of one arm")
        if self.population.held_out is not None and self.metric not in tuple(HeldOutRate):
            raise ValueError(
                f"metric is {self.metric!r}; those of a held-out set are {', '.join(HeldOutRate)}"
            )
        return self


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
        numbers = (self.interval.mean, self.interval.low, self.interval.high)
        return [None if math.isnan(number) else float(number) for number in numbers]

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


def load_claims(path: Path) -> list[Claim]:
    """Reads the claims, in their order.

    Raises:
        ClaimsError: If the file cannot be read, a claim is invalid, or two have one id.
    """
    try:
        claims = TypeAdapter(list[Claim]).validate_python(_read_yaml(path))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise ClaimsError(f"{path.name}: {place}: {fault['msg']}") from error
    names = [claim.id for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ClaimsError(f"{path.name}: {twice[0]} is the id of two claims: rename one")
    return claims


def load_reasons(path: Path, claims: Sequence[Claim]) -> dict[str, str]:
    """Reads the sentence of each claim that has one; none if there is no file.

    Raises:
        ClaimsError: If the file cannot be read, or speaks of no claim.
    """
    told = _read_yaml(path) if path.exists() else None
    try:
        reasons = TypeAdapter(dict[str, str]).validate_python({} if told is None else told)
    except ValidationError as error:
        raise ClaimsError(f"{path.name}: give a sentence for each id of a claim") from error
    if unknown := sorted(reasons.keys() - {claim.id for claim in claims}):
        raise ClaimsError(f"{path.name}: there is no claim {unknown[0]!r}")
    return reasons


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
    if (name := claim.population.held_out) is not None:
        found = {r.seed: _held_out(claim, r, name) for r in evaluated(records, arm)}
    else:
        steps = claim.population.sampled_last or 0
        found = {r.seed: _sampled(claim, r, steps) for r in of_arm(records, arm)}
    return {seed: value for seed, value in found.items() if math.isfinite(value)}


def _held_out(claim: Claim, record: Record, name: str) -> float:
    sets = held_out(record)
    if name not in sets:
        raise ClaimsError(
            f"claim {claim.id}: {record.path.name} was evaluated on {', '.join(sets)}, not {name}"
        )
    return sets[name][claim.metric]


def _sampled(claim: Claim, record: Record, steps: int) -> float:
    table = record.metrics
    if claim.metric not in table:
        raise ClaimsError(f"claim {claim.id}: {record.path.name} logs no {claim.metric!r}")
    if len(table) < steps:
        raise ClaimsError(
            f"claim {claim.id}: {record.path.name} has {len(table)} steps, less than {steps}"
        )
    values = table.sort_values("step")[claim.metric].to_numpy(dtype=float)[-steps:]
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path.name} cannot be read: {error}") from error
