"""Families about given sequences, words, items and piles: best choices and long games."""

from bisect import bisect_right
from itertools import accumulate
from random import Random

from rstar2.problems.ladder.family import LadderFamily, Numbers, near


def _heaviest_numbers(rng: Random, size: int) -> Numbers:
    return {"values": tuple(rng.choices(range(1, 100), k=near(rng, size)))}


def _heaviest(values: tuple[int, ...]) -> int:
    """The best sum that ends in each value."""
    best: list[int] = []
    for i, value in enumerate(values):
        before = (best[j] for j in range(i) if values[j] < value)
        best.append(value + max(before, default=0))
    return max(best)


def _edit_cost_numbers(rng: Random, size: int) -> Numbers:
    insert, delete, replace = (rng.randint(11, 60) for _ in range(3))
    old, new = ("".join(rng.choices("abcd", k=near(rng, size))) for _ in range(2))
    return {"old": old, "new": new, "insert": insert, "delete": delete, "replace": replace}


def _edit_cost(old: str, new: str, insert: int, delete: int, replace: int) -> int:
    """Row by row over the prefixes of ``old``."""
    row = [insert * j for j in range(len(new) + 1)]
    for letter in old:
        corner, row[0] = row[0], row[0] + delete
        for j, wanted in enumerate(new, start=1):
            keep = corner + (0 if letter == wanted else replace)
            corner = row[j]
            row[j] = min(keep, row[j] + delete, row[j - 1] + insert)
    return row[-1]


def _inversions_numbers(rng: Random, size: int) -> Numbers:
    return {"values": tuple(rng.sample(range(1, 200), near(rng, size)))}


def _inversions(values: tuple[int, ...]) -> int:
    """Each value against the sorted list of those before it."""
    total, seen = 0, list[int]()
    for value in values:
        at = bisect_right(seen, value)
        total += sum(seen[at:]) - value * (len(seen) - at)
        seen.insert(at, value)
    return total


