"""``rstar2 train``: the SFT policy and both arms of one preset, in ``runs/``."""

from typing import Annotated

import typer
from rich.console import Console


def train(
    preset: Annotated[str, typer.Option(help="A file in presets/, without .yaml.")] = "laptop",
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    evaluation: Annotated[str, typer.Option(help="Its size: book or results.")] = "book",
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one core each.")] = 2,
) -> None:
    """Train the SFT policy and both arms of one seed; what is done is skipped."""
    from rstar2.experiments.batch import run_batch
    from rstar2.experiments.planner import plan_experiment

    plans = plan_experiment(preset, [seed], evaluation)
    run_batch(plans, workers=workers, console=Console(stderr=True), fail_fast=True)
    for plan in plans:
        typer.echo(plan.folder)
