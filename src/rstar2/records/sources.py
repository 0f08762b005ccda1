"""Which files decide a run's numbers: what its experiment can reach in the rooms that count.

A program that is never imported by a run (the data pipeline, the grader of expressions, a
converter of SFT sets) cannot change its numbers, so it is no part of the run's id.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import rstar2

DECIDING_ROOMS = (
    "protocol",
    "grading",
    "problems",
    "algorithm",
    "rollout",
    "training",
)
"""The rooms whose code decides a run's numbers."""

DECIDING_FILES = ("sandbox/program.py", "sandbox/result.py")
"""And what is told of a program. How it is started, held in and stopped decides none of it."""


def deciding_sources(entry: Path, without: Collection[Path] = ()) -> list[Path]:
    """List the files that decide the numbers of an experiment, sorted.

    Imports are followed wherever they stand, in functions too, and through every room; what
    is imported by a computed name would be missed, and nothing is.

    Args:
        entry: The experiment's module, itself one of the files.
        without: Modules that the experiment imports and never calls; not followed, nor counted.

    Returns:
        It, what it reaches of ``DECIDING_ROOMS``, and ``DECIDING_FILES``.
    """
    entry = entry.resolve()
    code = ast.parse(entry.read_bytes())
    return sorted({entry, *deciding_imports(code, entry.parent, without)})


def deciding_imports(
    code: ast.Module, folder: Path | None = None, without: Collection[Path] = ()
) -> list[Path]:
    """List the files of the package that decide the numbers of a piece of code, sorted.

    Args:
        code: A module, or the cells of a notebook.
        folder: Where it lies, for its relative imports; none for a notebook.
        without: As in ``deciding_sources``.

    Returns:
        What it reaches of ``DECIDING_ROOMS``, as ``deciding_sources`` follows it, and
        ``DECIDING_FILES``.
    """
    package = Path(rstar2.__file__).resolve().parent
    rooms = tuple(package / room for room in DECIDING_ROOMS)
    left_out = set(without)
    reached = set(_imported(code, folder, package)) - left_out
    waiting = sorted(reached)
    while waiting:
        module = waiting.pop()
        found = set(_imported(ast.parse(module.read_bytes()), module.parent, package))
        found -= reached | left_out
        reached |= found
        waiting += sorted(found)
    counted = {path for path in reached if any(map(path.is_relative_to, rooms))}
    return sorted({*counted, *(package / name for name in DECIDING_FILES)})


def _imported(code: ast.Module, folder: Path | None, package: Path) -> Iterator[Path]:
    """The package's files that are read when the imports of a module are carried out."""
    inside = folder is not None and folder.is_relative_to(package)
    own = folder.relative_to(package).parts if folder is not None and inside else ()
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(tuple(alias.name.split(".")), package)
        elif isinstance(node, ast.ImportFrom):
            here = (package.name, *own)
            start = here[: len(here) - node.level + 1] if node.level else ()
            origin = (*start, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield from _files((*origin, alias.name), package)


def _files(name: tuple[str, ...], package: Path) -> Iterator[Path]:
    """The files of a dotted name: its packages' ``__init__.py``, then the module, if it is one."""
    if name[0] != package.name:
        return
    for length in range(1, len(name) + 1):
        place = package.joinpath(*name[1:length])
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                yield path
