"""Files of records, streamed: Parquet, JSON lines, JSON and CSV.

A file is never held whole, so its size does not matter. Text is UTF-8, decoded strictly: what
is wrong is named with its place, and nothing is skipped but blank lines.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rstar2.errors import UserError

Record = dict[str, Any]
"""One record as the file has it: columns and their values."""

MAX_RECORD_BYTES = 64 * 2**20
"""Longest line, field of a CSV file, or element of a JSON array, that is read."""
_LONGEST_INTEGER = 1_000
"""JSON integers with more characters stay text: Python refuses to convert 4,300 digits."""
_BATCH = 1_000
_CHUNK = 2**20
_BOM = b"\xef\xbb\xbf"


class SourceError(UserError):
    """A set of records cannot be read; the message says what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, opened far enough to know what it holds.

    Attributes:
        path: The file.
        columns: Names of its columns: of a JSON file, the keys of its first record.
        rows: Number of records where the file tells it without being read (Parquet), else None.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int | None

    def records(self, columns: Sequence[str]) -> Iterator[tuple[str, Record]]:
        """Read the records in order.

        Args:
            columns: The columns that are wanted, as far as the file has them; Parquet reads
                only these from the disk.

        Yields:
            Where the record stands (``line 3``, ``row 3``), and the record.

        Raises:
            SourceError: The file cannot be read, or a record is malformed.
        """
        with _named(self.path):
            yield from _READERS[self.path.suffix.lower()](self.path, columns)


def open_records(path: Path) -> RecordFile:
    """Look into a file: its columns and, where that is cheap, its number of records.

    Raises:
        SourceError: It is missing, of a kind that is not read, empty or malformed.
    """
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise SourceError(
            f"{shown_name(path)}: cannot read files with suffix {kind!r}; "
            f"give one of {', '.join(_READERS)}"
        )
    with _named(path):
        if kind == ".parquet":
            columns, rows = _parquet_header(path)
        else:
            columns, rows = _first_keys(_READERS[kind](path, ())), None
    if not columns:
        raise SourceError(f"{shown_name(path)} holds no records")
    return RecordFile(path, columns, rows)


def read_records(path: Path) -> Iterator[tuple[str, Record]]:
    """Read the records of a file, with all columns that its header or first record has.

    Yields:
        Where the record stands (``line 3``, ``row 3``), and the record.

    Raises:
        SourceError: As :func:`open_records` and :meth:`RecordFile.records`.
    """
    file = open_records(path)
    yield from file.records(file.columns)


def record_files(path: Path) -> list[Path]:
    """List the files of a set: the file itself, or those of a folder, by name.

    Raises:
        SourceError: The folder cannot be read or has no file of a kind that is read.
    """
    if not path.is_dir():
        return [path]
    with _named(path):
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _READERS)
    if not files:
        raise SourceError(f"{shown_name(path)} has no files with suffix {', '.join(_READERS)}")
    return files


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the file's name into what goes wrong with it."""
    name = shown_name(path)
    try:
        yield
    except OSError as error:
        if error.errno is None:  # Arrow's word for content that it cannot decode
            reason = str(error).partition("\n")[0].rstrip(".")
            raise SourceError(f"{name}: damaged: {reason}; take another copy") from error
        raise SourceError(
            f"cannot read {name}: {error.strerror}; check the name and that it is yours"
        ) from error
    except _Malformed as error:
        raise SourceError(f"{name}, {error}") from error


