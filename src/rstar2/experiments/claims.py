"""Holds what was claimed in ``sweeps/claims.yaml`` against what a report measured."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rstar2.problems import ProblemSet
from rstar2.training.spec import Arm

Report = Mapping[str, Any]
"""What ``laptop_report`` says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A claim and what came of it.

    Attributes:
        name: The claim's name in the file.
        what: What it speaks of, in words.
        measured: The number that it speaks of; for ``falls`` the change of each arm. NaN
            where the report has no number.
        met: Whether it holds; a NaN meets no claim.
    """

    name: str
    what: str
    measured: tuple[float, ...]
    met: bool


def claims_met(report: Report, claims: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """Evaluates claims, in their order.

    Args:
        report: From ``laptop_report``.
        claims: Each with ``name``, ``what`` and one of ``between: [low, high]``,
            ``at_least: low`` and ``falls: true``.

    Raises:
        ValueError: A claim that this module does not know how to measure.
    """
    return [_outcome(report, claim) for claim in claims]


def _outcome(report: Report, claim: Mapping[str, Any]) -> Outcome:
    measured = _measure(report, claim["name"])
    if "between" in claim:
        low, high = claim["between"]
        met = all(low <= value <= high for value in measured)
    elif "at_least" in claim:
        met = all(value >= claim["at_least"] for value in measured)
    elif claim.get("falls") is True:
        met = all(value < 0 for value in measured)
    else:
        raise ValueError(f"claim {claim['name']!r}: give between, at_least or falls: true")
    return Outcome(claim["name"], claim["what"], measured, met)


def _measure(report: Report, name: str) -> tuple[float, ...]:
    families, compositions = ProblemSet.FAMILIES, ProblemSet.COMPOSITIONS
    match name:
        case "sft_is_neither_hopeless_nor_done":
            return (_mean(report, Arm.GRPO_ROC, families, "sft_accuracy"),)
        case "roc_learns_families":
            return (_mean(report, Arm.GRPO_ROC, families, "final_accuracy"),)
        case "roc_learns_compositions":
            return (_mean(report, Arm.GRPO_ROC, compositions, "final_accuracy"),)
        case "roc_gains":
            return (_change(report, Arm.GRPO_ROC, "accuracy"),)
        case "both_arms_unlearn_tool_errors":
            return tuple(_change(report, arm, "tool_error_in_correct") for arm in Arm)
    raise ValueError(f"claim {name!r}: nothing says which number of the report it speaks of")


def _change(report: Report, arm: Arm, rate: str) -> float:
    """The mean after RL minus that after SFT, on the trained families."""
    before = _mean(report, arm, ProblemSet.FAMILIES, f"sft_{rate}")
    return _mean(report, arm, ProblemSet.FAMILIES, f"final_{rate}") - before


def _mean(report: Report, arm: Arm, problem_set: ProblemSet, key: str) -> float:
    """The mean of an estimate; NaN where the arm has no records or the rate no value."""
    if arm.value not in report["arms"]:
        return math.nan
    mean = report["arms"][arm.value]["by_set"][problem_set.value][key][0]
    return math.nan if mean is None else float(mean)
