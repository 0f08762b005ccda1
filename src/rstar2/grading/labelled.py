"""The reward's grader beside labels that people gave."""

from dataclasses import dataclass

from rstar2.grading.grader import Response, grade
from rstar2.grading.verdict import BadGold, Verdict


def judge(response: Response, gold: int | str) -> Verdict | None:
    """Grade a response as :func:`rstar2.grading.grade`; None if the gold label is unusable.

    Nobody is paid for such a label: the data pipeline drops its row.

    Raises:
        TypeError: The response is nothing that can be graded.
    """
    try:
        return grade(response, gold)
    except BadGold:
        return None


def paid(response: Response, gold: int | str) -> bool:
    """Whether a response is paid; see :func:`judge`."""
    verdict = judge(response, gold)
    return verdict is not None and verdict.correct


@dataclass(slots=True)
class Tally:
    """How a grader and the labels agree so far.

    Attributes:
        cases: Cases counted.
        agree: Those where both say the same.
        false_positive: Those paid and labelled wrong.
        false_negative: Those labelled right and not paid.
    """

    cases: int = 0
    agree: int = 0
    false_positive: int = 0
    false_negative: int = 0

    def count(self, *, paid: bool, expected: bool) -> bool:
        """Count a case; True if grader and label agree."""
        self.cases += 1
        self.agree += paid == expected
        self.false_positive += paid and not expected
        self.false_negative += expected and not paid
        return paid == expected
