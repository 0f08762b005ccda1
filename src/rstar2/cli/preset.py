"""``rstar2 preset …``: which presets there are, and whose each value is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rstar2.experiments.presets import Preset

app = typer.Typer(help="Presets: everything that decides a run.", no_args_is_help=True)


@app.callback()
def _preset() -> None:
    """Presets: everything that decides a run."""


@app.command("list")
def list_() -> None:
    """List the presets: what trains them, what they are for, what to expect."""
    from rstar2.experiments.presets import load_preset, preset_names

    table = Table(box=None, pad_edge=False)
    for column in ("name", "trainer", "what"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for name in preset_names():
        preset = load_preset(name)
        table.add_row(name, preset.trainer, Text(preset.description))
    Console(highlight=False).print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A preset; rstar2 preset list names them.")],
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the table as JSON."),
    ] = None,
) -> None:
    """Show every value of a preset and whose it is: the paper's, its release's or ours.

    The first column is what `changes` of a run notebook or a sweep call the value.
    """
    from rstar2.experiments.presets import load_preset
    from rstar2.records import atomic_write
    from rstar2.records.files import make_folder

    preset = load_preset(name)
    console = Console(highlight=False)
    console.print(Text(f"{name}, trained by {preset.trainer}. {preset.description}\n"))
    console.print(_table(preset))
    if json_file is not None:
        settings = {
            place: {"value": one.value, "origin": one.origin.value, "note": one.note}
            for place, one in preset.settings.items()
        }
        told = {"name": name, "trainer": preset.trainer, "settings": settings}
        make_folder(json_file.parent)
        text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
        atomic_write(json_file, text.encode())


def _table(preset: "Preset") -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    for column in ("value", "whose", "note"):
        table.add_column(column, overflow="fold")
    for place, setting in preset.settings.items():
        if place == "description":
            continue
        value = setting.value
        told = value if isinstance(value, str) else json.dumps(value)
        table.add_row(place, Text(told), setting.origin.value, Text(setting.note))
    return table
