"""Families about digits: of a power, in another base, at the end of a factorial."""

import math
from random import Random

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
        n=n,
        b=b,
    )
