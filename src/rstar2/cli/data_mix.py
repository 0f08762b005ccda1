"""``rstar2 data sft-mix``: the demonstrations of the non-reasoning cold start."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from rstar2.cli.progress import progress_bar
from rstar2.errors import UserError
from rstar2.records.files import make_folder

if TYPE_CHECKING:
    from rstar2.protocol import TokenTemplate
    from rstar2.training.sft_mix import Decontamination, MixSpec, OpenAIRewriter


class MixCommandError(UserError):
    """The command was given what does not go together, or a tokenizer that cannot be used."""


def sft_mix(
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", metavar="NAME=FILE", help="A set's file or folder of files; repeatable."
        ),
    ],
    tokenizer: Annotated[Path, typer.Option(help="Folder of the tokenizer of the model to train.")],
    out: Annotated[Path, typer.Option(help="The mix, JSON lines.")] = Path("runs/sft-mix.jsonl"),
    partial: Annotated[
        bool, typer.Option("--partial", help="Make a mix of the given sets alone.")
    ] = False,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the paper's number of each set.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn, and the order.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer conversations are left out.")] = (
        8192
    ),
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE|NAME=FILE", help="A benchmark to keep out; repeatable."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible endpoint that rewrites texts.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The endpoint's model.")] = None,
) -> None:
    """Make the SFT mix: convert each set, screen it, draw, render, count.

    The sets are those of the paper (section 4.1); `rstar2 data sft-sets` lists them. With
    --endpoint the texts that the paper rewrote are rewritten; the key is read from the
    environment variable OPENAI_API_KEY, and where that is not set none is sent, as to a
    server of your own. An interrupted run goes on where it stopped.
    """
    from rstar2.training.sft_mix import build_mix, check_out

    files = _files(inputs)
    spec = _spec(files, partial=partial, share=share, seed=seed, max_tokens=max_tokens)
    check_out(out)
    rewriter = _rewriter(endpoint, model, out)
    template = _template(tokenizer)
    decontamination = _decontamination(against or [])
    make_folder(out.parent)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with progress_bar(*columns) as progress:
        task = progress.add_task("reading", total=None)
        report = build_mix(
            spec,
            files,
            out,
            template,
            rewriter=rewriter,
            decontamination=decontamination,
            on_progress=lambda what, done, total: progress.update(
                task, description=what, completed=done, total=total or None
            ),
        )
    typer.echo(report.text())
    typer.echo(f"{out}; its report stands beside it")


def sft_sets() -> None:
    """List the sets of the SFT mix: their names, where they lie, how many are drawn."""
    from rich.table import Table

    from rstar2.training.sft_mix import PAPER_MIX

    table = Table(box=None, pad_edge=False)
    for column in ("name", "data set", "drawn", "licence"):
        table.add_column(column, justify="right" if column == "drawn" else "left", overflow="fold")
    for source in PAPER_MIX.sources:
        table.add_row(source.name, source.dataset, f"{source.target:,}", source.licence)
    Console(highlight=False).print(table)


def _files(inputs: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for name, file in map(_named, inputs):
        if name in files:
            raise MixCommandError(
                f"--input {name} is given twice, as {files[name]} and {file}: "
                "give it once; several files go into one folder"
            )
        files[name] = file
    return files


def _named(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise MixCommandError(f"--input {text}: give NAME=FILE; rstar2 data sft-sets has the names")
    return name, Path(file)


def _spec(
    files: dict[str, Path], *, partial: bool, share: float, seed: int, max_tokens: int
) -> "MixSpec":
    from rstar2.training.sft_mix import PAPER_MIX

    names = [source.name for source in PAPER_MIX.sources]
    unknown = sorted(files.keys() - set(names))
    if unknown:
        raise MixCommandError(f"there is no set {unknown[0]}; the sets are {', '.join(names)}")
    missing = [name for name in names if name not in files]
    if missing and not partial:
        raise MixCommandError(
            f"no --input for {', '.join(missing)}: give them, or --partial for a mix without them"
        )
    if share <= 0:
        raise MixCommandError(f"--share is {share}: give a number above 0, up to 1")
    chosen = tuple(
        source.model_copy(update={"target": max(1, round(share * source.target))})
        for source in PAPER_MIX.sources
        if source.name in files
    )
    update = {"sources": chosen, "seed": seed, "max_tokens": max_tokens}
    return PAPER_MIX.model_copy(update=update)


def _rewriter(endpoint: str | None, model: str | None, out: Path) -> "OpenAIRewriter | None":
    from rstar2.training.sft_mix import OpenAIRewriter

    if (endpoint is None) != (model is None):
        raise MixCommandError("--endpoint and --model go together")
    if endpoint is None or model is None:
        return None
    return OpenAIRewriter(endpoint, model, out.with_name(f"{out.name}.rewrites.jsonl"))


def _template(folder: Path) -> "TokenTemplate":
    from transformers import AutoTokenizer

    from rstar2.protocol import PAPER, TokenTemplate

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return TokenTemplate(tokenizer, PAPER)
    except (OSError, ValueError, KeyError) as error:
        first_line = str(error).partition("\n")[0]
        raise MixCommandError(f"--tokenizer {folder} cannot be used: {first_line}") from error


def _decontamination(specs: list[str]) -> "Decontamination | None":
    from rstar2.problems.data.sources import read
    from rstar2.training.sft_mix import Decontamination

    texts: dict[str, list[str]] = {}
    for loaded in map(read, specs):
        name = loaded.report.name
        if name in texts:
            raise MixCommandError(f"--against: two benchmarks are called {name}: give NAME=FILE")
        texts[name] = [row.question for row in loaded.rows]
    return Decontamination.of(texts) if texts else None
