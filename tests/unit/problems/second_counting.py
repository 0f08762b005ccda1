"""Second methods for what is counted: points, walks, tilings, subsets, solutions, words."""

import math
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations, product

import numpy as np
from second_reading import Reading


def ellipse_points(r: Reading) -> int:
    a, b, low, high = r.ints("a", "b", "low", "high")
    reach = np.arange(-math.isqrt(high), math.isqrt(high) + 1)
    values = a * reach[:, None] ** 2 + b * reach**2
    return int(((low <= values) & (values <= high)).sum())


def triangle_points(r: Reading) -> int:
    """Column by column: each side, run through with the inside on its left, bounds y strictly."""
    (x1, y1), (x2, y2), (x3, y3) = r.tuples("corners")
    if (x2 - x1) * (y3 - y1) < (x3 - x1) * (y2 - y1):
        x2, y2, x3, y3 = x3, y3, x2, y2
    sides = [(x1, y1, x2, y2), (x2, y2, x3, y3), (x3, y3, x1, y1)]
    inside = 0
    for x in range(min(x1, x2, x3), max(x1, x2, x3) + 1):
        least, most = min(y1, y2, y3), max(y1, y2, y3)
        for px, py, qx, qy in sides:
            run, rise = qx - px, (qy - py) * (x - px)
            if run > 0:
                least = max(least, py + rise // run + 1)
            elif run < 0:
                most = min(most, py - rise // -run - 1)
            elif rise >= 0:
                most = least - 1
        inside += max(0, most - least + 1)
    return inside


def blocked_walks(r: Reading) -> int:
    w, h, closed = r.int("w"), r.int("h"), set(r.tuples("closed"))
    if w + h <= 11:
        return sum(
            not closed & walk_points(rights, w + h) for rights in combinations(range(w + h), w)
        )
    ends = [*sorted(closed), (w, h)]
    free: list[int] = []
    for at, (x, y) in enumerate(ends):
        through = sum(
            free[i] * math.comb(x - u + y - v, x - u)
            for i, (u, v) in enumerate(ends[:at])
            if u <= x and v <= y
        )
        free.append(math.comb(x + y, x) - through)
    return free[-1]


def walk_points(rights: tuple[int, ...], steps: int) -> set[tuple[int, ...]]:
    points, x = set(), 0
    for step in range(steps):
        x += step in rights
        points.add((x, step + 1 - x))
    return points


def strip_tilings(r: Reading) -> int:
    """A tile lies across the middle, or none does."""
    tiles, m = r.tuples("tiles"), r.int("m")

    @cache
    def ways(n: int) -> int:
        if n <= 1:
            return sum(c for t, c in tiles if t == 1) if n == 1 else int(n == 0)
        left, right = n // 2, n - n // 2
        across = sum(
            c * ways(left - part) * ways(right - (t - part))
            for t, c in tiles
            for part in range(1, t)
            if part <= left and t - part <= right
        )
        return (ways(left) * ways(right) + across) % m

    return ways(r.int("n")) % m


def subset_sums(r: Reading) -> int:
    values, low, high = r.ints("values"), r.int("low"), r.int("high")
    if len(values) <= 18:
        sums = np.zeros(1, dtype=int)
        for value in values:
            sums = np.concatenate([sums, sums + value])
        return int(((low <= sums) & (sums <= high)).sum())
    packed = 1
    for value in values:
        packed += packed << 64 * value
    counts = np.frombuffer(packed.to_bytes(8 * (sum(values) + 1), "little"), dtype="<u8")
    return sum(map(int, counts[low : high + 1]))


def bounded_solutions(r: Reading) -> int:
    n, bounds = r.int("n"), r.tuples("bounds")
    if len(bounds) == 3:
        ranges = (range(low, high + 1) for low, high in bounds)
        return sum(sum(values) == n for values in product(*ranges))
    free, total = n - sum(low for low, _ in bounds), 0
    widths = [high - low + 1 for low, high in bounds]
    for over in range(len(widths) + 1):
        for chosen in combinations(widths, over):
            left = free - sum(chosen)
            if left >= 0:
                total += (-1) ** over * math.comb(left + len(bounds) - 1, len(bounds) - 1)
    return total


def word_rank(r: Reading) -> int:
    """From the last letter to the first, with the count of arrangements so far."""
    word = r.text("word")
    if len(word) <= 8:
        return sum(other <= tuple(word) for other in set(permutations(word)))
    rank, arrangements, seen = 1, Fraction(1), dict[str, int]()
    for length, letter in enumerate(reversed(word), start=1):
        seen[letter] = seen.get(letter, 0) + 1
        arrangements = arrangements * length / seen[letter]
        smaller = sum(number for other, number in seen.items() if other < letter)
        rank += int(arrangements * smaller / length)
    return rank
