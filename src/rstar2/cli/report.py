"""``rstar2 report laptop``: what the committed records show."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rstar2.records import atomic_write

if TYPE_CHECKING:
    from rstar2.experiments.report import Record

_WINDOW = 5
"""Steps of the moving mean in the picture."""

app = typer.Typer(help="What the committed records show.", no_args_is_help=True)


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
    from rstar2.experiments.report import committed_records, laptop_report

    records = committed_records()
    report = laptop_report(records)
    if figure_file is not None:
        _draw(records, figure_file)
    if json_file is not None:
        atomic_write(json_file, json.dumps(report, indent=1).encode() + b"\n")
    console = Console()
    for arm, numbers in report["arms"].items():
        console.print(_table(arm, numbers))


def _draw(records: "list[Record]", path: Path) -> None:
    """Tool errors in correct trajectories and accuracy against the RL step, both arms."""
    import matplotlib.pyplot as plt

    from rstar2.book import style
    from rstar2.experiments.curves import curve
    from rstar2.experiments.report import of_arm
    from rstar2.training.grpo import Arm

    style.use()
    panels = {
        "tool_error_in_correct": "tool errors in correct trajectories",
        "accuracy": "accuracy",
    }
    fig, axes = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained")
    for axis, (metric, title) in zip(axes, panels.items(), strict=True):
        for arm in Arm:
            line = {**style.arm_style(arm).line(), "marker": ""}
            shown = curve(of_arm(records, arm), metric, window=_WINDOW)
            for values in shown.seeds.values():
                faint = {**line, "label": "", "alpha": 0.25, "linewidth": 0.8}
                axis.plot(shown.steps, values, **faint)
            axis.plot(shown.steps, shown.mean, **line)
        axis.set(title=f"{title}, all rollouts sampled", xlabel="RL step", ylim=(0, None))
        axis.legend(frameon=False)
    picture = io.BytesIO()
    fig.savefig(picture, format="png", dpi=150, facecolor="white")
    plt.close(fig)
    atomic_write(path, picture.getvalue())


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
