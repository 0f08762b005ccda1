"""Families about digits: of a power, in another base, at the end of a factorial."""

import math
from itertools import pairwise
from random import Random

from rstar2.problems.families.by_hand import addition, digit_addition
from rstar2.problems.families.draft import Draft, fill


def digit_sum(n: int, base: int = 10) -> int:
    """The sum of the digits of a nonnegative integer.

    Args:
        n: The number, at least 0.
        base: The base in which it is written, at least 2.
    """
    total = 0
    while n:
        n, digit = divmod(n, base)
        total += digit
    return total


def digits_of_power(rng: Random) -> Draft:
    """The digit sum of a^b."""
    a, b = rng.randint(2, 60), rng.randint(8, 90)
    return fill(
        rng,
        answer=digit_sum(a**b),
        plan="expand the power and add its digits",
        questions=(
            "What is the sum of the digits of {a}^{b}?",
            "Compute the digit sum of {a}^{b}.",
        ),
        right=(
            "print(sum(map(int,str({a}**{b}))))",
            "s=str({a}**{b})\nprint(sum(int(c) for c in s))",
        ),
        wrong=("print(len(str({a}**{b})))", "print(sum(map(int,str({a}*{b}))))"),
        steps=_digits_of_power_by_hand(a, b),
        a=a,
        b=b,
    )


def zeros_and_bases(rng: Random) -> Draft:
    """The zeros at the end of n!, or the digit sum of n in a base from 4 to 9."""
    n, b = rng.randint(30, 900), rng.randint(4, 9)
    if rng.random() < 0.5:
        factorial = str(math.factorial(n))
        return fill(
            rng,
            answer=len(factorial) - len(factorial.rstrip("0")),
            plan="count the factors of five",
            questions=(
                "How many trailing zeros does {n}! have?",
                "Find the number of zeros at the end of {n} factorial.",
            ),
            right=("c=0\nn={n}\nwhile n:\n  n//=5\n  c+=n\nprint(c)",),
            wrong=("c=0\nn={n}\nwhile n:\n  n//=5\n  c+=1\nprint(c)", "print({n}//5)"),
            steps=_trailing_zeros_by_hand(n),
            n=n,
        )
    return fill(
        rng,
        answer=digit_sum(n, b),
        plan="convert the base step by step",
        questions=(
            "What is the sum of the digits of {n} written in base {b}?",
            "Write {n} in base {b} and add its digits. What do you get?",
        ),
        right=("s=0\nn={n}\nwhile n:\n  s+=n%{b}\n  n//={b}\nprint(s)",),
        wrong=(
            "s=0\nn={n}\nwhile n:\n  s+=1\n  n//={b}\nprint(s)",
            "s=0\nn={n}\nwhile n:\n  s+=n%10\n  n//={b}\nprint(s)",
        ),
        steps=_base_digits_by_hand(n, b),
        n=n,
        b=b,
    )


def _digits_of_power_by_hand(a: int, b: int) -> tuple[str, ...]:
    """Powers by halving the exponent; then the digits of the last one, ten a row."""
    exponents = [b >> i for i in range(1, b.bit_length() - 1)]
    steps = [f"{a}^{exponent}={a**exponent}." for exponent in reversed(exponents)]
    steps.append(f"{a}^{b} by ten digits: sum, total.")
    value, total = str(a**b), 0
    for start in range(0, len(value), 10):
        row = value[start : start + 10]
        total += digit_sum(int(row))
        steps.append(f"{row}: {digit_sum(int(row))}, {total}.")
    return tuple(steps)


def _trailing_zeros_by_hand(n: int) -> tuple[str, ...]:
    """Every multiple of 5 gives a zero, of 25 one more, and so on."""
    quotients = [n // 5**i for i in range(1, 5) if n >= 5**i]
    shown = (f"{above}//5={below}." for above, below in pairwise([n, *quotients]))
    return (*shown, *addition(quotients))


def _base_digits_by_hand(n: int, base: int) -> tuple[str, ...]:
    """Repeated division; the remainders are the digits."""
    steps, digits = [], []
    while n:
        steps.append(f"{n}={base}*{n // base}+{n % base}.")
        digits.append(n % base)
        n //= base
    return (*steps, *digit_addition(digits))
