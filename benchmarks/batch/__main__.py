"""Time the commands of a batch, and write the record.

The last line printed is the record's headline: wall and CPU seconds of each command, medians,
and the keys of the bars that are missed. The exit code says whether the measurement succeeded,
not whether the bars are met.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import command, report
from benchmarks.batch.checkout import METRICS, STEPS, SWEEP, make_checkout
from rstar2.errors import UserError

LIBRARIES = ("pyarrow", "pydantic", "rich", "typer")
RUNS = 200
REPEATS, QUICK_REPEATS = 5, 1
LIMIT = 2.0
"""Seconds within which a command answers."""

COMMANDS = {
    "plan": ("plan", SWEEP),
    "status": ("status", SWEEP),
    "collect": ("collect", SWEEP),
    "laptop_plan": ("plan", "laptop-natural"),
}
"""What is timed, by its key: the words after ``rstar2 batch``."""

BARS = tuple(
    report.Bar(f"{name}_seconds", LIMIT, f"`rstar2 batch {name}` of {RUNS} runs, wall seconds")
    for name in ("plan", "status", "collect")
)
BESIDE = (*(f"{name}_cpu_seconds" for name in COMMANDS), "laptop_plan_seconds")


class BatchBenchmarkError(UserError):
    """A command failed, so that its time says nothing."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a whole process took, in seconds."""

    wall: float
    cpu: float


def timed(words: Sequence[str], root: Path) -> Times:
    """Runs ``rstar2 batch …`` in a checkout.

    Raises:
        BatchBenchmarkError: If it fails.
    """
    program = [sys.executable, "-c", "from rstar2.cli import main; main()", "batch", *words]
    before, began = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(program, cwd=root, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    if ended.returncode != 0:
        raise BatchBenchmarkError(f"rstar2 batch {' '.join(words)} failed: {ended.stderr}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Times(wall, cpu)


def measure(repeats: int, console: Console) -> dict[str, Any]:
    """Times every command, each in turn, so that a busy minute hits them all alike."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "checkout")
        console.print(f"making {RUNS} runs")
        standings = make_checkout(root, RUNS)
        times: dict[str, list[Times]] = {name: [] for name in COMMANDS}
        for repeat in range(repeats):
            console.print(f"repeat {repeat + 1} of {repeats}")
            for name, words in COMMANDS.items():
                times[name].append(timed(words, root))
    return {
        **{f"{name}_seconds": median(one.wall for one in its) for name, its in times.items()},
        **{f"{name}_cpu_seconds": median(one.cpu for one in its) for name, its in times.items()},
        "wall_s": {name: [one.wall for one in its] for name, its in times.items()},
        "standings": {standing.value: number for standing, number in standings.items()},
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="One repeat: half a minute.")] = False,
    json_file: command.JsonFile = None,
) -> None:
    """Time the commands of a batch of 200 runs."""
    command.prepare(json_file)
    repeats = QUICK_REPEATS if quick else REPEATS
    figures = measure(repeats, Console(stderr=True))
    states = ", ".join(f"{number} {state}" for state, number in figures["standings"].items())
    laptop = f"`rstar2 batch plan laptop-natural`: {figures['laptop_plan_seconds']:.2f} s"
    command.tell(
        figures,
        BARS,
        LIBRARIES,
        json_file,
        f"the runs: {states}; medians of {repeats}",
        laptop,
        beside=BESIDE,
        quick=quick,
        runs=RUNS,
        steps=STEPS,
        metrics=METRICS,
        repeats=repeats,
    )


if __name__ == "__main__":
    command.run(app, "benchmarks.batch")
