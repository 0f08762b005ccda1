"""``rstar2 results remake``: the committed records, from scratch."""

from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="The committed records.", no_args_is_help=True)


@app.callback()
def _results() -> None:
    """The committed records."""


@app.command()
def remake(
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one core each.")] = 2,
) -> None:
    """Train three seeds of both arms, write their records to results/laptop/, draw them.

    Refuses a tree with changes: a record names the commit that made it.
    """
    from rstar2.cli.picture import PICTURE, draw_laptop_run
    from rstar2.experiments.batch import run_batch
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.planner import plan_experiment
    from rstar2.experiments.plans import RECORD_SEEDS
    from rstar2.experiments.publish import publish, refuse_unpublishable
    from rstar2.experiments.report import committed_records

    refuse_unpublishable()
    plans = plan_experiment("laptop", RECORD_SEEDS, "results")
    run_batch(plans, workers=workers, console=Console(stderr=True), fail_fast=True)
    root = project_root()
    for folder in publish(plans, root / "results" / "laptop"):
        typer.echo(folder.relative_to(root))
    draw_laptop_run(committed_records(), root / PICTURE)
    typer.echo(PICTURE)
    typer.echo("Commit results/ and the picture now.")
