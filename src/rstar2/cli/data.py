"""``rstar2 data …``: from raw sets to the pool of training problems and the SFT mix."""

import json
import resource
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from rstar2.cli.data_ladder import ladder
from rstar2.cli.data_mix import sft_mix, sft_sets
from rstar2.cli.data_sample import sample
from rstar2.cli.progress import progress_bar
from rstar2.errors import UserError
from rstar2.records import atomic_write, provenance
from rstar2.records.files import make_folder

if TYPE_CHECKING:
    from rstar2.experiments.pool_files import Decision
    from rstar2.experiments.problem_pool import OnStep, PoolReport

app = typer.Typer(
    help="Raw sets of problems and demonstrations, checked and counted.", no_args_is_help=True
)


app.command()(ladder)
app.command()(sample)
app.command("sft-mix")(sft_mix)
app.command("sft-sets")(sft_sets)


@app.callback()
def _data() -> None:
    """Raw sets of problems and demonstrations, checked and counted."""


class DataError(UserError):
    """The command was given what does not go together."""


@app.command()
def sources() -> None:
    """List the sets of problems that are known by name."""
    from rstar2.problems.data.registry import SOURCES

    table = Table(box=None, pad_edge=False)
    for column in ("name", "for", "what", "licence"):
        table.add_column(column, overflow="fold")
    for source in SOURCES.values():
        table.add_row(source.name, source.role.value, source.what, source.licence)
    Console(highlight=False).print(table)


@app.command()
def build(
    source: Annotated[
        list[str],
        typer.Option(metavar="NAME|FILE|NAME=FILE", help="A set to build from; repeatable."),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE|NAME=FILE", help="A benchmark to keep out of it; repeatable."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The build folder.")] = Path("runs/pool"),
    review: Annotated[
        Path | None, typer.Option(help="A review with decisions; that of the build folder if none.")
    ] = None,
    subset: Annotated[
        bool, typer.Option("--subset", help="Accept fewer records than a known set should have.")
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write a record of the build as JSON."),
    ] = None,
) -> None:
    """Build the pool: filter, dedup, decontaminate; every row that goes has a reason.

    A file of your own is Parquet, JSON lines, JSON or CSV with a question (or problem, or
    prompt) and an answer (or gold, or expected_answer); rstar2 data sources lists the sets
    that are known by name. An interrupted build goes on where it stopped. Decisions that you
    write into the review.csv of the build folder hold in the next build.
    """
    from rstar2.experiments.problem_pool import build_pool
    from rstar2.problems.data.registry import Role
    from rstar2.problems.data.sources import read
    from rstar2.problems.data.steps import pool_steps

    decisions = _decisions(review, out)
    if json_file is not None:
        make_folder(json_file.parent)  # now, not after the work
    loaded = [read(one, subset=subset) for one in source]
    for one in loaded:
        if one.role is Role.BENCHMARK:
            raise DataError(f"{one.report.name} is a benchmark: give it as --against")
    compared = [read(one, subset=subset) for one in against or ()]
    names = [one.report.name for one in compared]
    if len(set(names)) < len(names):
        raise DataError("--against names one benchmark twice")
    texts = {one.report.name: [row.question for row in one.rows] for one in compared}
    steps = pool_steps(texts)
    with _steps_shown(len(steps)) as on_step:
        report = build_pool(
            [row for one in loaded for row in one.rows],
            steps,
            out,
            sources=[one.report for one in loaded],
            against=[one.report for one in compared],
            decisions=decisions,
            command=shlex.join(["rstar2", *_without_folders(sys.argv[1:])]),
            on_step=on_step,
        )
    if json_file is not None:
        record = {"provenance": provenance().as_dict(), "cost": _cost(), **report.as_dict()}
        atomic_write(json_file, json.dumps(record, indent=1).encode() + b"\n")
    _show(report, out)


