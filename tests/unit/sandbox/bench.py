"""A sandbox to try programs in, and a look at the processes behind it."""

import asyncio
import contextlib
import textwrap
import time
from pathlib import Path

from rstar2.protocol.types import ToolResult
from rstar2.sandbox import Sandbox, SandboxLimits

LIMITS = SandboxLimits(memory_mib=256, output_bytes=10_000, file_mib=1, threads=4)


class Bench:
    """One sandbox that a whole module of tests shares."""

    def __init__(self, runner: asyncio.Runner, sandbox: Sandbox) -> None:
        self.runner = runner
        self.sandbox = sandbox

    def __call__(self, code: str, stdin: str = "", timeout: float = 2.0) -> ToolResult:
        return self.runner.run(self.sandbox.run(textwrap.dedent(code), stdin, timeout))

    def all(self, *codes: str) -> list[ToolResult]:
        async def together() -> list[ToolResult]:
            return list(await asyncio.gather(*map(self.sandbox.run, codes)))

        return self.runner.run(together())


def descendants(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {int(child) for child in children}
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found |= descendants(int(child))
    return found


def zygote_of(sandbox: Sandbox) -> int:
    return sandbox.zygote_pids[0]


async def until_running(count: int, *zygotes: int) -> set[int]:
    """Wait until these zygotes have ``count`` processes in flight, and say which."""
    while len(found := set[int]().union(*map(descendants, zygotes))) < count:
        await asyncio.sleep(0.01)
    assert len(found) == count
    return found


def is_running(pid: int) -> bool:
    """Whether ``pid`` lives; one that was killed may take a moment to go."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state == "Z":
            return False
        time.sleep(0.01)
    return True
