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
from dataclasses import dataclass, replace

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox.wire import Ending

_ADDRESS = re.compile(r"(?<= at )0x[0-9A-Fa-f]{6,}")
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
        prefixes |= {os.path.realpath(prefix) for prefix in prefixes}
        longest_first = sorted(prefixes - _SHARED_PREFIXES, key=len, reverse=True)
        self._prefixes = re.compile("|".join(re.escape(prefix) for prefix in longest_first))

    def __call__(self, text: str, scratch: str) -> str:
        """``text`` without them; ``scratch`` is the directory of the call."""
        if "/" in text:
            text = self._prefixes.sub("/python", text.replace(scratch, "/scratch"))
        return _ADDRESS.sub("0x…", text)


def read_result(
    reply: Reply, stdout: int, report: int, limit: int, scrub: Scrubber, scratch: str
) -> ToolResult:
    """Judge a call that has started and ended.

    Args:
        reply: How it ended.
        stdout: Descriptor of the file that was its standard output.
        report: Descriptor of the file that holds its report, if it left one.
        limit: Bytes kept of each text.
        scrub: Takes addresses and paths out.
        scratch: The call's scratch directory.

    Returns:
        The result. A timeout tells nothing else: how far a program came before it was
        stopped depends on the machine.
    """
    timed = ToolResult(
        RunStatus.TIMEOUT, cpu_seconds=reply.cpu_seconds, wall_seconds=reply.wall_seconds
    )
    if reply.ending is Ending.OUT_OF_TIME:
        return timed
    output = os.pread(stdout, limit, 0).decode("utf-8", "replace")
    ended = replace(
        timed,
        status=RunStatus.OK,
        stdout=scrub(output, scratch),
        truncated=os.fstat(stdout).st_size > limit,
    )
    told = _read_report(report)
    code = os.waitstatus_to_exitcode(reply.wait_status)
    if code == 0:
        return replace(ended, value=scrub(told.get("value", ""), scratch))
    error_type, text = told.get("error_type", ""), told.get("traceback", "")
    if not error_type:
        error_type, text = _unexplained(code)
    return replace(
        ended, status=RunStatus.ERROR, traceback=scrub(text, scratch), error_type=error_type
    )


def read_text(handle: int) -> str:
    """All of a small memory file."""
    return os.pread(handle, os.fstat(handle).st_size, 0).decode("utf-8", "replace")


def _read_report(handle: int) -> dict[str, str]:
    """The report's texts; the program may have written anything there, so nothing is trusted."""
    told: object = None
    if text := read_text(handle):
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(text)
    if not isinstance(told, dict):
        return {}
    return {
        str(name): value.encode("utf-8", "backslashreplace").decode()
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
