"""``rstar2 rerun --canary``: whether the code as it is still makes the committed records."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rstar2.errors import UserError

if TYPE_CHECKING:
    from rstar2.experiments.canary import Canary, Difference, Finding
    from rstar2.experiments.report import Record

_STALE = 1
"""Exit code if a record is stale."""


class RerunError(UserError):
    """The command was given what it cannot do."""


def rerun(
    canary: Annotated[
        bool, typer.Option("--canary", help="Repeat the first steps of each record.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME=VALUE", help="As seed=11 or arm=sft; repeatable."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each record.")] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write it as JSON too.")
    ] = None,
) -> None:
    """Say which records in results/laptop-*/ have gone stale; none of them is changed.

    The first steps of each are made again with the code and the presets as they are, and
    compared bit by bit. The exit code is 1 if a record is stale.
    """
    if not canary:
        raise RerunError(
            "give --canary, which repeats the first steps of each record; "
            "`rstar2 results remake` makes whole records again"
        )
    if json_file is not None:
        _check_target(json_file)  # now, not after minutes of training
    from rstar2.experiments.canary import Canary, choose
    from rstar2.experiments.report import committed_records
    from rstar2.experiments.signals import signals_unwind

    records = committed_records()
    chosen = choose(records, only or [])
    checks = Canary(records, steps)
    with signals_unwind((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), _no_bars():
        findings = list(_findings(checks, chosen))
    console = Console(highlight=False)
    console.print(_table(findings))
    console.print(Text(_summary(findings)), soft_wrap=True)
    if json_file is not None:
        _write(json_file, checks, findings)
    if any(finding.is_stale for finding in findings):
        raise typer.Exit(_STALE)


def _findings(canary: "Canary", chosen: "list[Record]") -> "Iterator[Finding]":
    from rstar2.experiments.plans import SFT_ARM

    progress = Console(stderr=True, highlight=False)
    for number, record in enumerate(chosen, start=1):
        said = f"{number}/{len(chosen)} {record.path.name}"
        if record.arm == SFT_ARM:
            said += ": its data and tokenizer first, half a minute with preset laptop"
        progress.print(Text(said), soft_wrap=True)
        yield canary.repeat(record)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keeps the bars of the library that writes checkpoints out of the lines of progress."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _table(findings: "list[Finding]") -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("record", "verdict", "steps", "what"):
        table.add_column(column, overflow="fold", no_wrap=column != "what")
    for finding in findings:
        cells = (finding.record, finding.verdict.value, str(finding.steps), _what(finding))
        table.add_row(*map(Text, cells))
    return table


def _what(finding: "Finding") -> str:
    """All that is to be said of a record, in one cell."""
    said = [finding.reason] if finding.reason else []
    if finding.difference is not None:
        said.append(_difference(finding.difference))
    if finding.planned_id not in (None, finding.run_id):
        said.append(f"its id is {finding.run_id}, now it would be {finding.planned_id}")
    return "; ".join(said)


def _difference(found: "Difference") -> str:
    said = f"{found.metric} at step {found.step}: {_value(found.recorded)} in the record, "
    said += f"{_value(found.repeated)} now"
    if found.largest is not None:
        said += f"; the largest relative difference of all is {found.largest:.1e}"
    return said


def _value(value: float | int | str | None) -> str:
    return "nothing" if value is None else str(value)


def _summary(findings: "list[Finding]") -> str:
    from rstar2.experiments.canary import Verdict

    stale = [finding.record for finding in findings if finding.is_stale]
    unlike = sum(finding.verdict is Verdict.UNLIKE for finding in findings)
    seconds = sum(finding.seconds for finding in findings)
    said = f"stale records: {len(stale)} of {len(findings)}"
    if unlike:
        said += f"; not to be judged on this machine: {unlike}"
    said += f" ({seconds:.0f} s)"
    return f"{said}; `make results` makes them again" if stale else said


def _check_target(target: Path) -> None:
    from rstar2.records.files import make_folder

    make_folder(target.parent)
    if target.is_dir():
        raise RerunError(f"--json {target} is a folder: name a file in it")


def _write(target: Path, canary: "Canary", findings: "list[Finding]") -> None:
    from rstar2.records import atomic_write

    told = {
        "commit": canary.here.commit,
        "dirty": canary.here.dirty,
        "stale": sum(finding.is_stale for finding in findings),
        "records": [finding.as_json() for finding in findings],
    }
    atomic_write(target, json.dumps(told, indent=1, allow_nan=False).encode() + b"\n")
