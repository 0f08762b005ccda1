"""What HTTP costs: CPU per call of the client and of the node, with no program behind it.

Run ``python -m benchmarks.sandbox.http``. The node is the real application in a process of
its own, in front of a runner that runs nothing and answers at once: what is measured is the
transport alone. Calls go through the real ``SandboxClient`` in this process, as many at once
as a batch holds. The CPU of the callers, one task each, counts as the client's.

A second line of the table has a runner whose answers come one after the other, each in a
turn of the node's event loop of its own, so that no two share a write: the dearest case.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from rstar2.cli.sandbox_serve import Listening, serve_until, stop_on_signals
from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox.client import SandboxClient
from rstar2.sandbox.limits import Rung
from rstar2.sandbox.state import Isolation, SandboxStats

ROOT = Path(__file__).resolve().parents[2]
BATCHES = (1, 8, 32)
CALLS_A_ROUND = 3200
PROGRAM = "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))\n" * 6
"""Some 400 bytes, as a model's program."""
ANSWER = ToolResult(RunStatus.OK, stdout="[2, 3]\n", duration=0.01234567, cpu=0.01134567)


@dataclass(slots=True)
class NothingRuns:
    """Stands in for a sandbox: runs nothing, gives the same answer at once.

    Attributes:
        apart: Whether no two answers are given in the same turn of the event loop.
    """

    apart: bool = False
    slots: int = 4
    isolation: Isolation = field(
        default_factory=lambda: Isolation(Rung.NONE, ("runs nothing, answers at once",))
    )
    stats: SandboxStats = field(default_factory=SandboxStats)
    _last: asyncio.Future[None] | None = None

    async def run(self, *_: Any) -> ToolResult:
        """Answers; the call is not looked at."""
        if self.apart:
            before, mine = self._last, asyncio.get_running_loop().create_future()
            self._last = mine
            if before is not None:
                await before
            await asyncio.sleep(0)
            mine.set_result(None)
        return ANSWER


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU milliseconds per call: the median of the rounds."""

    client: float
    server: float


async def transport(rounds: int = 9) -> dict[str, float]:
    """Measure the bars: batches of 32 in front of a runner that answers at once."""
    with node("instant") as (url, pid):
        cost = await measure(url, pid, 32, rounds)
    return {
        "http_client_cpu_ms_batch32": cost.client,
        "http_server_cpu_ms_batch32": cost.server,
        "http_cpu_ms_batch32": max(cost.client, cost.server),
    }


async def measure(url: str, pid: int, batch: int, rounds: int) -> Cost:
    """Send batches one after the other through a client; the first round is not counted."""
    client_ms, server_ms = [], []
    async with SandboxClient([url]) as client:
        for _ in range(rounds + 1):
            ours, theirs = time.process_time(), cpu_seconds_of(pid)
            for _ in range(CALLS_A_ROUND // batch):
                await asyncio.gather(*(client.run(PROGRAM, "", 5.0) for _ in range(batch)))
            client_ms.append((time.process_time() - ours) * 1e3 / CALLS_A_ROUND)
            server_ms.append((cpu_seconds_of(pid) - theirs) * 1e3 / CALLS_A_ROUND)
    return Cost(median(client_ms[1:]), median(server_ms[1:]))


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds of all threads of another process, to the microsecond."""
    return time.clock_gettime(~pid << 3 | 2)  # its clock, as clock_getcpuclockid(3) makes it


@contextmanager
def node(kind: str) -> Iterator[tuple[str, int]]:
    """A node in a process of its own; its address and process id."""
    command = [sys.executable, "-m", "benchmarks.sandbox.http", kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


async def _serve(kind: str) -> None:
    def announce(line: str) -> None:
        if line.startswith("ready"):
            print(line.split()[1].rstrip(","), flush=True)

    with stop_on_signals() as stop:
        await serve_until(stop, NothingRuns(apart=kind == "apart"), Listening(port=0), announce)


async def _report(console: Console) -> dict[str, float]:
    figures = await transport()
    table = Table("answers", "batch", "client", "node", title="CPU ms per call", box=None)
    for kind in ("instant", "apart"):
        with node(kind) as (url, pid):
            for batch in BATCHES:
                cost = await measure(url, pid, batch, rounds=5)
                table.add_row(kind, str(batch), f"{cost.client:.4f}", f"{cost.server:.4f}")
    console.print(table)
    return figures


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(_serve(sys.argv[1]))
    else:
        print(json.dumps(asyncio.run(_report(Console(stderr=True)))))
