"""Families about numerals: bases, bits, digit sums, Fibonacci numerals, calendar dates."""

from datetime import date
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order of `date.weekday`, in English whatever the locale."""


def _base_product_numbers(rng: Random, size: int) -> Numbers:
    base = rng.randint(5, 9)
    x, y = (
        f"{rng.randrange(1, base)}{''.join(str(rng.randrange(base)) for _ in range(size - 1))}"
        for _ in range(2)
    )
    return {"base": base, "x": x, "y": y}


def _base_product(base: int, x: str, y: str) -> int:
    product, numeral = int(x, base) * int(y, base), ""
    while product:
        product, digit = divmod(product, base)
        numeral = f"{digit}{numeral}"
    return int(numeral)


def _weighted_ones_numbers(rng: Random, size: int) -> Numbers:
    b = near(rng, size)
    return {"a": max(1, b - rng.randint(3, max(60, size // 100))), "b": b}


def _weighted_ones(a: int, b: int) -> int:
    return _weighted_ones_below(b + 1) - _weighted_ones_below(a)


def _weighted_ones_below(limit: int) -> int:
    """The numbers below ``limit`` in blocks: a fixed prefix and i free bits after it."""
    total = prefix = ones = 0
    for i in range(limit.bit_length() - 1, -1, -1):
        if not limit >> i & 1:
            continue
        block = 1 << i
        sum_of_tails = block * (block - 1) // 2
        ones_of_tails = i * block // 2
        weighted_tails = (block - 1) * (i + 1) * block // 4
        total += block * prefix * ones + prefix * ones_of_tails
        total += ones * sum_of_tails + weighted_tails
        prefix, ones = prefix + block, ones + 1
    return total


def _zeckendorf_numbers(rng: Random, size: int) -> Numbers:
    m, n = near(rng, size), near(rng, size)
    return {"m": m, "n": n}


def _zeckendorf(m: int, n: int) -> int:
    return _zeckendorf_places(m) * _zeckendorf_places(n)


def _zeckendorf_places(n: int) -> int:
    """Taking the largest term that fits, again and again."""
    terms = [1, 2]
    while terms[-1] <= n:
        terms.append(terms[-1] + terms[-2])
    places = 0
    for place in range(len(terms), 0, -1):
        if terms[place - 1] <= n:
            n -= terms[place - 1]
            places += place
    return places


def _digit_sums_numbers(rng: Random, size: int) -> Numbers:
    return {"a": rng.randint(1, size // 3), "b": near(rng, size), "k": rng.randint(3, 13)}


def _digit_sums(a: int, b: int, k: int) -> int:
    return _digit_sums_to(b, k) - _digit_sums_to(a - 1, k)


def _digit_sums_to(limit: int, k: int) -> int:
    """A table over the digit sum modulo k of the prefixes that are already below the limit."""
    below, on_limit = [0] * k, 0
    for digit in map(int, str(limit)):
        longer = [sum(below[(s - d) % k] for d in range(10)) for s in range(k)]
        for smaller in range(digit):
            longer[(on_limit + smaller) % k] += 1
        below, on_limit = longer, (on_limit + digit) % k
    return below[0] + (on_limit == 0) - 1


def _cells_numbers(rng: Random, size: int) -> Numbers:
    width = rng.randint(14, 20)
    return {"row": "".join(rng.choices("01", k=width)), "steps": near(rng, size)}


def _cells(row: str, steps: int) -> int:
    """Rule 30 on a ring, all cells at once in the bits of one number."""
    width, cells = len(row), int(row, 2)
    mask = (1 << width) - 1
    for _ in range(steps):
        left = cells >> 1 | (cells & 1) << (width - 1)
        right = (cells << 1 | cells >> (width - 1)) & mask
        cells = left ^ (cells | right)
    return cells


def _weekday_numbers(rng: Random, size: int) -> Numbers:
    start = rng.randint(date(1900, 1, 1).toordinal(), date(2100, 1, 1).toordinal())
    return {
        "weekday": rng.choice(WEEKDAYS),
        "start": date.fromordinal(start).isoformat(),
        "end": date.fromordinal(start + near(rng, size)).isoformat(),
    }


def _weekday(weekday: str, start: str, end: str) -> int:
    first, last = date.fromisoformat(start), date.fromisoformat(end)
    wait = (WEEKDAYS.index(weekday) - first.weekday()) % 7
    days = range(first.toordinal() + wait, last.toordinal() + 1, 7)
    return sum(date.fromordinal(day).day for day in days)


DIGITS = {
    "base_product": LadderFamily(
        grows="digits",
        sizes=(3, 6, 14),
        numbers=_base_product_numbers,
        phrasings=(
            "Multiply the base {base} numbers {x} and {y}. Write the product in base {base}.",
            "The numerals {x} and {y} are written in base {base}. What is the base {base} "
            "numeral of their product?",
        ),
        answer=_base_product,
    ),
    "weighted_binary_ones": LadderFamily(
        grows="upper end",
        sizes=(4_000, 400_000, 10**12),
        numbers=_weighted_ones_numbers,
        phrasings=(
            "Multiply each integer n from {a} to {b} inclusive by the number of ones in its "
            "binary form. What is the sum of these products?",
            "Let w(n) be the number of ones of n in base 2. Find the sum of n * w(n) over all "
            "integers n with {a} <= n <= {b}.",
        ),
        answer=_weighted_ones,
    ),
    "zeckendorf": LadderFamily(
        grows="numbers",
        sizes=(1_000, 10**7, 10**18),
        numbers=_zeckendorf_numbers,
        phrasings=(
            "In the sequence 1, 2, 3, 5, 8, 13, ... each term after the second is the sum of the "
            "two before it. Every positive integer is in exactly one way a sum of different "
            "terms no two of which are neighbours. Let s be the sum of the places of these "
            "terms, where the first term has place 1. Find s for {m} times s for {n}.",
            "Write {m} and {n} each as a sum of different, pairwise non-neighbouring terms of "
            "the Fibonacci sequence F(1) = 1, F(2) = 2, F(3) = 3, F(4) = 5, .... Add up the "
            "indices used for {m}, add up the indices used for {n}, and multiply the two sums.",
        ),
        answer=_zeckendorf,
    ),
    "digit_sums": LadderFamily(
        grows="upper end",
        sizes=(1_500, 150_000, 10**16),
        numbers=_digit_sums_numbers,
        phrasings=(
            "How many integers from {a} to {b} inclusive have a digit sum divisible by {k}?",
            "Count the integers n with {a} <= n <= {b} whose decimal digits add up to a multiple "
            "of {k}.",
        ),
        answer=_digit_sums,
    ),
    "cellular_automaton": LadderFamily(
        grows="steps",
        sizes=(2, 16, 120),
        numbers=_cells_numbers,
        phrasings=(
            "The cells of the row {row} stand in a ring, so the first and the last are "
            "neighbours. In one step all cells change at once: a new cell is 1 exactly when "
            "either its old left neighbour is 1 and both it and its old right neighbour were 0, "
            "or its old left neighbour is 0 and it or its old right neighbour was 1. Read the "
            "row after {steps} steps as a binary number. What is it in decimal?",
            "Rule 30 replaces every cell c of a row, all at the same time, by l XOR (c OR r), "
            "where l and r are its left and right neighbours; the row wraps around. Apply it "
            "{steps} times to {row}. What is the decimal value of the resulting binary number?",
        ),
        answer=_cells,
    ),
    "weekday_dates": LadderFamily(
        grows="days",
        sizes=(90, 1_500, 15_000),
        numbers=_weekday_numbers,
        phrasings=(
            "Dates are given as year-month-day in the Gregorian calendar. For every {weekday} "
            "from {start} to {end}, both included, take the day of the month. What is the sum of "
            "these numbers?",
            "Add up the day-of-month numbers of all dates that fall on a {weekday} in the period "
            "from {start} to {end} (year-month-day, Gregorian calendar, both ends included).",
        ),
        answer=_weekday,
    ),
}
"""The families about numerals and dates, by name."""
