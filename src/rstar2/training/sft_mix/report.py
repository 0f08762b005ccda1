"""What became of every record: the report of a mix, as data and as text."""

from collections.abc import Iterable
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from rstar2.training.sft_mix.rewriting import Usage

LENGTH_EDGES = (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
"""Edges of the length histogram, in tokens; the last bin is open."""

_BAR = 40


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sample(_Report):
    """A refused record, for a person to look at.

    Attributes:
        record: File and number of the record, from 1.
        detail: What decided it.
    """

    record: str
    detail: str


class SourceReport(_Report):
    """What became of one set.

    Attributes:
        name: The set.
        dataset: Where it is published.
        licence: Under which licence.
        faults: What is known to be wrong with it.
        files: SHA-256 of each file that was read, by name.
        read: Records in the files.
        refused: Number of records per reason. Reasons that only show in a conversation that
            was drawn (``too_long``, ``rewrite_...``) count those that were drawn.
        samples: A few refused records per reason; mathematics with its rule.
        target: Conversations wanted.
        kept: Conversations in the mix.
        unused: Conversations that were fit and not needed.
        rewritten: Those in the mix of which a text was rewritten.
        tokens: Tokens of the kept ones.
        model_tokens: Those with a loss.
        lengths: Number of kept conversations per bin of ``LENGTH_EDGES``.
    """

    name: str
    dataset: str
    licence: str
    faults: tuple[str, ...]
    files: dict[str, str]
    read: int
    refused: dict[str, int]
    samples: dict[str, tuple[Sample, ...]]
    target: int
    kept: int
    unused: int
    rewritten: int
    tokens: int
    model_tokens: int
    lengths: tuple[int, ...]

    @property
    def missing(self) -> int:
        """Conversations that the set could not give."""
        return self.target - self.kept


class MixReport(_Report):
    """What a mix is made of.

    Attributes:
        fingerprint: Hash of all that decides the mix: spec, files, code, tokenizer, rewriter.
        content_hash: SHA-256 of the file of the mix.
        rows: Conversations in it.
        rewriter: The model that rewrote; empty if none did.
        decontaminated: What prompts were compared with; empty if with nothing.
        usage: What the rewriting took in the run that made the mix.
        sources: The sets, in their order.
    """

    fingerprint: str
    content_hash: str
    rows: int
    rewriter: str
    decontaminated: str
    usage: Usage
    sources: tuple[SourceReport, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the mix."""
        return sum(source.tokens for source in self.sources)

    def text(self) -> str:
        """The report for a terminal: counts per set, refusals, lengths."""
        lines = [f"{self.rows} conversations, {self.tokens} tokens, sha256 {self.content_hash}"]
        lines += [f"rewritten by {self.rewriter}" if self.rewriter else "nothing was rewritten"]
        against = self.decontaminated
        lines += [f"decontaminated against {against}" if against else "not decontaminated"]
        for source in self.sources:
            lines += ["", *_source_lines(source)]
        total = total_lengths(self.sources)
        return "\n".join([*lines, "", "length in tokens", *histogram_lines(total)])


def total_lengths(sources: Iterable[SourceReport]) -> tuple[int, ...]:
    """Number of kept conversations of all sets per bin of ``LENGTH_EDGES``."""
    return tuple(map(sum, zip(*(source.lengths for source in sources), strict=True)))


def length_bin(tokens: int) -> int:
    """The bin of ``LENGTH_EDGES`` that a length falls in."""
    return sum(edge <= tokens for edge in LENGTH_EDGES) - 1


def histogram_lines(counts: tuple[int, ...]) -> list[str]:
    """One line per bin up to the last that is not empty: its range, its count, a bar."""
    used = max((place + 1 for place, count in enumerate(counts) if count), default=0)
    largest = max(counts, default=0)
    ranges = [f"{low}-{high - 1}" for low, high in pairwise(LENGTH_EDGES)]
    ranges.append(f"{LENGTH_EDGES[-1]}+")
    return [
        f"{ranges[place]:>12} {counts[place]:>8} {'#' * round(_BAR * counts[place] / largest)}"
        for place in range(used)
    ]


def _source_lines(source: SourceReport) -> list[str]:
    lines = [
        f"{source.name}: {source.kept} of {source.target} wanted, {source.read} read, "
        f"{source.unused} unused ({source.dataset}; {source.licence})"
    ]
    if source.missing:
        lines.append(f"  {source.missing} are missing: the set has no more that are fit")
    lines += [f"  {count:>7} {reason}" for reason, count in sorted(source.refused.items())]
    if source.kept:
        mean = source.tokens / source.kept
        lines.append(
            f"  {source.tokens} tokens, {mean:.0f} in the mean, {source.rewritten} rewritten"
        )
    return lines
