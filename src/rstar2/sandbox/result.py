"""From what a call left behind to the ``ToolResult`` that the model is told of.

The status comes from the kernel (how the process ended, what CPU time it used), never
from anything the program wrote.
"""

import contextlib
import json
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox.wire import Ending

_ADDRESS = re.compile(r"(?<= at )0x[0-9A-Fa-f]{6,}")
_LONGEST_CUT = 3
"""Characters that stand for what was cut out of a text of a report."""
_SHARED_PREFIXES = {"/", "/usr", "/usr/local"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The zygote's answer to one call.

    Attributes:
        ending: What it knows of the end.
        wait_status: As ``wait4`` gives it.
        cpu_seconds: User and system time of the child and what it waited for.
        wall_seconds: From fork to end.
    """

    ending: Ending
    wait_status: int
    cpu_seconds: float
    wall_seconds: float


class Scrubber:
    """Takes out of a text what differs between two machines or two runs.

    Object addresses as ``repr`` prints them (``<object object at 0x…>``), the scratch
    directory and where Python is installed. Other hexadecimal numbers stay.
    """

    def __init__(self) -> None:
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        prefixes = {sys.prefix, sys.base_prefix, *(sysconfig.get_path(name) for name in names)}
        prefixes.add(str(Path(__file__).parents[2]))
        prefixes |= {os.path.realpath(prefix) for prefix in prefixes}
        longest_first = sorted(prefixes - _SHARED_PREFIXES, key=len, reverse=True)
        self._prefixes = re.compile("|".join(re.escape(prefix) for prefix in longest_first))

    def __call__(self, text: str, scratch: str) -> str:
        """``text`` without them; ``scratch`` is the directory of the zygote's scratches."""
        if "/" in text:
            text = re.sub(re.escape(scratch) + r"(/\d{3}\b)?", "/scratch", text)
            text = self._prefixes.sub("/python", text)
        return _ADDRESS.sub("0x…", text)


@dataclass(frozen=True, slots=True)
class Files:
    """What a call left in its memory files.

    Attributes:
        stdout: Its first ``limit`` bytes, decoded.
        stderr: The same of stderr.
        truncated: Whether there was more of these or of a text of the report.
        report: The texts of its report, if it left one; the program may have written them.
    """

    stdout: str
    stderr: str
    truncated: bool
    report: dict[str, str]

    @classmethod
    def read(cls, stdout: int, stderr: int, report: int, limit: int) -> "Files":
        """Read them from their descriptors."""
        longest = max(os.fstat(handle).st_size for handle in (stdout, stderr))
        told = _read_report(report, limit)
        truncated = longest > limit or "cut" in told
        return cls(_head(stdout, limit), _head(stderr, limit), truncated, told)


def _head(handle: int, limit: int) -> str:
    return os.pread(handle, limit, 0).decode("utf-8", "replace")


def read_result(reply: Reply, files: Files, scrub: Callable[[str], str]) -> ToolResult:
    """Judge a program that has started and ended.

    Args:
        reply: How it ended.
        files: What it left.
        scrub: Takes addresses and paths out.

    Returns:
        The result. A timeout tells nothing else: how far a program came before it was
        stopped depends on the machine.
    """
    timed = ToolResult(RunStatus.TIMEOUT, cpu=reply.cpu_seconds, duration=reply.wall_seconds)
    if reply.ending is Ending.OUT_OF_TIME:
        return timed
    told = files.report
    code = os.waitstatus_to_exitcode(reply.wait_status)
    error_type, text = told.get("error_type", ""), told.get("traceback", "")
    failed = code != 0 or (reply.ending is Ending.CELL_DONE and bool(error_type))
    if failed and not error_type:
        error_type, text = _unexplained(code)
    return replace(
        timed,
        status=RunStatus.ERROR if failed else RunStatus.OK,
        stdout=scrub(files.stdout),
        stderr=scrub(files.stderr + text if failed else files.stderr),
        value="" if failed else scrub(told.get("value", "")),
        error_type=error_type if failed else "",
        truncated=files.truncated,
    )


def was_killed(reply: Reply) -> bool:
    """Whether something else than the program and the zygote killed the child.

    No program can send SIGKILL, so it was the machine, for its lack of memory, or a person.
    """
    return reply.ending is Ending.EXITED and reply.wait_status == signal.SIGKILL


def read_text(handle: int) -> str:
    """All of a small memory file."""
    return os.pread(handle, os.fstat(handle).st_size, 0).decode("utf-8", "replace")


def report_bytes(limit: int) -> int:
    """The longest report of texts of ``limit`` characters: one may take twelve bytes of JSON."""
    return 12 * limit + 1024


def _read_report(handle: int, limit: int) -> dict[str, str]:
    """The report's texts; the program may have written anything there, so nothing is trusted."""
    told: object = None
    if text := _head(handle, report_bytes(limit)):
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(text)
    if not isinstance(told, dict):
        return {}
    return {
        str(name): value[: limit + _LONGEST_CUT].encode("utf-8", "backslashreplace").decode()
        for name, value in told.items()
        if isinstance(value, str)
    }


def _unexplained(code: int) -> tuple[str, str]:
    """Error type and text of a process that ended without a report."""
    if code == -signal.SIGKILL:
        return "MemoryError", "MemoryError: the program was killed for its use of memory\n"
    if code < 0:
        number = -code
        name = next((s.name for s in signal.Signals if s == number), f"SIG{number}")
        return name, f"The program was killed by {name}\n"
    return "SystemExit", f"SystemExit: {code}\n"
