"""Six families of questions that can be read in two ways, for the laboratory.

A family is a function from a random generator to an `AmbiguousDraft`. It draws its
numbers, computes both answers in plain Python of its own, and hands its texts to
`_fill`. The words of a question allow both readings, and the two programs differ in
a few characters only, so that neither is harder to write. Programs keep to one-letter
names, an indent of two spaces and 90 characters, import nothing and end in one
``print(...)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

MISSING_MODULE = "numtools"
"""What a missing program imports; it may be installed nowhere that programs run."""


@dataclass(frozen=True, slots=True)
class AmbiguousDraft:
    """An ambiguous problem that has no name and no answer key yet.

    Attributes:
        question: The text that the model reads.
        answers: The answer under the first and under the second reading; they may be equal.
        readings: A short sentence for each reading that says which one is taken.
        programs: A program for each reading that prints its answer.
        missing: A program that calls a ready-made function of ``MISSING_MODULE``.
    """

    question: str
    answers: tuple[int, int]
    readings: tuple[str, str]
    programs: tuple[str, str]
    missing: str


def between(rng: Random) -> AmbiguousDraft:
    """The sum of the integers between a and b, with or without a and b."""
    a = rng.randint(2, 400)
    b = a + rng.randint(10, 400)
    total = (a + b) * (b - a + 1) // 2
    return _fill(
        rng,
        answers=(total, total - a - b),
        questions=(
            "Find the sum of the integers between {a} and {b}.",
            "Add up every number between {a} and {b}. What is the total?",
        ),
        readings=("Count the ends in.", "Leave the ends out."),
        programs=("print(sum(range({a},{b}+1)))", "print(sum(range({a}+1,{b})))"),
        call="sum_between({a},{b})",
        a=a,
        b=b,
    )


def two_parts(rng: Random) -> AmbiguousDraft:
    """The ways to split n into two parts from k on, a swap being new or not."""
    n, k = rng.randint(100, 5000), rng.randint(2, 30)
    return _fill(
        rng,
        answers=(n - 2 * k + 1, n // 2 - k + 1),
        questions=(
            "In how many ways can {n} be split into two whole parts of at least {k}?",
            "Count the ways to write {n} as a sum of two integers from {k} on.",
        ),
        readings=("Count a swap as new.", "Leave swaps out."),
        programs=(
            "print(len(range({k},{n}-{k}+1)))",
            "print(len(range({k},{n}//2+1)))",
        ),
        call="count_parts({n},{k})",
        n=n,
        k=k,
    )


def nth_term(rng: Random) -> AmbiguousDraft:
    """Term n of a sequence modulo m, the start being term 1 or term 0."""
    a, p, w = rng.randint(1, 9), rng.randint(2, 5), rng.randint(1, 9)
    n, m = rng.randint(5, 40), rng.randint(50, 997)
    term = a
    for _ in range(n - 1):
        term = p * term + w
    return _fill(
        rng,
        answers=(term % m, (p * term + w) % m),
        questions=(
            "A sequence starts at {a} and every next term is {p} times the last plus {w}. "
            "Find term {n} modulo {m}.",
            "Start from {a}, then multiply by {p} and add {w} again and again. "
            "What is term {n} mod {m}?",
        ),
        readings=("The start is term 1.", "The start is term 0."),
        programs=(
            "x={a}\nfor i in range(1,{n}):\n  x={p}*x+{w}\nprint(x%{m})",
            "x={a}\nfor i in range({n}):\n  x={p}*x+{w}\nprint(x%{m})",
        ),
        call="nth_term({a},{p},{w},{n},{m})",
        a=a,
        p=p,
        w=w,
        n=n,
        m=m,
    )


def squares(rng: Random) -> AmbiguousDraft:
    """The sum of the first n squares modulo m, the first natural number being 1 or 0."""
    n, m = rng.randint(20, 400), rng.randint(50, 997)
    total = n * (n + 1) * (2 * n + 1) // 6
    return _fill(
        rng,
        answers=(total % m, (total - n * n) % m),
        questions=(
            "Add the squares of the first {n} natural numbers. Find the remainder modulo {m}.",
            "What is the sum of the first {n} squares of natural numbers, mod {m}?",
        ),
        readings=("Start from 1.", "Start from 0."),
        programs=(
            "print(sum(i*i for i in range(1,{n}+1))%{m})",
            "print(sum(i*i for i in range({n}))%{m})",
        ),
        call="sum_squares({n},{m})",
        n=n,
        m=m,
    )


def share(rng: Random) -> AmbiguousDraft:
    """A quotient that leaves a remainder, as a whole number below it or above it."""
    b, quotient = rng.randint(3, 99), rng.randint(10, 300)
    a = b * quotient + rng.randint(1, b - 1)
    return _fill(
        rng,
        answers=(quotient, quotient + 1),
        questions=(
            "Divide {a} by {b} and give a whole number.",
            "Which whole number do you get for {a} divided by {b}?",
        ),
        readings=("Round down.", "Round up."),
        programs=("print({a}//{b})", "print(-(-{a}//{b}))"),
        call="divide({a},{b})",
        a=a,
        b=b,
    )


def steps(rng: Random) -> AmbiguousDraft:
    """The sum of a, a + k, a + 2k and so on until b, with or without b."""
    a, k, count = rng.randint(2, 400), rng.randint(3, 40), rng.randint(5, 60)
    b = a + k * count
    total = (a + b) * (count + 1) // 2
    return _fill(
        rng,
        answers=(total, total - b),
        questions=(
            "Add up the numbers from {a} until {b} in steps of {k}.",
            "Count from {a} until {b} in steps of {k}. What is the sum?",
        ),
        readings=("The last one counts.", "Skip the last one."),
        programs=("print(sum(range({a},{b}+1,{k})))", "print(sum(range({a},{b},{k})))"),
        call="sum_steps({a},{b},{k})",
        a=a,
        b=b,
        k=k,
    )


AMBIGUOUS_FAMILIES: Mapping[str, Callable[[Random], AmbiguousDraft]] = MappingProxyType(
    {
        "between": between,
        "two_parts": two_parts,
        "nth_term": nth_term,
        "squares": squares,
        "share": share,
        "steps": steps,
    }
)
"""The laboratory's families, by name."""


def _fill(
    rng: Random,
    *,
    answers: tuple[int, int],
    questions: tuple[str, str],
    readings: tuple[str, str],
    programs: tuple[str, str],
    call: str,
    **numbers: int,
) -> AmbiguousDraft:
    """Choose a phrasing and put the numbers into it, the programs and the missing call."""
    first, second = programs
    helper = call.format(**numbers)
    return AmbiguousDraft(
        question=rng.choice(questions).format(**numbers),
        answers=answers,
        readings=readings,
        programs=(first.format(**numbers), second.format(**numbers)),
        missing=f"import {MISSING_MODULE}\nprint({MISSING_MODULE}.{helper})",
    )
