"""Families about divisors and remainders."""

import math
from itertools import count
from random import Random

from rstar2.problems.families.by_hand import (
    division,
    product,
    reduced,
    remainder_by_digits,
)
from rstar2.problems.families.draft import Draft, fill


def modular_power(rng: Random) -> Draft:
    """The remainder of a^b modulo m."""
    a, b, m = rng.randint(2, 99), rng.randint(10, 400), rng.randint(11, 997)
    return fill(
        rng,
        answer=pow(a, b, m),
        plan="use modular power",
        questions=(
            "What is the remainder when {a}^{b} is divided by {m}?",
            "Compute {a}^{b} modulo {m}.",
            "Find the residue of {a}^{b} mod {m}.",
        ),
        right=("print(pow({a},{b},{m}))", "print({a}**{b}%{m})"),
        wrong=("print({a}*{b}%{m})", "print(pow({b},{a},{m}))"),
        steps=_modular_power_by_hand(a, b, m),
        a=a,
        b=b,
        m=m,
    )


def gcd_lcm(rng: Random) -> Draft:
    """The greatest common divisor or the least common multiple of two numbers."""
    g = rng.randint(2, 40)
    a, b = (g * factor for factor in rng.sample(range(3, 61), 2))
    if rng.random() < 0.5:
        return fill(
            rng,
            answer=math.gcd(a, b),
            plan="use gcd",
            questions=(
                "Find the greatest common divisor of {a} and {b}.",
                "What is the largest integer dividing both {a} and {b}?",
            ),
            right=(
                "import math\nprint(math.gcd({a},{b}))",
                "from math import gcd\nprint(gcd({a},{b}))",
            ),
            wrong=("import math\nprint(math.lcm({a},{b}))",),
            steps=_gcd_by_hand(a, b),
            a=a,
            b=b,
        )
    return fill(
        rng,
        answer=math.lcm(a, b),
        plan="use lcm",
        questions=(
            "Find the least common multiple of {a} and {b}.",
            "What is the smallest positive integer divisible by both {a} and {b}?",
        ),
        right=(
            "import math\nprint(math.lcm({a},{b}))",
            "import math\nprint({a}*{b}//math.gcd({a},{b}))",
        ),
        wrong=("import math\nprint(math.gcd({a},{b}))", "print({a}*{b})"),
        steps=_lcm_by_hand(a, b),
        a=a,
        b=b,
    )


