"""Both graders beside the labels of the case file."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rstar2.grading import BadGold, grade
from rstar2.grading.expression_pool import Lost, ProcessPool

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
    """Grade the cases by the reward's grader."""
    return compare(cases, [_paid(case) for case in cases])


def _paid(case: Case) -> bool:
    try:
        return grade(case.response, case.gold).correct
    except BadGold:  # some cases have a gold answer that must never be paid
        return False


async def mathverify(cases: Sequence[Case], pool: ProcessPool) -> Agreement:
    """Grade the cases by math-verify on the whole response.

    Args:
        cases: The cases.
        pool: Processes of :mod:`benchmarks.grading.whole_response`.
    """
    replies = await asyncio.gather(*(pool.ask((case.gold, case.response)) for case in cases))
    undecided = sum(isinstance(reply.word, Lost) for reply in replies)
    return compare(cases, [reply.word == "correct" for reply in replies], undecided)


def compare(cases: Sequence[Case], paid: Sequence[bool], undecided: int = 0) -> Agreement:
    """Compare verdicts with labels.

    Args:
        cases: The cases.
        paid: Whether the grader pays each.
        undecided: How many of them it did not decide.
    """
    positive: Counter[str] = Counter()
    negative: Counter[str] = Counter()
    for case, correct in zip(cases, paid, strict=True):
        positive[case.category] += correct and not case.expected
        negative[case.category] += case.expected and not correct
    wrong = positive.total() + negative.total()
    return Agreement(
        cases=len(cases),
        agree=1 - wrong / len(cases),
        false_positive=dict(sorted((+positive).items())),
        false_negative=dict(sorted((+negative).items())),
        undecided=undecided,
    )
