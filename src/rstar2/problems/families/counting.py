"""Families that count: primes, palindromes, digit sums, ways to pay."""

import math
from itertools import product
from random import Random

from rstar2.problems.families.by_hand import addition
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
        steps=_digit_sum_count_by_hand(n, s),
        n=n,
        s=s,
    )


def primes_in_range(rng: Random) -> Draft:
    """How many primes lie between a and b."""
    a = rng.randint(2, 300)
    b = a + rng.randint(20, 400)
    composite = {j for i in range(2, 27) for j in range(i * i, b + 1, i)}
    primes = [n for n in range(a, b + 1) if n not in composite]
    return fill(
        rng,
        answer=len(primes),
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
        steps=_primes_by_hand(primes, b),
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
        steps=_coin_ways_by_hand(n, a, b, c),
        n=n,
        a=a,
        b=b,
        c=c,
    )


def palindromes(rng: Random) -> Draft:
    """How many palindromes lie between a and b."""
    a = rng.randint(10, 500)
    b = a + rng.randint(100, 3000)
    mirrored = {_mirrored(half, odd) for half in range(1, 100) for odd in (0, 1)}
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
        steps=_palindromes_by_hand(a, b),
        a=a,
        b=b,
    )


def _digit_sum_count_by_hand(n: int, s: int) -> tuple[str, ...]:
    """Hundred by hundred: the last two digits must add up to what the first leave of s."""
    steps = ["Rest r for two digits: r+1 ways or 19-r, total."]
    total = 0
    for thousand in range(0, n // 100, 10):
        hundreds = range(thousand, min(thousand + 10, n // 100))
        rests = [s - hundred // 10 - hundred % 10 for hundred in hundreds]
        rests = [rest for rest in rests if 0 <= rest <= 18]
        if rests:
            block = f"{100 * hundreds[0]} to {100 * hundreds[-1] + 99}"
            steps.append(f"{block}, rest {rests[0]} to {rests[-1]}.")
        for rest in rests:
            ways = min(rest + 1, 19 - rest)
            total += ways
            steps.append(f"{rest}: {ways}, {total}.")
    start = n - n % 100
    found = [i for i in range(start, n + 1) if sum(map(int, str(i))) == s]
    listed = " ".join(map(str, found)) or "none"
    steps += [f"{start} to {n}: {listed}.", f"{total}+{len(found)}={total + len(found)}."]
    return tuple(steps)


def _primes_by_hand(primes: list[int], b: int) -> tuple[str, ...]:
    """Crossing out, then what is left of every hundred, by its last two digits."""
    crossing = [p for p in range(2, math.isqrt(b) + 1) if all(p % d for d in range(2, p))]
    steps = [f"Cross out larger multiples of {' '.join(map(str, crossing))}."]
    total = 0
    for hundred in range(primes[0] // 100, b // 100 + 1):
        left = [p for p in primes if p // 100 == hundred]
        if left:
            steps.append(f"{100 * hundred} + {' '.join(f'{p % 100:02}' for p in left)}.")
            steps += addition((total, len(left))) if total else (f"Count {len(left)}.",)
            total += len(left)
    return tuple(steps)


def _coin_ways_by_hand(n: int, a: int, b: int, c: int) -> tuple[str, ...]:
    """For every number of the largest coin: the y for which x comes out whole."""
    steps = [f"{a}x+{b}y={n}-{c}z, y goes by {a}.", "Rest: y, ways, total."]
    total = 0
    for rest in range(n, -1, -c):
        fitting = [y for y in range(rest // b + 1) if (rest - b * y) % a == 0]
        total += len(fitting)
        span = f"{fitting[0]} to {fitting[-1]}" if fitting else "none"
        steps.append(f"{rest}: {span}, {len(fitting)}, {total}.")
    return tuple(steps)


def _palindromes_by_hand(a: int, b: int) -> tuple[str, ...]:
    """For every length: the first halves that are allowed."""
    steps: list[str] = []
    counts = []
    for length, halves in ((2, range(1, 10)), (3, range(10, 100)), (4, range(10, 100))):
        allowed = [half for half in halves if a <= _mirrored(half, length % 2) <= b]
        if allowed:
            low, high, count = allowed[0], allowed[-1], len(allowed)
            first, last = _mirrored(low, length % 2), _mirrored(high, length % 2)
            steps.append(f"{length} digits: {first} to {last}, halves {low} to {high}.")
            steps.append(f"{high}-{low}+1={count}.")
            counts.append(count)
    return (*steps, *addition(counts))


def _mirrored(half: int, odd: int) -> int:
    """The palindrome that begins with ``half``; if odd, its last digit stands once."""
    text = str(half)
    return int(text + text[-1 - odd :: -1])
