"""What the sandbox bears: 45,000 calls at once, dying zygotes, more jobs than processors."""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterable

from benchmarks.sandbox.kernel import (
    adopting_orphans,
    descendants,
    open_descriptors,
    resident_bytes,
)
from benchmarks.sandbox.programs import TIMEOUT, Program, WrongAnswer, print_line, solve
from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import Sandbox, Tier

OUTSTANDING = 45_000
"""Calls at once: the paper's figure."""

CODE_BYTES = 1600
"""Length of each of their programs."""

CHAOS_CALLS = 600
KILL_EVERY = 0.7
"""Seconds from the death of one zygote to that of the next."""

JOBS = 12
"""Jobs at once, each with the CPU seconds below and the time limit below."""
JOB_SECONDS = 0.4
JOB_LIMIT = 1.0

_JOB = f"""import time
end = time.process_time() + {JOB_SECONDS}
while time.process_time() < end:
    pass
print("done")"""
_SLEEPER = "import time\ntime.sleep(60)"
_PATIENCE = 60.0


async def outstanding(sandbox: Sandbox, finish: int) -> dict[str, float]:
    """Submit 45,000 distinct programs at once, let some finish, cancel the rest.

    Call it first in a process: memory that earlier work has freed would hide what a call takes.

    Args:
        sandbox: One with all tiers.
        finish: Calls to let finish before the rest is cancelled.

    Returns:
        Bytes that a pending call takes beside its program, descriptors at most, and what went
        wrong: a false answer, an exception, or a call that a minute cannot cancel.
    """
    programs = [_long_program(n) for n in range(OUTSTANDING)]
    over = asyncio.Event()
    descriptors = asyncio.create_task(_most_descriptors(over))
    before, start = resident_bytes(), time.perf_counter()
    tasks = await _submit(sandbox, programs)
    submit_seconds = time.perf_counter() - start
    already = sum(task.done() for task in tasks)
    bytes_each = (resident_bytes() - before) / (OUTSTANDING - already)
    start = time.perf_counter()
    while (finished := sum(task.done() for task in tasks)) < finish:
        await asyncio.sleep(0.2)
    rate = (finished - already) / (time.perf_counter() - start)
    start = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_PATIENCE)
    cancel_seconds = time.perf_counter() - start
    over.set()
    await print_line(0).run_in(sandbox)  # it still serves
    return {
        "pending_bytes": bytes_each,
        "pending_wrong": sum(map(_went_wrong, tasks, programs)),
        "pending_fds": await descriptors,
        "pending_calls": OUTSTANDING - already,
        "pending_finished": finished,
        "pending_submit_s": submit_seconds,
        "pending_cancel_s": cancel_seconds,
        "pending_per_s": rate,
    }


async def chaos() -> dict[str, float]:
    """Kill a zygote every 0.7 s during 600 calls; then all at once, under sleeping programs.

    Returns:
        Calls that failed or lied, processes that outlived their sandbox, and the retries and
        kills behind them.
    """
    with adopting_orphans():
        others = {process.pid for process in descendants(os.getpid())}
        async with Sandbox(tiers=(Tier.BARE, Tier.SYMPY)) as sandbox:
            over = asyncio.Event()
            killer = asyncio.create_task(_kill_until(over, sandbox))
            programs = [solve(n) if n % 5 == 0 else print_line(n) for n in range(CHAOS_CALLS)]
            answers = await asyncio.gather(
                *(program.run_in(sandbox) for program in programs), return_exceptions=True
            )
            over.set()
            kills = await killer
            retries = sandbox.stats.retries
            await _kill_under_sleepers(sandbox)
        orphans = await _outliving(others)
    return {
        "chaos_visible_failures": sum(isinstance(answer, BaseException) for answer in answers),
        "chaos_orphans": orphans,
        "chaos_kills": kills,
        "chaos_retries": retries,
    }


async def deadlines(rounds: int) -> dict[str, float]:
    """Run 12 jobs of 0.4 CPU seconds at once under a limit of 1 s, and sleepers under the same.

    Returns:
        Jobs that did not finish, and the seconds after which a caller has a sleeper's timeout:
        alone, beside the jobs, and the worse of the two.
    """
    false_timeouts, alone, beside = 0, [], []
    async with Sandbox(slots=JOBS + 1, tiers=(Tier.BARE,)) as sandbox:
        for _ in range(rounds):
            alone.append(await _sleeper_killed(sandbox))
            jobs = [asyncio.create_task(sandbox.run(_JOB, timeout=JOB_LIMIT)) for _ in range(JOBS)]
            beside.append(await _sleeper_killed(sandbox))
            results = await asyncio.gather(*jobs)
            false_timeouts += sum(result.status is not RunStatus.OK for result in results)
    return {
        "fair_false_timeouts": false_timeouts,
        "fair_jobs": rounds * JOBS,
        "sleeper_killed_alone_s": max(alone),
        "sleeper_killed_beside_s": max(beside),
        "sleeper_killed_s": max(alone + beside),
    }


def _long_program(n: int) -> Program:
    code = f"print({n} * 2)\n"
    note = f"# step {n}: the numbers of this comment are like no other, {n * n} "
    padding = (note * (CODE_BYTES // len(note) + 1))[: CODE_BYTES - len(code)]
    return Program(code + padding, str(2 * n))


async def _submit(sandbox: Sandbox, programs: list[Program]) -> list[asyncio.Task[ToolResult]]:
    """Start every call, and let each run up to its wait in the queue."""
    tasks = []
    for n, program in enumerate(programs):
        tasks.append(asyncio.create_task(sandbox.run(program.code, timeout=TIMEOUT)))
        if n % 1000 == 999:
            await asyncio.sleep(0)
    return tasks


async def _most_descriptors(over: asyncio.Event) -> int:
    most = 0
    while not over.is_set():
        most = max(most, open_descriptors())
        await asyncio.sleep(0.05)
    return most


def _went_wrong(task: asyncio.Task[ToolResult], program: Program) -> bool:
    if not task.done():
        return True
    if task.cancelled():
        return False
    return task.exception() is not None or task.result().stdout.strip() != program.output


async def _kill_until(over: asyncio.Event, sandbox: Sandbox) -> int:
    chance, kills = random.Random(0), 0
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), KILL_EVERY)
            break
        kills += _kill([chance.choice(sandbox.zygote_pids)] if sandbox.zygote_pids else [])
    return kills


async def _kill_under_sleepers(sandbox: Sandbox) -> None:
    sleepers = [
        asyncio.create_task(sandbox.run(_SLEEPER, timeout=TIMEOUT)) for _ in range(sandbox.slots)
    ]
    await asyncio.sleep(0.5)
    _kill(sandbox.zygote_pids)
    await asyncio.sleep(0.5)
    for sleeper in sleepers:
        sleeper.cancel()
    await asyncio.wait(sleepers, timeout=_PATIENCE)


def _kill(pids: Iterable[int]) -> int:
    kills = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            kills += 1
    return kills


async def _outliving(others: set[int]) -> int:
    """Count the processes below this one that two seconds do not end."""
    for _ in range(20):
        left = {process.pid for process in descendants(os.getpid())} - others
        if not left:
            break
        await asyncio.sleep(0.1)
    return len(left)


async def _sleeper_killed(sandbox: Sandbox) -> float:
    start = time.perf_counter()
    result = await sandbox.run(_SLEEPER, timeout=JOB_LIMIT)
    if result.status is not RunStatus.TIMEOUT:
        raise WrongAnswer(f"a program that sleeps a minute ended as {result.status}")
    return time.perf_counter() - start
