"""``rstar2 report grading``: whether the reward of a run can be trusted."""

import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from rstar2.cli.progress import progress_bar
from rstar2.records import atomic_write, provenance
from rstar2.records.files import make_folder

if TYPE_CHECKING:
    from rstar2.experiments.grading_report import GradingReport

_SHOWN = 10


def grading(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run folders; the committed records if none."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file.")
    ] = None,
) -> None:
    """The reward of runs: reasons of every verdict, and whether math-verify agrees."""
    from rstar2.experiments.grading_report import as_json, grading_report
    from rstar2.experiments.report import committed_records

    if json_file is not None:
        make_folder(json_file.parent)  # now, not after minutes of comparing
    runs = folders or [record.path for record in committed_records()]
    reports = []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TextColumn("boxes"))
    with progress_bar(*columns) as progress:
        for run in runs:
            task = progress.add_task(run.name, total=None)
            reports.append(grading_report(run, on_boxes=partial(_advance, progress, task)))
            progress.remove_task(task)
    if json_file is not None:
        versions = {name: version(name) for name in ("math-verify", "sympy")}
        origin = {**provenance().as_dict(), "libraries": versions}
        record = {"provenance": origin, "runs": [as_json(report) for report in reports]}
        text = json.dumps(record, indent=1)
        atomic_write(json_file, text.encode() + b"\n")
    console = Console(highlight=False)
    for report in reports:
        for part in _parts(report):
            console.print(part)


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _parts(report: "GradingReport") -> Iterator[RenderableType]:
    """A run's reasons by phase, what math-verify says, and the boxes on which they disagree."""
    from rstar2.experiments.grading_report import alarm

    table = Table(box=None, pad_edge=False)
    table.add_column(f"\n{report.run}")
    for phase in report.phases:
        table.add_column(f"{phase.phase.value}\n{phase.rollouts:,} rollouts", justify="right")
    for reason in sorted({r for phase in report.phases for r in phase.reasons}):
        shares = (phase.reasons.get(reason, 0) / phase.rollouts for phase in report.phases)
        table.add_row(reason.value, *(f"{share:.2%}" for share in shares))
    yield table
    both = report.comparison
    outcomes = ", ".join(f"{outcome.value} {count:,}" for outcome, count in both.outcomes.items())
    yield Text(
        f"math-verify on the same {both.boxes:,} boxes: {outcomes or 'none'}; "
        f"disagreement on {both.share:.3%} of the rollouts, slowest {1e3 * both.slowest:.0f} ms"
    )
    for one in both.disagreements[:_SHOWN]:
        yield Text(
            f"  gold {one.gold[:20]}, box {one.box[:60]!r}: reward {one.reason.value}, "
            f"math-verify {one.expression.value}, {one.rollouts} rollouts"
        )
    if (loud := alarm(report)) is not None:
        yield Text(loud, style="bold red")
