"""``rstar2 report laptop``: what the committed records show."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rstar2.records import atomic_write

app = typer.Typer(help="What the committed records show.", no_args_is_help=True)


@app.callback()
def _report() -> None:
    """What the committed records show."""


@app.command()
def laptop(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file.")
    ] = None,
) -> None:
    """The laptop experiment: both arms, all seeds, four held-out sets."""
    from rstar2.experiments.report import committed_records, laptop_report

    report = laptop_report(committed_records())
    if json_file is not None:
        atomic_write(json_file, json.dumps(report, indent=1).encode() + b"\n")
    console = Console()
    for arm, numbers in report["arms"].items():
        console.print(_table(arm, numbers))


def _table(arm: str, numbers: dict[str, Any]) -> Table:
    table = Table(
        title=f"{arm}, {numbers['seeds']} seeds, mean [95% interval]", title_justify="left"
    )
    names = ("set", "accuracy after SFT", "after RL", "tool error in correct, SFT", "after RL")
    for name in (*names, "tokens, SFT", "after RL", "guessing"):
        table.add_column(name, justify="left" if name == "set" else "right")
    for problem_set, row in numbers["by_set"].items():
        table.add_row(
            problem_set,
            *(_show(row[key]) for key in ("sft_accuracy", "final_accuracy")),
            *(_show(row[f"{when}_tool_error_in_correct"]) for when in ("sft", "final")),
            *(_show(row[f"{when}_tokens"], digits=0) for when in ("sft", "final")),
            f"{row['guessing']:.2f}",
        )
    return table


def _show(estimate: list[float | None], digits: int = 3) -> str:
    mean, low, high = estimate
    if mean is None:
        return "–"
    if low is None or high is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
