"""``rstar2 data ladder``: our own problem families in three levels."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rstar2.problems import Split
from rstar2.problems.ladder.family import LadderLevel


def ladder(
    out: Annotated[
        Path | None, typer.Option(help="Write a pool of these problems, Parquet.")
    ] = None,
    level: Annotated[
        LadderLevel | None, typer.Option(help="One level; all three if not given.")
    ] = None,
    split: Annotated[Split, typer.Option(help="What the problems are for.")] = Split.TRAIN,
    count: Annotated[
        int,
        typer.Option(
            min=1, help="Problems of each family and level; in a list, those that are guessed at."
        ),
    ] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Names the sequence of problems.")] = 0,
) -> None:
    """Our own problem families in three levels: list them, or write a pool of them."""
    from rstar2.experiments.pool_files import write_pool
    from rstar2.problems.data.rows import Row
    from rstar2.problems.ladder import draw, ladder_names, ladder_table

    levels = [level] if level else list(LadderLevel)
    if out is None:
        table = Table(box=None, pad_edge=False)
        for column in ("family", "level", "guessing", "example"):
            table.add_column(column, overflow="fold")
        for row in ladder_table(seed, count):
            if row.level in levels:
                example = row.example.question
                table.add_row(row.family, row.level.value, f"{row.baseline:.1%}", example)
        Console(highlight=False).print(table)
        return
    problems = [
        draw(family, one, split, seed, index)
        for family in ladder_names()
        for one in levels
        for index in range(count)
    ]
    # A small family repeats itself; a pool has each question once.
    rows = {p.question: Row(p.family, p.problem_id, p.question, str(p.answer)) for p in problems}
    write_pool(out, list(rows.values()))
    typer.echo(f"{out}: {len(rows)} problems")
