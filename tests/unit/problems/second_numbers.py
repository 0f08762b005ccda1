"""Second methods for remainders, number theory, numerals and dates."""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import count

import numpy as np
import sympy
from second_reading import Reading

# --- remainders ---


def power_in_cycle(a: int, n: int, m: int) -> int:
    """The n-th power from the cycle that the powers run into."""
    powers, first_at = [1 % m], {1 % m: 0}
    while (following := powers[-1] * a % m) not in first_at:
        first_at[following] = len(powers)
        powers.append(following)
    start = first_at[following]
    return powers[n] if n < start else powers[start + (n - start) % (len(powers) - start)]


def modular_powers(r: Reading) -> int:
    a, n, b, k, m = r.ints("a", "n", "b", "k", "m")
    return (power_in_cycle(a, n, m) + power_in_cycle(b, k, m)) % m


def remainders(r: Reading) -> int:
    n, step = 0, 1
    for remainder, modulus in r.tuples("pairs"):
        while n % modulus != remainder:
            n += step
        step *= modulus
    return n or step


def discrete_logarithm(r: Reading) -> int:
    a, wanted, p = r.ints("a", "r", "p")
    value = a % p
    for k in count(1):
        if value == wanted:
            return k
        value = value * a % p
    raise AssertionError


def linear_congruence(r: Reading) -> int:
    a, b, c, m = r.ints("a", "b", "c", "m")
    if m <= 20_000:
        return next(x for x in count(1) if (a * x + b) % m == c)
    x, _, divisor = sympy.core.intfunc.igcdex(a, m)
    assert divisor == 1
    return int(x) * (c - b) % m or m


