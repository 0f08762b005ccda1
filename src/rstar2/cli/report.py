"""``rstar2 report …``: what the committed records show."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from rstar2.cli.report_grading import grading
from rstar2.records import atomic_write

_MEASURES = MappingProxyType(
    {
        "accuracy": ("accuracy", 2),
        "tool_error_in_correct": ("errors in correct", 2),
        "tokens": ("tokens", 0),
    }
)
"""Name and digits of each measure of the report."""

app = typer.Typer(help="What the committed records show.", no_args_is_help=True)


app.command()(grading)


@app.callback()
def _report() -> None:
    """What the committed records show."""


@app.command()
def laptop(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file.")
    ] = None,
    figure_file: Annotated[
        Path | None, typer.Option("--figure", help="Draw the README's picture to this PNG.")
    ] = None,
) -> None:
    """The laptop experiment: both arms, all seeds, four held-out sets."""
    from rstar2.cli.picture import draw_laptop_run
    from rstar2.experiments.report import committed_records, laptop_report

    records = committed_records()
    report = laptop_report(records)
    if figure_file is not None:
        draw_laptop_run(records, figure_file)
    if json_file is not None:
        atomic_write(json_file, json.dumps(report, indent=1).encode() + b"\n")
    console = Console()
    for part in _tables(report):
        console.print(part, markup=False, highlight=False)


def _tables(report: dict[str, Any]) -> Iterator[RenderableType]:
    """A heading and a narrow table for each set, a row for each measure."""
    from rstar2.experiments.curves import show_estimate

    arms = report["arms"]
    seeds = ", ".join(f"{arm} {numbers['seeds']}" for arm, numbers in arms.items())
    yield f"Mean over seeds [95% interval]; seeds: {seeds}"
    # Both arms of a seed start from the same SFT run, so one column tells of it.
    fullest = max(arms.values(), key=lambda numbers: numbers["seeds"])
    for problem_set, start in fullest["by_set"].items():
        table = Table(box=None, pad_edge=False)
        table.add_column(f"\n{problem_set}")
        for column in ("after SFT", *arms):
            table.add_column(f"\n{column}", justify="right")
        for key, (name, digits) in _MEASURES.items():
            after = (numbers["by_set"][problem_set][f"final_{key}"] for numbers in arms.values())
            cells = (show_estimate(one, digits) for one in (start[f"sft_{key}"], *after))
            table.add_row(name, *cells)
        table.add_row("accuracy of guessing", f"{start['guessing']:.2f}")
        yield table
    yield "\nErrors in correct: failed tool calls over calls, in right rollouts."
