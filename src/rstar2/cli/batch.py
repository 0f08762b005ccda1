"""``rstar2 batch …``: many runs of notebooks, planned, executed, watched and collected."""

import io
import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rstar2.errors import UserError

if TYPE_CHECKING:
    from rstar2.experiments.outlook import Outlook
    from rstar2.experiments.schedulers import Array
    from rstar2.experiments.sweeps import Sweep, Task

app = typer.Typer(
    help="Runs of notebooks: plan, run, watch, collect, or hand to a scheduler.",
    no_args_is_help=True,
)

_WATCH_SECONDS = 2.0
_STEP_MARGIN = 1.2
"""How much longer than expected the step may take that a task ends with when it is stopped."""

SweepName = Annotated[str, typer.Argument(metavar="SWEEP", help="A file in sweeps/, or a path.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME=VALUE", help="As arm=grpo or seed=11; repeatable."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write it as JSON too.")
]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="Tasks at a time.")]


class BatchCommandError(UserError):
    """The command was given what does not go together."""


@app.callback()
def _batch() -> None:
    """Runs of notebooks: plan, run, watch, collect, or hand to a scheduler."""


@app.command()
def plan(sweep: SweepName, only: Only = None, json_file: JsonFile = None) -> None:
    """Show what would run, why, and what it would cost; nothing is started."""
    from rstar2.experiments.outlook import outlook

    loaded, tasks = _loaded(sweep, only)
    looks = outlook(tasks)
    table = _table("task", "run", "id", "state", "time", "why")
    for look in looks:
        table.add_row(
            str(look.task.number),
            look.task.plan.name,
            look.task.plan.run_id,
            look.view.standing.value,
            _minutes(look.minutes),
            look.why,
        )
    console = _console()
    console.print(loaded.spec.description or loaded.name, soft_wrap=True)
    console.print(table)
    console.print(_total(looks), soft_wrap=True)
    if json_file is not None:
        _write_json(json_file, [_look_as_json(look) for look in looks])


@app.command()
def run(
    sweep: SweepName,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
    only: Only = None,
    task: Annotated[
        int | None, typer.Option(min=0, help="This task alone, as a scheduler gives it.")
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="The first failure stops the others.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Make the chosen runs again from nothing.")
    ] = False,
) -> None:
    """Execute what is not done; runs that were interrupted go on, those at work are attached to.

    Ctrl-C and SIGTERM stop every run at its next checkpoint.
    """
    from rstar2.experiments.batch import run_batch
    from rstar2.experiments.sweeps import with_needs

    loaded, tasks = _loaded(sweep, only)
    if task is not None:
        tasks = [_task(loaded, task, only)]
    if force:
        _remove(tasks)
    # A task of a scheduler waits for nobody: the runs that it needs are tasks of their own.
    chosen = tasks if task is not None else with_needs(loaded, tasks)
    left = [one.plan for one in chosen if not one.plan.is_done]
    console = _console(stderr=True)
    console.print(f"{len(chosen) - len(left)} done, {len(left)} to run")
    run_batch(
        left,
        workers=workers,
        console=console,
        fail_fast=fail_fast,
        copy_to=loaded.spec.copy_to,
    )


