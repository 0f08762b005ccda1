"""Copies inside the pool: exact ones by key, near ones by the Jaccard similarity of trigrams.

Copies with one label are thinned to the first. Copies with different labels are all dropped:
at least one label is wrong, and nothing here can tell which. A near copy in which a number, a
sign or a telling word was changed is another problem and may have another label.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from datasketch import MinHash, MinHashLSH

from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Progress, Row
from rstar2.problems.data.text import (
    Trigram,
    jaccard,
    numbers,
    signs,
    telling_words,
    text_key,
    trigrams,
    words,
)

NEAR = 0.8
"""Jaccard similarity of word trigrams from which two texts are near copies."""
_BANDS, _BAND_ROWS = 16, 5
"""A pair at ``NEAR`` is missed with probability (1 - 0.8^5)^16 < 0.002."""
_SEED = 1
_TICK = 1_000


def drop_duplicates(rows: Sequence[Row], progress: Progress) -> Outcome:
    """Keep the first of each group of rows with one ``text_key``, if their labels agree.

    A group with different labels is dropped as ``CONFLICT``, unless the texts differ in the
    signs of their formulas, which the key ignores: then each text stands for itself.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[text_key(row.question)].append(index)
        if index % _TICK == 0:
            progress(index, len(rows))
    dropped: dict[int, Dropped] = {}
    doubts: dict[int, Doubt] = {}
    for group in groups.values():
        if _one_label(rows, group):
            dropped |= _all_but_first(rows, group, DropReason.DUPLICATE)
            continue
        by_signs: dict[str, list[int]] = defaultdict(list)
        for index in group:
            by_signs[signs(rows[index].question)].append(index)
        for part in by_signs.values():
            if _one_label(rows, part):
                dropped |= _all_but_first(rows, part, DropReason.DUPLICATE)
                other = next(i for i in group if rows[i].gold != rows[part[0]].gold)
                doubts[part[0]] = _another_label(rows[part[0]], rows[other], 1.0)
            else:
                dropped |= _conflict(rows, part)
    progress(len(rows), len(rows))
    return _outcome(rows, dropped, doubts)


def drop_near_duplicates(rows: Sequence[Row], progress: Progress) -> Outcome:
    """Keep the first of each group of near copies with one label; drop those that disagree.

    Two rows are near copies from a similarity of ``NEAR`` on. A group is what near copies link,
    so that the number of rows kept does not depend on their order. Candidates come from MinHash
    LSH and are checked exactly; texts of fewer than three words are not compared.
    """
    dropped: dict[int, Dropped] = {}
    doubts: dict[int, Doubt] = {}
    pairs = list(_near_pairs(rows, progress))
    restated = [pair for pair in pairs if _says_the_same(rows, pair)]
    for group in _linked(restated):
        if not _one_label(rows, group):
            dropped |= _conflict(rows, group)
    left = [pair for pair in pairs if not {pair.first, pair.second} & dropped.keys()]
    for group in _linked(p for p in left if rows[p.first].gold == rows[p.second].gold):
        dropped |= _all_but_first(rows, group, DropReason.NEAR_DUPLICATE)
    for pair in left:
        one, other = rows[pair.first], rows[pair.second]
        if one.gold != other.gold and numbers(one.question) == numbers(other.question):
            doubts[pair.second] = _another_label(other, one, pair.similarity)
    return _outcome(rows, dropped, doubts)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two near copies: their places, the earlier one first, and their similarity."""

    first: int
    second: int
    similarity: float


def _near_pairs(rows: Sequence[Row], progress: Progress) -> Iterator[_Pair]:
    index = MinHashLSH(num_perm=_BANDS * _BAND_ROWS, params=(_BANDS, _BAND_ROWS))
    empty = MinHash(num_perm=_BANDS * _BAND_ROWS, seed=_SEED)
    for second, row in enumerate(rows):
        if second % _TICK == 0:
            progress(second, len(rows))
        grams = _grams(row)
        if not grams:
            continue
        sketch = empty.copy()
        sketch.update_batch([" ".join(gram).encode() for gram in grams])
        for first in sorted(index.query(sketch)):
            similarity = jaccard(_grams(rows[first]), grams)
            if similarity >= NEAR:
                yield _Pair(first, second, similarity)
        index.insert(second, sketch)
    progress(len(rows), len(rows))


def _grams(row: Row) -> frozenset[Trigram]:
    return trigrams(words(row.question))


def _says_the_same(rows: Sequence[Row], pair: _Pair) -> bool:
    """Whether a near copy has the numbers, signs and telling words of the other."""
    one, other = rows[pair.first].question, rows[pair.second].question
    return all(part(one) == part(other) for part in (numbers, signs, telling_words))


def _linked(pairs: Iterator[_Pair] | Sequence[_Pair]) -> list[list[int]]:
    """The connected components of the graph of pairs, each in order."""
    parent: dict[int, int] = {}

    def root(index: int) -> int:
        while (above := parent.setdefault(index, index)) != index:
            parent[index] = parent[above]
            index = above
        return index

    for pair in pairs:
        low, high = sorted((root(pair.first), root(pair.second)))
        parent[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for index in sorted(parent):
        groups[root(index)].append(index)
    return list(groups.values())


def _one_label(rows: Sequence[Row], group: Sequence[int]) -> bool:
    return len({rows[index].gold for index in group}) == 1


def _all_but_first(
    rows: Sequence[Row], group: Sequence[int], reason: DropReason
) -> dict[int, Dropped]:
    first = rows[group[0]].name
    return {index: Dropped(rows[index], reason, f"copy of {first}") for index in group[1:]}


def _conflict(rows: Sequence[Row], group: Sequence[int]) -> dict[int, Dropped]:
    told = ", ".join(f"{rows[index].name} = {rows[index].gold}" for index in group)
    return {index: Dropped(rows[index], DropReason.CONFLICT, told) for index in group}


def _another_label(row: Row, other: Row, similarity: float) -> Doubt:
    detail = f"{row.gold}; {other.name} = {other.gold}: {other.question}"
    return Doubt(row, "nearly the same text has another label", detail, similarity)


def _outcome(rows: Sequence[Row], dropped: dict[int, Dropped], doubts: dict[int, Doubt]) -> Outcome:
    return Outcome(
        kept=tuple(row for index, row in enumerate(rows) if index not in dropped),
        dropped=tuple(dropped[index] for index in sorted(dropped)),
        doubts=tuple(doubts[index] for index in sorted(doubts) if index not in dropped),
    )
