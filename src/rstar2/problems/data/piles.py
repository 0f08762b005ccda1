"""Reads all records of a set, from a file or from the Hub, before anything is checked."""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rstar2.problems.data.formats import (
    Record,
    RecordFile,
    SourceError,
    open_records,
    record_files,
    shown_name,
)
from rstar2.problems.data.registry import Hub, Source
from rstar2.problems.data.schemas import SCHEMAS, BadRecord, Fields, Schema

_INTEGER = re.compile(r"\s*-?[0-9]+\s*")
_LONGEST_INTEGER = 60
"""Labels with more characters are left out of the sum; the known sets have none."""


@dataclass(frozen=True, slots=True)
class Pile:
    """Records of one set, read but not yet checked.

    Attributes:
        place: The file or data set, for messages.
        schema: Their layout.
        fields: Where each stands in its file, and what it says; a problem that repeats, as the
            layout allows it, is there once.
        records: How many were read.
        origin: As in :class:`SourceReport`.
    """

    place: str
    schema: Schema
    fields: tuple[tuple[str, Fields], ...]
    records: int
    origin: str

    def integers(self) -> list[int]:
        """The labels that are plain decimal integers."""
        golds = (fields.gold for _, fields in self.fields if len(fields.gold) <= _LONGEST_INTEGER)
        return [int(gold) for gold in golds if _INTEGER.fullmatch(gold)]


def pile_of_file(path: Path, source: Source | None) -> Pile:
    """Read a file, or a folder of files; of a known set, only in its layouts.

    Raises:
        SourceError: It cannot be read, has unknown columns or a malformed record, or is a copy
            of the known set that must not be used.
    """
    files = [open_records(file) for file in record_files(path)]
    place = shown_name(path)
    schema = _schema_of(files[0].columns, shown_name(files[0].path), source)
    counts = [file.rows for file in files if file.rows is not None]
    if source and len(counts) == len(files):
        refuse_unusable(source, place, sum(counts))
    fields, records = _collect(_records(files, schema), schema, place)
    return Pile(place, schema, fields, records, _digest([file.path for file in files]))


def _records(files: Sequence[RecordFile], schema: Schema) -> Iterator[tuple[str, Record]]:
    for file in files:
        inside = f"{shown_name(file.path.name)}, " if len(files) > 1 else ""
        for where, record in file.records(schema.columns):
            yield f"{inside}{where}", record


def _digest(files: Sequence[Path]) -> str:
    """SHA-256 of a file; of several, that of their digests in order."""
    digests = []
    for file in files:
        with file.open("rb") as data:
            digests.append(hashlib.file_digest(data, "sha256"))
    if len(digests) == 1:
        return f"sha256:{digests[0].hexdigest()}"
    whole = hashlib.sha256(b"".join(digest.digest() for digest in digests))
    return f"sha256:{whole.hexdigest()} of {len(files)} files"


def pile_of_hub(source: Source) -> Pile:
    """Read a known set from where it lies.

    Raises:
        SourceError: It is not on the Hub, cannot be reached, or is not as it should be.
    """
    hub = source.hub
    if hub is None:
        raise SourceError(
            f"{source.name} cannot be downloaded: pass its file, as {source.name}=FILE"
        )
    place = f"{hub.dataset}@{hub.revision}"
    records = _hub_records(source.name, hub)
    first = next(records, None)
    if first is None:
        raise SourceError(f"{place} holds no records")
    schema = _schema_of(tuple(first[1]), place, source)
    fields, count = _collect(itertools.chain([first], records), schema, place)
    return Pile(place, schema, fields, count, f"{place} {hub.config or 'default'}/{hub.split}")


def _hub_records(name: str, hub: Hub) -> Iterator[tuple[str, Record]]:
    """Records of a data set on the Hub, at its pinned revision."""
    import datasets  # lazily: it takes half a second, and only the Hub needs it

    options = {"columns": list(hub.columns)} if hub.columns else {}
    try:
        data = datasets.load_dataset(
            hub.dataset,
            hub.config,
            split=hub.split,
            revision=hub.revision,
            streaming=hub.streamed,
            **options,
        )
        for number, record in enumerate(data, start=1):
            yield f"record {number}", record
    except (OSError, datasets.exceptions.DatasetsError) as error:
        raise SourceError(
            f"cannot read {hub.dataset} from the Hub ({error}): where there is a network, "
            f"download {hub.file} of that data set at revision {hub.revision}, "
            f"then pass {name}=FILE"
        ) from error


def _schema_of(columns: Sequence[str], place: str, source: Source | None) -> Schema:
    allowed = source.schemas if source else SCHEMAS
    for schema in SCHEMAS:
        if schema in allowed and schema.fits(columns):
            return schema
    known = "; ".join(map(str, allowed))
    raise SourceError(
        f"{place}: unknown columns: found {', '.join(columns)}; expected one of the layouts "
        f"{known}. Rename columns, or take another copy"
    )


def _collect(
    records: Iterable[tuple[str, Record]], schema: Schema, place: str
) -> tuple[tuple[tuple[str, Fields], ...], int]:
    """Read every record; equal texts are held once, equal problems too where they may repeat."""
    texts: dict[str, str] = {}
    solutions: Counter[tuple[str, str]] = Counter()
    kept = []
    number = 0
    for where, record in records:
        number += 1
        said = _read(record, schema, f"{place}, {where}")
        said = replace(said, question=texts.setdefault(said.question, said.question))
        if schema.repeats:
            solutions[said.question, said.gold] += 1
            if solutions[said.question, said.gold] > 1:
                continue
        kept.append((where, said))
    if schema.repeats:
        kept = [(where, _with_solutions(said, solutions)) for where, said in kept]
    return tuple(kept), number


def _read(record: Record, schema: Schema, where: str) -> Fields:
    try:
        said = schema.fields(record)
        f"{said.question}{said.gold}{said.row_id}".encode()
    except BadRecord as error:
        raise SourceError(f"{where}: {error}") from error
    except UnicodeEncodeError as error:
        raise SourceError(f"{where}: half a surrogate pair in the text") from error
    return said


def _with_solutions(said: Fields, solutions: Counter[tuple[str, str]]) -> Fields:
    """Note how many records, each a solution, have this problem and this label."""
    agreeing = str(solutions[said.question, said.gold])
    return replace(said, notes={**said.notes, "agreeing": agreeing})


def refuse_unusable(source: Source, place: str, records: int) -> None:
    """Refuse a copy that is known, by its number of records, as one not to use.

    Raises:
        SourceError: It is; the message says what it is.
    """
    for edition in source.editions:
        if edition.records == records and not edition.usable:
            usable = [f"{other.records:,}" for other in source.editions if other.usable]
            raise SourceError(
                f"{source.name}: {place} has {records:,} records, {' or '.join(usable)} expected: "
                f"this is {edition.what}"
            )
