"""The command ``rstar2``; each of its commands is a module here.

A command imports what is heavy (torch, transformers) when it runs, so that ``--help`` and
a misspelt option answer at once.
"""

import sys

import typer

from rstar2.cli import batch, book, data, preset, report, results, sandbox
from rstar2.cli.doctor import doctor
from rstar2.cli.grade import grade
from rstar2.cli.rerun import rerun
from rstar2.cli.solve import solve
from rstar2.cli.train import train
from rstar2.errors import UserError

_INTERRUPTED = 130

app = typer.Typer(
    help="Agentic reinforcement learning with a Python tool, executable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(doctor)
app.command()(train)
app.command()(solve)
app.command()(grade)
app.command()(rerun)
app.add_typer(batch.app, name="batch")
app.add_typer(book.app, name="book")
app.add_typer(data.app, name="data")
app.add_typer(preset.app, name="preset")
app.add_typer(report.app, name="report")
app.add_typer(results.app, name="results")
app.add_typer(sandbox.app, name="sandbox")


@app.callback()
def _rstar2() -> None:
    """Agentic reinforcement learning with a Python tool, executable."""


def main() -> None:
    """Run the command line.

    What a user can mend is one line on stderr and exit code 2: an unknown option, a bad
    value, a :class:`~rstar2.errors.UserError`. An interrupt is exit code 130. Any other
    exception is a defect and keeps its traceback.
    """
    try:
        code = app(standalone_mode=False)
    except (UserError, typer.TyperException) as error:
        text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        if text:  # empty after the help that a bare `rstar2` shows
            print("rstar2:", " ".join(text.split()), file=sys.stderr)
        code = 2
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:  # typer turns an interrupt within a command into this code
        print("rstar2: interrupted", file=sys.stderr)
    sys.exit(code)
