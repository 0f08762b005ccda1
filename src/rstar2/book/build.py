"""Builds the book: Jupyter Book, offline, warnings are errors.

The execution cache of Jupyter Book knows the code cells of a chapter and nothing
else; it would show old figures after a change of the package. So the caller names
the state of everything else that the chapters read (``cache_key``), and each state
has its own cache. The key reaches Jupyter Book through a copy of ``_config.yml``.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rstar2.errors import UserError

_STAGE = re.compile(r"^(?P<stage>[a-z][a-z ]+)\.\.\. \[ *(?P<percent>\d+)%\] ?(?P<what>.*)$")
_STAGES = {"reading sources": (0.0, 0.8), "writing output": (80.0, 0.2)}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NOISE = (
    "Kernel is running over TCP without encryption",
    "frozen modules are being used",
    "MdParserConfig(",
    "NbParserConfig(",
)
_AFTER_THE_CAUSE = re.compile(
    r'The above exception was the direct cause|\s*File ".*/bin/jupyter-book"'
)
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEPT_CACHES = 3
_TAIL_LINES = 40


class BookBuildError(UserError):
    """The book could not be built.

    Attributes:
        tail: The last lines of its log that say what went wrong; empty if it was not begun.
    """

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.tail = tail


def build_book(
    root: Path, *, cache_key: str, out: Path | None = None, console: Console | None = None
) -> Path:
    """Execute the chapters whose cache is stale and build the HTML.

    Args:
        root: The repository, with ``_config.yml`` and ``_toc.yml``.
        cache_key: Names the state of sources, results and presets; letters, digits,
            ``-`` and ``_``. Chapters are executed again when it changes.
        out: Folder in which ``_build/`` is made; ``root`` if None.
        console: Shows the progress; standard error if None.

    Returns:
        Path of ``_build/html/index.html``; the whole log is ``_build/book.log``.

    Raises:
        BookBuildError: The configuration is missing, the key is not a name, a chapter
            fails, or Sphinx warns.
    """
    root = root.resolve()
    build = (out or root).resolve() / "_build"
    for name in ("_config.yml", "_toc.yml"):
        if not (root / name).is_file():
            raise BookBuildError(f"there is no {root / name}: build from the repository's root")
    if not _KEY.fullmatch(cache_key):
        raise BookBuildError(f"cache key {cache_key!r}: use up to 64 letters, digits, '-' or '_'")
    cache = build / "execution" / cache_key
    cache.mkdir(parents=True, exist_ok=True)
    config = _write_config(root, build, cache)
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", str(root)]
    command += ["--config", str(config), "--path-output", str(build.parent)]
    command += ["-n", "-W", "--keep-going"]
    tail, code = _run(command, root, build / "book.log", console or Console(stderr=True))
    if code:
        # Sphinx warns only of pages that it reads: without this the next build would pass.
        shutil.rmtree(build / ".doctrees", ignore_errors=True)
        raise BookBuildError(
            f"jupyter-book stopped with code {code}; the whole log: {build / 'book.log'}", tail
        )
    _forget_old_caches(cache)
    return build / "html" / "index.html"


def _write_config(root: Path, build: Path, cache: Path) -> Path:
    """A copy of ``_config.yml`` with the cache's place and absolute extension paths."""
    config = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    config.setdefault("execute", {})["cache"] = str(cache)
    extensions = config.get("sphinx", {}).get("local_extensions", {})
    for name, folder in extensions.items():
        extensions[name] = str(root / folder)
    path = build / "_config.yml"
    path.write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False), "utf-8")
    return path


def _run(command: list[str], root: Path, log_path: Path, console: Console) -> tuple[str, int]:
    """Run Jupyter Book, its output into the log and its progress onto the console.

    Returns:
        The last lines of the log that say what went wrong, and the exit code.
    """
    lines: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with (
        log_path.open("w", encoding="utf-8") as log,
        Progress(*columns, console=console, transient=True) as progress,
        subprocess.Popen(
            command,
            cwd=root,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        bar = progress.add_task("book", total=100)
        for raw in process.stdout or ():
            for line in _ESCAPE.sub("", raw).replace("\r", "\n").splitlines():
                if any(noise in line for noise in _NOISE):
                    continue
                log.write(line + "\n")
                if line.strip() and not _advance(progress, bar, line):
                    lines.append(line)
    return _cause(lines), process.returncode


def _cause(lines: Sequence[str]) -> str:
    """The end of the log, without the tracebacks of Jupyter Book itself."""
    ends = (k for k, line in enumerate(lines) if _AFTER_THE_CAUSE.match(line))
    return "\n".join(lines[: next(ends, len(lines))][-_TAIL_LINES:])


def _advance(progress: Progress, bar: TaskID, line: str) -> bool:
    """Show a line of progress; False if the line is something else."""
    match = _STAGE.match(line.strip())
    if match:
        name = f"{match['stage']} {match['what']}".strip()
        start, share = _STAGES.get(match["stage"], (0.0, 0.0))
        progress.update(bar, description=name)
        if share:
            progress.update(bar, completed=start + share * int(match["percent"]))
    return match is not None


def _environment() -> dict[str, str]:
    """The build's environment: this interpreter's kernel, one thread, no debugger talk."""
    return os.environ | {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
    }


def _forget_old_caches(current: Path) -> None:
    """Keep the newest few execution caches."""
    current.touch()
    caches = sorted(current.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in caches[_KEPT_CACHES:]:
        shutil.rmtree(old)
