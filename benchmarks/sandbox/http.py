"""What HTTP costs: CPU per call of the client and of the node, with no program behind it.

Run ``python -m benchmarks.sandbox.http``. The node is the real application in a process of
its own, in front of a runner that runs nothing and answers at once: what is measured is the
transport alone. Calls go through the real ``SandboxClient`` in this process, as many at once
as a batch holds. The CPU of the callers, one task each, counts as the client's.

In the rows "apart" the runner gives one answer after the other, in different turns of the
node's event loop, so that no two share a write: the dearest case.
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
REQUESTS_A_ROUND = 100
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
    """Measure batches of 1, 8 and 32 in front of a runner that answers at once.

    Returns:
        CPU milliseconds per call, by client and server and batch; the bar is
        ``http_cpu_ms_batch32``, the larger of its two.
    """
    figures: dict[str, float] = {}
    with node("instant") as (url, pid):
        for batch in BATCHES:
            cost = await measure(url, pid, batch, rounds)
            figures[f"http_client_cpu_ms_batch{batch}"] = cost.client
            figures[f"http_server_cpu_ms_batch{batch}"] = cost.server
    figures["http_cpu_ms_batch32"] = max(cost.client, cost.server)
    return figures


async def measure(url: str, pid: int, batch: int, rounds: int) -> Cost:
    """Send batches one after the other through a client; two rounds more warm both ends."""
    client_ms, server_ms = [], []
    calls = REQUESTS_A_ROUND * batch
    async with SandboxClient([url]) as client:
        for _ in range(rounds + 2):
            ours, theirs = time.process_time(), cpu_seconds_of(pid)
            for _ in range(REQUESTS_A_ROUND):
                await asyncio.gather(*(client.run(PROGRAM, "", 5.0) for _ in range(batch)))
            client_ms.append((time.process_time() - ours) * 1e3 / calls)
            server_ms.append((cpu_seconds_of(pid) - theirs) * 1e3 / calls)
    return Cost(median(client_ms[2:]), median(server_ms[2:]))


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
    for batch in BATCHES:
        costs = (figures[f"http_{end}_cpu_ms_batch{batch}"] for end in ("client", "server"))
        table.add_row("at once", str(batch), *(f"{cost:.4f}" for cost in costs))
    with node("apart") as (url, pid):
        for batch in BATCHES[1:]:
            cost = await measure(url, pid, batch, rounds=9)
            table.add_row("apart", str(batch), f"{cost.client:.4f}", f"{cost.server:.4f}")
    console.print(table)
    return figures


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(_serve(sys.argv[1]))
    else:
        print(json.dumps(asyncio.run(_report(Console(stderr=True)))))