@app.command()
def euler(
    answers: Annotated[Path, typer.Option(help="The answers: Markdown lines `1. 233168`, or CSV.")],
    texts: Annotated[Path, typer.Option(help="Folder of the problem texts.")],
    out: Annotated[Path, typer.Option(help="The joined problems, JSON lines.")],
    download: Annotated[
        bool, typer.Option("--download", help="First fetch the texts that are missing.")
    ] = False,
) -> None:
    """Join Project Euler's problem texts with integer answers; neither comes with rstar2.

    The texts are CC BY-NC-SA 4.0. A download asks once a second and goes on where it stopped.
    """
    from rstar2.problems.data.euler import fetch_euler

    make_folder(out.parent)
    with _steps_shown(1) as on_step:
        joined = fetch_euler(
            answers,
            texts,
            download=download,
            progress=lambda done, total: on_step("texts", done, total),
        )
    atomic_write(out, joined.json_lines())
    left_out = {
        "answer is no integer": joined.not_integer,
        "no text": joined.without_text,
        "needs a file": joined.needs_file,
        "unreadable": joined.unreadable,
    }
    told = "; ".join(f"{name}: {len(numbers)}" for name, numbers in left_out.items() if numbers)
    typer.echo(f"{out}: {len(joined.problems)} problems" + (f"; left out: {told}" if told else ""))


@app.command()
def keep(
    pool: Annotated[Path, typer.Option(help="A build folder or its pool.parquet.")],
    samples: Annotated[Path, typer.Option(help="A record of samples of these problems.")],
    out: Annotated[Path, typer.Option(help="The folder of what is kept.")],
    least: Annotated[
        int | None, typer.Option(help="Label check: samples that must match the label.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(help="Hard problems: samples that may be right.")
    ] = None,
) -> None:
    """Keep problems by how often a model solves them; another threshold needs no new samples."""
    from rstar2.experiments.pool_choice import SUSPECTS, choose
    from rstar2.training.label_check import hard_problems, label_check, suspect_labels
    from rstar2.training.samples import read_samples

    if (least is None) == (most is None):
        raise DataError("give --least for the label check or --most for hard problems, not both")
    record = read_samples(samples)
    of = f"of {record.samples_per_problem}"
    if least is not None:
        rule, choice = f"label matched by at least {least} {of}", label_check(record, least)
        suspects = suspect_labels(record)
    else:
        assert most is not None
        rule, choice = f"solved by at most {most} {of}", hard_problems(record, most)
        suspects = []
    report = choose(pool, record, choice, rule, out, suspects)
    typer.echo(
        f"{rule}: {report.kept} of {report.rows_in} kept, {report.dropped} dropped, "
        f"{report.unfinished} without all their samples"
    )
    if report.suspects:
        typer.echo(f"{report.suspects} labels that most samples contradict: {out / SUSPECTS}")


def _decisions(review: Path | None, out: Path) -> "list[Decision]":
    """Those of the named review, else of the build folder's own, if it is there."""
    from rstar2.experiments.pool_files import REVIEW, read_review

    own = out / REVIEW
    if review is None:
        return read_review(own) if own.exists() else []
    if own.exists() and own.resolve() != review.resolve() and read_review(own):
        raise DataError(f"{own} has decisions of its own: move it away, or leave out --review")
    return read_review(review)


def _cost() -> dict[str, float]:
    """What this process has used since it began: CPU seconds, and memory at its peak."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    cpu = round(used.ru_utime + used.ru_stime, 1)
    return {"cpu_seconds": cpu, "peak_mib": round(used.ru_maxrss * unit / 2**20, 1)}


def _without_folders(arguments: list[str]) -> list[str]:
    """The command as a card may show it: files by name, without the folders of this machine."""
    from rstar2.problems.data.formats import shown_name

    def shown(argument: str) -> str:
        head, equals, file = argument.rpartition("=")
        return f"{head}{equals}{shown_name(Path(file).name)}" if "/" in file else argument

    return [shown(argument) for argument in arguments]


@contextmanager
def _steps_shown(count: int) -> "Iterator[OnStep]":
    """A bar for the step that is running, on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as progress:
        task: TaskID = progress.add_task("reading", total=None)
        seen: list[str] = []

        def on_step(name: str, done: int, total: int) -> None:
            if name not in seen:
                seen.append(name)
                progress.reset(task)
            label = f"{len(seen)}/{count} {name}"
            progress.update(task, description=label, completed=done, total=max(total, 1))

        yield on_step


def _show(report: "PoolReport", out: Path) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    table.add_column("kept", justify="right")
    table.add_column("dropped")
    table.add_row("rows", f"{sum(source.rows for source in report.sources):,}", "")
    for step in report.steps:
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.items())
        table.add_row(step.name, f"{step.rows_kept:,}", dropped)
    console.print(table)
    if not report.against:
        console.print("[bold]No benchmark was given with --against: nothing was compared.[/bold]")
    console.print(f"{report.rows:,} problems in {out}, {report.doubts:,} doubts in its review.csv")
    console.print(f"content sha256:{report.content_hash}", soft_wrap=True)
