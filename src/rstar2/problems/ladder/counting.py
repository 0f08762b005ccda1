"""Families that count: lattice points, paths, tilings, subsets, solutions, arrangements."""

import math
import operator
from collections import Counter
from itertools import accumulate
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near

Pair = tuple[int, int]


def _ellipse_numbers(rng: Random, size: int) -> Numbers:
    n = near(rng, size)
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return {"a": a, "b": b, "low": rng.randint(1, n // 3), "high": n}


def _ellipse(a: int, b: int, low: int, high: int) -> int:
    return _points_to(a, b, high) - _points_to(a, b, low - 1)


def _points_to(a: int, b: int, n: int) -> int:
    reach = math.isqrt(n // a)
    halves = sum(2 * math.isqrt((n - a * x * x) // b) + 1 for x in range(1, reach + 1))
    return 2 * halves + 2 * math.isqrt(n // b) + 1


def _triangle_numbers(rng: Random, size: int) -> Numbers:
    while True:
        x1, y1, x2, y2, x3, y3 = (rng.randint(0, size) for _ in range(6))
        if abs((x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1)) >= size * size // 4:
            return {"corners": ((x1, y1), (x2, y2), (x3, y3))}


def _triangle(corners: tuple[Pair, Pair, Pair]) -> int:
    """Pick's theorem."""
    (x1, y1), (x2, y2), (x3, y3) = corners
    double_area = abs((x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1))
    sides = ((x2 - x1, y2 - y1), (x3 - x2, y3 - y2), (x1 - x3, y1 - y3))
    on_sides = sum(math.gcd(dx, dy) for dx, dy in sides)
    return (double_area - on_sides) // 2 + 1


def _walks_numbers(rng: Random, size: int) -> Numbers:
    """No point of the rim is closed, so there is always a way."""
    w, h = near(rng, size) + 2, near(rng, size) + 2
    inner = [(x, y) for x in range(1, w) for y in range(1, h)]
    return {"w": w, "h": h, "closed": tuple(sorted(rng.sample(inner, 1 + size // 2)))}


def _walks(w: int, h: int, closed: tuple[Pair, ...]) -> int:
    barred = set(closed)
    ways = [0] * (h + 1)
    ways[0] = 1
    for x in range(w + 1):
        for y in range(h + 1):
            below = ways[y - 1] if y else 0
            ways[y] = 0 if (x, y) in barred else ways[y] + below
    return ways[h]


def _tilings_numbers(rng: Random, size: int) -> Numbers:
    lengths = [1, *sorted(rng.sample(range(2, 7), 2))]
    tiles = tuple((length, rng.randint(1, 6)) for length in lengths)
    return {"n": near(rng, size), "tiles": tiles, "m": rng.randint(1_001, 9_999)}


def _tilings(n: int, tiles: tuple[Pair, ...], m: int) -> int:
    ways = [1]
    for length in range(1, n + 1):
        ways.append(sum(c * ways[length - t] for t, c in tiles if t <= length) % m)
    return ways[n] % m


def _subset_numbers(rng: Random, size: int) -> Numbers:
    values = tuple(rng.sample(range(5, 100), rng.randint(3 * size // 4, size)))
    middle = sum(values) // 2
    low = rng.randint(middle // 2, middle)
    return {"values": values, "low": low, "high": low + rng.randint(middle // 4, middle)}


def _subsets(values: tuple[int, ...], low: int, high: int) -> int:
    """All subset sums as the exponents of one polynomial."""
    counts = [1] + [0] * high
    for value in values:
        counts[value:] = list(map(operator.add, counts[value:], counts))
    return sum(counts[low:])


def _bounded_numbers(rng: Random, size: int) -> Numbers:
    bounds = []
    for _ in range(size):
        low = rng.randint(0, 9)
        bounds.append((low, low + rng.randint(10, 30)))
    least, most = (sum(ends) for ends in zip(*bounds, strict=True))
    quarter = (most - least) // 4
    return {"n": rng.randint(least + quarter, most - quarter), "bounds": tuple(bounds)}


def _bounded(n: int, bounds: tuple[Pair, ...]) -> int:
    """A table over the total of the variables so far."""
    ways = [1] + [0] * n
    for low, high in bounds:
        upto = [0, *accumulate(ways)]
        ways = [
            upto[max(0, total - low + 1)] - upto[max(0, total - high)] for total in range(n + 1)
        ]
    return ways[n]


def _word_rank_numbers(rng: Random, size: int) -> Numbers:
    return {"word": "".join(rng.choices("ABCDEFGH"[: size // 2 + 3], k=size))}


def _word_rank(word: str) -> int:
    """For each place, the arrangements with a smaller letter there."""
    left = Counter(word)
    rank = 1
    for letter in word:
        for smaller in left:
            if smaller < letter and left[smaller]:
                rank += _arrangements(left - Counter(smaller))
        left -= Counter(letter)
    return rank


def _arrangements(letters: Counter[str]) -> int:
    same = math.prod(math.factorial(count) for count in letters.values())
    return math.factorial(letters.total()) // same


COUNTING = {
    "ellipse_points": LadderFamily(
        grows="upper end",
        sizes=(400, 10_000, 400_000),
        numbers=_ellipse_numbers,
        phrasings=(
            "How many pairs (x, y) of integers, negative ones and zero included, satisfy "
            "{low} <= {a}x^2 + {b}y^2 <= {high}?",
            "Count the points (x, y) with integer coordinates, of either sign or zero, for which "
            "{a}x^2 + {b}y^2 is at least {low} and at most {high}.",
        ),
        answer=_ellipse,
    ),
    "triangle_points": LadderFamily(
        grows="coordinates",
        sizes=(40, 150, 3_000),
        numbers=_triangle_numbers,
        phrasings=(
            "How many points with integer coordinates lie strictly inside the triangle with "
            "corners {corners}? Points on its sides do not count.",
            "A triangle has the corners {corners}. Count the integer points in its interior, "
            "without those on its boundary.",
        ),
        answer=_triangle,
    ),
    "blocked_walks": LadderFamily(
        grows="width and height",
        sizes=(6, 14, 30),
        numbers=_walks_numbers,
        phrasings=(
            "A walk goes from (0, 0) to ({w}, {h}) in steps of one unit to the right, which add "
            "1 to x, or up, which add 1 to y. It must not touch any of the points {closed}. How "
            "many such walks are there?",
            "Count the shortest lattice paths from (0, 0) to ({w}, {h}) along unit steps right "
            "and up that avoid all of the points {closed}.",
        ),
        answer=_walks,
    ),
    "strip_tilings": LadderFamily(
        grows="length of the strip",
        sizes=(9, 60, 900),
        numbers=_tilings_numbers,
        phrasings=(
            "A strip of length {n} is covered from left to right, without gaps or overlaps, by "
            "tiles. Each pair (l, c) says that tiles of length l come in c colours: {tiles}. How "
            "many coloured coverings are there, modulo {m}?",
            "Tiles are given as pairs (length, number of colours): {tiles}. In how many ways can "
            "a row of {n} cells be filled with such tiles, where order and colours matter? Give "
            "the remainder on division by {m}.",
        ),
        answer=_tilings,
    ),
    "subset_sums": LadderFamily(
        grows="numbers",
        sizes=(9, 18, 36),
        numbers=_subset_numbers,
        phrasings=(
            "How many subsets of {{{values}}} have a sum of at least {low} and at most {high}?",
            "Some of the different numbers {values} are chosen, each at most once and in no "
            "particular order. How many choices have a sum between {low} and {high} inclusive?",
        ),
        answer=_subsets,
    ),
    "bounded_solutions": LadderFamily(
        grows="variables",
        sizes=(3, 5, 10),
        numbers=_bounded_numbers,
        phrasings=(
            "Each pair (lo, hi) allows one integer variable the values from lo to hi inclusive: "
            "{bounds}. In how many ways can values be given to the variables, in this order, so "
            "that their sum is {n}?",
            "One integer is chosen from each of the ranges {bounds}, where (lo, hi) contains both "
            "lo and hi. How many choices, told apart by what comes from which range, have the "
            "sum {n}?",
        ),
        answer=_bounded,
    ),
    "word_rank": LadderFamily(
        grows="letters",
        sizes=(6, 8, 14),
        numbers=_word_rank_numbers,
        phrasings=(
            "All different arrangements of the letters of {word} are listed in alphabetical "
            "order. At which place does {word} itself stand, if the first place is 1?",
            "Write down every distinct string that uses exactly the letters of {word}, sorted "
            "alphabetically and numbered from 1. What is the number of {word}?",
        ),
        answer=_word_rank,
    ),
}
"""The families that count, by name."""