def quadratic_residues(r: Reading) -> int:
    p, low, high = r.ints("p", "low", "high")
    return sum(n for n in range(low, high + 1) if pow(n, (p - 1) // 2, p) == 1)


def polynomial_value(r: Reading) -> int:
    coefficients, x, m = r.ints("coefficients"), r.int("x"), r.int("m")
    return sum(c * x**i for i, c in enumerate(reversed(coefficients))) % m


def matrix_power(r: Reading) -> int:
    """M^n = uM + vI, by the characteristic polynomial x^2 = tx - d; by hand at small n."""
    ((a, b), (c, d)), n, m = r.tuples("rows"), r.int("n"), r.int("m")
    if n <= 100:
        power = np.array([[1, 0], [0, 1]], dtype=object)
        for _ in range(n):
            power = power @ np.array([[a, b], [c, d]], dtype=object)
        return int(power.sum()) % m
    trace, determinant = a + d, a * d - b * c
    u, v = 0, 1
    for bit in bin(n)[2:]:
        u, v = (u * u * trace + 2 * u * v) % m, (v * v - u * u * determinant) % m
        if bit == "1":
            u, v = (u * trace + v) % m, -u * determinant % m
    return (u * (a + b + c + d) + 2 * v) % m


# --- number theory ---


def totient_sum(r: Reading) -> int:
    values = r.ints("values")
    if max(values) <= 5_000:
        return sum(math.gcd(n, k) == 1 for n in values for k in range(1, n + 1))
    return int(sum(sympy.totient(n) for n in values))


def divisors_between(r: Reading) -> int:
    n, low, high = r.ints("n", "low", "high")
    found = {d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)}
    return sum(d for d in found if low <= d <= high)


def kth_prime(r: Reading) -> int:
    n, k = r.ints("n", "k")
    if k > 60:
        return int(sympy.prime(sympy.primepi(n) + k))
    for _ in range(k):
        n = next(p for p in count(n + 1) if all(p % d for d in range(2, math.isqrt(p) + 1)))
    return n


def coprime_products(r: Reading) -> int:
    a, b, c, d = r.ints("a", "b", "c", "d")
    x, y = np.arange(a, b + 1)[:, None], np.arange(c, d + 1)
    return int((x * y)[np.gcd(x, y) == 1].sum())


def divisible_by_any(r: Reading) -> int:
    a, b, divisors = r.int("a"), r.int("b"), r.ints("divisors")
    if b <= 100_000:
        return len({n for d in divisors for n in range(-(-a // d) * d, b + 1, d)})
    return multiples_to(b, divisors) - multiples_to(a - 1, divisors)


def multiples_to(n: int, divisors: list[int]) -> int:
    """Those of the first divisor, and those of the others that are none of the first."""
    if not divisors:
        return 0
    first, *others = divisors
    shared = [d // math.gcd(d, first) for d in others]
    return n // first + multiples_to(n, others) - multiples_to(n // first, shared)


@cache
def least_pell(d: int) -> tuple[int, int]:
    y = next(y for y in count(1) if math.isqrt(d * y * y + 1) ** 2 == d * y * y + 1)
    return math.isqrt(d * y * y + 1), y


def pell(r: Reading) -> int:
    """The solutions satisfy s_(k+1) = 2 x_1 s_k - s_(k-1), in x as in y."""
    d, k, a, b, m = r.ints("d", "k", "a", "b", "m")
    x, y = least_pell(d)
    before, now = a, a * x + b * y
    for _ in range(k - 1):
        before, now = now, 2 * x * now - before
    return now % m


def continued_fraction(r: Reading) -> int:
    *terms, last = r.ints("terms")
    value = Fraction(last)
    for term in reversed(terms):
        value = term + 1 / value
    return value.numerator + value.denominator


def farey_neighbour(r: Reading) -> int:
    a, b, n = r.ints("a", "b", "n")
    p, q = 1, 1
    for denominator in range(1, n + 1):
        numerator = a * denominator // b + 1
        if numerator * q < p * denominator:
            p, q = numerator, denominator
    return p + q


# --- numerals and dates ---


def base_product(r: Reading) -> int:
    """Long multiplication on the digits."""
    base, x, y = r.int("base"), r.text("x")[::-1], r.text("y")[::-1]
    digits = [0] * (len(x) + len(y))
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            digits[i + j] += int(a) * int(b)
    for i in range(len(digits) - 1):
        carry, digits[i] = divmod(digits[i], base)
        digits[i + 1] += carry
    return int("".join(map(str, reversed(digits))))


def weighted_binary_ones(r: Reading) -> int:
    a, b = r.ints("a", "b")
    if b - a <= 5_000:
        return sum(n * bin(n).count("1") for n in range(a, b + 1))
    return ones_below(b + 1)[1] - ones_below(a)[1]


@cache
def ones_below(n: int) -> tuple[int, int]:
    """Ones, and ones times number, of all numbers below n: the even ones and the odd ones."""
    if n <= 1:
        return 0, 0
    (even, even_weighted), (odd, odd_weighted) = ones_below(n - n // 2), ones_below(n // 2)
    odds = n // 2
    return even + odd + odds, 2 * even_weighted + 2 * odd_weighted + odd + odds * odds


def places_of(n: int) -> int:
    """Every way to write n with terms that are no neighbours; there must be one."""
    terms = [1, 2]
    while terms[-1] < n:
        terms.append(terms[-1] + terms[-2])

    def ways(place: int, left: int) -> Iterator[int]:
        if left == 0:
            yield 0
        elif place > 0 and sum(terms[place - 1 :: -2]) >= left:
            yield from ways(place - 1, left)
            if terms[place - 1] <= left:
                yield from (place + rest for rest in ways(place - 2, left - terms[place - 1]))

    (places,) = ways(len(terms), n)
    return places


def zeckendorf(r: Reading) -> int:
    return places_of(r.int("m")) * places_of(r.int("n"))


@cache
def digit_sums_of(digits: int) -> list[int]:
    """How many numerals of so many digits, zeros in front allowed, have each digit sum."""
    counts = [1]
    for _ in range(digits):
        counts = [int(c) for c in np.convolve(counts, [1] * 10)]
    return counts


def digit_sum_multiples(limit: int, k: int) -> int:
    numeral, total, before = str(limit + 1), 0, 0
    for at, digit in enumerate(map(int, numeral)):
        for smaller in range(digit):
            tails = digit_sums_of(len(numeral) - at - 1)
            total += sum(c for s, c in enumerate(tails) if (before + smaller + s) % k == 0)
        before += digit
    return total


@cache
def digit_sum_table(limit: int) -> np.ndarray:
    sums = np.zeros(1, dtype=int)
    while len(sums) <= limit:
        sums = np.concatenate([sums + digit for digit in range(10)])
    return sums


def digit_sums(r: Reading) -> int:
    a, b, k = r.ints("a", "b", "k")
    if b <= 150_000:
        return int((digit_sum_table(150_000)[a : b + 1] % k == 0).sum())
    return digit_sum_multiples(b, k) - digit_sum_multiples(a - 1, k)


def cellular_automaton(r: Reading) -> int:
    """The rule's own number holds the new cell for each of the eight neighbourhoods."""
    cells = [int(cell) for cell in r.text("row")]
    for _ in range(r.int("steps")):
        around = zip([cells[-1], *cells[:-1]], cells, [*cells[1:], cells[0]], strict=True)
        cells = [30 >> (4 * left + 2 * middle + right) & 1 for left, middle, right in around]
    return sum(cell << i for i, cell in enumerate(reversed(cells)))


def weekday_dates(r: Reading) -> int:
    """Day after day with Sakamoto's rule for the first weekday."""
    names = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    wanted = names.index(r.text("weekday"))
    (year, month, day), end = (tuple(map(int, r.text(x).split("-"))) for x in ("start", "end"))
    y = year - (month < 3)
    shift = (0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4)[month - 1]
    weekday = (y + y // 4 - y // 100 + y // 400 + shift + day) % 7
    total = 0
    while (year, month, day) <= end:
        total += day if weekday == wanted else 0
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
        day, weekday = day + 1, (weekday + 1) % 7
        if day > days:
            year, month, day = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
    return total
