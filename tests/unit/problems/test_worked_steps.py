"""The steps by which a problem is solved by hand: every number in them is right."""

import math
import re
from collections import Counter
from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.problems import ProblemSet, Split, WorkedProblem, draw
from rstar2.problems.compositions import COMPOSITIONS, UNSEEN_COMPOSITIONS
from rstar2.problems.families import FAMILIES, UNSEEN_FAMILIES, Draft
from rstar2.problems.families.by_hand import (
    COMPOSED_LIMIT,
    ELLIPSIS,
    PLAIN_LIMIT,
    addition,
    division,
    product,
    remainder,
    remainder_by_digits,
    shortened,
)

ALL_FAMILIES = {**FAMILIES, **UNSEEN_FAMILIES}
ALL_COMPOSITIONS = {**COMPOSITIONS, **UNSEEN_COMPOSITIONS}
SETS_AND_SPLITS = [
    (problem_set, split)
    for problem_set in ProblemSet
    for split in Split
    if problem_set.is_trained or split is not Split.TRAIN
]
ARITHMETIC = re.compile(r"(?:[\d()+\-*%]|//|\*\*|comb\(\d+,\d+\))+")
ROW = re.compile(r"\d+: (?:[^:=.]*, )?(\d+), (\d+)\.")


# --- reading the notation of draft.py --------------------------------------------------------


def value(side: str) -> int | None:
    """What a side of an equation amounts to; None if a name such as ``x_3`` stands there."""
    expression = side.replace("^", "**").replace("C(", "comb(")
    if not ARITHMETIC.fullmatch(expression):
        assert re.match(r"[A-Za-z]|\d+[xyz]|\d+-\d+z", side), (
            f"neither a number nor a name: {side!r}"
        )
        return None
    result = eval(expression, {"__builtins__": {}, "comb": math.comb})
    assert type(result) is int
    return result


def chains(text: str) -> list[str]:
    """The equations and reductions in a text: words, once ``a mod b`` is written ``a%b``."""
    words = re.sub(r"(?<=\d) mod (?=\d)", "%", text).split()
    return [word.rstrip(".,:") for word in words if "=" in word or "->" in word]


def read_equations(text: str) -> int:
    """Assert that every equation and reduction holds; how many could be reckoned."""
    moduli = re.findall(r"Work mod (\d+)\.", text)
    read = 0
    for chain in chains(text):
        equation, *results = chain.split("->")
        values = [value(side) for side in equation.split("=")]
        numbers = [v for v in values if v is not None]
        assert len(set(numbers)) <= 1, chain
        for result in results:
            (modulus,) = map(int, moduli)
            assert int(result) == numbers[-1] % modulus != numbers[-1], chain
        read += len(values) > 1 or bool(results)
    return read


def read_rows(steps: tuple[str, ...]) -> int:
    """Assert that each row's total is the one above and its own part; how many rows."""
    read, above = 0, None
    for step in steps:
        row = ROW.fullmatch(step)
        if step == ELLIPSIS:
            above = None
        if row:
            part, total = map(int, row.groups())
            assert above is None or total == above + part, step
            above = total
            read += 1
    return read


def last_number(step: str) -> int:
    return int(re.findall(r"\d+", step)[-1])


def drafts(family: str, count: int) -> list[Draft]:
    rng = Random(f"steps:{family}")
    return [ALL_FAMILIES[family](rng) for _ in range(count)]


@pytest.mark.parametrize(
    "wrong",
    [
        "33*204=6733.",
        "391*18: 391*10=3900.",
        "41616 mod 997=740.",
        "Work mod 997. x^2: 204*204=41616->738.",
        "Work mod 997. x^2: 3*3=9->9.",
        "C(5,3)=C(5,1).",
        "(3+1)*(2+1)=4*3=13.",
        "2^10=1000.",
        "x_3=3*5+2*7=28.",
        "7+8=15+9=24.",
    ],
)
def test_the_reader_of_equations_sees_a_wrong_one(wrong: str) -> None:
    with pytest.raises(AssertionError):
        read_equations(wrong)


def test_the_reader_of_rows_sees_a_wrong_one() -> None:
    assert read_rows(("12: 7, 7.", "11: 8, 15.", "...", "3: 4, 50.")) == 3
    with pytest.raises(AssertionError):
        read_rows(("12: 7, 7.", "11: 8, 16."))


