"""``rstar2 sandbox``: serve the code environment, or attack it with a table of probes."""

import typer

from rstar2.cli.sandbox_probe import probe
from rstar2.cli.sandbox_serve import serve

app = typer.Typer(help="The code environment: serve it, probe it.", no_args_is_help=True)
app.command()(serve)
app.command()(probe)
