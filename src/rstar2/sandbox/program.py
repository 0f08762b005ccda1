"""One program, run the way IPython runs a cell, and what is told of it.

Runs in a child of the zygote. ``execute`` knows nothing of descriptors or processes, so
the zygote rehearses it before it serves: what is imported then is warm in every child.
"""

import ast
import atexit
import builtins
import contextlib
import io
import json
import linecache
import mmap
import os
import random
import sys
import threading
import traceback
import types
from dataclasses import asdict, dataclass

from rstar2.sandbox.wire import CELL

FILE_NAME = "main.py"
CELL_NAME = "cell-{}.py"
SEED = 0
RESERVE_BYTES = 32 << 20
"""Of address space, kept back for telling of a MemoryError."""


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
        texts = asdict(self)
        told = {name: _shorten(text, limit) for name, text in texts.items()}
        if told != texts:
            told["cut"] = "yes"
        return json.dumps(told).encode("ascii")


def _shorten(text: str, limit: int) -> str:
    """Keep head and tail: a traceback names its error in the last line."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n…\n{text[-(limit // 2) :]}"


def new_main() -> dict[str, object]:
    """The names of a fresh ``__main__``."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main.__dict__


def execute(source: str, names: dict[str, object], file_name: str = FILE_NAME) -> Report:
    """Run ``source`` among ``names``, the last expression once and for its value.

    As in IPython, a semicolon behind that expression hides its value. Whatever the program
    raises becomes part of the report. ``sys.exit(0)`` is no error.
    """
    source = source.removeprefix("\ufeff")
    lines = [line.removesuffix("\n") + "\n" for line in io.StringIO(source, newline=None)]
    linecache.cache[file_name] = (len(source), None, lines, file_name)
    try:
        return Report(value=_run_cell(source, names, file_name))
    except SystemExit as leaving:
        code = leaving.code
        fine = code is None or (isinstance(code, int) and int.__eq__(code, 0))
        return Report() if fine else describe(leaving)
    except BaseException as error:
        return describe(error)


def _run_cell(source: str, names: dict[str, object], file_name: str) -> str:
    tree = ast.parse(source, file_name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, file_name, "exec", dont_inherit=True), names)
        return ""
    tree.body.pop()
    silenced = _is_silenced(source, last)
    body = compile(tree, file_name, "exec", dont_inherit=True)
    expression = compile(ast.Expression(last.value), file_name, "eval", dont_inherit=True)
    exec(body, names)
    value = eval(expression, names)
    return "" if value is None or silenced else repr(value)


def _is_silenced(source: str, last: ast.stmt) -> bool:
    """Whether a semicolon follows the last statement, which hides its value."""
    assert last.end_lineno is not None
    line = list(io.StringIO(source, newline=None))[last.end_lineno - 1]
    return line.encode("utf-8", "surrogatepass")[last.end_col_offset :].lstrip().startswith(b";")


def describe(error: BaseException) -> Report:
    """The report of an error, whatever the program has made of errors and of the library."""
    if isinstance(error, MemoryError):
        release_reserve()
    kind = "MemoryError" if isinstance(error, MemoryError) else _name(type(error))
    try:
        return Report(traceback=_traceback(error), error_type=kind)
    except BaseException:
        return Report(traceback=f"{kind}: <the error cannot be shown>\n", error_type=kind)


def _name(kind: type) -> str:
    """As the class was named, whatever its metaclass answers."""
    return str(type.__dict__["__name__"].__get__(kind))


def _traceback(error: BaseException) -> str:
    """As Python prints it, without a frame that is not the program's own."""
    told = traceback.TracebackException(
        type(error), error, error.__traceback__, lookup_lines=False, compact=True
    )
    waiting = [told]
    while waiting:
        link = waiting.pop()
        link.stack[:] = [frame for frame in link.stack if frame.filename.startswith(_OURS)]
        chained = (link.__cause__, link.__context__, *(link.exceptions or ()))
        waiting += [other for other in chained if other is not None]
    return "".join(told.format() if told.stack else told.format_exception_only())


