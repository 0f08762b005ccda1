"""``rstar2 results …``: the committed records, from scratch or as runs finish."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rstar2.experiments.sweeps import Sweep

app = typer.Typer(help="The committed records.", no_args_is_help=True)


@app.callback()
def _results() -> None:
    """The committed records."""


@app.command()
def remake(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="SWEEP", help="This sweep alone; repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one core each.")] = 2,
) -> None:
    """Make every run of the record sweeps that is not done, write the records, draw them.

    Refuses a tree with changes: a record names the commit that made it. What is done when a run
    fails, or Ctrl-C stops it, is published all the same; the next call goes on.
    """
    from rstar2.cli.picture import PICTURE, draw_laptop_run
    from rstar2.experiments.batch import run_batch
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.plans import NATURAL_SWEEP
    from rstar2.experiments.publish import refuse_unpublishable
    from rstar2.experiments.report import records_in

    refuse_unpublishable()
    sweeps = _sweeps(only)
    console = Console(stderr=True)
    for sweep in sweeps:
        console.print(sweep.name, highlight=False)
        try:
            run_batch(sweep.plans, workers=workers, console=console)
        finally:
            _publish(sweep)
    # Last: the picture is outside results/, and no run may begin in a tree with changes.
    if NATURAL_SWEEP in [sweep.name for sweep in sweeps]:
        draw_laptop_run(records_in(NATURAL_SWEEP), project_root() / PICTURE)
        typer.echo(PICTURE)
    typer.echo("Commit results/ and the picture now.")


@app.command()
def publish(
    sweeps: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SWEEP]...", help="Record sweeps; all of them if none."),
    ] = None,
) -> None:
    """Write the records of the runs that are done, and say which are missing.

    A record that is there already stays as it is; so it may be called again as runs finish.
    """
    for sweep in _sweeps(sweeps):
        _publish(sweep)


def _sweeps(names: Sequence[str] | None) -> "list[Sweep]":
    from rstar2.experiments.publish import PublishError, record_sweeps

    known = {sweep.name: sweep for sweep in record_sweeps()}
    if unknown := [name for name in names or () if name not in known]:
        raise PublishError(f"{unknown[0]!r} is no record sweep; they are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def _publish(sweep: "Sweep") -> None:
    """Publishes what is done, and says what is new and what is missing."""
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.publish import (
        Standing,
        publish,
        record_plans,
        results_folder,
        unplanned,
    )

    root, folder = project_root(), results_folder(sweep)
    for path in publish(sweep, folder):
        typer.echo(path.relative_to(root))
    plans = record_plans(sweep)
    lacking = {plan.name: plan.standing(folder) for plan in plans}
    lacking = {name: one for name, one in lacking.items() if one is not Standing.PUBLISHED}
    for name, standing in lacking.items():
        typer.echo(f"{standing.value}: {sweep.name}/{name}")
    for name in unplanned(plans, folder):
        typer.echo(f"of no run of the sweep: {sweep.name}/{name}; remove it if it is not wanted")
    typer.echo(f"{sweep.name}: {len(plans) - len(lacking)} of {len(plans)} records")
