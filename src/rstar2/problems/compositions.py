"""Compositions: the answer N of a family's question is put through one more operation.

The question of a composition holds the whole question of its family; its programs
are the family's, with the last ``print(...)`` turned into ``v=...`` and a tail added.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from rstar2.problems.families.by_hand import conclusion, digit_addition, product, remainder
from rstar2.problems.families.digits import digit_sum
from rstar2.problems.families.draft import Draft


@dataclass(frozen=True, slots=True)
class Composition:
    """An outer operation on the answer N of a question, with one small number m.

    Attributes:
        value: The composed answer from N and m.
        plan: What is done to N, as it follows ``then``.
        questions: Phrasings; ``{q}`` stands for the inner question.
        right: Template of the tail that prints the composed answer from ``v``.
        wrong: Template of a plausible wrong tail.
        steps: How the composed answer is found from N and m by hand; the last step ends in it.
    """

    value: Callable[[int, int], int]
    plan: str
    questions: tuple[str, ...]
    right: str
    wrong: str
    steps: Callable[[int, int], tuple[str, ...]]


def _square_mod_by_hand(n: int, m: int) -> tuple[str, ...]:
    left = n % m
    return (*remainder(n, m), *product(left, left), *remainder(left * left, m))


def _digit_sum_by_hand(n: int, m: int) -> tuple[str, ...]:
    return (*product(n, m), *digit_addition([int(digit) for digit in str(m * n)]))


def _triple_plus_by_hand(n: int, m: int) -> tuple[str, ...]:
    return (f"3*{n}={3 * n}.", f"{3 * n}+{m}={3 * n + m}.")


def _multiple_mod_by_hand(n: int, m: int) -> tuple[str, ...]:
    return (f"5*{n}={5 * n}.", *remainder(5 * n, m))


COMPOSITIONS: Mapping[str, Composition] = MappingProxyType(
    {
        "square_mod": Composition(
            value=lambda n, m: n * n % m,
            plan="square it",
            questions=(
                "Let N be the answer to: {q} Find N^2 mod {m}.",
                "{q} Square this value and give its remainder modulo {m}.",
            ),
            right="print(v**2%{m})",
            wrong="print(v%{m})",
            steps=_square_mod_by_hand,
        ),
        "digit_sum": Composition(
            value=lambda n, m: digit_sum(m * n),
            plan="add the digits",
            questions=(
                "Let N be the answer to: {q} Find the digit sum of {m}N.",
                "{q} Multiply this value by {m} and add the digits.",
            ),
            right="print(sum(map(int,str(v*{m}))))",
            wrong="print(sum(map(int,str(v))))",
            steps=_digit_sum_by_hand,
        ),
        "triple_plus": Composition(
            value=lambda n, m: 3 * n + m,
            plan="triple it",
            questions=(
                "Let N be the answer to: {q} Find 3N+{m}.",
                "{q} Triple this value and add {m}.",
            ),
            right="print(3*v+{m})",
            wrong="print(v+{m})",
            steps=_triple_plus_by_hand,
        ),
    }
)
"""The compositions that training draws from."""

UNSEEN_COMPOSITIONS: Mapping[str, Composition] = MappingProxyType(
    {
        "multiple_mod": Composition(
            value=lambda n, m: 5 * n % m,
            plan="multiply it",
            questions=(
                "Let N be the answer to: {q} Find 5N mod {m}.",
                "{q} Multiply this value by 5 and give its remainder modulo {m}.",
            ),
            right="print(5*v%{m})",
            wrong="print(v%{m})",
            steps=_multiple_mod_by_hand,
        ),
    }
)
"""The composition that only evaluation draws from."""


def with_tail(program: str, tail: str) -> str:
    """Let a program keep its result in ``v`` instead of printing it, and go on with a tail.

    Args:
        program: A program that ends in one ``print(...)``.
        tail: What follows, in terms of ``v``.
    """
    head, _, printed = program.rpartition("print(")
    return f"{head}v={printed.removesuffix(')')}\n{tail}"


def compose(inner: Draft, composition: Composition, rng: Random) -> Draft:
    """Put one more operation on a question.

    Args:
        inner: A family's draft.
        composition: What is done to its answer.
        rng: Draws the operation's number m from 11 to 99, the phrasing, and which of
            the inner programs the wrong ones start from.

    Returns:
        A draft with as many right programs as ``inner`` and two wrong ones: a right
        program with the wrong tail, and a wrong program with the right tail. Its steps
        are the inner ones and those of the operation.
    """
    m = rng.randint(11, 99)
    question = rng.choice(composition.questions).format(q=inner.question, m=m)
    right_tail = composition.right.format(m=m)
    wrong_tail = composition.wrong.format(m=m)
    answer = composition.value(inner.answer, m)
    return Draft(
        question=question,
        answer=answer,
        plan=f"{inner.plan}, then {composition.plan}",
        right=tuple(with_tail(program, right_tail) for program in inner.right),
        wrong=(
            with_tail(rng.choice(inner.right), wrong_tail),
            with_tail(rng.choice(inner.wrong), right_tail),
        ),
        steps=(
            *inner.steps[:-1],
            f"This gives N={inner.answer}.",
            *composition.steps(inner.answer, m),
            conclusion(answer),
        ),
    )