@app.command()
def status(
    sweep: SweepName,
    only: Only = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Show how every run stands, where it is, and what it says of itself."""
    from rich.live import Live

    _, tasks = _loaded(sweep, only)
    console = _console()
    if not watch:
        console.print(_status_table(tasks))
    else:
        with Live(_status_table(tasks), console=console, auto_refresh=False) as live:
            while not all(task.plan.is_done for task in tasks):
                time.sleep(_WATCH_SECONDS)
                live.update(_status_table(tasks), refresh=True)
            live.update(_status_table(tasks), refresh=True)
    if json_file is not None:
        _write_json(json_file, [_status_as_json(task) for task in tasks])


@app.command()
def collect(
    sweep: SweepName,
    only: Only = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Metrics of the table, as 'kept/*'; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The parquet file; collected-SWEEP.parquet if not given.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Gather what is done into one parquet file and one table with 95% intervals over seeds."""
    from rstar2.experiments import collect as collecting
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.finished_runs import finished_runs

    loaded, tasks = _loaded(sweep, only)
    done = finished_runs(tasks)
    gathered = collecting.collect(done)
    path = out or project_root() / loaded.spec.out / f"collected-{loaded.name}.parquet"
    collecting.write_collected(gathered, path)
    console = _console()
    console.print(collecting.summary_table(gathered, metric or ()))
    differences = collecting.difference_table(gathered, metric or ())
    if differences is not None:
        console.print()
        console.print(differences)
    if len(done) < len(tasks):
        console.print(f"{len(done)} of {len(tasks)} runs are done; the others are left out.")
    console.print(f"all metrics: {path}", soft_wrap=True)
    if json_file is not None:
        _write_json(json_file, collecting.as_json(gathered))


@app.command()
def slurm(sweep: SweepName, only: Only = None, at_once: AtOnce = 4) -> None:
    """Print a Slurm script; typed as `bash job.sh` it submits itself, an array per wave."""
    from rstar2.experiments.schedulers import slurm_script

    typer.echo(slurm_script(_array(sweep, only, at_once)), nl=False)


@app.command()
def k8s(sweep: SweepName, only: Only = None, at_once: AtOnce = 4) -> None:
    """Print Kubernetes manifests, an indexed Job per wave."""
    from rstar2.experiments.schedulers import kubernetes_manifest

    typer.echo(kubernetes_manifest(_array(sweep, only, at_once)), nl=False)


@app.command()
def ray(sweep: SweepName, only: Only = None, at_once: AtOnce = 4) -> None:
    """Print a script that submits Ray jobs, wave after wave."""
    from rstar2.experiments.schedulers import ray_script

    typer.echo(ray_script(_array(sweep, only, at_once)), nl=False)


def _loaded(name: str, only: list[str] | None) -> "tuple[Sweep, list[Task]]":
    from rstar2.experiments.sweeps import load_sweep, select

    sweep = load_sweep(name)
    return sweep, select(sweep, only or [])


def _task(sweep: "Sweep", number: int, only: list[str] | None) -> "Task":
    if only:
        raise BatchCommandError("give --task or --only, not both")
    if number >= len(sweep.tasks):
        raise BatchCommandError(
            f"--task {number}: the sweep has tasks 0 to {len(sweep.tasks) - 1}; "
            f"`rstar2 batch plan {sweep.name}` lists them"
        )
    return sweep.tasks[number]


def _array(name: str, only: list[str] | None, at_once: int) -> "Array":
    from rstar2.experiments.schedulers import CHECKPOINT_SECONDS, Array
    from rstar2.experiments.sweeps import waves, with_needs

    sweep, chosen = _loaded(name, only)
    tasks = with_needs(sweep, chosen)
    presets = [task.plan.preset for task in tasks if task.plan.preset is not None]
    if not presets:
        raise BatchCommandError(f"{name}: no preset says what its runs need of a machine")
    preset = presets[0]
    step = math.ceil(60 * preset.cost.rl_step * _STEP_MARGIN)
    seconds = max(CHECKPOINT_SECONDS, step)
    return Array(name, waves(tasks), preset.resources, at_once, seconds)


def _remove(tasks: "list[Task]") -> None:
    import shutil

    from rstar2.experiments.standing import Standing, is_locked, view
    from rstar2.records import RecordError

    for task in tasks:
        try:
            at_work = view(task.plan).standing is Standing.RUNNING
        except RecordError:  # damaged: to be made again
            at_work = is_locked(task.plan)
        if at_work:
            raise BatchCommandError(f"--force: {task.plan.name} is at work: end it first")
    for task in tasks:
        if task.plan.folder.exists():
            shutil.rmtree(task.plan.folder)


def _status_table(tasks: "list[Task]") -> Table:
    from rstar2.experiments.progress import read_progress
    from rstar2.experiments.progress_view import duration, figures, place
    from rstar2.experiments.standing import Standing, view
    from rstar2.experiments.watch import warning

    table = _table("task", "run", "id", "state", "where", "says")
    for task in tasks:
        now = view(task.plan)
        where = says = ""
        if now.standing is Standing.DONE and now.wall_seconds is not None:
            where = duration(now.wall_seconds)
        elif now.standing not in (Standing.TODO, Standing.WAITING, Standing.DONE):
            state = read_progress(task.plan.folder)
            where, says = place(state), now.error or figures(state)
        says = " · ".join(filter(None, [says, warning(task.plan)]))
        plan = task.plan
        table.add_row(str(task.number), plan.name, plan.run_id, now.standing.value, where, says)
    return table


def _status_as_json(task: "Task") -> dict[str, Any]:
    from dataclasses import asdict

    from rstar2.experiments.progress import read_progress
    from rstar2.experiments.standing import view
    from rstar2.experiments.watch import alarms_of

    now = view(task.plan)
    return {
        "task": task.number,
        "run": task.plan.folder.name,
        "arm": task.arm,
        "seed": task.seed,
        "state": now.standing.value,
        "error": now.error,
        "wall_seconds": now.wall_seconds,
        "beat": None if now.worker is None else now.worker.beat,
        "progress": asdict(read_progress(task.plan.folder)),
        "alarms": [asdict(alarm) for alarm in alarms_of(task.plan)],
    }


def _look_as_json(look: "Outlook") -> dict[str, Any]:
    plan = look.task.plan
    return {
        "task": look.task.number,
        "run": plan.folder.name,
        "id": plan.run_id,
        "kind": plan.kind.value,
        "arm": look.task.arm,
        "params": plan.params,
        "needs": plan.needs.folder.name if plan.needs else None,
        "state": look.view.standing.value,
        "why": look.why,
        "minutes": look.minutes,
        "minutes_from": look.source,
        "gpu_hours": look.gpu_hours,
    }


def _total(looks: "list[Outlook]") -> str:
    """How many runs are left, and what they would cost together."""
    left = [look for look in looks if look.is_left]
    said = f"{len(looks)} runs, {len(looks) - len(left)} done, {len(left)} to run"
    known = [look for look in left if look.minutes is not None]
    if not known:
        return said
    minutes = sum(look.minutes or 0.0 for look in known)
    said += f": {_minutes(minutes)} of one worker"
    if gpu_hours := sum(look.gpu_hours or 0.0 for look in known):
        said += f", {gpu_hours:,.0f} GPU hours"
    if len(known) < len(left):
        said += f" and {len(left) - len(known)} of unknown length"
    sources = sorted({look.source for look in known})
    return f"{said} ({'; '.join(sources)}; whole runs, also of what has begun)"


def _minutes(minutes: float | None) -> str:
    from rstar2.experiments.progress_view import duration

    return "" if minutes is None else duration(60 * minutes)


def _console(*, stderr: bool = False) -> Console:
    """Shows texts as they are written; what the terminal cannot show is a question mark.

    A pipe is no terminal, also where a kernel forces colours: a table would be drawn anew in it.
    """
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    terminal = None if stream.isatty() else False
    return Console(
        stderr=stderr, force_terminal=terminal, highlight=False, markup=False, emoji=False
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("task", "id", "state", "time"))
    return table


def _write_json(path: Path, value: Any) -> None:
    from rstar2.records import atomic_write

    atomic_write(path, json.dumps(value, indent=1).encode() + b"\n")
