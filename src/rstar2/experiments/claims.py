"""What is claimed before it is measured: ``sweeps/claims.yaml``.

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
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rstar2.algorithm.statistics import Interval
from rstar2.errors import UserError
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


class LogMeasure(StrEnum):
    """The metrics of a whole log: what the collapse monitor makes of it."""

    WARNINGS = "warnings"
    """Warnings of the monitor."""
    WARNING_LEAD = "warning_lead"
    """Steps from the first warning to the fall of the reward, of a run whose reward falls. Of
    one that was never warned of, the end of the log stands for the warning."""
    OTHER_WARNING_LEAD = "other_warning_lead"
    """The same without the warnings of the reward itself."""


_COUNTS = (HeldOutRate.TOKENS, HeldOutRate.TOKENS_IN_CORRECT, *LogMeasure)


class Population(Spec):
    """What a claim speaks of; one of the three.

    Attributes:
        held_out: The rollouts of a held-out set, after RL.
        sampled_last: Every rollout sampled in the last RL steps, this many; mean over steps.
        log: The whole metrics log of a run.
    """

    held_out: str | None = None
    sampled_last: int | None = Field(default=None, gt=0)
    log: Literal["whole"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.held_out, self.sampled_last, self.log)) != 1:
            raise ValueError("give one of held_out, sampled_last and log")
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
        metric: A rate of a held-out set, a column of the metrics log, or a ``LogMeasure``.
        population: What it is of.
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

    @property
    def digits(self) -> int:
        """Decimals that an effect is worth."""
        return 1 if self.metric in _COUNTS else 3

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.minus_sweep is not None and self.minus is None:
            raise ValueError("minus_sweep without minus: a level is of one arm")
        for given, whole, names in (
            (self.population.held_out, "held-out set", tuple(HeldOutRate)),
            (self.population.log, "whole log", tuple(LogMeasure)),
        ):
            if given is not None and self.metric not in names:
                raise ValueError(f"metric is {self.metric!r}; a {whole} has {', '.join(names)}")
        return self


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


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClaimsError(f"{path.name} cannot be read: {error}") from error
