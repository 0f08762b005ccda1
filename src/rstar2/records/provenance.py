"""Where numbers come from: the commit, the machine, the versions, and a run's id.

Nothing here names a person, a host or a path: a record can be published as it is.
"""

import ast
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rstar2
from rstar2.records.files import RecordError


@dataclass(frozen=True, slots=True)
class Hardware:
    """The kind of machine, never its name.

    Attributes:
        cpu: The processor's model.
        cores: Cores this process may use.
        memory_gib: Memory of the machine, in GiB, to one decimal.
    """

    cpu: str
    cores: int
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """The code, machine and versions of a run.

    Attributes:
        commit: Full hash of the commit that the package runs from; None if it cannot be told.
        dirty: Whether files outside ``results/`` differ from it; None if it cannot be told.
        hardware: The kind of machine.
        versions: Python, torch and transformers, by name.
    """

    commit: str | None
    dirty: bool | None
    hardware: Hardware
    versions: dict[str, str]

    @property
    def publishable(self) -> bool:
        """Whether a record may go to ``results/``: a known commit and a clean tree."""
        return self.commit is not None and self.dirty is False

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values, the way it stands in ``run.json``."""
        return asdict(self)


def provenance(root: Path | None = None) -> Provenance:
    """Look at the working tree, the machine and the installed versions, without importing torch.

    Args:
        root: Top folder of the working tree; by default the one this package runs from.
    """
    commit, dirty = working_tree(root)
    return Provenance(
        commit=commit,
        dirty=dirty,
        hardware=hardware(),
        versions={
            "python": platform.python_version(),
            "torch": version("torch"),
            "transformers": version("transformers"),
        },
    )


def hardware() -> Hardware:
    """Look at the machine."""
    return Hardware(cpu=_cpu_model(), cores=_cores(), memory_gib=_memory_gib())


def working_tree(root: Path | None = None) -> tuple[str | None, bool | None]:
    """Ask git for the commit, and whether files outside ``results/`` differ from it.

    Args:
        root: Top folder of the working tree; by default the one this package runs from.

    Returns:
        Hash and whether dirty; None for what git cannot tell: no git, no commit yet, or the
        folder is not the top of a working tree (an installed package, an unpacked archive).
    """
    root = (root or Path(rstar2.__file__).parents[2]).resolve()
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "HEAD")
    if top is None or Path(top).resolve() != root:
        return None, None
    if commit is None or not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return None, None
    changes = _git(root, "status", "--porcelain", "--", ".", ":(exclude)results")
    return commit, None if changes is None else bool(changes)


def run_id(notebook_source: str, params: Mapping[str, Any], sources: Iterable[Path]) -> str:
    """Name a run by what decides its numbers: ten hex digits of a SHA-256.

    Args:
        notebook_source: The notebook's code.
        params: The final parameters, JSON values only.
        sources: The files that decide them, in any order, as :func:`fingerprint` reads them.

    Raises:
        RecordError: A parameter is not JSON, or a source cannot be read or parsed.
    """
    try:
        parameters = json.dumps(params, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"cannot name the run: a parameter is not JSON: {error}") from error
    digest = hashlib.sha256()
    for part in (notebook_source, parameters, fingerprint(sources)):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:10]


def fingerprint(sources: Iterable[Path]) -> str:
    """Tell the content of source files, whatever their order, in one text.

    Python sources count by their syntax tree without docstrings, so that layout, comments
    and docstrings change nothing; other files count by their bytes. A file is known by its
    place in the package, so that the text is the same on every machine.

    Args:
        sources: The files, as :func:`rstar2.records.deciding_sources` lists them.

    Raises:
        RecordError: A source cannot be read or parsed.
    """
    return "\n".join(sorted(map(_fingerprint, sources)))


def _fingerprint(path: Path) -> str:
    package, path = Path(rstar2.__file__).resolve().parent, path.resolve()
    name = path.relative_to(package).as_posix() if path.is_relative_to(package) else path.name
    try:
        data = path.read_bytes()
        content = _syntax(ast.parse(data)).encode() if path.suffix == ".py" else data
    except (OSError, SyntaxError) as error:
        raise RecordError(f"cannot name the run: {path} cannot be read: {error}") from error
    return f"{name} {hashlib.sha256(content).hexdigest()}"


def _syntax(node: object) -> str:
    """Spell a syntax tree without empty fields, which differ between versions of Python."""
    if isinstance(node, list):
        return "[" + ",".join(_syntax(item) for item in node if not _is_text_only(item)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (
        f"{name}={_syntax(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != []
    )
    return f"{type(node).__name__}({','.join(fields)})"


def _is_text_only(node: object) -> bool:
    """Whether a statement is a docstring, of a module, class, function or attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _git(root: Path, *arguments: str) -> str | None:
    """Ask git; None when there is no git, or it does not answer for this folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if model:
            return model.group(1).strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
