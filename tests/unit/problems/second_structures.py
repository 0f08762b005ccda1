"""Second methods for sequences, words, items, piles, graphs and tables."""

import heapq
import math
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
from scipy.optimize import linear_sum_assignment
from second_reading import Reading
from sympy.polys.domains import QQ
from sympy.polys.matrices import DomainMatrix

# --- sequences, words, items, piles ---


def chosen(values: list[int]) -> Iterator[list[int]]:
    for mask in product((False, True), repeat=len(values)):
        yield [value for value, taken in zip(values, mask, strict=True) if taken]


def heaviest_increasing(r: Reading) -> int:
    values = r.ints("values")
    if len(values) <= 8:
        kept = (terms for terms in chosen(values) if terms == sorted(set(terms)))
        return max(sum(terms) for terms in kept)
    best = [0] * 100
    for value in values:
        best[value] = max(best[value], value + max(best[:value]))
    return max(best)


def edit_cost(r: Reading) -> int:
    """Dijkstra on the pairs of prefixes."""
    old, new = r.text("old"), r.text("new")
    insert, delete, replace = r.ints("insert", "delete", "replace")
    heap, done = [(0, 0, 0)], set[tuple[int, int]]()
    while heap:
        cost, i, j = heapq.heappop(heap)
        if (i, j) == (len(old), len(new)):
            return cost
        if (i, j) in done:
            continue
        done.add((i, j))
        if i < len(old):
            heapq.heappush(heap, (cost + delete, i + 1, j))
        if j < len(new):
            heapq.heappush(heap, (cost + insert, i, j + 1))
        if i < len(old) and j < len(new):
            heapq.heappush(heap, (cost + (0 if old[i] == new[j] else replace), i + 1, j + 1))
    raise AssertionError


def inversion_weight(r: Reading) -> int:
    return sum(max(0, first - second) for first, second in combinations(r.ints("values"), 2))


def knapsack(r: Reading) -> int:
    """All loads that no lighter load beats; every load where there are few items."""
    items, limit = r.tuples("items"), r.int("limit")
    loads = [(0, 0)]
    for weight, value in items:
        loads += [(w + weight, v + value) for w, v in loads if w + weight <= limit]
        if len(items) > 8:
            loads.sort(key=lambda load: (load[0], -load[1]))
            best = -1
            loads = [(w, best := v) for w, v in loads if v > best]
    return max(value for _, value in loads)


def josephus(r: Reading) -> int:
    n, k, s = r.ints("n", "k", "s")
    ring = deque(range(1, n + 1))
    ring.rotate(1 - s)
    while len(ring) > 2:
        ring.rotate(1 - k)
        ring.popleft()
    return ring[0] * ring[1]


def take_away_game(r: Reading) -> int:
    """From every lost pile, the piles from which it can be reached are won."""
    moves, low, high = r.ints("moves"), r.int("low"), r.int("high")
    won: set[int] = set()
    total = 0
    for pile in range(high + 1):
        if pile not in won:
            won.update(pile + move for move in moves)
            total += pile if pile >= low else 0
    return total


def linear_generator(r: Reading) -> int:
    """Whole turns of the cycle that the sequence runs into, and the rest."""
    a, c, start, m, n = r.ints("a", "c", "start", "m", "n")
    terms, first_at = [start], {start: 0}
    while (following := (a * terms[-1] + c) % m) not in first_at:
        first_at[following] = len(terms)
        terms.append(following)
    cycle = terms[first_at[following] :]
    turns, rest = divmod(max(0, n - first_at[following]), len(cycle))
    return sum(terms[: min(n, first_at[following])]) + turns * sum(cycle) + sum(cycle[:rest])


# --- graphs and tables ---


def shortest_route(r: Reading) -> int:
    """Every route that repeats no town; in larger graphs Floyd and Warshall."""
    n, roads = r.int("n"), {(u, v): w for u, v, w in r.tuples("roads")}
    if n <= 7:
        between = (way for size in range(n - 1) for way in permutations(range(2, n), size))
        steps = (list(zip((1, *way), (*way, n), strict=True)) for way in between)
        return min(sum(roads[step] for step in way) for way in steps if set(way) <= roads.keys())
    distance = np.full((n + 1, n + 1), 10**9)
    for ends, length in roads.items():
        distance[ends] = length
    for middle in range(1, n + 1):
        np.minimum(distance, distance[:, [middle]] + distance[middle], out=distance)
    return int(distance[1, n])


def spanning_trees(r: Reading) -> int:
    """Choices of pairs that close no ring; in larger graphs, town after town is taken out."""
    n, roads = r.int("n"), r.tuples("roads")
    if n <= 6:
        trees = (kept for kept in combinations(roads, n - 1) if is_forest(kept, n))
        return sum(math.prod(c for _, _, c in kept) for kept in trees)
    weights: dict[int, dict[int, Fraction]] = {town: {} for town in range(1, n + 1)}
    for u, v, c in roads:
        weights[u][v] = weights[v][u] = Fraction(c)
    trees_so_far = Fraction(1)
    for town in range(1, n):
        around = weights.pop(town)
        total = sum(around.values())
        trees_so_far *= total
        for u in around:
            del weights[u][town]
        for u, v in combinations(around, 2):
            joined = weights[u].get(v, Fraction(0)) + around[u] * around[v] / total
            weights[u][v] = weights[v][u] = joined
    assert trees_so_far.denominator == 1
    return int(trees_so_far)


def is_forest(kept: tuple[tuple[int, ...], ...], n: int) -> bool:
    group = list(range(n + 1))
    for u, v, _ in kept:
        if group[u] == group[v]:
            return False
        group = [group[u] if g == group[v] else g for g in group]
    return True


def determinant(r: Reading) -> int:
    """The sum over permutations; for larger ones, elimination over fractions by sympy."""
    rows = r.tuples("rows")
    n = len(rows)
    if n > 5:
        return int(DomainMatrix([[QQ(x) for x in row] for row in rows], (n, n), QQ).det())
    return sum(
        (-1) ** sum(i > j for i, j in combinations(order, 2))
        * math.prod(rows[i][order[i]] for i in range(n))
        for order in permutations(range(n))
    )


def assignment(r: Reading) -> int:
    rows = r.tuples("rows")
    n = len(rows)
    if n <= 5:
        return min(sum(rows[i][order[i]] for i in range(n)) for order in permutations(range(n)))
    costs = np.array(rows)
    return int(costs[linear_sum_assignment(costs)].sum())
