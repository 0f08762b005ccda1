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
    """Train three seeds of both arms and write their records to results/laptop/.

    Refuses a tree with changes: a record names the commit that made it.
    """
    from rstar2.experiments.execute import execute_plans
    from rstar2.experiments.plans import RECORD_SEEDS, plan_experiment
    from rstar2.experiments.presets import project_root
    from rstar2.experiments.publish import publish, refuse_unpublishable

    refuse_unpublishable()
    plans = plan_experiment("laptop", RECORD_SEEDS, "results")
    execute_plans(plans, workers=workers, console=Console(stderr=True))
    for folder in publish(plans, project_root() / "results" / "laptop"):
        typer.echo(folder.relative_to(project_root()))
    typer.echo("Commit results/ now.")
