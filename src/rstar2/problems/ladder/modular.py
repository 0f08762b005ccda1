"""Families about remainders: powers, congruences, residues, polynomials, matrices."""

import math
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near
from rstar2.problems.ladder.primes import factorised, upper_primes

COPRIME_MODULI = (7, 8, 9, 11, 13, 17, 19, 23, 25, 29, 31, 37, 41, 43, 47)
"""No two have a common factor."""

Matrix = tuple[int, int, int, int]
"""The entries of a 2 by 2 matrix, row by row."""


def _modular_powers_numbers(rng: Random, size: int) -> Numbers:
    a, b = rng.sample(range(2, 60), 2)
    return {"a": a, "n": near(rng, size), "b": b, "k": near(rng, size), "m": rng.randint(101, 999)}


def _modular_powers(a: int, n: int, b: int, k: int, m: int) -> int:
    return (pow(a, n, m) + pow(b, k, m)) % m


def _remainders_numbers(rng: Random, size: int) -> Numbers:
    """The answer is larger than every modulus, so it is none of the remainders."""
    moduli = rng.sample(COPRIME_MODULI, size)
    n = rng.randrange(max(moduli) + 1, math.prod(moduli))
    return {"pairs": tuple((n % m, m) for m in moduli)}


def _remainders(pairs: tuple[tuple[int, int], ...]) -> int:
    found, step = 0, 1
    for remainder, modulus in pairs:
        found += step * ((remainder - found) * pow(step, -1, modulus) % modulus)
        step *= modulus
    return found


