"""Families that count: primes, palindromes, digit sums, ways to pay."""

import math
from itertools import product
from random import Random

from rstar2.problems.families.draft import Draft, fill


def digit_sum_count(rng: Random) -> Draft:
    """How many integers up to n have a given digit sum."""
    n, s = rng.randint(100, 3000), rng.randint(4, 18)
    digits = product(range(n // 1000 + 1), range(10), range(10), range(10))
    return fill(
        rng,
        answer=sum(
            t + h + z + e == s and 1000 * t + 100 * h + 10 * z + e <= n for t, h, z, e in digits
        ),
        plan="check the digit sum of each number",
        questions=(
            "How many positive integers up to {n} have digit sum {s}?",
            "Count the integers from 1 to {n} whose digits add up to {s}.",
            "Determine how many n with 1 <= n <= {n} have digits summing to {s}.",
        ),
        right=(
            "c=0\nfor i in range(1,{n}+1):\n  if sum(map(int,str(i)))=={s}:\n    c+=1\nprint(c)",
            "print(sum(1 for i in range(1,{n}+1) if sum(map(int,str(i)))=={s}))",
        ),
        wrong=(
            "c=0\nfor i in range(1,{n}+1):\n  if sum(map(int,str(i)))=={s}:\n    c+=i\nprint(c)",
            "print(sum(1 for i in range(1,{n}+1) if sum(map(int,str(i)))<={s}))",
        ),
        n=n,
        s=s,
    )


def primes_in_range(rng: Random) -> Draft:
    """How many primes lie between a and b."""
    a = rng.randint(2, 300)
    b = a + rng.randint(20, 400)
    composite = {j for i in range(2, 27) for j in range(i * i, b + 1, i)}
    return fill(
        rng,
        answer=sum(n not in composite for n in range(a, b + 1)),
        plan="test each number for primality",
        questions=(
            "How many primes are there between {a} and {b} inclusive?",
            "Count the prime numbers p with {a} <= p <= {b}.",
        ),
        right=(
            "c=0\nfor n in range({a},{b}+1):\n  if all(n%d for d in range(2,n)):\n"
            "    c+=1\nprint(c)",
            "print(sum(all(n%d for d in range(2,n)) for n in range({a},{b}+1)))",
        ),
        wrong=(
            "print(sum(n for n in range({a},{b}+1) if all(n%d for d in range(2,n))))",
            "print(sum(any(n%d for d in range(2,n)) for n in range({a},{b}+1)))",
        ),
        a=a,
        b=b,
    )


def coin_ways(rng: Random) -> Draft:
    """In how many ways three coins pay n, order ignored."""
    # a and b have no common factor, so every n drawn can be paid.
    a, b = rng.choice([(a, b) for a in range(2, 6) for b in range(6, 10) if math.gcd(a, b) == 1])
    n, c = rng.randint(60, 200), rng.randint(10, 15)
    rests = (n - c * z - b * y for z in range(n // c + 1) for y in range(n // b + 1))
    return fill(
        rng,
        answer=sum(rest >= 0 and rest % a == 0 for rest in rests),
        plan="fill a table over the coins",
        questions=(
            "In how many ways can {n} cents be paid using coins worth {a}, {b} and {c} cents?",
            "Find the number of nonnegative integer solutions of {a}x+{b}y+{c}z={n}.",
        ),
        right=(
            "w=[1]+[0]*{n}\nfor c in [{a},{b},{c}]:\n  for i in range(c,{n}+1):\n"
            "    w[i]+=w[i-c]\nprint(w[{n}])",
            "t=0\nfor x in range(0,{n}+1,{a}):\n  for y in range(0,{n}-x+1,{b}):\n"
            "    if ({n}-x-y)%{c}==0:\n      t+=1\nprint(t)",
        ),
        wrong=(
            "w=[1]+[0]*{n}\nfor i in range(1,{n}+1):\n  for c in [{a},{b},{c}]:\n"
            "    if i>=c:\n      w[i]+=w[i-c]\nprint(w[{n}])",
        ),
        n=n,
        a=a,
        b=b,
        c=c,
    )


def palindromes(rng: Random) -> Draft:
    """How many palindromes lie between a and b."""
    a = rng.randint(10, 500)
    b = a + rng.randint(100, 3000)
    halves = [str(half) for half in range(1, 100)]
    mirrored = {int(half + half[-1 - odd :: -1]) for half in halves for odd in (0, 1)}
    return fill(
        rng,
        answer=sum(a <= n <= b for n in mirrored),
        plan="compare each string with its reverse",
        questions=(
            "How many palindromes lie between {a} and {b} inclusive?",
            "Count the integers n with {a} <= n <= {b} that read the same backwards.",
        ),
        right=(
            "c=0\nfor i in range({a},{b}+1):\n  if str(i)==str(i)[::-1]:\n    c+=1\nprint(c)",
            "print(sum(str(i)==str(i)[::-1] for i in range({a},{b}+1)))",
        ),
        wrong=(
            "print(sum(i for i in range({a},{b}+1) if str(i)==str(i)[::-1]))",
            "print(sum(str(i)!=str(i)[::-1] for i in range({a},{b}+1)))",
        ),
        a=a,
        b=b,
    )
