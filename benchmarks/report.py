"""What every benchmark writes: its figures, the bars they are held against, the record."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any

from rich.table import Table

from rstar2.records import provenance

Figures = Mapping[str, Any]
"""What was measured, by key: numbers, and what figures and tables are drawn from."""


class Verdict(StrEnum):
    """What became of a bar."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure must reach.

    Attributes:
        key: Its key in the record.
        limit: The worst value that is still good.
        meaning: What it says, for people.
        at_least: Whether more is better.
    """

    key: str
    limit: float
    meaning: str
    at_least: bool = False

    def verdict(self, figures: Figures) -> Verdict:
        """Compare what was measured; nothing measured is never a bar met."""
        figure = figures.get(self.key)
        if not isinstance(figure, int | float):
            return Verdict.NOT_MEASURED
        met = figure >= self.limit if self.at_least else figure <= self.limit
        return Verdict.MET if met else Verdict.MISSED


def make_record(
    figures: Figures, bars: Sequence[Bar], libraries: Sequence[str], **facts: str | int | bool
) -> dict[str, Any]:
    """Put together what is written: figures, verdicts, and where they come from.

    Args:
        figures: What was measured.
        bars: What it is held against.
        libraries: Packages whose versions are recorded.
        facts: What else decides the numbers, by key.
    """
    return {
        **facts,
        **headline(figures, bars),
        **{key: rounded(figure) for key, figure in figures.items()},
        "libraries": {name: version(name) for name in libraries},
        "provenance": provenance().as_dict(),
    }


def as_json(record: Mapping[str, Any]) -> bytes:
    """Write a record with one key on each line, however long its list."""
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def headline(figures: Figures, bars: Sequence[Bar], beside: Sequence[str] = ()) -> dict[str, Any]:
    """Give the figures that have bars or stand beside them, and the bars that are not met."""
    verdicts = {bar.key: bar.verdict(figures) for bar in bars}
    return {
        **{key: rounded(figures[key]) for key in beside},
        **{key: rounded(figures[key]) for key in verdicts if key in figures},
        "missed": [key for key, verdict in verdicts.items() if verdict is Verdict.MISSED],
        "not_measured": [
            key for key, verdict in verdicts.items() if verdict is Verdict.NOT_MEASURED
        ],
    }


def table(figures: Figures, bars: Sequence[Bar]) -> Table:
    """Draw the bars beside what was measured."""
    styles = {Verdict.MET: "green", Verdict.MISSED: "bold red", Verdict.NOT_MEASURED: "yellow"}
    drawn = Table(show_edge=False)
    for name in ("key", "figure", "bar", ""):
        drawn.add_column(name, no_wrap=True)
    drawn.add_column("what it is")
    for bar in bars:
        verdict = bar.verdict(figures)
        figure = "–" if verdict is Verdict.NOT_MEASURED else f"{rounded(figures[bar.key]):g}"
        bound = f"{'≥' if bar.at_least else '≤'} {bar.limit:g}"
        style = styles[verdict]
        drawn.add_row(bar.key, figure, bound, f"[{style}]{verdict}[/]", bar.meaning)
    return drawn


def rounded(figure: Any) -> Any:
    """Keep four significant digits of every number, however deep; all else stays as it is."""
    if isinstance(figure, dict):
        return {key: rounded(value) for key, value in figure.items()}
    if isinstance(figure, list | tuple):
        return [rounded(value) for value in figure]
    return float(f"{figure:.4g}") if isinstance(figure, float) else figure