def _discrete_logarithm_numbers(rng: Random, size: int) -> Numbers:
    """The base is a primitive root, so that every answer is equally likely."""
    p = rng.choice(upper_primes(size))
    parts = [(p - 1) // q for q in factorised(p - 1)]
    a = rng.randint(2, p - 2)
    while any(pow(a, part, p) == 1 for part in parts):
        a = rng.randint(2, p - 2)
    return {"a": a, "r": pow(a, rng.randint(3, p - 2), p), "p": p}


def _discrete_logarithm(a: int, r: int, p: int) -> int:
    """Baby steps and giant steps; the largest baby step of the first hit is the least k."""
    width = math.isqrt(p) + 1
    babies, value = {}, r % p
    for j in range(width):
        babies[value] = j
        value = value * a % p
    giant = pow(a, width, p)
    value, k = giant, width
    while value not in babies:
        value = value * giant % p
        k += width
    return k - babies[value]


def _linear_congruence_numbers(rng: Random, size: int) -> Numbers:
    m = near(rng, size)
    a = rng.randint(m // 4, m - 1)
    while math.gcd(a, m) > 1:
        a = rng.randint(m // 4, m - 1)
    return {"a": a, "b": rng.randint(1, 99), "c": rng.randrange(m), "m": m}


def _linear_congruence(a: int, b: int, c: int, m: int) -> int:
    return ((c - b) * pow(a, -1, m) - 1) % m + 1


def _quadratic_residues_numbers(rng: Random, size: int) -> Numbers:
    p = rng.choice(upper_primes(size))
    return {"p": p, "low": rng.randint(1, p // 2), "high": rng.randint(p // 2 + 1, p - 1)}


def _quadratic_residues(p: int, low: int, high: int) -> int:
    squares = {x * x % p for x in range(1, p // 2 + 1)}
    return sum(r for r in squares if low <= r <= high)


def _polynomial_value_numbers(rng: Random, size: int) -> Numbers:
    coefficients = tuple(rng.choices(range(1, 10), k=near(rng, size) + 1))
    return {
        "coefficients": coefficients,
        "x": rng.randint(3, 99),
        "m": rng.randint(101, 999),
    }


def _polynomial_value(coefficients: tuple[int, ...], x: int, m: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value * x + coefficient) % m
    return value


def _matrix_power_numbers(rng: Random, size: int) -> Numbers:
    a, b, c, d = rng.choices(range(1, 20), k=4)
    return {"rows": ((a, b), (c, d)), "n": near(rng, size), "m": rng.randint(101, 999)}


def _matrix_power(rows: tuple[tuple[int, int], tuple[int, int]], n: int, m: int) -> int:
    """Repeated squaring."""
    square, power = (*rows[0], *rows[1]), (1, 0, 0, 1)
    while n:
        if n % 2:
            power = _matrix_product(power, square, m)
        square = _matrix_product(square, square, m)
        n //= 2
    return sum(power) % m


def _matrix_product(left: Matrix, right: Matrix, m: int) -> Matrix:
    a, b, c, d = left
    p, q, r, s = right
    return (a * p + b * r) % m, (a * q + b * s) % m, (c * p + d * r) % m, (c * q + d * s) % m


MODULAR = {
    "modular_powers": LadderFamily(
        grows="exponents",
        sizes=(12, 10_000, 10**15),
        numbers=_modular_powers_numbers,
        phrasings=(
            "What is the remainder when {a}^{n} + {b}^{k} is divided by {m}?",
            "Add {a}^{n} and {b}^{k}. Which remainder does the sum leave on division by {m}?",
            "Compute {a}^{n} + {b}^{k} modulo {m}.",
        ),
        answer=_modular_powers,
    ),
    "remainders": LadderFamily(
        grows="congruences",
        sizes=(2, 4, 8),
        numbers=_remainders_numbers,
        phrasings=(
            "Each pair (r, m) says that n leaves remainder r when it is divided by m: {pairs}. "
            "What is the smallest positive integer n for which all of them hold?",
            "Find the least integer n > 0 such that n mod m = r for every pair (r, m) in this "
            "list: {pairs}.",
        ),
        answer=_remainders,
    ),
    "discrete_logarithm": LadderFamily(
        grows="prime modulus",
        sizes=(200, 4_000, 200_000),
        numbers=_discrete_logarithm_numbers,
        phrasings=(
            "What is the smallest positive integer k for which {a}^k leaves remainder {r} when "
            "it is divided by {p}?",
            "Find the least k >= 1 with {a}^k = {r} modulo {p}.",
        ),
        answer=_discrete_logarithm,
    ),
    "linear_congruence": LadderFamily(
        grows="modulus",
        sizes=(400, 20_000, 10**12),
        numbers=_linear_congruence_numbers,
        phrasings=(
            "What is the smallest positive integer x for which {a}x + {b} leaves remainder {c} "
            "when it is divided by {m}?",
            "Find the least integer x > 0 with {a}x + {b} = {c} modulo {m}.",
        ),
        answer=_linear_congruence,
    ),
    "quadratic_residues": LadderFamily(
        grows="prime modulus",
        sizes=(200, 1_500, 8_000),
        numbers=_quadratic_residues_numbers,
        phrasings=(
            "Call r a square modulo {p} if some integer x makes x^2 - r a multiple of {p}. Find "
            "the sum of all integers r from {low} to {high} inclusive that are squares modulo {p}.",
            "Squares of integers are divided by {p} and their remainders are collected, each "
            "value once. What is the sum of the collected remainders that are at least {low} and "
            "at most {high}?",
        ),
        answer=_quadratic_residues,
    ),
    "polynomial_value": LadderFamily(
        grows="degree",
        sizes=(4, 14, 50),
        numbers=_polynomial_value_numbers,
        phrasings=(
            "A polynomial P has these coefficients, from its highest power of x down to the "
            "constant term: {coefficients}. What is the remainder when P({x}) is divided by {m}?",
            "Let P(x) be the polynomial with coefficients {coefficients}, highest power first, "
            "constant term last. Compute P({x}) modulo {m}.",
        ),
        answer=_polynomial_value,
    ),
    "matrix_power": LadderFamily(
        grows="exponent",
        sizes=(4, 100, 10**12),
        numbers=_matrix_power_numbers,
        phrasings=(
            "The rows of a 2 by 2 matrix M are {rows}. Add the four entries of M^{n}. What is "
            "the remainder of this sum on division by {m}?",
            "Let M be the matrix with rows {rows}. Find the sum of all entries of M^{n}, "
            "modulo {m}.",
        ),
        answer=_matrix_power,
    ),
}
"""The families about remainders, by name."""
