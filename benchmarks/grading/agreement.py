"""Both graders beside the labels of the case file."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rstar2.grading.expression_pool import ProcessPool
from rstar2.grading.expression_process import Lost
from rstar2.grading.labelled import Tally, paid

CASES = Path(__file__).parents[2] / "tests" / "unit" / "data" / "grader_cases.jsonl"


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled response.

    Attributes:
        category: The kind of fault it probes.
        response: The text.
        gold: The right answer.
        expected: Whether the response is right.
    """

    category: str
    response: str
    gold: str
    expected: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a grader's verdicts compare with the labels.

    Attributes:
        cases: Cases graded.
        agree: Share of them where verdict and label are the same.
        false_positive: Cases paid and labelled wrong, by category.
        false_negative: Cases labelled right and not paid, by category.
        undecided: Cases where the grader's process was late or died; they count as not paid.
    """

    cases: int
    agree: float
    false_positive: dict[str, int]
    false_negative: dict[str, int]
    undecided: int = 0

    def as_dict(self) -> dict[str, float | int | dict[str, int]]:
        """Give it as it stands in the record."""
        return {
            "cases": self.cases,
            "agree": self.agree,
            "false_positive": self.false_positive,
            "false_negative": self.false_negative,
            "undecided": self.undecided,
        }


def load_cases(path: Path = CASES) -> list[Case]:
    """Read the case file."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Case(row["category"], row["response"], row["gold"], row["expected"]) for row in rows]


def ours(cases: Sequence[Case]) -> Agreement:
    """Grade the cases by the reward's grader; some have a label that must never be paid."""
    return compare(cases, [paid(case.response, case.gold) for case in cases])


async def mathverify(cases: Sequence[Case], pool: ProcessPool) -> Agreement:
    """Grade the cases by math-verify on the whole response.

    Args:
        cases: The cases.
        pool: Processes of :mod:`benchmarks.grading.whole_response`.
    """
    replies = await asyncio.gather(*(pool.ask((case.gold, case.response)) for case in cases))
    undecided = sum(isinstance(reply.word, Lost) for reply in replies)
    return compare(cases, [reply.word == "correct" for reply in replies], undecided)


def compare(cases: Sequence[Case], verdicts: Sequence[bool], undecided: int = 0) -> Agreement:
    """Compare verdicts with labels.

    Args:
        cases: The cases.
        verdicts: Whether the grader pays each.
        undecided: How many of them it did not decide.
    """
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for case, correct in zip(cases, verdicts, strict=True):
        tallies[case.category].count(paid=correct, expected=case.expected)
    in_order = sorted(tallies.items())
    return Agreement(
        cases=len(cases),
        agree=sum(tally.agree for tally in tallies.values()) / len(cases),
        false_positive={name: one.false_positive for name, one in in_order if one.false_positive},
        false_negative={name: one.false_negative for name, one in in_order if one.false_negative},
        undecided=undecided,
    )