def divisors(rng: Random) -> Draft:
    """The number or the sum of the divisors of n."""
    n = rng.randint(100, 5000)
    found = {d for low in range(1, math.isqrt(n) + 1) if n % low == 0 for d in (low, n // low)}
    if rng.random() < 0.5:
        return fill(
            rng,
            answer=len(found),
            plan="count the divisors",
            questions=(
                "How many positive divisors does {n} have?",
                "Determine the number of divisors of {n}.",
            ),
            right=(
                "c=0\nfor d in range(1,{n}+1):\n  if {n}%d==0:\n    c+=1\nprint(c)",
                "print(sum(1 for d in range(1,{n}+1) if {n}%d==0))",
            ),
            wrong=(
                "print(sum(1 for d in range(1,{n}) if {n}%d==0))",
                "print(sum(d for d in range(1,{n}+1) if {n}%d==0))",
            ),
            steps=_divisor_count_by_hand(n),
            n=n,
        )
    return fill(
        rng,
        answer=sum(found),
        plan="sum the divisors",
        questions=(
            "What is the sum of the positive divisors of {n}?",
            "Find the sum of all divisors of {n}.",
        ),
        right=(
            "s=0\nfor d in range(1,{n}+1):\n  if {n}%d==0:\n    s+=d\nprint(s)",
            "print(sum(d for d in range(1,{n}+1) if {n}%d==0))",
        ),
        wrong=(
            "print(sum(d for d in range(1,{n}) if {n}%d==0))",
            "print(sum(1 for d in range(1,{n}+1) if {n}%d==0))",
        ),
        steps=_divisor_sum_by_hand(n),
        n=n,
    )


def binomial_mod(rng: Random) -> Draft:
    """A binomial coefficient modulo m."""
    n = rng.randint(10, 60)
    k, m = rng.randint(3, n - 3), rng.randint(11, 997)
    return fill(
        rng,
        answer=math.comb(n, k) % m,
        plan="use the binomial coefficient",
        questions=(
            "Find the remainder when C({n},{k}) is divided by {m}.",
            "In how many ways can {k} items be chosen from {n}? Give the answer modulo {m}.",
        ),
        right=(
            "import math\nprint(math.comb({n},{k})%{m})",
            "from math import comb\nprint(comb({n},{k})%{m})",
        ),
        wrong=(
            "import math\nprint(math.perm({n},{k})%{m})",
            "import math\nprint(math.comb({n},{k})//{m})",
        ),
        steps=_binomial_by_hand(n, k, m),
        n=n,
        k=k,
        m=m,
    )


def two_remainders(rng: Random) -> Draft:
    """The first number above a bound with two given remainders."""
    m, k = rng.choice((7, 9, 11, 13)), rng.choice((8, 17, 19, 23))
    a, b, low = rng.randrange(m), rng.randrange(k), rng.randint(100, 900)
    return fill(
        rng,
        answer=next(n for n in count(low + 1) if (n % m, n % k) == (a, b)),
        plan="search upward for the first match",
        questions=(
            "Find the smallest integer n > {low} with n mod {m} = {a} and n mod {k} = {b}.",
            "What is the least n greater than {low} that leaves remainder {a} when divided "
            "by {m} and {b} when divided by {k}?",
        ),
        right=(
            "n={low}+1\nwhile n%{m}!={a} or n%{k}!={b}:\n  n+=1\nprint(n)",
            "n={low}+1\nwhile not (n%{m}=={a} and n%{k}=={b}):\n  n+=1\nprint(n)",
        ),
        wrong=(
            "n=1\nwhile n%{m}!={a} or n%{k}!={b}:\n  n+=1\nprint(n)",
            "n={low}+1\nwhile n%{m}!={a}:\n  n+=1\nprint(n)",
        ),
        steps=_two_remainders_by_hand(low, m, a, k, b),
        low=low,
        m=m,
        a=a,
        k=k,
        b=b,
    )


def _modular_power_by_hand(a: int, b: int, m: int) -> tuple[str, ...]:
    """Squaring, and multiplying by x where the exponent is odd; reduced every time."""
    x = value = a % m
    steps = [f"Work mod {m}.", f"x={reduced(a, m)}."]
    exponent = 1
    for bit in f"{b:b}"[1:]:
        exponent *= 2
        steps.append(f"x^{exponent}: {value}*{value}={reduced(value * value, m)}.")
        value = value * value % m
        if bit == "1":
            exponent += 1
            steps.append(f"x^{exponent}: {value}*{x}={reduced(value * x, m)}.")
            value = value * x % m
    return tuple(steps)


def _gcd_by_hand(a: int, b: int) -> tuple[str, ...]:
    """Euclid's algorithm."""
    steps = []
    a, b = max(a, b), min(a, b)
    while b:
        steps.append(f"{a}={a // b}*{b}+{a % b}.")
        a, b = b, a % b
    return (*steps, f"gcd={a}.")


def _lcm_by_hand(a: int, b: int) -> tuple[str, ...]:
    """The larger number over the gcd, times the smaller."""
    a, b, g = max(a, b), min(a, b), math.gcd(a, b)
    return (*_gcd_by_hand(a, b), f"{a}//{g}={a // g}.", *product(a // g, b))


def _factors_by_hand(n: int) -> tuple[dict[int, int], tuple[str, ...]]:
    """Prime factors with their exponents, and the trial divisions that find them."""
    steps: list[str] = []
    tried: list[int] = []
    powers: dict[int, int] = {}

    def tell_tried() -> None:
        if tried:
            steps.append(f"No factor {' '.join(map(str, tried))}.")
            tried.clear()

    left, p = n, 2
    while p * p <= left:
        if left % p == 0:
            tell_tried()
            steps.append(f"{left}={p}*{left // p}.")
            powers[p] = powers.get(p, 0) + 1
            left //= p
        else:
            if all(p % d for d in range(2, math.isqrt(p) + 1)):
                tried.append(p)
            p += 1
    tell_tried()
    powers[left] = powers.get(left, 0) + 1
    shown = "*".join(f"{p}^{e}" if e > 1 else str(p) for p, e in powers.items())
    steps.append(f"{n} is prime." if n in powers else f"{n}={shown}.")
    return powers, tuple(steps)


def _divisor_count_by_hand(n: int) -> tuple[str, ...]:
    """One more than each exponent, multiplied."""
    powers, steps = _factors_by_hand(n)
    if len(powers) == 1:
        (exponent,) = powers.values()
        return (*steps, f"{exponent}+1={exponent + 1}.")
    raised = "*".join(f"({e}+1)" for e in powers.values())
    numbers = "*".join(str(e + 1) for e in powers.values())
    return (*steps, f"{raised}={numbers}={math.prod(e + 1 for e in powers.values())}.")


def _divisor_sum_by_hand(n: int) -> tuple[str, ...]:
    """The powers of every prime added up, and the sums multiplied."""
    powers, found = _factors_by_hand(n)
    steps = list(found)
    total = 1
    for p, exponent in powers.items():
        terms = [p**e for e in range(exponent + 1)]
        steps.append(f"{'+'.join(map(str, terms))}={sum(terms)}.")
        if total > 1:
            steps += product(total, sum(terms))
        total *= sum(terms)
    return tuple(steps)


def _binomial_by_hand(n: int, k: int, m: int) -> tuple[str, ...]:
    """C(n,i) from C(n,i-1) up to the value, then its remainder."""
    few = min(k, n - k)
    steps = [f"Work mod {m}."]
    if few < k:
        steps.append(f"C({n},{k})=C({n},{few}).")
    value = n
    for i in range(2, few + 1):
        following = value * (n - i + 1) // i
        steps.append(f"{value}*{n - i + 1}//{i}={following}.")
        value = following
    return (*steps, *remainder_by_digits(value, m))


def _two_remainders_by_hand(low: int, m: int, a: int, k: int, b: int) -> tuple[str, ...]:
    """Numbers with the second remainder, one after the other, until one has the first."""
    base = low - low % k
    steps = [*division(low, k), f"{low}-{low % k}={base}.", f"{base}+{b}={base + b}."]
    n = base + b
    if n <= low:
        steps.append(f"{n}+{k}={n + k}.")
        n += k
    while n % m != a:
        steps += [f"{n} mod {m}={n % m}.", f"{n}+{k}={n + k}."]
        n += k
    return (*steps, f"{n} mod {m}={a}.", f"So n={n}.")
