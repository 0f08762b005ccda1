"""Families about divisors and remainders."""

import math
from itertools import count
from random import Random

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
        low=low,
        m=m,
        a=a,
        k=k,
        b=b,
    )
