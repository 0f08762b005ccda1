"""Copies the record of an ended run to another place: a folder, or a bucket through fsspec.

``run.json`` is taken away first and comes back last, so that a copy without it is unfinished;
copying again completes it. Weights stay where they are, and so does what says which process of
which host made the run.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import (
    LocalFileSystem,
)

from rstar2.errors import UserError
from rstar2.records import RunFolder, RunState, atomic_write

_SUFFIXES = frozenset({".json", ".jsonl", ".parquet", ".ipynb", ".txt"})
_STATE = "run.json"


class CopyError(UserError):
    """A run cannot be copied; the message names the place without its credentials."""


def copy_run(folder: Path, target: str) -> list[str]:
    """Copies a run to ``target/<name of its folder>/``; an unchanged one is not copied again.

    Unchanged means: the same ``run.json``, and files of the same sizes. Of an older copy, files
    that the run has no more are removed.

    Args:
        folder: The folder of a run that is not running.
        target: A local folder (``~`` is the home folder), or a URL that fsspec knows, as
            ``s3://bucket/runs``.

    Returns:
        Names of the files that were copied, relative to the folder, ``run.json`` last.

    Raises:
        RecordError: The folder holds no run.
        CopyError: The run is running, the target lies in it or is it, has no driver installed,
            or cannot be reached or written.
    """
    folder = folder.resolve()
    run = RunFolder.open(folder).read()
    if run["state"] == RunState.RUNNING:
        raise CopyError(f"{folder.name} is running: copy it when it has ended")
    run.pop("worker", None)
    state = json.dumps(run, indent=1, ensure_ascii=False).encode() + b"\n"
    sizes = {name: (folder / name).stat().st_size for name in _names(folder)}
    try:
        there = _There.find(target, folder.name)
        there.refuse_the_run_itself(folder)
        return _copy(folder, there, sizes, state)
    except UserError:
        raise
    except Exception as error:  # each driver raises types of its own; all become one line
        shown = without_credentials(target)
        # the cause would show what the line leaves out
        raise CopyError(_message(folder, target, error)) from (error if shown == target else None)


def without_credentials(target: str) -> str:
    """A URL without user, password and query, to be shown."""
    return re.sub(r"(?<=://).*@", "", target).split("?")[0] if "://" in target else target


@dataclass(frozen=True, slots=True)
class _There:
    """The copy's folder.

    Attributes:
        files: The file system of a driver of fsspec.
        path: The folder in it.
    """

    files: Any
    path: str

    @classmethod
    def find(cls, target: str, name: str) -> "_There":
        if not target:
            raise CopyError(f"cannot copy {name}: the target is empty; give a folder or a URL")
        if "://" in target:
            files, path = fsspec.url_to_fs(target)
        else:
            files, path = LocalFileSystem(), os.path.abspath(os.path.expanduser(target))
        return cls(files, f"{path.rstrip('/')}/{name}")

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFileSystem)

    def refuse_the_run_itself(self, folder: Path) -> None:
        """Raises ``CopyError`` where the copy would write in, or over, what it reads."""
        here = Path(self.path).resolve()
        if self.is_local and (here.is_relative_to(folder) or folder.is_relative_to(here)):
            raise CopyError(f"cannot copy {folder} into itself: give another target")

    def sizes(self) -> dict[str, int]:
        """Bytes of each file that is there, by its name relative to the folder."""
        self.files.invalidate_cache()
        found = self.files.find(self.path, detail=True)
        return {
            name.removeprefix(self.path).lstrip("/"): file["size"] for name, file in found.items()
        }

    def put(self, source: Path, name: str) -> None:
        target = f"{self.path}/{name}"
        self.files.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        self.files.put_file(str(source), target)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file whole or not at all; what is no local folder does so by itself."""
        self.files.makedirs(self.path, exist_ok=True)
        if self.is_local:
            atomic_write(Path(self.path, name), data)
        else:
            self.files.pipe_file(f"{self.path}/{name}", data)

    def read(self, name: str) -> bytes:
        return bytes(self.files.cat_file(f"{self.path}/{name}"))

    def remove(self, name: str) -> None:
        self.files.rm_file(f"{self.path}/{name}")


def _copy(folder: Path, there: _There, sizes: dict[str, int], state: bytes) -> list[str]:
    old = there.sizes()
    same_run = _STATE in old and there.read(_STATE) == state
    changed = [name for name, size in sizes.items() if not same_run or old.get(name) != size]
    gone = [name for name in old if _is_copied(name) and name not in {*sizes, _STATE}]
    if same_run and not changed and not gone:
        return []
    if _STATE in old:
        there.remove(_STATE)
    for name in gone:
        there.remove(name)
    for name in changed:
        there.put(folder / name, name)
    there.write(_STATE, state)
    return [*changed, _STATE]


def _names(folder: Path) -> list[str]:
    """The files to be copied but ``run.json``, in order; links are none of the run's."""
    files = (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    return sorted(file.name for file in files if file.name != _STATE and _is_copied(file.name))


def _is_copied(name: str) -> bool:
    """Whether a file is of a record: none in a folder, none that is hidden."""
    return "/" not in name and not name.startswith(".") and Path(name).suffix in _SUFFIXES


def _message(folder: Path, target: str, error: Exception) -> str:
    shown = without_credentials(target)
    reason = " ".join(str(error).split()) or type(error).__name__
    if shown != target:
        reason = type(error).__name__  # its text may hold the credentials
    if isinstance(error, ImportError):
        return f"cannot copy {folder.name} to {shown}: the driver is missing: {error}"
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    return (
        f"cannot copy {folder.name} to {shown}: {reason}; "
        "check that it exists, can be reached and is yours to write, then copy again"
    )
