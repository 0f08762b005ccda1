"""What the ladder holds: an example and the accuracy of blind guessing, row by row."""

from collections import Counter
from dataclasses import dataclass

from rstar2.problems.ladder.draw import draw, ladder_family, ladder_names
from rstar2.problems.ladder.family import LadderLevel
from rstar2.problems.laptop import Split
from rstar2.problems.types import Problem


@dataclass(frozen=True, slots=True)
class LadderRow:
    """One family at one level.

    Attributes:
        family: Name of the family.
        level: The level.
        grows: What the size measures.
        size: Its largest value at this level.
        example: A held-out problem.
        baseline: Share of held-out problems that the commonest train answer gets right, from
            0 to 1.
    """

    family: str
    level: LadderLevel
    grows: str
    size: int
    example: Problem
    baseline: float


def guessing_baseline(family: str, level: LadderLevel, seed: int, count: int) -> float:
    """Accuracy of a guesser that knows only the commonest answer of the train split.

    Args:
        family: Name of a family.
        level: The level.
        seed: The sequences of train and held-out problems.
        count: How many problems of each, at least 1.

    Returns:
        The share of the held-out problems guessed right, from 0 to 1.

    Raises:
        LadderError: If there is no such family.
    """
    train = [draw(family, level, Split.TRAIN, seed, index).answer for index in range(count)]
    held_out = [draw(family, level, Split.HELD_OUT, seed, index).answer for index in range(count)]
    return held_out.count(Counter(train).most_common(1)[0][0]) / count


def ladder_table(seed: int = 0, count: int = 400) -> tuple[LadderRow, ...]:
    """All families and levels, in order; some 20 seconds at 400 problems a row.

    Args:
        seed: The sequences of problems.
        count: How many problems of each split the guessing baseline takes.
    """
    return tuple(
        LadderRow(
            family=family,
            level=level,
            grows=ladder_family(family).grows,
            size=ladder_family(family).size(level),
            example=draw(family, level, Split.HELD_OUT, seed, 0),
            baseline=guessing_baseline(family, level, seed, count),
        )
        for family in ladder_names()
        for level in LadderLevel
    )
