"""What every ``python -m benchmarks.<name>`` does around its measuring."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from rstar2.errors import UserError
from rstar2.records import atomic_write
from rstar2.records.files import make_folder
from rstar2.sandbox import SandboxUnsupported

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the record.")]


def prepare(json_file: JsonFile) -> None:
    """Make the record's folder now, not after minutes of measuring.

    Raises:
        RecordError: It cannot be made.
    """
    if json_file is not None:
        make_folder(json_file.parent)


def tell(
    figures: report.Figures,
    bars: Sequence[report.Bar],
    libraries: Sequence[str],
    json_file: JsonFile,
    *remarks: str,
    beside: Sequence[str] = (),
    **facts: str | int | bool,
) -> None:
    """Write the record, then print the bars, what is said beside them, and the headline.

    Args:
        figures: What was measured.
        bars: What it is held against.
        libraries: Packages whose versions are recorded.
        json_file: Where the record goes, if anywhere.
        remarks: A line each, under the table.
        beside: Figures without a bar that the headline tells too.
        facts: What else decides the numbers, by key.

    Raises:
        RecordError: The record cannot be written.
    """
    if json_file is not None:
        record = report.make_record(figures, bars, libraries, **facts)
        atomic_write(json_file, report.as_json(record))
    console = Console()
    console.print(report.table(figures, bars))
    for remark in remarks:
        console.print(remark, highlight=False, soft_wrap=True)
    print(json.dumps(report.headline(figures, bars, beside)))


def run(app: typer.Typer, name: str) -> None:
    """Run a command; what a user can mend is one line on stderr and exit code 2."""
    try:
        app(prog_name=f"python -m {name}")
    except (UserError, SandboxUnsupported) as error:
        print(f"{name}:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
