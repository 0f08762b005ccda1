"""The bars, what was measured against them, and the record of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any

from rich.table import Table

from rstar2.records import provenance

Figures = Mapping[str, float | list[float]]
"""What was measured, by key: numbers, and the lists that the book's figure is drawn from."""

LIBRARIES = ("numpy", "scipy", "sympy")


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


def bars(slots: int) -> tuple[Bar, ...]:
    """List the bars of a sandbox with so many slots."""
    fds = 64 + 4 * slots
    return (
        Bar("print_over_fork_floor", 2.5, "print, full tier, over a bare fork of its zygote"),
        Bar("bare_print_cpu_over_cold", 0.25, "CPU of a print over that of python -c"),
        Bar("jail_over_nojail", 1.15, "time in the jail over time without, worst of three"),
        Bar("print_rate_over_cold", 4, "prints a second over python -c", at_least=True),
        Bar("sympy_rate_over_cold", 25, "sympy solves a second over python -c", at_least=True),
        Bar("print_rate_over_codejudge", 3, "prints a second over code-judge", at_least=True),
        Bar("sympy_rate_over_codejudge", 12, "sympy solves a second over it", at_least=True),
        Bar("pending_bytes", 1600, "memory of a waiting call beside its program, bytes"),
        Bar("pending_wrong", 0, "of 45,000 calls at once, those that went wrong"),
        Bar("pending_fds", fds, "file descriptors at most meanwhile"),
        Bar("chaos_visible_failures", 0, "failed calls of 600 while zygotes are killed"),
        Bar("chaos_orphans", 0, "processes that outlive a killed zygote"),
        Bar("fair_false_timeouts", 0, "of 12 jobs at once, timeouts that were not theirs"),
        Bar("sleeper_killed_s", 1.2, "seconds until a sleeper's timeout of 1 s is known"),
        Bar("http_cpu_ms_batch32", 0.05, "CPU of the HTTP service per call in batches of 32, ms"),
    )


def make_record(figures: Figures, bars: Sequence[Bar], **facts: str | int | bool) -> dict[str, Any]:
    """Put together what is written: figures, verdicts, and where they come from.

    Args:
        figures: What was measured.
        bars: What it is held against.
        facts: What else decides the numbers, by key.
    """
    return {
        **facts,
        **headline(figures, bars),
        **{key: _rounded(figure) for key, figure in figures.items()},
        "libraries": {name: version(name) for name in LIBRARIES},
        "provenance": provenance().as_dict(),
    }


def as_json(record: Mapping[str, Any]) -> bytes:
    """Write a record with one key on each line, however long its list."""
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def headline(figures: Figures, bars: Sequence[Bar]) -> dict[str, Any]:
    """Give the figures that have bars, and the keys of the bars that are not met."""
    verdicts = {bar.key: bar.verdict(figures) for bar in bars}
    return {
        **{key: _rounded(figures[key]) for key in verdicts if key in figures},
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
        figure = "–" if verdict is Verdict.NOT_MEASURED else f"{_rounded(figures[bar.key]):g}"
        bound = f"{'≥' if bar.at_least else '≤'} {bar.limit:g}"
        style = styles[verdict]
        drawn.add_row(bar.key, figure, bound, f"[{style}]{verdict}[/]", bar.meaning)
    return drawn


def _rounded(figure: float | list[float]) -> Any:
    """Keep four significant digits, and counts as they are; a list is rounded where it is made."""
    return float(f"{figure:.4g}") if isinstance(figure, float) else figure
