"""What a family returns: a question in words, its answer, and programs with the numbers filled in.

Every family is a function from a random generator to a `Draft`. It draws its
numbers, computes the answer in plain Python of its own, and hands its texts to
`fill`. Programs keep to one-letter names, an indent of two spaces and about
120 characters, so that a model of less than a million parameters can write them;
the name ``v`` stays free for compositions, and each ends in one ``print(...)``.

The steps solve the problem by hand, without a program, in few and always the same words.
Their notation: ``+ - * ^`` as usual, ``//`` the quotient rounded down, ``mod`` the
remainder (``17 mod 5=2``), ``C(n,k)`` a binomial coefficient; every side of ``a=b=c``
has the same value. ``x->y`` after ``Work mod m.``: y is the remainder of x modulo m.
``391*18:`` before a step says what the next steps work out. A row ``name: ..., p, t.``
adds p to the total of the row above and gets t. ``...`` alone: steps are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from rstar2.problems.families.by_hand import conclusion


@dataclass(frozen=True, slots=True)
class Draft:
    """A problem that has no name yet.

    Attributes:
        question: The text that the model reads.
        answer: The right answer.
        plan: A short clause that says how to solve it.
        right: Programs that print the answer.
        wrong: Programs that run and print, nearly always, another number.
        steps: How to solve it by hand, one sentence a step, however many; the last one
            states the answer, the one before arrives at it.
    """

    question: str
    answer: int
    plan: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    steps: tuple[str, ...]


Family = Callable[[Random], Draft]


def fill(
    rng: Random,
    *,
    answer: int,
    plan: str,
    questions: tuple[str, ...],
    right: tuple[str, ...],
    wrong: tuple[str, ...],
    steps: tuple[str, ...],
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
        steps: The work by hand, up to the sentence that ends in the answer.
        **numbers: The values of the names.
    """
    return Draft(
        question=rng.choice(questions).format(**numbers),
        answer=answer,
        plan=plan,
        right=tuple(program.format(**numbers) for program in right),
        wrong=tuple(program.format(**numbers) for program in wrong),
        steps=(*steps, conclusion(answer)),
    )
