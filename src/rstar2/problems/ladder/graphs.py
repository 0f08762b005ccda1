"""Families about given graphs and tables: routes, trees, assignments, determinants."""

from itertools import pairwise
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near

Row = tuple[int, ...]
Edge = tuple[int, int, int]


def _shortest_route_numbers(rng: Random, size: int) -> Numbers:
    """A long way through all towns, so that the last is in reach, and short cuts, none direct."""
    n = near(rng, size)
    order = [1, *rng.sample(range(2, n), n - 2), n]
    lengths = {ends: rng.randint(100, 400) for ends in pairwise(order)}
    while len(lengths) < 2 * n:
        u, v = rng.choices(range(1, n + 1), k=2)
        if u != v and (u, v) != (1, n):
            lengths[u, v] = rng.randint(150, 999)
    roads = [(u, v, length) for (u, v), length in lengths.items()]
    return {"n": n, "roads": tuple(sorted(roads))}


def _shortest_route(n: int, roads: tuple[Edge, ...]) -> int:
    """Bellman and Ford: rounds over all roads until nothing gets shorter."""
    distance = {1: 0}
    changed = True
    while changed:
        changed = False
        for u, v, length in roads:
            if u in distance and distance[u] + length < distance.get(v, 10**9):
                distance[v] = distance[u] + length
                changed = True
    return distance[n]


def _spanning_trees_numbers(rng: Random, size: int) -> Numbers:
    """A random tree, which connects the towns, and further pairs."""
    n = rng.randint(size - 1, size)
    pairs = {(rng.randint(1, v - 1), v) for v in range(2, n + 1)}
    while len(pairs) < 2 * n - 3:
        u, v = rng.choices(range(1, n + 1), k=2)
        if u < v:
            pairs.add((u, v))
    return {"n": n, "roads": tuple((u, v, rng.randint(1, 5)) for u, v in sorted(pairs))}


def _spanning_trees(n: int, roads: tuple[Edge, ...]) -> int:
    """Kirchhoff: a minor of the Laplacian matrix."""
    laplacian = [[0] * n for _ in range(n)]
    for u, v, count in roads:
        laplacian[u - 1][u - 1] += count
        laplacian[v - 1][v - 1] += count
        laplacian[u - 1][v - 1] -= count
        laplacian[v - 1][u - 1] -= count
    return _determinant(tuple(tuple(row[1:]) for row in laplacian[1:]))


def _determinant_numbers(rng: Random, size: int) -> Numbers:
    return {"rows": tuple(tuple(rng.choices(range(20), k=size)) for _ in range(size))}


def _determinant(rows: tuple[Row, ...]) -> int:
    """Bareiss: elimination in which every division is exact."""
    table = [list(row) for row in rows]
    sign, pivot_before = 1, 1
    for k in range(len(table) - 1):
        if not table[k][k]:
            swap = next((i for i in range(k + 1, len(table)) if table[i][k]), None)
            if swap is None:
                return 0
            table[k], table[swap] = table[swap], table[k]
            sign = -sign
        pivot, top = table[k][k], table[k]
        for row in table[k + 1 :]:
            head = row[k]
            for j in range(k + 1, len(row)):
                row[j] = (row[j] * pivot - head * top[j]) // pivot_before
        pivot_before = pivot
    return sign * table[-1][-1]


def _assignment_numbers(rng: Random, size: int) -> Numbers:
    return {"rows": tuple(tuple(rng.choices(range(10, 300), k=size)) for _ in range(size))}


def _assignment(rows: tuple[Row, ...]) -> int:
    """The cheapest way to give the first workers each set of jobs."""
    cheapest = {0: 0}
    for row in rows:
        longer: dict[int, int] = {}
        for taken, cost in cheapest.items():
            for job, price in enumerate(row):
                jobs = taken | 1 << job
                if jobs != taken and cost + price < longer.get(jobs, 10**9):
                    longer[jobs] = cost + price
        cheapest = longer
    return cheapest[(1 << len(rows)) - 1]


GRAPHS = {
    "shortest_route": LadderFamily(
        grows="towns",
        sizes=(7, 15, 32),
        numbers=_shortest_route_numbers,
        phrasings=(
            "Each triple (u, v, w) is a one-way road of length w from town u to town v: {roads}. "
            "How long is the shortest route from town 1 to town {n}?",
            "In a directed graph the edges are {roads}, where (u, v, w) leads from u to v and has "
            "weight w. What is the smallest total weight of a path from 1 to {n}?",
        ),
        answer=_shortest_route,
    ),
    "spanning_trees": LadderFamily(
        grows="towns",
        sizes=(6, 9, 16),
        numbers=_spanning_trees_numbers,
        phrasings=(
            "Towns 1 to {n} are joined by two-way roads. Each triple (u, v, c) says that c "
            "different roads join towns u and v: {roads}. In how many ways can one keep some of "
            "the roads and close the rest so that exactly one route that repeats no road leads "
            "from any town to any other?",
            "A graph has the vertices 1 to {n}, and (u, v, c) in this list means c parallel, "
            "distinguishable edges between u and v: {roads}. How many spanning trees does it "
            "have?",
        ),
        answer=_spanning_trees,
    ),
    "determinant": LadderFamily(
        grows="rows",
        sizes=(3, 5, 9),
        numbers=_determinant_numbers,
        phrasings=(
            "The rows of a square matrix are {rows}. What is its determinant? It may be negative.",
            "Compute the determinant, with its sign, of the matrix whose rows from top to bottom "
            "are {rows}.",
        ),
        answer=_determinant,
    ),
    "assignment": LadderFamily(
        grows="workers",
        sizes=(3, 5, 8),
        numbers=_assignment_numbers,
        phrasings=(
            "Row i of this table lists what worker i asks for each of the jobs, in order: {rows}. "
            "Every worker does exactly one job and every job is done once. What is the smallest "
            "total cost?",
            "Pick one number from each of the rows {rows} so that no two are in the same column. "
            "How small can their sum be?",
        ),
        answer=_assignment,
    ),
}
"""The families about graphs and tables, by name."""
