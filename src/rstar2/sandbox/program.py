"""One program, run the way IPython runs a cell, and what is told of it.

Runs in a child of the zygote. ``execute`` knows nothing of descriptors or processes, so
the zygote rehearses it once before it serves: what is imported then is warm in every child.
"""

import ast
import atexit
import builtins
import io
import json
import linecache
import os
import random
import sys
import threading
import traceback
import types
from dataclasses import asdict, dataclass

from rstar2.sandbox.jail import open_reserve

FILE_NAME = "main.py"
SEED = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a program leaves besides its output; all empty if it only printed.

    Attributes:
        value: ``repr`` of the last expression's value, if that is not None.
        traceback: Text of the error that ended it, with frames of the program only.
        error_type: Class of that error.
    """

    value: str = ""
    traceback: str = ""
    error_type: str = ""

    def to_bytes(self, limit: int) -> bytes:
        """JSON in ASCII, texts cut to about ``limit`` characters; no bytes if all is empty."""
        if self == Report():
            return b""
        cut = {name: _shorten(text, limit) for name, text in asdict(self).items()}
        return json.dumps(cut).encode("ascii")


def _shorten(text: str, limit: int) -> str:
    """Keep head and tail: a traceback names its error in the last line."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n…\n{text[-(limit // 2) :]}"


def execute(source: str) -> Report:
    """Run ``source`` as ``__main__``, the last expression once and for its value.

    Whatever the program raises becomes part of the report. ``sys.exit(0)`` is no error.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    source = source.removeprefix("\ufeff")
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(True), FILE_NAME)
    try:
        return Report(value=_run_cell(source, main.__dict__))
    except SystemExit as leaving:
        return Report() if leaving.code in (None, 0) else describe(leaving)
    except BaseException as error:
        return describe(error)


def _run_cell(source: str, names: dict[str, object]) -> str:
    tree = ast.parse(source, FILE_NAME)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, FILE_NAME, "exec", dont_inherit=True), names)
        return ""
    tree.body.pop()
    body = compile(tree, FILE_NAME, "exec", dont_inherit=True)
    expression = compile(ast.Expression(last.value), FILE_NAME, "eval", dont_inherit=True)
    exec(body, names)
    value = eval(expression, names)
    return "" if value is None else repr(value)


def describe(error: BaseException) -> Report:
    """The report of an error, without a frame that is not the program's own."""
    if isinstance(error, MemoryError):
        open_reserve()
    told = traceback.TracebackException(
        type(error), error, error.__traceback__, lookup_lines=False, compact=True
    )
    waiting = [told]
    while waiting:
        link = waiting.pop()
        link.stack[:] = [frame for frame in link.stack if frame.filename == FILE_NAME]
        chained = (link.__cause__, link.__context__, *(link.exceptions or ()))
        waiting += [other for other in chained if other is not None]
    lines = told.format() if told.stack else told.format_exception_only()
    kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
    return Report(traceback="".join(lines), error_type=kind)


def repeat_randomness() -> None:
    """Make every source of random numbers in this process start from the same state.

    Covers ``random`` (also ``Random()`` and ``seed()`` without an argument),
    ``os.urandom`` and so ``secrets``, ``uuid4`` and NumPy's unseeded generators.
    """
    source = random.Random(SEED)
    seed = random.Random.seed

    def repeatable_seed(self: random.Random, a: object = None, version: int = 2) -> None:
        seed(self, source.getrandbits(64) if a is None else a, version)  # type: ignore[arg-type]

    os.urandom = random._urandom = source.randbytes  # type: ignore[attr-defined]
    random.Random.seed = repeatable_seed  # type: ignore[method-assign]
    random.seed = random._inst.seed
    random.seed()


def run_as_main(code: bytes, report: int, limit: int) -> int:
    """Run a program on descriptors 0 and 1 of this process and write its report.

    Args:
        code: The program, UTF-8.
        report: Descriptor that receives the report.
        limit: Characters kept of each text of the report.

    Returns:
        The exit status that this process should end with: 0, or 1 after an error.
    """
    sys.stdin = _text(0, "r")
    stdout = _text(1, "w")
    sys.stderr = _text(2, "w")
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]
    sys.__stdin__, sys.__stderr__ = sys.stdin, sys.stderr  # type: ignore[misc]
    sys.argv = [FILE_NAME]
    process = os.getpid()
    told = execute(code.decode("utf-8", "surrogatepass"))
    ending = _finish(stdout)
    told = told if told.error_type else ending or told
    payload = told.to_bytes(limit)
    if payload and os.getpid() == process:  # a fork of the program has no say
        os.ftruncate(report, 0)
        os.pwrite(report, payload, 0)
    return 1 if told.error_type else 0


def _text(descriptor: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "surrogateescape" if mode == "r" else "backslashreplace"
    return io.TextIOWrapper(binary, "utf-8", errors)


def _finish(stdout: io.TextIOWrapper) -> Report | None:
    """What the interpreter does after a program: threads, exit handlers, the last output."""
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        if not stdout.closed:
            stdout.flush()
    except BaseException as error:
        return describe(error)
    return None
