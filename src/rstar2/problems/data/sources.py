"""Reads a set of problems, from a file or from the Hub, and checks that it is what it should be.

>>> loaded = read("dapo-17k=dapo.parquet")     # a known set, from a file
>>> loaded = read("aime25")                    # a known set, from the Hub
>>> loaded = read("mine.jsonl")                # a file of one's own
>>> loaded = read("hard=mine/problems.jsonl")  # the same, under a name of one's own

A set that is asked for by name must have the records and the labels that are known of it.
With ``subset``, it may have fewer records. A file alone is a known set if it is named like one
or holds its records and labels; else it is a set of its own, named after the file, or as said.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rstar2.problems.data.card import SourceReport
from rstar2.problems.data.formats import SourceError, shown_name
from rstar2.problems.data.piles import Pile, pile_of_file, pile_of_hub, refuse_unusable
from rstar2.problems.data.registry import SOURCES, Edition, Role, Source
from rstar2.problems.data.rows import Row

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A set of problems as its source has it.

    Attributes:
        rows: Its problems, in order, under names that differ.
        role: What it is for; a file of one's own is for the pool.
        report: What the data card tells about it.
    """

    rows: tuple[Row, ...]
    role: Role
    report: SourceReport


def read(spec: str, *, subset: bool = False) -> Loaded:
    """Read what a user named: ``NAME``, ``NAME=FILE`` or ``FILE``.

    Args:
        spec: The name of a known set, a file, or both; with a file the name may also be one's
            own, of letters, digits, ``-`` and ``_``. A file whose own name has a ``=`` is a file.
        subset: Whether a known set may have fewer records than it should.

    Raises:
        SourceError: As :func:`read_source` and :func:`read_file`.
    """
    name, equals, file = spec.partition("=")
    shown = shown_name(spec)
    own_name = bool(equals) and "/" not in name and not Path(spec).exists()
    if (name in SOURCES or own_name) and equals and not file:
        raise SourceError(f"{shown}: a file is missing after '='")
    if name in SOURCES:
        return read_source(name, Path(file) if equals else None, subset=subset)
    if own_name:
        if not _NAME.fullmatch(name):
            raise SourceError(
                f"{shown}: the part before '=' cannot name a set; take letters, digits, '-', '_'"
            )
        return read_file(Path(file), name)
    if not Path(spec).exists() and not Path(spec).suffix:
        raise SourceError(f"{shown} is neither a file nor a known set: {', '.join(SOURCES)}")
    return read_file(Path(spec))


def read_source(source: Source | str, path: Path | None = None, *, subset: bool = False) -> Loaded:
    """Read a known set.

    Args:
        source: The set, or its name.
        path: Its file (``.parquet``, ``.jsonl``, ``.json``, ``.csv``), or a folder of such
            files; None for the Hub.
        subset: Whether it may have fewer records than it should; the report then says so.

    Raises:
        SourceError: The set is not known, cannot be reached, has other columns than it should,
            another number of records or other labels; or a record is malformed.
    """
    if isinstance(source, str):
        if source not in SOURCES:
            raise SourceError(f"{source} is no known set; known are {', '.join(SOURCES)}")
        source = SOURCES[source]
    pile = pile_of_file(path, source) if path else pile_of_hub(source)
    notes = _expect(source, pile, subset)
    return _loaded(source, pile, notes)


def read_file(path: Path, name: str = "") -> Loaded:
    """Read a file of any known layout, or a folder of such files.

    It is a known set if it is named like one, as ``aime24.jsonl``, or holds the records and
    labels of one; else a set of its own.

    Args:
        path: The file or folder.
        name: What to call a set of its own, whatever the file is called; empty for its name.

    Raises:
        SourceError: The columns are of no known layout, the file is named like a known set and
            is not it, or a record is malformed.
    """
    if not name and path.stem in SOURCES:
        return read_source(path.stem, path)
    pile = pile_of_file(path, None)
    for source in SOURCES.values():
        if pile.schema in source.schemas:
            for edition in source.editions:
                if _is(edition, pile):
                    return _loaded(source, pile, _expect(source, pile, subset=False))
    own = Source(
        name=name or shown_name(path.stem),
        what=f"The file {shown_name(path.name)}, read in the layout {pile.schema.name}.",
        role=Role.POOL,
        licence="Not known here: it is for the user to know.",
        schemas=(pile.schema,),
    )
    return _loaded(own, pile, ())


def _is(edition: Edition, pile: Pile) -> bool:
    """Whether the count and the labels are an edition's; its labels must be known."""
    return (
        edition.integers is not None
        and edition.records == pile.records
        and _labels_agree(edition, pile.integers())
    )


def _labels_agree(edition: Edition, integers: Sequence[int]) -> bool:
    return edition.integers in (None, len(integers)) and edition.gold_sum in (None, sum(integers))


def _expect(source: Source, pile: Pile, subset: bool) -> tuple[str, ...]:
    """Check count and labels of a known set; the notes say what was found."""
    refuse_unusable(source, pile.place, pile.records)
    usable = [edition for edition in source.editions if edition.usable]
    if not usable:
        return ()
    for edition in usable:
        if edition.records == pile.records:
            _expect_labels(source, edition, pile)
            return (f"{pile.records:,} records: {edition.what}.",)
    largest = max(edition.records for edition in usable)
    if subset and pile.records < largest:
        return (f"{pile.records:,} records: a part of the set, as asked for.",)
    known = "; ".join(f"{edition.records:,} ({edition.what})" for edition in usable)
    hint = ". If a part is meant, say so with --subset" if pile.records < largest else ""
    raise SourceError(
        f"{source.name}: {pile.place} has {pile.records:,} records, expected {known}{hint}"
    )


def _expect_labels(source: Source, edition: Edition, pile: Pile) -> None:
    integers = pile.integers()
    if _labels_agree(edition, integers):
        return
    others = [s.name for s in SOURCES.values() if any(_is(other, pile) for other in s.editions)]
    reason = f"they are those of {others[0]}" if others else "so labels were changed or damaged"
    raise SourceError(
        f"{source.name}: the labels of {pile.place} are not the known ones "
        f"({len(integers)} plain integers with sum {sum(integers)}, "
        f"expected {edition.integers} with sum {edition.gold_sum}): {reason}"
    )


def _loaded(source: Source, pile: Pile, notes: tuple[str, ...]) -> Loaded:
    places: dict[str, str] = {}
    rows = []
    for number, (where, said) in enumerate(pile.fields, start=1):
        row_id = said.row_id or str(number)
        if row_id in places:
            raise SourceError(
                f"{pile.place}: id {row_id} stands twice, at {places[row_id]} and {where}: "
                "give each record its own id, or none"
            )
        places[row_id] = where
        rows.append(Row(source.name, row_id, said.question, said.gold, said.notes))
    report = SourceReport(
        name=source.name,
        what=source.what,
        licence=source.licence,
        records=pile.records,
        rows=len(rows),
        distinct=len({row.question for row in rows}),
        origin=pile.origin,
        notes=notes,
        faults=source.faults,
    )
    return Loaded(tuple(rows), source.role, report)
