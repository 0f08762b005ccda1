"""Files that survive an interruption: replaced whole, or appended line by line.

A reader sees the old bytes or the new ones, never half of them. An appended line is on
the disk when the call returns; what a kill can leave behind is one torn last line, which
readers leave out and :func:`cut_json_lines` removes. Folders are replaced whole as well;
what a kill leaves beside one, :func:`mend_folder` takes away.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rstar2.errors import UserError


class RecordError(UserError):
    """A record cannot be written or read; the message names the file and what to do."""


def make_folder(path: Path) -> None:
    """Make a folder with its parents; one that exists is fine.

    Raises:
        RecordError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot("make folder", path, error) from error


def atomic_write(path: Path, data: bytes) -> None:
    """Replace a file whole: temporary name, fsync, rename, fsync of the folder.

    Raises:
        RecordError: The folder is missing or cannot be written; the old file is untouched.
    """
    with atomic_writer(path) as write:
        write(data)


@contextmanager
def atomic_writer(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Replace a file whole, as :func:`atomic_write`, with bytes that come piece by piece.

    Yields:
        Writes the next piece. The file is replaced at the end of the block; if the block
        raises, the old file is untouched and no other is left.

    Raises:
        RecordError: The folder is missing or cannot be written, or has no space left.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        file = temporary.open("wb")
    except OSError as error:
        raise _cannot("write", path, error) from error

    def write(data: bytes) -> None:
        try:
            file.write(data)
        except OSError as error:
            raise _cannot("write", path, error) from error

    try:
        yield write
        try:
            file.flush()
            os.fsync(file.fileno())
            file.close()
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _cannot("write", path, error) from error
    except BaseException:
        with suppress(OSError):  # it is given up, and why is told already
            file.close()
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Replace a folder whole: filled under a temporary name, fsync of all in it, rename.

    A former folder gives way first, so that a kill can leave neither under the real name;
    :func:`mend_folder` then brings it back.

    Yields:
        The folder to fill. If the block raises, the former one is untouched and no other is left.

    Raises:
        RecordError: The folder cannot be written, or has no space left; an ``OSError`` of the
            block is told so too.
    """
    mend_folder(path)
    partial, old = _beside(path)
    make_folder(partial)
    try:
        yield partial
        _sync_tree(partial)
        if path.exists():
            path.replace(old)
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        mend_folder(path)
        raise _cannot("write", path, error) from error
    except BaseException:
        mend_folder(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def mend_folder(path: Path) -> None:
    """Take away what a kill in :func:`atomic_folder` left; a former folder comes back.

    Raises:
        RecordError: It cannot be brought back.
    """
    partial, old = _beside(path)
    if old.exists() and not path.exists():
        try:
            old.replace(path)
        except OSError as error:
            raise _cannot("bring back", path, error) from error
    for rest in (partial, old):
        shutil.rmtree(rest, ignore_errors=True)


def mend_folders(parent: Path) -> None:
    """Mend every folder in ``parent``, as :func:`mend_folder`."""
    for left in [*parent.glob("*.partial"), *parent.glob("*.old")]:
        mend_folder(left.with_suffix(""))


def append_json_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line; it is on the disk when the call returns.

    Numbers that are not finite are written as Python's JSON names them (``NaN``). A row with a
    lone surrogate, which a model may write, is escaped.

    Raises:
        RecordError: The file cannot be written, ends in a torn line, or the row is not JSON.
    """
    try:
        line = _as_line(row)
    except (TypeError, ValueError) as error:
        raise RecordError(f"cannot append to {path}: the row is not JSON: {error}") from error
    try:
        with path.open("a+b") as file:
            size = file.tell()
            if _torn(size, path):
                raise RecordError(f"{path} ends in a torn line: cut it back before you append")
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if size == 0:
            _sync_folder(path.parent)
    except OSError as error:
        raise _cannot("append to", path, error) from error


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a file, in order; a torn last line is left out.

    Returns:
        One mapping per line; empty if the file does not exist.

    Raises:
        RecordError: The file cannot be read, or a whole line is not a JSON object.
    """
    return [row for _, row in _lines(path)]


def cut_json_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Keep the lines that ``keep`` accepts, byte for byte; drop the rest and a torn last line.

    Raises:
        RecordError: As :func:`read_json_lines` and :func:`atomic_write`.
    """
    if path.exists():
        atomic_write(path, b"".join(line for line, row in _lines(path) if keep(row)))


def _as_line(row: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row).encode() + b"\n"


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _cannot("read", path, error) from error
    whole = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    return [(line, _parse(line, path, number)) for number, line in enumerate(whole, start=1)]


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}, line {number}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise RecordError(f"{path}, line {number}: expected a JSON object")
    return row


def _torn(size: int, path: Path) -> bool:
    if size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _beside(path: Path) -> tuple[Path, Path]:
    """Where the next content of a folder is filled, and where its former one waits."""
    return path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.old")


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(folder))


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(action: str, path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"cannot {action} {path}: {error.strerror}; "
        "check that the folder exists, is yours to write, and has space"
    )
