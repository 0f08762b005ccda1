"""Keeps the problems of benchmarks, and near copies of them, out of the pool.

A long n-gram (13 words) is wrong both ways: contest boilerplate matches everywhere, and a short
problem has no such n-gram. Here boilerplate goes first, and what is left is compared by the
share of word trigrams in common.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rstar2.problems.data.rows import (
    Doubt,
    Dropped,
    DropReason,
    Outcome,
    Progress,
    Row,
    StepFunction,
    ticked,
)
from rstar2.problems.data.text import (
    Trigram,
    problem_words,
    text_key,
    trigrams,
    without_wrappers,
)

NEAR = 0.5
"""Jaccard similarity of trigrams from which a row counts as a copy."""
CONTAINED = 0.7
"""Share of a benchmark problem's trigrams in a row from which the row counts as a copy."""
DOUBTFUL = 0.35
"""Jaccard similarity from which a person should look."""
_LONG, _SHORT = 12, 5
"""Trigrams that a problem needs before a share of it means anything, and before all of it does."""


@dataclass(frozen=True, slots=True)
class _Match:
    """How near a row is to a problem of a benchmark.

    Attributes:
        problem: Set and number of the problem, from 0, as ``aime24/3``.
        similarity: Jaccard similarity of the trigrams, or 1 for equal keys.
        contained: Share of the problem's trigrams that the row has.
    """

    problem: str
    similarity: float
    contained: float

    @property
    def is_copy(self) -> bool:
        return self.similarity >= NEAR or self.contained >= CONTAINED

    def __str__(self) -> str:
        return f"{self.problem}: similarity {self.similarity:.2f}, contains {self.contained:.2f}"


@dataclass(frozen=True, slots=True)
class _Index:
    """The problems of all benchmarks, by key and by trigram."""

    keys: Mapping[str, str]
    sizes: Mapping[str, int]
    holders: Mapping[Trigram, Sequence[str]]

    @classmethod
    def of(cls, benchmarks: Mapping[str, Sequence[str]]) -> "_Index":
        keys: dict[str, str] = {}
        sizes: dict[str, int] = {}
        holders: dict[Trigram, list[str]] = defaultdict(list)
        for name, problems in benchmarks.items():
            for number, text in enumerate(problems):
                problem = f"{name}/{number}"
                keys.setdefault(text_key(without_wrappers(text)), problem)
                grams = trigrams(*problem_words(text))
                sizes[problem] = len(grams)
                for gram in grams:
                    holders[gram].append(problem)
        return cls(keys, sizes, holders)

    def nearest(self, text: str) -> _Match | None:
        """The nearest problem: a copy if there is one, else the most similar."""
        exact = self.keys.get(text_key(without_wrappers(text)))
        if exact is not None:
            return _Match(exact, 1.0, 1.0)
        grams = trigrams(*problem_words(text))
        common: Counter[str] = Counter()
        for gram in grams:
            common.update(self.holders.get(gram, ()))
        matches = (self._match(name, both, len(grams)) for name, both in sorted(common.items()))
        return max(matches, key=lambda m: (m.is_copy, m.similarity), default=None)

    def _match(self, problem: str, both: int, size: int) -> _Match:
        wanted = self.sizes[problem]
        counts = wanted >= _LONG or (both == wanted >= _SHORT)
        contained = both / wanted if counts else 0.0
        return _Match(problem, both / (size + wanted - both), contained)


def decontaminate(benchmarks: Mapping[str, Sequence[str]]) -> StepFunction:
    """Make the step that drops rows equal or near to a problem of a benchmark.

    Near means a trigram similarity of ``NEAR``, or ``CONTAINED`` of the problem's trigrams, so
    a copy with changed numbers is dropped too. From ``DOUBTFUL`` to ``NEAR`` a row stays, as a
    doubt. A problem without a trigram is only compared by its key.

    Args:
        benchmarks: The problems' texts, by name of the set.
    """
    index = _Index.of(benchmarks)

    def step(rows: Sequence[Row], progress: Progress) -> Outcome:
        kept: list[Row] = []
        dropped: list[Dropped] = []
        doubts: list[Doubt] = []
        for row in ticked(rows, progress):
            match = index.nearest(row.question)
            if match and match.is_copy:
                dropped.append(Dropped(row, DropReason.CONTAMINATED, str(match)))
                continue
            kept.append(row)
            if match and match.similarity >= DOUBTFUL:
                doubts.append(
                    Doubt(row, "resembles a benchmark problem", str(match), match.similarity)
                )
        facts = {f"{name} problems compared": len(texts) for name, texts in benchmarks.items()}
        return Outcome(tuple(kept), tuple(dropped), tuple(doubts), facts)

    return step


def copy_finder(benchmarks: Mapping[str, Sequence[str]]) -> Callable[[str], str | None]:
    """Make a function that names the benchmark's problem that a text is, or nearly is.

    Args:
        benchmarks: The problems' texts, by name of the set.

    Returns:
        A function from a text to set and number of the problem, or None.
    """
    index = _Index.of(benchmarks)

    def find(text: str) -> str | None:
        match = index.nearest(text)
        return match.problem if match and match.is_copy else None

    return find
