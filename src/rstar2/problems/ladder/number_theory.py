"""Families about divisors, primes, fractions and Diophantine equations."""

import math
from bisect import bisect_right
from itertools import combinations
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near
from rstar2.problems.ladder.primes import factorised, primes_to

PRIME_LIMIT = 160_000
"""Beyond every answer of ``kth_prime``."""


def _totient_sum_numbers(rng: Random, size: int) -> Numbers:
    return {"values": tuple(rng.sample(range(size // 2, size + 1), 4))}


def _totient_sum(values: tuple[int, ...]) -> int:
    return sum(math.prod((p - 1) * p ** (e - 1) for p, e in factorised(n).items()) for n in values)


def _divisors_between_numbers(rng: Random, size: int) -> Numbers:
    n = 1
    while 23 * n <= size:
        n *= rng.choice((2, 2, 3, 3, 5, 7, 11, 13, 17, 19, 23))
    n *= rng.randint(-(-size // (2 * n)), size // n)
    root = math.isqrt(n)
    return {"n": n, "low": rng.randint(2, root // 2), "high": rng.randint(root, n // 3)}


def _divisors_between(n: int, low: int, high: int) -> int:
    divisors = [1]
    for p, e in factorised(n).items():
        divisors = [d * p**i for d in divisors for i in range(e + 1)]
    return sum(d for d in divisors if low <= d <= high)


def _kth_prime_numbers(rng: Random, size: int) -> Numbers:
    return {"k": near(rng, size), "n": rng.randint(100, 9_999 if size < 100 else 99_999)}


def _kth_prime(k: int, n: int) -> int:
    primes = primes_to(PRIME_LIMIT)
    return primes[bisect_right(primes, n) + k - 1]


def _coprime_products_numbers(rng: Random, size: int) -> Numbers:
    a, c = (rng.randint(1, max(100, 5 * size)) for _ in range(2))
    return {"a": a, "b": a + near(rng, size) - 1, "c": c, "d": c + near(rng, size) - 1}


def _coprime_products(a: int, b: int, c: int, d: int) -> int:
    """Over each common divisor g, the multiples of g that are no multiples of 2g, 3g, ..."""
    sums = [0] * (min(b, d) + 1)
    for g in range(len(sums) - 1, 0, -1):
        left = g * _sum_between(-(-a // g), b // g)
        right = g * _sum_between(-(-c // g), d // g)
        sums[g] = left * right - sum(sums[2 * g :: g]) if left and right else 0
    return sums[1]


def _sum_between(low: int, high: int) -> int:
    return (low + high) * (high - low + 1) // 2 if low <= high else 0


def _divisible_by_any_numbers(rng: Random, size: int) -> Numbers:
    b = near(rng, size)
    count = 2 + len(str(size)) // 3
    return {
        "a": rng.randint(1, size // 4),
        "b": b,
        "divisors": tuple(sorted(rng.sample(range(4, 40), count))),
    }


def _divisible_by_any(a: int, b: int, divisors: tuple[int, ...]) -> int:
    """Inclusion and exclusion."""
    total = 0
    for taken in range(1, len(divisors) + 1):
        for chosen in combinations(divisors, taken):
            common = math.lcm(*chosen)
            total += (-1) ** (taken + 1) * (b // common - (a - 1) // common)
    return total


def _pell_numbers(rng: Random, size: int) -> Numbers:
    largest = 30 if size < 5 else 60
    d = rng.choice([d for d in range(2, largest + 1) if math.isqrt(d) ** 2 != d])
    a, b = rng.sample(range(11, 100), 2)
    return {"d": d, "k": near(rng, size), "a": a, "b": b, "m": rng.randint(1_001, 9_999)}


def _pell(d: int, k: int, a: int, b: int, m: int) -> int:
    """The continued fraction of the root of d gives the least solution; its powers the rest."""
    root = math.isqrt(d)
    shift, scale, quotient = 0, 1, root
    (before_x, x), (before_y, y) = (1, root), (0, 1)
    while x * x - d * y * y != 1:
        shift = quotient * scale - shift
        scale = (d - shift * shift) // scale
        quotient = (root + shift) // scale
        before_x, x = x, quotient * x + before_x
        before_y, y = y, quotient * y + before_y
    u, v = x, y
    for _ in range(k - 1):
        u, v = u * x + d * v * y, u * y + v * x
    return (a * u + b * v) % m


def _continued_fraction_numbers(rng: Random, size: int) -> Numbers:
    return {"terms": (*rng.choices(range(1, 21), k=near(rng, size) - 1), rng.randint(2, 20))}


def _continued_fraction(terms: tuple[int, ...]) -> int:
    p, q = 1, 0
    for term in reversed(terms):
        p, q = term * p + q, p
    return p + q


def _farey_numbers(rng: Random, size: int) -> Numbers:
    b = near(rng, size // 2)
    a = rng.randint(1, b - 1)
    while math.gcd(a, b) > 1:
        a = rng.randint(1, b - 1)
    return {"a": a, "b": b, "n": near(rng, size)}


def _farey(a: int, b: int, n: int) -> int:
    """The next fraction p/q has bp - aq = 1 and the largest q that is allowed."""
    q = pow(-a, -1, b)
    q += (n - q) // b * b
    return q + (1 + a * q) // b


NUMBER_THEORY = {
    "totient_sum": LadderFamily(
        grows="numbers",
        sizes=(300, 5_000, 10**6),
        numbers=_totient_sum_numbers,
        phrasings=(
            "For each n in the list {values}, count the integers from 1 to n that have no "
            "common factor with n except 1. What is the sum of these counts?",
            "Euler's totient of n is the number of integers from 1 to n that are coprime to n. "
            "Find the sum of the totients of {values}.",
        ),
        answer=_totient_sum,
    ),
    "divisors_between": LadderFamily(
        grows="number",
        sizes=(3_000, 300_000, 10**10),
        numbers=_divisors_between_numbers,
        phrasings=(
            "Find the sum of all divisors d of {n} with {low} <= d <= {high}.",
            "Which positive integers divide {n} and lie between {low} and {high}, both ends "
            "included? Give their sum.",
        ),
        answer=_divisors_between,
    ),
    "kth_prime": LadderFamily(
        grows="k",
        sizes=(5, 60, 3_000),
        numbers=_kth_prime_numbers,
        phrasings=(
            "List the primes greater than {n} in increasing order. Which prime is number {k} in "
            "the list, counting from 1?",
            "Starting with the first prime above {n} as number 1, what is prime number {k}?",
        ),
        answer=_kth_prime,
    ),
    "coprime_products": LadderFamily(
        grows="side of the square of pairs",
        sizes=(5, 50, 400),
        numbers=_coprime_products_numbers,
        phrasings=(
            "Take every pair (x, y) of integers with {a} <= x <= {b} and {c} <= y <= {d} whose "
            "greatest common divisor is 1. What is the sum of the products xy?",
            "x runs through the integers from {a} to {b} and y through those from {c} to {d}, "
            "ends included. Add up xy over all pairs (x, y) that are coprime.",
        ),
        answer=_coprime_products,
    ),
    "divisible_by_any": LadderFamily(
        grows="upper end",
        sizes=(900, 100_000, 10**12),
        numbers=_divisible_by_any_numbers,
        phrasings=(
            "How many integers from {a} to {b} inclusive are divisible by at least one of "
            "{divisors}?",
            "Count the integers n with {a} <= n <= {b} that are a multiple of one or more of the "
            "numbers {divisors}.",
        ),
        answer=_divisible_by_any,
    ),
    "pell": LadderFamily(
        grows="k",
        sizes=(2, 12, 150),
        numbers=_pell_numbers,
        phrasings=(
            "The solutions of x^2 - {d}y^2 = 1 in positive integers are listed with x "
            "increasing. For solution number {k}, counting from 1, what is {a}x + {b}y modulo {m}?",
            "Sort all pairs of positive integers (x, y) with x^2 = {d}y^2 + 1 by x. Take pair "
            "number {k}, where the smallest is number 1, and find the remainder of {a}x + {b}y on "
            "division by {m}.",
        ),
        answer=_pell,
    ),
    "continued_fraction": LadderFamily(
        grows="terms",
        sizes=(5, 12, 26),
        numbers=_continued_fraction_numbers,
        phrasings=(
            "The continued fraction t1 + 1/(t2 + 1/(t3 + ...)) with the terms {terms} equals "
            "p/q in lowest terms. Find p + q.",
            "Write the finite continued fraction whose partial quotients are, in order, {terms} "
            "as a reduced fraction p/q. What is p + q?",
        ),
        answer=_continued_fraction,
    ),
    "farey_neighbour": LadderFamily(
        grows="largest denominator",
        sizes=(200, 2_000, 20_000),
        numbers=_farey_numbers,
        phrasings=(
            "Among all fractions greater than {a}/{b} whose denominator is at most {n}, the "
            "smallest is p/q in lowest terms. Find p + q.",
            "In the Farey sequence of order {n}, which fraction p/q comes right after {a}/{b}? "
            "Give p + q.",
        ),
        answer=_farey,
    ),
}
"""The families of number theory, by name."""
