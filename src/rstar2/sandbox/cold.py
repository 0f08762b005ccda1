"""Rung ``none`` on systems other than Linux: every program in a fresh interpreter.

macOS has no namespaces, Landlock, seccomp, memfd or parent-death signal, so there are no
warm zygotes and no walls: a program can read and write what its user can. For programs that
are trusted: ``Sandbox(isolation="none")``.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.calls import CallFiles
from rstar2.sandbox.limits import SandboxLimits
from rstar2.sandbox.process import BARE_PACKAGE, PYTHON_FLAGS
from rstar2.sandbox.result import Reply, Scrubber
from rstar2.sandbox.wire import Ending

_BOOT = f"""{BARE_PACKAGE}
import resource
from rstar2.sandbox import program
code, report, limit, *limits = map(int, sys.argv[2:])
for kind, value in zip(("RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE"), limits):
    resource.setrlimit(getattr(resource, kind), (value, value))
program.repeat_randomness()
program.keep_reserve()
stage = program.set_stage()
source = os.pread(code, os.fstat(code).st_size, 0)
os._exit(program.run_as_main(stage, source, report, limit))
"""


async def run_cold(
    code: str, stdin: str, seconds: float, limits: SandboxLimits
) -> tuple[Reply, ToolResult]:
    """Run a program; its time is wall time, and with it ends what it has started."""
    with CallFiles(code, stdin) as files, tempfile.TemporaryDirectory() as scratch:
        reply = await _run(files.handles, seconds, limits, scratch)
        return reply, files.result(reply, limits.output_bytes, Scrubber(), scratch)


async def _run(handles: list[int], seconds: float, limits: SandboxLimits, scratch: str) -> Reply:
    code, stdin, stdout, stderr, report = handles
    numbers = (code, report, limits.output_bytes, int(seconds) + 2, limits.file_mib << 20)
    command = [sys.executable, *PYTHON_FLAGS, "-c", _BOOT, str(Path(__file__).parent)]
    command += [str(number) for number in (*numbers, limits.open_files)]
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(code, report),
        cwd=scratch,
        env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "HOME": ".", "TMPDIR": "."},
        start_new_session=True,
    )
    ending = Ending.EXITED
    waiting = asyncio.ensure_future(asyncio.to_thread(os.wait4, process.pid, 0))
    try:
        await asyncio.wait([waiting], timeout=seconds)
        if not waiting.done():
            ending = Ending.OUT_OF_TIME
    finally:
        if not waiting.done():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            await waiting
    _, status, usage = await waiting
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Reply(ending, status, cpu, time.monotonic() - start)
