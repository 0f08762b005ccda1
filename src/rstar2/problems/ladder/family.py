"""What a family of the ladder is: sizes for three levels, numbers, words and an answer.

A family draws its numbers first and computes the answer last, so that a question of the wrong
split costs nothing. Each phrasing shows every number: the text alone is the problem.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

Value = int | str | tuple[int, ...] | tuple[tuple[int, ...], ...]
"""A number, a word, a list of numbers or of pairs and the like; a list has two items or more."""

Numbers = Mapping[str, Value]
"""The values of one question by the names that its phrasings and its answer use."""


class LadderLevel(StrEnum):
    """How much work a question of the ladder takes."""

    ONE = "one"
    """Pen and paper, or a short plain search."""
    TWO = "two"
    """A plain loop in a program; by hand it is long."""
    THREE = "three"
    """A program with a method: by hand it is out of reach, and often so is plain search."""


@dataclass(frozen=True, slots=True)
class LadderFamily:
    """A kind of question that comes in three sizes.

    Attributes:
        grows: What the sizes measure, as ``exponent``.
        sizes: The largest size of levels one, two and three.
        numbers: Draws the numbers of one question of at most the given size.
        phrasings: Wordings of one question, with ``{name}`` where a value stands. Every
            wording has every value.
        answer: Computes the answer from the values, by name.
    """

    grows: str
    sizes: tuple[int, int, int]
    numbers: Callable[[Random, int], Numbers]
    phrasings: tuple[str, ...]
    answer: Callable[..., int]

    def size(self, level: LadderLevel) -> int:
        """The largest size of a level."""
        return self.sizes[tuple(LadderLevel).index(level)]


def worded(phrasing: str, numbers: Numbers) -> str:
    """A phrasing with its values filled in."""
    return phrasing.format(**{name: shown(value) for name, value in numbers.items()})


def shown(value: Value) -> str:
    """A value as a question shows it: ``17``, ``3, 5, 8`` or ``(1, 4), (2, 9)``."""
    return str(value)[1:-1] if isinstance(value, tuple) else str(value)


def near(rng: Random, size: int) -> int:
    """A number from half of ``size``, rounded up, to ``size``."""
    return rng.randint((size + 1) // 2, size)
