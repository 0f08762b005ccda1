"""What several chapters say and draw in the same words."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from IPython.display import Markdown, display
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rstar2.book.provenance import provenance_line, provenance_summary
from rstar2.experiments.curves import Finding
from rstar2.experiments.report import Record

FOUND: Mapping[Finding, str] = MappingProxyType(
    {
        Finding.LOWER: "the interval lies below 0",
        Finding.HIGHER: "the interval lies above 0",
        Finding.UNDECIDED: "the interval contains 0",
        Finding.NO_INTERVAL: "too few seeds for an interval",
    }
)
"""What a comparison found, in words."""


def say(text: str) -> None:
    """Shows a sentence that a cell has computed, as Markdown."""
    display(Markdown(text))


def missing(what: str) -> None:
    """Says that a part of the page waits for its records."""
    say(f"*There is no record of {what} yet; `make results` makes them.*")


def source(records: Sequence[Record]) -> str:
    """Says from which runs the numbers of a table or a sentence come.

    Raises:
        ValueError: There is no run, or as ``provenance_line``.
    """
    runs = [record.run for record in records]
    line = provenance_line(runs[0]) if len(runs) == 1 else provenance_summary(runs)
    return f"Source: {line}."


def legend_above(fig: Figure, *axes: Axes, columns: int = 2) -> None:
    """Puts one legend above the figure; a label that several axes have stands once."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    fig.legend(list(found.values()), list(found), loc="outside upper center", ncols=columns)