def keep_reserve() -> None:
    """Set address space aside, in the zygote, that ``release_reserve`` gives free."""
    _reserve.append(mmap.mmap(-1, RESERVE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def release_reserve() -> None:
    """Give the reserve free, so that an error of memory can be told of."""
    while _reserve:
        _reserve.pop().close()


def repeat_randomness() -> None:
    """Make every source of random numbers in this process start from the same state.

    Covers ``random`` (also ``Random()`` and ``seed()`` without an argument),
    ``os.urandom`` and so ``secrets``, ``uuid4`` and NumPy's unseeded generators, and the
    global generators of NumPy and SymPy if they are loaded.
    """
    source = random.Random(SEED)

    # The library is patched on purpose, as the program will find it. Typeshed does not know the
    # private names, types ``seed`` narrower than it is, and takes methods as fixed.
    def repeatable_seed(self: random.Random, a: object = None, version: int = 2) -> None:
        _seed(self, source.getrandbits(64) if a is None else a, version)  # type: ignore[arg-type]

    os.urandom = random._urandom = source.randbytes  # type: ignore[attr-defined]
    random.Random.seed = repeatable_seed  # type: ignore[method-assign]
    random.seed = random._inst.seed
    random.seed()
    for name, seed in (("numpy.random", "seed"), ("sympy.core.random", "seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)(SEED)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a program finds when it starts; set in the zygote, so that no child has to.

    Attributes:
        names: Of its ``__main__``.
        stdout: On descriptor 1.
        stderr: On descriptor 2.
    """

    names: dict[str, object]
    stdout: io.TextIOWrapper
    stderr: io.TextIOWrapper

    def flush(self) -> None:
        """Write out what is buffered, also in what the program has put in the streams' place."""
        for stream in (sys.stdout, sys.stderr, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(ValueError):  # it is closed or detached
                    stream.flush()


def set_stage() -> Stage:
    """Put the streams on descriptors 0 to 2, and drop the exit handlers of what is loaded."""
    atexit._clear()
    stage = Stage(new_main(), _text(1, "w"), _text(2, "w"))
    sys.stdin, sys.stdout, sys.stderr = _text(0, "r"), stage.stdout, stage.stderr
    # Typeshed calls these final; the program must find its own streams there too.
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, stage.stdout, stage.stderr  # type: ignore[misc]
    sys.argv = [FILE_NAME]
    return stage


def run_as_main(stage: Stage, code: bytes, report: int, limit: int) -> int:
    """Run a program on descriptors 0 to 2 of this process and write its report.

    Args:
        stage: As the zygote has set it.
        code: The program, UTF-8.
        report: Descriptor that receives the report.
        limit: Characters kept of each text of the report.

    Returns:
        The exit status that this process should end with: 0, or 1 after an error.
    """
    process = os.getpid()
    told = execute(code.decode("utf-8", "surrogatepass"), stage.names)
    ending = _finish(stage)
    told = told if told.error_type else ending or told
    if os.getpid() == process:  # a fork of the program has no say
        _write_report(told, report, limit)
    return 1 if told.error_type else 0


def run_cells(stage: Stage, orders: int, code: int, report: int, limit: int) -> int:
    """Run one program after another among the same names, until the orders end.

    Args:
        stage: As the zygote has set it.
        orders: Descriptor that says when ``code`` holds the next program, and is told when
            it has run.
        code: Descriptor of the program.
        report: Descriptor that receives the report of each.
        limit: Characters kept of each text of the report.

    Returns:
        The exit status for this process.
    """
    number = 0
    while os.read(orders, 1):
        number += 1
        for handle in (0, 1, 2):
            os.lseek(handle, 0, os.SEEK_SET)
        sys.stdin = _text(0, "r")
        source = os.pread(code, os.fstat(code).st_size, 0).decode("utf-8", "surrogatepass")
        told = execute(source, stage.names, CELL_NAME.format(number))
        stage.flush()
        _write_report(told, report, limit)
        os.write(orders, CELL)
    return 0


def _text(descriptor: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "surrogateescape" if mode == "r" else "backslashreplace"
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=descriptor == 2)


def _write_report(told: Report, report: int, limit: int) -> None:
    payload = told.to_bytes(limit)
    os.ftruncate(report, 0)
    os.pwrite(report, payload, 0)


def _finish(stage: Stage) -> Report | None:
    """What the interpreter does after a program: threads, exit handlers, the last output."""
    try:
        # Not active_count(), which touches more pages for every child to copy. Private: no type.
        if len(threading._active) > 1:  # type: ignore[attr-defined]
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
        stage.flush()
    except BaseException as error:
        return describe(error)
    return None


_OURS = (FILE_NAME, CELL_NAME.partition("{")[0])
_seed = random.Random.seed
_reserve: list[mmap.mmap] = []
