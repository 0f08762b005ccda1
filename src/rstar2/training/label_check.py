"""Which labels to believe and which problems are hard, from a record of samples alone.

Nothing is rolled out here: another threshold takes the time of reading the record.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rstar2.errors import UserError
from rstar2.grading import Reason
from rstar2.protocol import StopReason
from rstar2.training.samples import SampleRecord
from rstar2.training.screening import is_hard, label_holds

_Name = TypeVar("_Name", bound=str)


class ThresholdError(UserError):
    """A threshold that would keep every problem or none, whatever the samples say."""


@dataclass(frozen=True, slots=True)
class PassCount:
    """What the samples of one problem said.

    Attributes:
        problem_id: The problem.
        gold: Its label, in decimal.
        samples: Samples that were finished.
        correct: Those that match the label.
        others: Other integers that were read, in decimal, each with its number of samples;
            the most frequent first.
        reasons: Samples by what the grader said, the most frequent first.
    """

    problem_id: str
    gold: str
    samples: int
    correct: int
    others: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[Reason, int], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a rule did with the problems of a record, each list by name.

    Attributes:
        kept: Problems that the rule keeps.
        dropped: Problems that it drops.
        unfinished: Problems that lack samples, because some were lost or their prompt does not
            fit; nothing is decided on them.
    """

    kept: tuple[PassCount, ...]
    dropped: tuple[PassCount, ...]
    unfinished: tuple[PassCount, ...]


@dataclass(frozen=True, slots=True)
class SuspectLabel:
    """A label that most samples contradict with one voice; for a person to look at.

    Attributes:
        problem_id: The problem.
        gold: Its label, in decimal.
        said: What most samples say, in decimal.
        votes: Samples that say so.
        samples: Samples that were finished.
        correct: Samples that match the label.
    """

    problem_id: str
    gold: str
    said: str
    votes: int
    samples: int
    correct: int


def pass_counts(record: SampleRecord) -> list[PassCount]:
    """Counts the samples of each problem; sorted by name, so independent of their order.

    A sample whose prompt did not fit says nothing of the problem and is left out.
    """
    reasons: defaultdict[str, Counter[Reason]] = defaultdict(Counter)
    others: defaultdict[str, Counter[str]] = defaultdict(Counter)
    golds = {}
    for sample in record.samples:
        golds[sample.problem_id] = sample.gold
        if sample.stop is StopReason.PROMPT_TOO_LONG:
            continue
        reasons[sample.problem_id][sample.reason] += 1
        if not sample.correct and sample.value is not None:
            others[sample.problem_id][sample.value] += 1
    return [
        PassCount(
            problem_id=name,
            gold=golds[name],
            samples=reasons[name].total(),
            correct=reasons[name][Reason.CORRECT],
            others=_by_count(others[name]),
            reasons=_by_count(reasons[name]),
        )
        for name in sorted(golds)
    ]


def label_check(record: SampleRecord, least: int = 2) -> Choice:
    """Keeps the problems whose label enough samples match (paper, section 4.2).

    Args:
        record: Samples of a strong model; 16 a problem in the paper.
        least: Fewest samples that must match.

    Raises:
        ThresholdError: If ``least`` is below 1 or more than the samples of a problem.
    """
    if not 1 <= least <= record.samples_per_problem:
        raise ThresholdError(
            f"least is {least}, but a problem has {record.samples_per_problem} samples: "
            "give a number from 1 to that"
        )
    return _choose(record, lambda count: label_holds(count.correct, least))


def hard_problems(record: SampleRecord, most: int = 7) -> Choice:
    """Keeps the problems that the policy does not solve too often (paper, section 4.3).

    Args:
        record: Rollouts of the current policy; 8 a problem in the paper.
        most: Most rollouts that may be right; one fewer than the samples drops what is
            solved every time.

    Raises:
        ThresholdError: If ``most`` is negative, or not below the samples of a problem.
    """
    if not 0 <= most < record.samples_per_problem:
        raise ThresholdError(
            f"most is {most}, but a problem has {record.samples_per_problem} samples: "
            "give a number from 0 to one below that"
        )
    return _choose(record, lambda count: is_hard(count.correct, most))


def suspect_labels(record: SampleRecord, share: float = 0.5) -> list[SuspectLabel]:
    """Labels that are perhaps wrong: more than a share of the samples say one other integer.

    Args:
        record: Samples of a strong model.
        share: Votes over samples that must be passed, from 0.5, so that one integer wins.

    Returns:
        The most unanimous first.

    Raises:
        ThresholdError: If ``share`` is below a half, or 1 or more.
    """
    if not 0.5 <= share < 1:
        raise ThresholdError(f"share is {share}: give a number from 0.5 to below 1")
    suspects = [
        SuspectLabel(
            problem_id=count.problem_id,
            gold=count.gold,
            said=count.others[0][0],
            votes=count.others[0][1],
            samples=count.samples,
            correct=count.correct,
        )
        for count in pass_counts(record)
        if count.others and count.others[0][1] > share * count.samples
    ]
    return sorted(suspects, key=lambda one: (-one.votes / one.samples, one.problem_id))


def _choose(record: SampleRecord, keeps: Callable[[PassCount], bool]) -> Choice:
    counts = pass_counts(record)
    whole = [count for count in counts if count.samples == record.samples_per_problem]
    return Choice(
        kept=tuple(count for count in whole if keeps(count)),
        dropped=tuple(count for count in whole if not keeps(count)),
        unfinished=tuple(count for count in counts if count.samples < record.samples_per_problem),
    )


def _by_count(counts: Counter[_Name]) -> tuple[tuple[_Name, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
