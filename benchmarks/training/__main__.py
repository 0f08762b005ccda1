"""Measure generation, update and RL step, hold them against their bars, and write the record.

The last line printed is the record's headline: the figures that have bars, those that stand beside
them, and the keys of the bars that are missed. The exit code says whether the measurement
succeeded, not whether the bars are met.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import command, report
from benchmarks.training import against_first, against_trl, threads
from benchmarks.training.environment import find_peers, first_code
from benchmarks.training.inputs import write_inputs
from benchmarks.training.workers import Runtime

LIBRARIES = ("torch", "transformers", "numpy")

BARS = (
    report.Bar("generation_over_trl", 2.0, "tokens per CPU s over TRL's, 64 rows", at_least=True),
    report.Bar("update_over_trl", 1.3, "update of the same 64 rows over TRL's", at_least=True),
    report.Bar("step_over_trl", 2.0, "an RL step with tools and RoC over TRL's", at_least=True),
)
BESIDE = (
    "generation_best_over_trl",
    "update_best_over_trl",
    "generation_share_of_matmul",
    "update_share_of_matmul",
    "laptop_step_over_first",
    "threads_2_over_1",
)
"""What the headline tells beside the bars."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        effort: Of the comparison with TRL.
        laptop_steps: Steps of the laptop preset with today's code and the first.
        thread_rounds: Turns of one thread and two.
    """

    effort: against_trl.Effort
    laptop_steps: int
    thread_rounds: int


FULL = Size(
    against_trl.Effort(
        rounds=7,
        update_rounds=5,
        sweep=(32, 128, 256),
        sweep_rounds=2,
        micro_rows=(64, 32, 16, 8),
        step_rounds=3,
        problems=4,
    ),
    laptop_steps=8,
    thread_rounds=3,
)
QUICK = Size(
    against_trl.Effort(
        rounds=2,
        update_rounds=1,
        sweep=(128,),
        sweep_rounds=1,
        micro_rows=(64, 16),
        step_rounds=1,
        problems=2,
    ),
    laptop_steps=1,
    thread_rounds=1,
)


def measure(size: Size, peers: Runtime, console: Console) -> dict[str, Any]:
    """Measure everything, step by step; nothing else runs meanwhile."""
    figures: dict[str, Any] = {"load_average_before": os.getloadavg()[0]}
    with first_code() as first, TemporaryDirectory() as folder:
        inputs = write_inputs(Path(folder))
        console.print("generation beside TRL")
        figures |= against_trl.generation(inputs, peers, size.effort)
        console.print("update beside TRL")
        figures |= against_trl.update(inputs, peers, size.effort)
        console.print("a whole RL step beside TRL")
        best = figures["trl_update_best_rows"]
        figures |= against_trl.step(inputs, peers, size.effort, best)
        console.print("an RL step of the laptop preset beside the first code")
        figures |= against_first.laptop_step(inputs, first, size.laptop_steps)
        console.print("two threads beside one")
        figures |= threads.two_over_one(inputs, size.thread_rounds)
    return figures


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="Less of all: under 3 minutes.")] = False,
    json_file: command.JsonFile = None,
) -> None:
    """Measure our engine and update beside TRL's, our first code, and matmul."""
    command.prepare(json_file)
    figures = measure(QUICK if quick else FULL, find_peers(), Console(stderr=True))
    shares = [
        f"{work}: {figures[f'{work}_share_of_matmul']:.0%} of matmul's rate; "
        f"{figures[f'{work}_limited_by']}"
        for work in ("generation", "update")
    ]
    command.tell(
        figures, BARS, LIBRARIES, json_file, *shares, beside=BESIDE, quick=quick, threads=1
    )


if __name__ == "__main__":
    command.run(app, "benchmarks.training")