# --- what is drawn is what was drawn before there were steps ---------------------------------

DIGESTS = {
    ("families", "train"): "fc6edb4819484b86",
    ("families", "dev"): "c03df76c1bad0e5a",
    ("families", "held_out"): "d4b22e54fe13b4d5",
    ("compositions", "train"): "ee02705d6ee24e8c",
    ("compositions", "dev"): "a9970feb71a86a5a",
    ("compositions", "held_out"): "aa082e24d6d0764e",
    ("unseen_families", "dev"): "2e57b15e2670f076",
    ("unseen_families", "held_out"): "9195064b850f5340",
    ("unseen_composition", "dev"): "812f14dd18486d95",
    ("unseen_composition", "held_out"): "764f9f76406a7096",
}


@pytest.mark.parametrize(("problem_set", "split"), SETS_AND_SPLITS)
def test_questions_answers_and_programs_are_the_recorded_ones(
    problem_set: ProblemSet, split: Split
) -> None:
    digest = blake2b(digest_size=8)
    for index in range(200):
        worked = draw(problem_set, split, 0, index)
        digest.update(repr((worked.problem, worked.plan, worked.right, worked.wrong)).encode())
    assert digest.hexdigest() == DIGESTS[problem_set, split]


# --- steps of any problem --------------------------------------------------------------------


def assert_good_steps(worked: WorkedProblem) -> None:
    text = " ".join(worked.steps)
    assert worked.steps[-1] == f"The answer is {worked.problem.answer}."
    assert last_number(worked.steps[-2]) == worked.problem.answer
    assert len(text) <= (COMPOSED_LIMIT if worked.problem.composition else PLAIN_LIMIT)
    assert text.isascii()
    assert text.isprintable()
    assert "  " not in text
    assert worked.steps.count(ELLIPSIS) <= 1
    assert all(step.endswith(".") for step in worked.steps)
    read_equations(text)
    read_rows(worked.steps)


@given(st.sampled_from(SETS_AND_SPLITS), st.integers(0, 2**32), st.integers(0, 10**9))
@settings(max_examples=250, deadline=None)
def test_steps_are_right_and_arrive_at_the_answer(
    where: tuple[ProblemSet, Split], seed: int, index: int
) -> None:
    worked = draw(*where, seed, index)
    assert_good_steps(worked)
    assert worked.steps == draw(*where, seed, index).steps


