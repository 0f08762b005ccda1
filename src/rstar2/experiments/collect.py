"""Collects finished runs: one table of everything, and per arm what the seeds say together.

The table's columns are told in ``finished_runs``, what a run's value is in ``seed_means``.
No torch is loaded here, so that two hundred runs are collected in about a second.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from rstar2.experiments.finished_runs import (
    CollectError,
    FinishedRun,
    join_runs,
    read_sets,
    read_steps,
)
from rstar2.experiments.seed_means import (
    SeedMean,
    Source,
    Subject,
    compare_arms,
    means_over_seeds,
)
from rstar2.records import atomic_write

__all__ = [
    "CollectError",
    "Collected",
    "FinishedRun",
    "as_json",
    "collect",
    "difference_table",
    "summary_table",
    "write_collected",
]

_SHOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sft": ("loss",),
        "rl": ("accuracy", "tool_error_in_correct", "tokens", "truncated"),
        "evaluation": (),
    }
)
"""Step metrics that are shown unasked; of other kinds of run the first few."""
_SHOWN_OF_OTHERS = 6
_SHOWN_HELD_OUT = ("accuracy",)


@dataclass(frozen=True, slots=True)
class Collected:
    """Finished runs together.

    Attributes:
        runs: The runs, each once.
        table: One row a run and step, or a run and held-out set; see ``finished_runs``.
        summary: Means over seeds; the arms of a subject follow each other.
        differences: Every arm minus the first of its kind of run, over the seeds of both.
    """

    runs: tuple[FinishedRun, ...]
    table: pa.Table
    summary: tuple[SeedMean, ...]
    differences: tuple[SeedMean, ...]


def collect(runs: Sequence[FinishedRun]) -> Collected:
    """Reads finished runs; one that is given twice counts once, in the arm that comes first.

    Raises:
        CollectError: There is no run; a file of one is missing, damaged or holds what is no
            metric; or two differ in nothing but their notebook.
    """
    once: dict[str, FinishedRun] = {}
    for run in runs:
        once.setdefault(run.run_id, run)
    if not once:
        raise CollectError("nothing is done yet: `rstar2 batch run SWEEP` makes the runs")
    chosen = tuple(once.values())
    steps = [read_steps(run) for run in chosen]
    sets = [read_sets(run) for run in chosen]
    summary = tuple(means_over_seeds(chosen, steps, sets))
    return Collected(
        chosen, join_runs(chosen, steps, sets), summary, tuple(compare_arms(chosen, summary))
    )


def write_collected(collected: Collected, path: Path) -> None:
    """Writes the table as parquet, whole or not at all; equal runs give equal bytes.

    Raises:
        RecordError: The file cannot be written.
    """
    buffer = io.BytesIO()
    pq.write_table(collected.table, buffer, compression="zstd")
    atomic_write(path, buffer.getvalue())


def summary_table(collected: Collected, metrics: Sequence[str] = ()) -> Table:
    """Means over seeds with their intervals.

    Args:
        collected: The runs.
        metrics: Patterns of metric names, as ``kept/*``; empty for a short choice.

    Raises:
        CollectError: A pattern fits no metric.
    """
    title = (
        "Mean over seeds [95% t interval]. A run's value is its mean over the last tenth of its "
        "steps; of a held-out set, the rate pooled over its problems."
    )
    return _table(title, "arm", "seeds", _choose(collected.summary, metrics))


def difference_table(collected: Collected, metrics: Sequence[str] = ()) -> Table | None:
    """Differences between arms with their intervals; None if no two arms share a seed.

    Args:
        collected: The runs.
        metrics: As for :func:`summary_table`.

    Raises:
        CollectError: A pattern fits no metric.
    """
    shown = {mean.subject for mean in _choose(collected.summary, metrics)}
    found = [mean for mean in collected.differences if mean.subject in shown]
    title = "Arm minus first arm, paired by seed [95% t interval]"
    return _table(title, "arms", "pairs", found) if found else None


def as_json(collected: Collected) -> dict[str, Any]:
    """All means and differences as plain values; null where there is no number."""
    return {
        "runs": len(collected.runs),
        "summary": [_row(mean) for mean in collected.summary],
        "differences": [_row(mean) for mean in collected.differences],
    }


def _row(mean: SeedMean) -> dict[str, Any]:
    subject, interval = mean.subject, mean.interval
    return {
        "kind": subject.kind,
        "setting": dict(subject.setting),
        "source": subject.source.value,
        "part": subject.part,
        "metric": subject.metric,
        "arm": mean.arm,
        **({} if mean.minus is None else {"minus": mean.minus}),
        "mean": _finite(interval.mean),
        "low": _finite(interval.low),
        "high": _finite(interval.high),
        "seeds": list(mean.values),
        "values": [_finite(value) for value in mean.values.values()],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _choose(means: Sequence[SeedMean], patterns: Sequence[str]) -> list[SeedMean]:
    names = {mean.subject.metric for mean in means}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(sorted(names)) or "none, for no run has a number"
            raise CollectError(f"no metric is called {pattern!r}; the metrics are: {known}")
    if patterns:
        return [m for m in means if any(fnmatchcase(m.subject.metric, p) for p in patterns)]
    shown = _unasked(mean.subject for mean in means)
    return [mean for mean in means if mean.subject in shown]


def _unasked(subjects: Iterable[Subject]) -> set[Subject]:
    """What is shown without a pattern."""
    names: dict[str, dict[str, None]] = {}
    shown = set()
    for subject in subjects:
        of_kind = names.setdefault(subject.kind, {})
        if subject.source is Source.HELD_OUT:
            wanted = subject.metric in _SHOWN_HELD_OUT
        elif subject.kind in _SHOWN:
            wanted = subject.metric in _SHOWN[subject.kind]
        else:
            of_kind.setdefault(subject.metric)
            wanted = subject.metric in list(of_kind)[:_SHOWN_OF_OTHERS]
        if wanted:
            shown.add(subject)
    return shown


def _table(title: str, arm: str, number: str, means: Sequence[SeedMean]) -> Table:
    """A row a mean; what the row above says already is left out."""
    with_arms = any(mean.arm for mean in means)
    table = Table(title=Text(title), box=None, title_justify="left", pad_edge=False)
    for header in ("run", "part", "metric", *([arm] if with_arms else [])):
        table.add_column(header, overflow="fold")
    table.add_column("mean", no_wrap=True)
    table.add_column(number, justify="right")
    above: tuple[str, ...] = ("", "", "")
    forms = _forms(means)
    for mean in means:
        subject = mean.subject
        run = ", ".join([subject.kind, *(f"{name} {value}" for name, value in subject.setting)])
        labels = (run, subject.part, subject.metric)
        new = next((i for i in range(3) if labels[i] != above[i]), 3)
        cells = ["" if i < new else label for i, label in enumerate(labels)]
        if with_arms:
            cells.append(mean.arm if mean.minus is None else f"{mean.arm} − {mean.minus}")
        shown = _show(mean, forms[subject])
        table.add_row(*map(Text, [*cells, shown, str(len(mean.values))]))
        above = labels
    return table


def _forms(means: Sequence[SeedMean]) -> dict[Subject, str]:
    """The form of the numbers of each subject, by the largest of all its arms."""
    sizes: dict[Subject, float] = {}
    for mean in means:
        numbers = (mean.interval.mean, mean.interval.low, mean.interval.high)
        finite = [abs(number) for number in numbers if math.isfinite(number)]
        sizes[mean.subject] = max([sizes.get(mean.subject, 0.0), *finite])
    forms = ((100, ".0f"), (10, ".1f"), (0.001, ".3f"), (0, ".3g"))
    return {
        subject: next(form for least, form in forms if size >= least)
        for subject, size in sizes.items()
    }


def _show(mean: SeedMean, form: str) -> str:
    """``0.534 [0.480, 0.588]``; differences with their sign."""
    interval = mean.interval
    form = form if mean.minus is None else f"+{form}"
    if math.isnan(interval.low):
        return f"{interval.mean:{form}} (no interval)"
    return f"{interval.mean:{form}} [{interval.low:{form}}, {interval.high:{form}}]"