def shown_name(path: Path | str) -> str:
    """The name of a file as text that can be written anywhere; bytes that are no UTF-8 escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class _Malformed(Exception):
    """What is wrong with a record, and where in its file."""


def _first_keys(records: Iterator[tuple[str, Record]]) -> tuple[str, ...]:
    for _, record in records:
        return tuple(record)
    return ()


def _parquet_header(path: Path) -> tuple[tuple[str, ...], int]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            return tuple(file.schema_arrow.names), int(file.metadata.num_rows)
    except (ArrowException, UnicodeDecodeError) as error:
        raise _Malformed(f"not a Parquet file: {error}") from error


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Record]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if name in columns]
            for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record
    except (ArrowException, UnicodeDecodeError) as error:
        raise _Malformed(f"after row {number}: damaged: {error}") from error


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Record]]:
    del columns  # a line is parsed whole
    with path.open("rb") as file:
        for number, text in _lines(file):
            if text.strip():
                yield f"line {number}", _object(text, f"line {number}")


def _json(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """One array of objects; or, as some data sets have it, JSON lines under this suffix."""
    with path.open("rb") as file:
        start = file.read(_CHUNK).removeprefix(_BOM).lstrip()
    if start.startswith(b"["):
        yield from _json_array(path)
    else:
        yield from _json_lines(path, columns)


def _json_array(path: Path) -> Iterator[tuple[str, Record]]:
    """Parse an array element by element, with no more than one chunk and one element held."""
    decoder = json.JSONDecoder(parse_int=_integer)
    number = 0
    with _Characters(path) as text:
        text.expect("[", "an array of objects")
        while not text.take("]"):
            if number:
                text.expect(",", "a comma or the end of the array")
            number += 1
            where = f"element {number}"
            yield where, _as_object(text.value(decoder, where), where)
        if text.peek():
            raise _Malformed(f"after element {number}: more text after the end of the array")


class _Characters:
    """The characters of a UTF-8 file from some point on, a chunk at a time."""

    def __init__(self, path: Path) -> None:
        import codecs

        self._file = path.open("rb")
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._held = ""
        self._bytes = 0

    def __enter__(self) -> "_Characters":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _more(self, size: int) -> bool:
        """Read on; False at the end of the file."""
        data = self._file.read(size)
        try:
            self._held += self._decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise _Malformed(f"near byte {self._bytes + error.start}: not UTF-8") from error
        self._bytes += len(data)
        return bool(data)

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        self._held = self._held.lstrip()
        while not self._held and self._more(_CHUNK):
            self._held = self._held.lstrip()
        return self._held[:1]

    def take(self, mark: str) -> bool:
        """Take the mark if it is next."""
        found = self.peek() == mark
        if found:
            self._held = self._held[1:]
        return found

    def expect(self, mark: str, what: str) -> None:
        """Take the mark that must be next."""
        if not self.take(mark):
            raise _Malformed(f"near byte {self._bytes}: expected {what}, found {self.peek()!r}")

    def value(self, decoder: json.JSONDecoder, where: str) -> Any:
        """Parse the value that is next, reading on (twice as much each time) while it is cut."""
        self.peek()
        while True:
            try:
                value, end = decoder.raw_decode(self._held)
            except RecursionError as error:
                raise _Malformed(f"{where}: not JSON: nested too deeply") from error
            except ValueError as error:
                size = max(len(self._held), _CHUNK)
                if size > MAX_RECORD_BYTES or not self._more(size):
                    raise _Malformed(f"{where}: not JSON: {error}") from error
            else:
                self._held = self._held[end:]
                return value


def _csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Record]]:
    del columns  # a line is parsed whole
    with path.open("rb") as file:
        reader = csv.DictReader((text for _, text in _lines(file)), strict=True)
        try:
            while (record := _next_of_csv(reader)) is not None:
                where = f"line {reader.line_num}"
                if None in record or None in record.values():
                    raise _Malformed(f"{where}: {len(reader.fieldnames or ())} fields expected")
                yield where, record
        except csv.Error as error:
            raise _Malformed(f"line {reader.line_num}: not CSV: {error}") from error


def _next_of_csv(reader: "csv.DictReader[str]") -> Record | None:
    """Read a record; the limit of the module, for all readers, is set for this time only."""
    before = csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line, with its end."""
    number = 0
    while line := file.readline(MAX_RECORD_BYTES + 1):
        number += 1
        if len(line) > MAX_RECORD_BYTES:
            raise _Malformed(f"line {number}: longer than {MAX_RECORD_BYTES >> 20} MiB")
        if number == 1:
            line = line.removeprefix(_BOM)
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Malformed(f"line {number}: not UTF-8 at byte {error.start}") from error


def _object(text: str, where: str) -> Record:
    try:
        return _as_object(json.loads(text, parse_int=_integer), where)
    except RecursionError as error:
        raise _Malformed(f"{where}: not JSON: nested too deeply") from error
    except ValueError as error:
        raise _Malformed(f"{where}: not JSON: {error}") from error


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else digits


def _as_object(value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise _Malformed(f"{where}: expected an object, found {type(value).__name__}")
    return value


_Reader = Callable[[Path, Sequence[str]], Iterator[tuple[str, Record]]]
_READERS: dict[str, _Reader] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
}
