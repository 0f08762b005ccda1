"""Kill runs at random moments, go on with them, compare, and write the record.

The last line printed is the record's headline: how many moments, how many files differ, and the
keys of the bars that are missed. The exit code says whether the measurement succeeded, not
whether the bars are met.
"""

import tempfile
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import command, report
from benchmarks.resume.chain import Chain, Kill
from benchmarks.resume.checkout import make_checkout
from benchmarks.resume.moments import Part, Phase, draw_moments

LIBRARIES = ("torch", "transformers", "safetensors")
SEEDS, QUICK_SEEDS = (1, 2, 3, 4), (1,)
BOUNDARY = 12
"""RL steps before the stage that mines."""

SETTINGS: dict[str, Any] = {
    "pretrain": {"examples": 1600, "batch_size": 8, "checkpoint_every": 40},
    "sft": {
        "examples": 1200,
        "batch_size": 4,
        "matrix_lr": 0.03,
        "other_lr": 0.01,
        "checkpoint_every": 60,
    },
    "noise": {"direct": 0.2, "wrong_program": 0.0, "slip": 0.4, "verify": 0.3},
    "limits": {"max_tool_tokens": 24},
    "stages": [
        {"steps": BOUNDARY},
        {"steps": 8, "data": "mined", "mine_problems": 40, "reset_optimizer": True},
    ],
    "rl": {
        "problems_per_step": 8,
        "group_size": 4,
        "oversample": 8,
        "minibatches": 2,
        "learning_rate": 1e-3,
        "mining_samples": 8,
        "refill": False,
        "checkpoint_every": 5,
    },
    "evaluation": {
        "book": {"problems": 64, "samples": 8, "max_response_tokens": 90, "max_turns": 3}
    },
}
"""Runs of about half a minute that call tools and learn a little."""


def bars(moments: int) -> tuple[report.Bar, ...]:
    """What is asked: every moment hit, and nothing differs."""
    return (
        report.Bar("resume_moments", moments, "kills that hit a live run in its phase", True),
        report.Bar("resume_differences", 0, "files that differ from the reference's"),
    )


def measure(seeds: tuple[int, ...], console: Console) -> dict[str, Any]:
    """Kill the runs of every seed once in every phase."""
    kills: list[tuple[int, Kill]] = []
    different: list[str] = []
    references: list[dict[Part, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            console.print(f"seed {seed}: the reference")
            whole = Chain(make_checkout(Path(folder, f"{seed}"), **SETTINGS), seed, BOUNDARY)
            references.append(whole.undisturbed())
            moments = draw_moments(seed, references[-1], number, len(seeds))
            console.print(f"seed {seed}: killed in {', '.join(one.phase for one in moments)}")
            victim = Chain(make_checkout(Path(folder, f"{seed}k"), **SETTINGS), seed, BOUNDARY)
            kills += [(seed, kill) for kill in victim.killed(moments)]
            different += victim.differences(whole)
    return {
        "resume_moments": len(kills),
        "resume_differences": len(different),
        "different_files": different,
        "moments": [as_row(seed, kill) for seed, kill in kills],
        "lost_s": {
            phase.value: mean(k.lost for _, k in kills if k.moment.phase is phase)
            for phase in Phase
        },
        "reference_s": {part.value: mean(lengths[part] for lengths in references) for part in Part},
    }


def as_row(seed: int, kill: Kill) -> dict[str, Any]:
    """A kill as plain values."""
    return {
        "seed": seed,
        "phase": kill.moment.phase.value,
        "part": kill.moment.part.value,
        "share": kill.moment.share,
        "after_s": kill.after,
        "lost_s": kill.lost,
        "attempts": kill.attempts,
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="One seed: under 3 minutes.")] = False,
    json_file: command.JsonFile = None,
) -> None:
    """Kill training runs at random moments and compare what they become."""
    command.prepare(json_file)
    seeds = QUICK_SEEDS if quick else SEEDS
    figures = measure(seeds, Console(stderr=True))
    limits = bars(len(Phase) * len(seeds))
    lost = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in figures["lost_s"].items())
    remark = f"work undone by a kill, in the mean: {lost}"
    command.tell(figures, limits, LIBRARIES, json_file, remark, quick=quick)


if __name__ == "__main__":
    command.run(app, "benchmarks.resume")
