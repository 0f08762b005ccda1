"""How many calls a second, and at what CPU: two in flight, beside a cold ``python -c``."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks.sandbox.kernel import cpu_seconds
from benchmarks.sandbox.programs import Maker, print_line, solve, solve_again, warm_up
from rstar2.sandbox import Sandbox

IN_FLIGHT = 2
"""Calls in flight of either arm."""


async def against_cold(sandbox: Sandbox, rounds: int) -> dict[str, float]:
    """Compare rates with a cold process, the arms taking turns: ratios of the medians.

    The sandbox's CPU is the caller's, the zygotes' and the calls' together; a cold process is
    charged its own alone, not what starting it costs the caller.

    Args:
        sandbox: One with all tiers: each program goes where the sandbox sends it.
        rounds: Turns of each arm.
    """
    arms = {
        "print": (print_line, 200, 40),
        "sympy": (solve, 40, 4),
        "rehearsed_sympy": (solve_again, 40, 4),
    }
    figures: dict[str, float] = {}
    await warm_up(sandbox, print_line, solve)
    for name, (program, warm_calls, cold_calls) in arms.items():
        warm, cold, warm_cpu, cold_cpu = [], [], 0.0, 0.0
        for _ in range(rounds):
            start = cpu_seconds()
            warm.append(await rate_in(sandbox, program, warm_calls, IN_FLIGHT))
            warm_cpu += cpu_seconds() - start
            start = _waited_for()
            cold.append(await _rate_cold(program, cold_calls))
            cold_cpu += _waited_for() - start
        figures |= {
            f"{name}_per_s": median(warm),
            f"cold_{name}_per_s": median(cold),
            f"{name}_rate_over_cold": median(warm) / median(cold),
            f"{name}_cpu_ms": 1000 * warm_cpu / (rounds * warm_calls),
            f"cold_{name}_cpu_ms": 1000 * cold_cpu / (rounds * cold_calls),
        }
    figures["bare_print_cpu_over_cold"] = figures["print_cpu_ms"] / figures["cold_print_cpu_ms"]
    return figures


async def rate_in(sandbox: Sandbox, program: Maker, calls: int, in_flight: int) -> float:
    """Run calls in a sandbox and give how many it finished a second."""
    return await _rate(lambda n: program(n).run_in(sandbox), calls, in_flight)


async def _rate_cold(program: Maker, calls: int) -> float:
    return await _rate(lambda n: asyncio.to_thread(program(n).run_cold), calls, IN_FLIGHT)


async def _rate(call: Callable[[int], Awaitable[float]], calls: int, in_flight: int) -> float:
    numbers = iter(range(calls))

    async def send() -> None:
        for n in numbers:
            await call(n)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(send())
    return calls / (time.perf_counter() - start)


def _waited_for() -> float:
    """CPU seconds of the children that this process has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
