"""Copies inside the pool: exact ones by key, near ones by the Jaccard similarity of trigrams.

Copies with one label are thinned to the first. Copies with different labels are all dropped:
at least one label is wrong, and nothing here can tell which. Texts with other numbers, or with
the same in another order, are other problems, however alike: neither copies nor in conflict.
A changed sign or telling word is enough to make no conflict of different labels.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from datasketch import MinHash, MinHashLSH

from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Progress, Row, ticked
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

    The key ignores signs and where a number ends. Rows with other numbers are other groups. A
    group with different labels is dropped as ``CONFLICT``, unless the texts differ in the signs
    of their formulas: then only those that agree in the signs too are in conflict.
    """
    keys: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(ticked(rows, progress)):
        keys[text_key(row.question)].append(index)
    dropped: dict[int, Dropped] = {}
    doubts: dict[int, Doubt] = {}
    for same_key in keys.values():
        for group in _parts(rows, same_key, numbers):
            dropped |= _thinned(rows, group)
        if _one_label(rows, same_key):
            continue
        for index in same_key:
            other = next((i for i in same_key if rows[i].gold != rows[index].gold), None)
            if other is not None:
                doubts[index] = _another_label(rows[index], rows[other], 1.0)
    return _outcome(rows, dropped, doubts)


def _thinned(rows: Sequence[Row], group: Sequence[int]) -> dict[int, Dropped]:
    """What goes of the rows with one key and the same numbers."""
    dropped: dict[int, Dropped] = {}
    if not _one_label(rows, group):
        for part in _parts(rows, group, signs):
            if not _one_label(rows, part):
                dropped |= _conflict(rows, part)
    by_label: dict[str, list[int]] = defaultdict(list)
    for index in group:
        if index not in dropped:
            by_label[rows[index].gold].append(index)
    for copies in by_label.values():
        dropped |= _all_but_first(rows, copies, DropReason.DUPLICATE)
    return dropped


def drop_near_duplicates(rows: Sequence[Row], progress: Progress) -> Outcome:
    """Keep the first of each group of near copies with one label; drop those that disagree.

    Two rows are near copies from a similarity of ``NEAR`` on, if their numbers are equal. They
    disagree if their labels differ though signs and telling words are equal too; if these
    differ, both stay, with a doubt. A group is what near copies link, so that the number of
    rows kept does not depend on their order. Candidates come from MinHash LSH and are checked
    exactly; texts of fewer than three words are not compared.
    """
    dropped: dict[int, Dropped] = {}
    doubts: dict[int, Doubt] = {}
    done = 0
    for bucket in _parts(rows, range(len(rows)), numbers):
        if len(bucket) > 1:
            gone, doubtful = _near_copies(rows, bucket)
            dropped |= gone
            doubts |= doubtful
        if done // _TICK < (done + len(bucket)) // _TICK:
            progress(done, len(rows))
        done += len(bucket)
    progress(len(rows), len(rows))
    return _outcome(rows, dropped, doubts)


def _near_copies(
    rows: Sequence[Row], bucket: Sequence[int]
) -> tuple[dict[int, Dropped], dict[int, Doubt]]:
    """What goes, and what is doubtful, of the rows that have the same numbers."""
    texts = _Texts.of(rows, bucket)
    dropped: dict[int, Dropped] = {}
    for part in _parts(rows, bucket, _turning):
        if not _one_label(rows, part):
            for group in texts.linked(part):
                if not _one_label(rows, group):
                    dropped |= _conflict(rows, group)
    by_label: dict[str, list[int]] = defaultdict(list)
    for index in bucket:
        if index not in dropped:
            by_label[rows[index].gold].append(index)
    doubts: dict[int, Doubt] = {}
    if len(by_label) > 1:
        left = [index for index in bucket if index not in dropped]
        for second, first, similarity in texts.contradicted(rows, left):
            doubts[second] = _another_label(rows[second], rows[first], similarity)
    for part in by_label.values():
        for group in texts.linked(part):
            dropped |= _all_but_first(rows, group, DropReason.NEAR_DUPLICATE)
    return dropped, doubts


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of some rows, by index: their trigrams and sketches, made once.

    Attributes:
        grams: Trigrams of each text that has any.
        sketches: Their MinHash sketches.
    """

    grams: Mapping[int, frozenset[Trigram]]
    sketches: Mapping[int, MinHash]

    @classmethod
    def of(cls, rows: Sequence[Row], indices: Sequence[int]) -> "_Texts":
        found = {index: trigrams(words(rows[index].question)) for index in indices}
        grams = {index: some for index, some in found.items() if some}
        empty = MinHash(num_perm=_BANDS * _BAND_ROWS, seed=_SEED)
        sketches = {}
        for index, some in grams.items():
            sketches[index] = empty.copy()
            sketches[index].update_batch([" ".join(gram).encode() for gram in some])
        return cls(grams, sketches)

    def linked(self, indices: Sequence[int]) -> list[list[int]]:
        """The groups that near copies among some rows link, each in order.

        A row is compared with another only while they are not yet in one group.
        """
        groups = _Groups()
        for second, earlier in self._candidates(indices):
            for first in earlier:
                if not groups.joined(first, second) and self._similarity(first, second) >= NEAR:
                    groups.join(first, second)
        return groups.all()

    def contradicted(
        self, rows: Sequence[Row], indices: Sequence[int]
    ) -> Iterator[tuple[int, int, float]]:
        """Each row with the first earlier near copy of another label, and their similarity."""
        for second, earlier in self._candidates(indices):
            for first in earlier:
                if rows[first].gold == rows[second].gold:
                    continue
                similarity = self._similarity(first, second)
                if similarity >= NEAR:
                    yield second, first, similarity
                    break

    def _candidates(self, indices: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Each row with the earlier rows whose sketches make a near copy likely."""
        index = MinHashLSH(num_perm=_BANDS * _BAND_ROWS, params=(_BANDS, _BAND_ROWS))
        for second in indices:
            if second in self.grams:
                yield second, sorted(index.query(self.sketches[second]))
                index.insert(second, self.sketches[second])

    def _similarity(self, first: int, second: int) -> float:
        return jaccard(self.grams[first], self.grams[second])


class _Groups:
    """Disjoint groups of indices, which grow together."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self._root(one), self._root(other)))
        self._parent[high] = low

    def joined(self, one: int, other: int) -> bool:
        return self._root(one) == self._root(other)

    def all(self) -> list[list[int]]:
        """The groups of two or more, each in order."""
        groups: dict[int, list[int]] = defaultdict(list)
        for index in sorted(self._parent):
            groups[self._root(index)].append(index)
        return [group for group in groups.values() if len(group) > 1]

    def _root(self, index: int) -> int:
        while (above := self._parent.setdefault(index, index)) != index:
            self._parent[index] = self._parent[above]
            index = above
        return index


def _turning(text: str) -> tuple[str, frozenset[str]]:
    """What a problem turns on besides its numbers: signs and telling words."""
    return signs(text), telling_words(text)


def _parts(
    rows: Sequence[Row], indices: Sequence[int], trait: Callable[[str], Hashable]
) -> list[list[int]]:
    """Indices by a trait of the row's question, in the order of their first rows."""
    parts: dict[Hashable, list[int]] = defaultdict(list)
    for index in indices:
        parts[trait(rows[index].question)].append(index)
    return list(parts.values())


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
