"""What a family returns: a question in words, its answer, and programs with the numbers filled in.

Every family is a function from a random generator to a `Draft`. It draws its
numbers, computes the answer in plain Python of its own, and hands its texts to
`fill`. Programs keep to one-letter names, an indent of two spaces and about
120 characters, so that a model of less than a million parameters can write them;
the name ``v`` stays free for compositions, and each ends in one ``print(...)``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Draft:
    """A problem that has no name yet.

    Attributes:
        question: The text that the model reads.
        answer: The right answer.
        plan: A short clause that says how to solve it.
        right: Programs that print the answer.
        wrong: Programs that run and print, nearly always, another number.
    """

    question: str
    answer: int
    plan: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


Family = Callable[[Random], Draft]


def fill(
    rng: Random,
    *,
    answer: int,
    plan: str,
    questions: tuple[str, ...],
    right: tuple[str, ...],
    wrong: tuple[str, ...],
    **numbers: int,
) -> Draft:
    """Choose a phrasing and put the numbers into it and into the programs.

    Args:
        rng: Chooses among the phrasings.
        answer: The right answer for these numbers.
        plan: A short clause that says how to solve it.
        questions: Phrasings of one question, with ``{name}`` where a number stands.
        right: Templates of programs that print the answer.
        wrong: Templates of programs that print another number.
        **numbers: The values of the names.
    """
    return Draft(
        question=rng.choice(questions).format(**numbers),
        answer=answer,
        plan=plan,
        right=tuple(program.format(**numbers) for program in right),
        wrong=tuple(program.format(**numbers) for program in wrong),
    )
