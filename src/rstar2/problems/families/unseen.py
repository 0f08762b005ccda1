"""Families that no model is trained on: they measure what carries over.

Both recombine what the trained families show: the words of one question with the
loop of another.
"""

from random import Random

from rstar2.problems.families.by_hand import digit_addition, division
from rstar2.problems.families.draft import Draft, fill


def count_of_multiples(rng: Random) -> Draft:
    """How many multiples of k lie between a and b."""
    a, k = rng.randint(2, 400), rng.randint(3, 17)
    b = a + rng.randint(20, 600)
    return fill(
        rng,
        answer=b // k - (a - 1) // k,
        plan="count the multiples with a loop",
        questions=(
            "How many integers from {a} to {b} inclusive are divisible by {k}?",
            "Count the multiples of {k} between {a} and {b}, inclusive.",
        ),
        right=(
            "c=0\nfor i in range({a},{b}+1):\n  if i%{k}==0:\n    c+=1\nprint(c)",
            "print(sum(1 for i in range({a},{b}+1) if i%{k}==0))",
        ),
        wrong=(
            "s=0\nfor i in range({a},{b}+1):\n  if i%{k}==0:\n    s+=i\nprint(s)",
            "print(sum(i%{k} for i in range({a},{b}+1)))",
        ),
        steps=(
            f"{a}-1={a - 1}.",
            *division(a - 1, k),
            *division(b, k),
            f"{b // k}-{(a - 1) // k}={b // k - (a - 1) // k}.",
        ),
        a=a,
        b=b,
        k=k,
    )


def ones_in_binary(rng: Random) -> Draft:
    """How many ones the binary digits of n hold."""
    n = rng.randint(100, 5000)
    return fill(
        rng,
        answer=n.bit_count(),
        plan="convert the base step by step",
        questions=(
            "How many ones does {n} have when written in base 2?",
            "Write {n} in base 2 and count its ones. What do you get?",
        ),
        right=("c=0\nn={n}\nwhile n:\n  c+=n%2\n  n//=2\nprint(c)",),
        wrong=(
            "c=0\nn={n}\nwhile n:\n  c+=1\n  n//=2\nprint(c)",
            "c=0\nn={n}\nwhile n:\n  c+=n%10\n  n//=2\nprint(c)",
        ),
        steps=(
            *(f"{n >> i}=2*{n >> i + 1}+{n >> i & 1}." for i in range(n.bit_length())),
            *digit_addition([n >> i & 1 for i in range(n.bit_length())]),
        ),
        n=n,
    )
