"""Measure the sandbox, hold it against its bars, and write the record.

The last line printed is the record's headline: the figures that have bars, and the keys of
those that are missed or not measured. The exit code says whether the measurement succeeded,
not whether the bars are met.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import command
from benchmarks.sandbox import code_judge, http, latency, load, throughput
from benchmarks.sandbox.bars import LIBRARIES, bars
from rstar2.sandbox import Sandbox, Tier


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        finish: Of 45,000 waiting calls, those that may finish.
        samples: Calls of each arm of the latency distribution.
        tier_rounds: Turns of bare forks, prints, jail and no jail, on each tier.
        rounds: Turns of the sandbox and the cold process.
        judge_rounds: Turns of the sandbox and code-judge.
        jobs: Times that 12 jobs run at once.
        http_rounds: Rounds of 3,200 calls over HTTP.
    """

    finish: int
    samples: int
    tier_rounds: int
    rounds: int
    judge_rounds: int
    jobs: int
    http_rounds: int


FULL = Size(
    finish=10_000,
    samples=500,
    tier_rounds=100,
    rounds=12,
    judge_rounds=6,
    jobs=4,
    http_rounds=15,
)
QUICK = Size(
    finish=1_000,
    samples=300,
    tier_rounds=20,
    rounds=4,
    judge_rounds=2,
    jobs=1,
    http_rounds=5,
)


async def measure(
    size: Size, judge: code_judge.Installation | None, console: Console
) -> tuple[dict[str, float | list[float]], Sandbox]:
    """Measure everything, step by step."""
    figures: dict[str, float | list[float]] = {}
    async with Sandbox() as sandbox:
        console.print(f"{sandbox.slots} slots, {sandbox.isolation}")
        console.print("45,000 calls at once")  # first: see load.outstanding
        figures |= await load.outstanding(sandbox, size.finish)
        console.print("single calls")
        async with Sandbox(tiers=(Tier.FULL,)) as full:
            figures |= await latency.distributions(sandbox, full, size.samples)
        console.print("rates beside python -c")
        figures |= await throughput.against_cold(sandbox, size.rounds)
        if judge is not None:
            console.print("rates beside code-judge")
            figures |= await code_judge.against_code_judge(sandbox, judge, size.judge_rounds)
    console.print("each tier over its fork, and with no jail")
    figures |= await latency.tier_by_tier(size.tier_rounds)
    console.print("12 jobs at once")
    figures |= await load.deadlines(size.jobs)
    console.print("dying zygotes")
    figures |= await load.chaos()
    console.print("HTTP with no program behind it")
    figures |= await http.transport(size.http_rounds)
    return figures, sandbox


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer calls: under 90 s.")] = False,
    json_file: command.JsonFile = None,
    checkout: Annotated[
        Path | None,
        typer.Option("--code-judge", metavar="DIR", help="Compare with this checkout too."),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            "--code-judge-python",
            envvar="CODE_JUDGE_PYTHON",
            metavar="FILE",
            help="Its interpreter; by default the one of its .venv.",
        ),
    ] = None,
) -> None:
    """Measure the sandbox beside a cold python -c, its own fork, no jail, and code-judge."""
    command.prepare(json_file)
    judge = None if checkout is None else code_judge.find(checkout, python)
    figures, sandbox = asyncio.run(measure(QUICK if quick else FULL, judge, Console(stderr=True)))
    command.tell(
        figures,
        bars(sandbox.slots),
        LIBRARIES,
        json_file,
        quick=quick,
        slots=sandbox.slots,
        isolation=str(sandbox.isolation),
        rung=str(sandbox.isolation.rung),
    )


if __name__ == "__main__":
    command.run(app, "benchmarks.sandbox")