@given(st.sampled_from(Split), st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_a_composition_goes_on_from_the_inner_answer(split: Split, index: int) -> None:
    known = [s for s in ProblemSet if "composition" in s and (s, split) in SETS_AND_SPLITS]
    for problem_set in known:
        worked = draw(problem_set, split, 0, index)
        (told,) = (step for step in worked.steps if step.startswith("This gives N="))
        m = last_number(worked.problem.question)
        composition = ALL_COMPOSITIONS[worked.problem.composition]
        assert composition.value(last_number(told), m) == worked.problem.answer


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_whole_steps_are_right_too(family: str) -> None:
    read = 0
    for draft in drafts(family, 100):
        assert ELLIPSIS not in draft.steps
        read += read_equations(" ".join(draft.steps)) + read_rows(draft.steps)
        assert last_number(draft.steps[-2]) == draft.answer
    assert read >= 100


def test_steps_name_no_tool() -> None:
    words = Counter(
        word
        for family in ALL_FAMILIES
        for draft in drafts(family, 100)
        for word in re.findall(r"[a-z]+", " ".join(draft.steps).lower())
    )
    assert not words.keys() & {
        "program",
        "python",
        "code",
        "run",
        "print",
        "output",
        "tool",
        "call",
    }
    assert len(words) <= 50, "a small model needs a small vocabulary"
    assert min(words.values()) >= 10, "and to see each word often"


# --- what no equation says -------------------------------------------------------------------


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def rows(draft: Draft) -> list[list[int]]:
    return [numbers(step) for step in draft.steps if ROW.fullmatch(step)]


def test_the_primes_listed_are_those_of_the_range() -> None:
    for draft in drafts("primes_in_range", 60):
        a, b = numbers(draft.question)
        listed = []
        for step in draft.steps:
            if " + " in step:
                hundred, *ends = numbers(step)
                listed += [hundred + end for end in ends]
        assert listed == [n for n in range(a, b + 1) if all(n % d for d in range(2, n))]


def test_the_terms_of_a_recurrence_are_all_there() -> None:
    for draft in drafts("recurrence_mod", 60):
        _, a, _, b, p, w, n, m = numbers(re.sub(r"n-[12]|n>2|_n", "", draft.question))
        told = [a, b]
        for step in draft.steps[1:-1]:
            index, *values = numbers(step.replace(" on:", ""))
            assert index == len(told) + 1
            told += values if " on:" in step else values[-1:]
        expected = [a, b]
        while len(expected) < n:
            expected.append((p * expected[-1] + w * expected[-2]) % m)
        assert told == expected


def test_the_rows_of_a_power_are_its_digits() -> None:
    for draft in drafts("digits_of_power", 60):
        a, b = numbers(draft.question)
        named = [step.split(":")[0] for step in draft.steps if ROW.fullmatch(step)]
        assert "".join(named) == str(a**b)
        assert [sum(map(int, row)) for row in named] == [part for _, part, _ in rows(draft)]


def test_a_collatz_row_leads_to_the_next() -> None:
    for draft in drafts("collatz", 60):
        odd = [row[0] for row in rows(draft)]
        for (n, up, part, _), following in zip(rows(draft), [*odd[1:], 1], strict=True):
            assert up == 3 * n + 1 == following * 2 ** (part - 1)


def test_the_rows_of_two_digits_count_them() -> None:
    for draft in drafts("digit_sum_count", 60):
        for rest, ways, _ in rows(draft):
            assert ways == sum(z + e == rest for z in range(10) for e in range(10))


def test_the_rows_of_coins_count_the_ways_to_pay_the_rest() -> None:
    for draft in drafts("coin_ways", 60):
        a, b, *_ = numbers(draft.steps[0])
        for rest, *_, ways, _ in rows(draft):
            fitting = [y for y in range(rest // b + 1) if (rest - b * y) % a == 0]
            assert ways == len(fitting)


def test_a_factorisation_is_into_primes() -> None:
    for draft in drafts("divisors", 60):
        n = numbers(draft.question)[0]
        told = [s for s in draft.steps if s == f"{n} is prime." or s.startswith(f"{n}=")][-1]
        factors = told.partition("=")[2].split("*") if "=" in told else [str(n)]
        for p in (numbers(factor)[0] for factor in factors):
            assert all(p % d for d in range(2, p)), told


# --- arithmetic and leaving out --------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_product_ends_in_its_value(a: int, b: int) -> None:
    steps = product(a, b)
    assert last_number(steps[-1]) == a * b
    assert read_equations(" ".join(steps)) == len(steps)


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_a_division_ends_in_quotient_and_remainder(n: int, k: int) -> None:
    steps = division(n, k)
    assert steps[-1] == f"{n}={k}*{n // k}+{n % k}."
    assert read_equations(" ".join(steps)) == len(steps)


@given(st.integers(0, 10**18), st.integers(1, 1000))
def test_both_remainders_end_in_it_and_a_small_number_needs_none(n: int, m: int) -> None:
    for steps in (remainder(n, m), remainder_by_digits(n, m)):
        assert bool(steps) == (n >= m)
        assert not steps or last_number(steps[-1]) == n % m
        assert read_equations(" ".join((f"Work mod {m}.", *steps))) == len(steps)


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_an_addition_takes_one_number_at_a_time(parts: list[int]) -> None:
    steps = addition(parts)
    assert len(steps) == len(parts) - 1
    assert not steps or last_number(steps[-1]) == sum(parts)
    assert read_equations(" ".join(steps)) == len(steps)


@given(st.lists(st.text("ab", min_size=1, max_size=30), min_size=1), st.integers(40, 200))
def test_shortened_steps_keep_both_ends(steps: list[str], limit: int) -> None:
    short = shortened(tuple(steps), limit)
    assert len(" ".join(short)) <= limit
    if short != tuple(steps):
        cut = short.index(ELLIPSIS)
        ending = short[cut + 1 :]
        assert short[:cut] == tuple(steps[:cut])
        assert ending == tuple(steps[len(steps) - len(ending) :])
        assert ending
        assert len(" ".join(steps)) > limit
