"""``rstar2 book build``: trains, executes the chapters, builds the book."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="The book.", no_args_is_help=True)


@app.callback()
def _book() -> None:
    """The book."""


@app.command()
def build(
    train: Annotated[bool, typer.Option(help="Train the laptop run of this machine first.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for _build/; the checkout if not given.")
    ] = None,
) -> None:
    """Train on this machine, execute the chapters and build the book.

    Writes only to runs/ and _build/, both ignored by git.
    """
    from rstar2.book.build import BookBuildError, build_book
    from rstar2.experiments.batch import run_batch
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.planner import plan_experiment
    from rstar2.experiments.plans import BOOK_SEED

    root = project_root()
    console = Console(stderr=True)
    plans = plan_experiment("laptop", [BOOK_SEED], "book")
    if train:
        run_batch(plans, workers=2, console=console, fail_fast=True)
    done = [plan.run_id for plan in plans if plan.is_done]
    try:
        page = build_book(root, cache_key=state_key(root, done), out=out, console=console)
    except BookBuildError as error:
        if error.tail:
            console.print(error.tail, markup=False, highlight=False, soft_wrap=True)
        raise
    typer.echo(page)


def state_key(root: Path, run_ids: list[str]) -> str:
    """Names the state of all that chapters read but their own cells."""
    digest = hashlib.sha256("\n".join(run_ids).encode())
    for folder in ("src", "presets", "results", "sweeps"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode())
                digest.update(path.read_bytes())
    digest.update((root / "requirements.txt").read_bytes())
    return digest.hexdigest()[:16]