def _knapsack_numbers(rng: Random, size: int) -> Numbers:
    items = tuple(
        (rng.randint(5, 40), rng.randint(20, 99)) for _ in range(rng.randint(3 * size // 4, size))
    )
    weight = sum(w for w, _ in items)
    return {"items": items, "limit": rng.randint(2 * weight // 5, 3 * weight // 5)}


def _knapsack(items: tuple[tuple[int, int], ...], limit: int) -> int:
    """The best value for each weight that may be carried."""
    best = [0] * (limit + 1)
    for weight, value in items:
        with_it = (value + without for without in best[: limit + 1 - weight])
        best[weight:] = map(max, best[weight:], list(with_it))
    return best[limit]


def _josephus_numbers(rng: Random, size: int) -> Numbers:
    n = near(rng, size)
    return {"n": n, "k": rng.randint(3, 40), "s": rng.randint(1, n)}


def _josephus(n: int, k: int, s: int) -> int:
    """A list from which every k-th is taken until two are left."""
    ring, at = list(range(1, n + 1)), s - 1
    while len(ring) > 2:
        at = (at + k - 1) % len(ring)
        del ring[at]
    return ring[0] * ring[1]


def _take_away_numbers(rng: Random, size: int) -> Numbers:
    moves = tuple(sorted(rng.sample(range(1, 13), 3)))
    return {"moves": moves, "low": rng.randint(1, size // 4), "high": near(rng, size)}


def _take_away(moves: tuple[int, ...], low: int, high: int) -> int:
    """A pile is lost when no move leads to a lost pile."""
    lost = list[bool]()
    for pile in range(high + 1):
        lost.append(not any(move <= pile and lost[pile - move] for move in moves))
    return sum(pile for pile in range(low, high + 1) if lost[pile])


def _walk_numbers(rng: Random, size: int) -> Numbers:
    m = rng.randint(101, 999)
    a, c, start = rng.randint(2, 99), rng.randint(1, 99), rng.randint(1, 99)
    return {"a": a, "c": c, "start": start, "m": m, "n": near(rng, size)}


def _walk(a: int, c: int, start: int, m: int, n: int) -> int:
    return sum(accumulate(range(n - 1), lambda x, _: (a * x + c) % m, initial=start))


SEQUENCES = {
    "heaviest_increasing": LadderFamily(
        grows="terms",
        sizes=(8, 24, 60),
        numbers=_heaviest_numbers,
        phrasings=(
            "From the sequence {values}, delete terms so that those left, in their order, "
            "increase strictly. What is the largest sum that the terms left can have?",
            "Among all strictly increasing subsequences of {values}, not necessarily of "
            "neighbouring terms, find the largest sum.",
        ),
        answer=_heaviest,
    ),
    "edit_cost": LadderFamily(
        grows="letters",
        sizes=(6, 13, 28),
        numbers=_edit_cost_numbers,
        phrasings=(
            "The word {old} is changed into {new} by single-letter steps. Inserting a letter "
            "costs {insert}, deleting one costs {delete}, replacing one by another costs "
            "{replace}. What is the smallest total cost?",
            "With {insert} per insertion, {delete} per deletion and {replace} per replacement of "
            "one letter, what is the cheapest way to turn {old} into {new}? Give its cost.",
        ),
        answer=_edit_cost,
    ),
    "inversion_weight": LadderFamily(
        grows="terms",
        sizes=(8, 24, 70),
        numbers=_inversions_numbers,
        phrasings=(
            "In the sequence {values}, take every pair of terms, neighbours or not, of which the "
            "earlier one is larger, and subtract the later from the earlier. What is the sum of "
            "all these differences?",
            "Let a_1, a_2, ... be {values}. Find the sum of a_i - a_j over all i < j with "
            "a_i > a_j.",
        ),
        answer=_inversions,
    ),
    "knapsack": LadderFamily(
        grows="items",
        sizes=(8, 14, 24),
        numbers=_knapsack_numbers,
        phrasings=(
            "Items are given as pairs (weight, value), each once: {items}. What is the largest "
            "total value of items whose total weight is at most {limit}?",
            "A bag holds a weight of {limit}. Choose from these items, written (weight, value) "
            "and available once each, so that the value is as large as possible: {items}. What "
            "is that value?",
        ),
        answer=_knapsack,
    ),
    "josephus": LadderFamily(
        grows="people",
        sizes=(40, 200, 1_000),
        numbers=_josephus_numbers,
        phrasings=(
            "People numbered 1 to {n} stand in a circle in this order. Counting starts with "
            "person {s}, who is counted as 1, and every time the count reaches {k} that person "
            "leaves and the next one still there is counted as 1. When two people are left, what "
            "is the product of their numbers?",
            "A ring of {n} people with the numbers 1 to {n} in order is counted out: again and "
            "again one counts from 1 to {k}, one person per count, and removes the person who gets "
            "{k}. The first count begins with person {s}, each later one with the next person "
            "after the one removed. Multiply the numbers of the last two people.",
        ),
        answer=_josephus,
    ),
    "take_away_game": LadderFamily(
        grows="largest pile",
        sizes=(60, 300, 1_000),
        numbers=_take_away_numbers,
        phrasings=(
            "Two players take turns at a pile of stones. A move takes away exactly one of these "
            "numbers of stones: {moves}. Who cannot move loses. Add up all pile sizes from {low} "
            "to {high} inclusive at which the player to move loses if both play perfectly.",
            "In a game with one pile, a player removes a number of stones from the list {moves} "
            "and a player without a legal move has lost. What is the sum of the sizes n with "
            "{low} <= n <= {high} that are lost for the player who moves first, with best play?",
        ),
        answer=_take_away,
    ),
    "linear_generator": LadderFamily(
        grows="terms",
        sizes=(8, 300, 5_000),
        numbers=_walk_numbers,
        phrasings=(
            "A sequence starts with x_1 = {start}, and x_(i+1) is the remainder of {a}x_i + {c} "
            "on division by {m}. What is the sum of the first {n} terms, x_1 included?",
            "Start with {start}. Again and again multiply by {a}, add {c} and keep the remainder "
            "modulo {m}. Add up the first {n} numbers of this sequence, the start among them.",
        ),
        answer=_walk,
    ),
}
"""The families about sequences, words, items and piles, by name."""
