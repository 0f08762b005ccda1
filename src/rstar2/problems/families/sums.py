"""Families that add up or iterate: sums, recurrences, step counts."""

from random import Random

from rstar2.problems.families.by_hand import division, product, reduced, remainder
from rstar2.problems.families.draft import Draft, fill


def sum_of_multiples(rng: Random) -> Draft:
    """The sum of the multiples of k between a and b."""
    a, k = rng.randint(2, 400), rng.randint(3, 17)
    b = a + rng.randint(20, 600)
    return fill(
        rng,
        answer=sum(range(-(-a // k) * k, b + 1, k)),
        plan="sum the multiples with a loop",
        questions=(
            "Find the sum of all integers from {a} to {b} inclusive that are divisible by {k}.",
            "What is the sum of the multiples of {k} between {a} and {b}, inclusive?",
            "Add up every number in [{a}, {b}] that is a multiple of {k}. What is the total?",
        ),
        right=(
            "s=0\nfor i in range({a},{b}+1):\n  if i%{k}==0:\n    s+=i\nprint(s)",
            "print(sum(i for i in range({a},{b}+1) if i%{k}==0))",
        ),
        wrong=(
            "s=0\nfor i in range({a},{b}):\n  if i%{k}==1:\n    s+=i\nprint(s)",
            "print(sum(1 for i in range({a},{b}+1) if i%{k}==0))",
        ),
        steps=_sum_of_multiples_by_hand(a, b, k),
        a=a,
        b=b,
        k=k,
    )


def power_sum_mod(rng: Random) -> Draft:
    """The sum of the first n squares or cubes modulo m."""
    n, m, p = rng.randint(20, 400), rng.randint(11, 997), rng.choice((2, 3))
    squares = n * (n + 1) * (2 * n + 1) // 6
    cubes = (n * (n + 1) // 2) ** 2
    return fill(
        rng,
        answer=(squares if p == 2 else cubes) % m,
        plan="add the powers with a loop",
        questions=(
            "Find the remainder when 1^{p}+2^{p}+...+{n}^{p} is divided by {m}.",
            "What is the sum of i^{p} for i from 1 to {n}, modulo {m}?",
        ),
        right=(
            "print(sum(i**{p} for i in range(1,{n}+1))%{m})",
            "s=0\nfor i in range(1,{n}+1):\n  s+=i**{p}\nprint(s%{m})",
        ),
        wrong=(
            "print(sum(i**{p} for i in range(1,{n}))%{m})",
            "print(sum(i*{p} for i in range(1,{n}+1))%{m})",
        ),
        steps=_squares_by_hand(n, m) if p == 2 else _cubes_by_hand(n, m),
        n=n,
        m=m,
        p=p,
    )


def recurrence_mod(rng: Random) -> Draft:
    """A term of a linear recurrence of order two modulo m."""
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    p, w = rng.sample(range(2, 7), 2)
    n, m = rng.randint(8, 60), rng.randint(50, 997)
    terms = [a, b]
    while len(terms) < n:
        terms.append((p * terms[-1] + w * terms[-2]) % m)
    return fill(
        rng,
        answer=terms[n - 1] % m,
        plan="iterate the recurrence",
        questions=(
            "A sequence has a_1={a}, a_2={b} and a_n={p}a_(n-1)+{w}a_(n-2). Find a_{n} mod {m}.",
            "Let x_1={a}, x_2={b}, and x_n={p}x_(n-1)+{w}x_(n-2) for n>2. "
            "What is x_{n} modulo {m}?",
        ),
        right=(
            "x,y={a},{b}\nfor i in range({n}-2):\n  x,y=y,{p}*y+{w}*x\nprint(y%{m})",
            "x={a}\ny={b}\nfor i in range({n}-2):\n  x,y=y,({p}*y+{w}*x)%{m}\nprint(y%{m})",
        ),
        wrong=(
            "x,y={a},{b}\nfor i in range({n}):\n  x,y=y,{p}*y+{w}*x\nprint(y%{m})",
            "x,y={a},{b}\nfor i in range({n}-2):\n  x,y=y,{w}*y+{p}*x\nprint(y%{m})",
        ),
        steps=_recurrence_by_hand(terms, p, w, m),
        a=a,
        b=b,
        p=p,
        w=w,
        n=n,
        m=m,
    )


def collatz(rng: Random) -> Draft:
    """The number of Collatz steps from n down to 1."""
    n = rng.randint(20, 2000)
    steps, at = 0, n
    while at > 1:
        at = 3 * at + 1 if at % 2 else at // 2
        steps += 1
    return fill(
        rng,
        answer=steps,
        plan="simulate the steps",
        questions=(
            "Starting from {n}, halve even numbers and send odd n to 3n+1. How many steps until 1?",
            "How many Collatz steps does {n} need to reach 1?",
        ),
        right=("n={n}\nc=0\nwhile n!=1:\n  n=n//2 if n%2==0 else 3*n+1\n  c+=1\nprint(c)",),
        wrong=(
            "n={n}\nc=0\nwhile n!=1:\n  n=n//2 if n%2==0 else 3*n+1\n  c+=n\nprint(c)",
            "n={n}\nc=1\nwhile n!=1:\n  n=n//2 if n%2==0 else 3*n+1\n  c+=1\nprint(c)",
        ),
        steps=_collatz_by_hand(n),
        n=n,
    )


def _sum_of_multiples_by_hand(a: int, b: int, k: int) -> tuple[str, ...]:
    """First and last multiple, how many there are, and half of the sum of both times that."""
    before = a - 1
    first, last = before - before % k + k, b - b % k
    count = b // k - before // k
    return (
        f"{a}-1={before}.",
        *division(before, k),
        f"First {before}-{before % k}+{k}={first}.",
        *division(b, k),
        f"Last {b}-{b % k}={last}.",
        f"Count {b // k}-{before // k}={count}.",
        f"{first}+{last}={first + last}.",
        *product(first + last, count),
        f"{(first + last) * count}//2={(first + last) * count // 2}.",
    )


def _squares_by_hand(n: int, m: int) -> tuple[str, ...]:
    """n(n+1)(2n+1)/6, the factors divided first and every product reduced."""
    factors = [n, n + 1, 2 * n + 1]
    for divisor in (2, 3):
        place = next(i for i, factor in enumerate(factors) if factor % divisor == 0)
        factors[place] //= divisor
    x, y, z = factors
    left, right = x * y % m, z % m
    return (
        f"Sum={n}*{n + 1}*{2 * n + 1}//6={x}*{y}*{z}.",
        *product(x, y),
        *remainder(x * y, m),
        *remainder(z, m),
        *product(left, right),
        *remainder(left * right, m),
    )


def _cubes_by_hand(n: int, m: int) -> tuple[str, ...]:
    """The square of n(n+1)/2, reduced before it is squared."""
    x, y = (n // 2, n + 1) if n % 2 == 0 else (n, (n + 1) // 2)
    root = x * y % m
    return (
        f"Sum=T*T, T={n}*{n + 1}//2={x}*{y}.",
        *product(x, y),
        *remainder(x * y, m),
        *product(root, root),
        *remainder(root * root, m),
    )


def _recurrence_by_hand(terms: list[int], p: int, w: int, m: int) -> tuple[str, ...]:
    """Term by term; from the sixth on, ten terms a row, and the last one worked out."""

    def worked(i: int) -> str:
        value = p * terms[i - 1] + w * terms[i - 2]
        return f"x_{i + 1}={p}*{terms[i - 1]}+{w}*{terms[i - 2]}={reduced(value, m)}."

    last = len(terms) - 1
    shown = 5 if last > 9 else last
    rows = (
        f"x_{i + 1} on: {' '.join(map(str, terms[i : min(i + 10, last)]))}."
        for i in range(shown, last, 10)
    )
    return (f"Work mod {m}.", *map(worked, range(2, shown)), *rows, worked(last))


def _collatz_by_hand(n: int) -> tuple[str, ...]:
    """Down to the next odd number at a time: 3n+1 and all halvings after it in one row."""
    steps, total = [], 0
    while n % 2 == 0:
        steps.append(f"{n}//2={n // 2}.")
        n, total = n // 2, total + 1
    steps.append(f"Count {total}.")
    if n > 1:
        steps.append("Odd n: 3n+1, steps to odd, total.")
    while n > 1:
        up = 3 * n + 1
        halvings = (up & -up).bit_length() - 1
        total += 1 + halvings
        steps.append(f"{n}: {up}, {1 + halvings}, {total}.")
        n = up >> halvings
    return tuple(steps)
