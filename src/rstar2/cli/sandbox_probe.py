"""``rstar2 sandbox probe FILE.jsonl``: attack the code environment with a table of probes."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from rstar2.errors import UserError
from rstar2.records import atomic_write
from rstar2.sandbox.limits import Rung

if TYPE_CHECKING:
    from rstar2.sandbox.probe import Outcome, Probe


class ProbeError(UserError):
    """No probe can run on this machine."""


def probe(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="The table: one probe per line.")
    ],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON too.")
    ] = None,
    isolation: Annotated[
        Rung | None, typer.Option(help="The rung to probe; the strongest if not given.")
    ] = None,
) -> None:
    """Run a table of probes and report those that fall short; exit code 1 if any does.

    A probe is a program and what must become of it: `name`, `code`, `stdin`, `timeout`,
    `expect` (ok, error, timeout, or a list of them), and if wanted `stdout_contains`,
    `stdout_not_contains`, `stderr_contains`, `value_contains`, and `on`: what is expected
    instead on a rung.
    """
    from rstar2.sandbox.probe import load_probes, report

    console = Console(highlight=False)
    outcomes, met = asyncio.run(_run(load_probes(file), isolation))
    failed = [outcome for outcome in outcomes if outcome.shortfall]
    if failed:
        console.print(_table(failed))
    console.print(
        Text(f"{len(failed)} of {len(outcomes)} probes fell short; {met}"), soft_wrap=True
    )
    if json_file is not None:
        atomic_write(json_file, json.dumps(report(outcomes), indent=1).encode() + b"\n")
    raise typer.Exit(1 if failed else 0)


async def _run(probes: "list[Probe]", isolation: Rung | None) -> "tuple[list[Outcome], str]":
    """The outcomes, and the isolation that they met."""
    from rstar2.sandbox import Sandbox, SandboxUnavailable, SandboxUnsupported
    from rstar2.sandbox.probe import run_probes

    screen = Console(stderr=True)
    columns = (TextColumn("probes"), MofNCompleteColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    try:
        async with Sandbox(isolation=isolation) as sandbox:
            with progress:
                task = progress.add_task("", total=len(probes))
                outcomes = await run_probes(probes, sandbox, lambda _: progress.advance(task))
            return outcomes, str(sandbox.isolation)
    except (SandboxUnavailable, SandboxUnsupported) as error:
        raise ProbeError(f"no program can run here: {error}") from error


def _table(failed: "list[Outcome]") -> Table:
    table = Table("probe", "fell short", "stderr ends", show_edge=False)
    for outcome in failed:
        stderr = outcome.result.stderr.strip().rpartition("\n")[2] if outcome.result else ""
        cells = (outcome.probe.name, outcome.shortfall, stderr[:200])
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    return table


def _printable(text: str) -> str:
    """Text without control characters, which would steer the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
