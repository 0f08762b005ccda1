"""Collects finished runs: one table of everything, and per arm what the seeds say together.

The table has one row a run and step, from ``metrics.parquet``, and one row a run and held-out
set, from ``evaluation.parquet`` where there is one.

=============================  =============================================================
``run run_id kind arm seed``   which run; ``seed`` is null for a run without one
``param/…``                    the notebook's parameters, but for ``seed`` and ``out``
``set``                        the held-out set; null in the row of a step
``step``, names of metrics     as the run wrote them; null where it has none
=============================  =============================================================

A metric whose name is one of these columns is called ``metric/NAME``. A column that is text in
one run is text in all.

A run's value of a metric is its mean over the last tenth of the run's steps (at least one), in
each phase if the rows name a ``phase``; of a held-out set it is the rate pooled over the
problems. Steps at which a metric is undefined (NaN or null) are left out.

No torch is loaded here, so that two hundred runs are collected in about a second.
"""

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.errors import UserError
from rstar2.records import atomic_write

Setting = tuple[tuple[str, Any], ...]
"""Name and value of the parameters in which runs of one kind and arm differ, but the seed."""

_FACTS = ("run", "run_id", "kind", "arm", "seed", "set")
_PARAM = "param/"
_NO_MEAN = frozenset({"step", "stage"})
"""Columns that say when, not how well."""
_NO_SETTING = frozenset({"seed", "out"})
_ALWAYS_SETTING = frozenset({"stage", "size"})
"""Never what makes an arm: runs that differ here are neither averaged nor compared."""

_RATES = (
    ("accuracy", "correct", "samples"),
    ("tool_error_in_correct", "errors_in_correct", "calls_in_correct"),
    ("tokens", "tokens", "samples"),
    ("tokens_in_correct", "tokens_in_correct", "correct"),
    ("truncated", "truncated", "samples"),
)
"""Name, part and whole of each rate of a held-out set."""
_COUNTS = tuple(sorted({name for _, *pair in _RATES for name in pair}))


class CollectError(UserError):
    """There is nothing to collect, a run cannot be read, or no metric has that name."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is done.

    Attributes:
        name: What people call it.
        run_id: Its hash.
        arm: Label of the sweep's arm; empty if the sweep has none.
        seed: Its seed, if it has one.
        kind: ``sft``, ``rl``, ``mining``, ``evaluation``, or another notebook's own name: runs of
            two notebooks have two kinds.
        folder: Where ``metrics.parquet`` stands.
        params: The notebook's parameters, JSON values.
    """

    name: str
    run_id: str
    arm: str
    seed: int | None
    kind: str
    folder: Path
    params: Mapping[str, Any]


class Source(StrEnum):
    """What a run's value is made of."""

    LAST_STEPS = "last steps"
    """Mean over the last tenth of the steps, at least one."""
    HELD_OUT = "held out"
    """Rate pooled over the problems of a held-out set."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured; arms are compared within a subject.

    Attributes:
        kind: Kind of the runs.
        setting: What else tells the runs apart.
        source: What a run's value is made of.
        part: The held-out set or the phase; empty if there is none.
        metric: Name of the metric.
    """

    kind: str
    setting: Setting
    source: Source
    part: str
    metric: str


@dataclass(frozen=True, slots=True)
class SeedMean:
    """A metric of one arm over seeds, or its difference from another arm, paired by seed.

    Attributes:
        subject: What is measured.
        arm: Label of the arm.
        minus: The arm that is subtracted; None if none is.
        values: The value of each seed that has one; a run without a seed has the seed None.
        interval: Mean and 95% t interval; its ends are NaN for one seed, or if a value is
            infinite.
    """

    subject: Subject
    arm: str
    minus: str | None
    values: Mapping[int | None, float]
    interval: Interval


@dataclass(frozen=True, slots=True)
class Collected:
    """Finished runs together.

    Attributes:
        runs: The runs, each once.
        table: One row a run and step, or a run and held-out set; see the module.
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
    steps = [_read_steps(run) for run in chosen]
    sets = [_read_sets(run) for run in chosen]
    summary = tuple(_summary(chosen, steps, sets))
    return Collected(chosen, _join(chosen, steps, sets), summary, tuple(_compare(chosen, summary)))


def write_collected(collected: Collected, path: Path) -> None:
    """Writes the table as parquet, whole or not at all; equal runs give equal bytes.

    Raises:
        RecordError: The file cannot be written.
    """
    buffer = io.BytesIO()
    pq.write_table(collected.table, buffer, compression="zstd")
    atomic_write(path, buffer.getvalue())


def pooled_rates(totals: Mapping[str, float]) -> dict[str, float]:
    """Rates of a held-out set from the sums of ``evaluation.parquet`` over its problems.

    Returns:
        ``accuracy``: right rollouts over rollouts; ``tool_error_in_correct``: failed calls over
        calls, in right rollouts; ``tokens``, ``tokens_in_correct``: model tokens a rollout, a
        right one; ``truncated``: share ended by a limit. NaN where the whole is 0.
    """
    return {
        name: float(totals[part]) / float(totals[whole]) if totals[whole] else math.nan
        for name, part, whole in _RATES
    }


# --- reading -----------------------------------------------------------------------------


def _read_steps(run: FinishedRun) -> pa.Table:
    path = run.folder / "metrics.parquet"
    table = _read(path)
    columns = {}
    for name in table.column_names:
        taken = name in _FACTS or name.startswith(_PARAM)
        columns[f"metric/{name}" if taken else name] = _metric(table[name], name, path)
    return pa.table(columns)


def _read_sets(run: FinishedRun) -> pa.Table:
    """One row a held-out set; none if the run was not evaluated."""
    path = run.folder / "evaluation.parquet"
    if run.kind != "evaluation" and not path.exists():
        return pa.table({})
    table = _read(path)
    if missing := {"problem_set", *_COUNTS} - set(table.column_names):
        raise _unusable(path, f"it lacks {', '.join(sorted(missing))}")
    grouped = table.group_by("problem_set", use_threads=False)
    totals = grouped.aggregate([(name, "sum") for name in _COUNTS]).to_pylist()
    rates = [pooled_rates({name: row[f"{name}_sum"] for name in _COUNTS}) for row in totals]
    names = pa.array([row["problem_set"] for row in totals], pa.string())
    columns = {name: pa.array([row[name] for row in rates], pa.float64()) for name, _, _ in _RATES}
    return pa.table({"set": names, **columns})


def _read(path: Path) -> pa.Table:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise _unusable(path, "it is missing") from error
    except OSError as error:
        raise CollectError(
            f"cannot read {path}: {error.strerror}; check that it is a file of yours"
        ) from error
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # Arrow's own, no file's
        raise _unusable(path, f"it is no whole parquet file: {error}") from error
    return table


def _metric(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind):
        return _cast(column, pa.int64())
    if pa.types.is_floating(kind) or pa.types.is_null(kind):
        return _cast(column, pa.float64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _cast(column, pa.string())
    raise _unusable(path, f"{name!r} is {kind}, and a metric is a number or text")


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind, safe=False)


def _unusable(path: Path, fault: str) -> CollectError:
    return CollectError(f"{path}: {fault}; remove {path.parent} and run it again")


# --- the table ---------------------------------------------------------------------------


def _join(
    runs: Sequence[FinishedRun], steps: Sequence[pa.Table], sets: Sequence[pa.Table]
) -> pa.Table:
    parts = [part for pair in zip(steps, sets, strict=True) for part in pair]
    types: dict[str, pa.DataType] = {"set": pa.string(), "step": pa.int64()}
    for part in parts:
        for field in part.schema:
            types[field.name] = _wider(types.get(field.name, field.type), field.type)
    metrics = pa.concat_tables([_widened(part, types) for part in parts])
    owners = np.repeat(np.arange(len(parts)) // 2, [part.num_rows for part in parts])
    table = _facts(runs).take(pa.array(owners))
    for name in types:
        table = table.append_column(name, metrics[name])
    return table


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    order = (pa.int64(), pa.float64(), pa.string())
    return max(one, other, key=order.index)


def _widened(part: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    have = set(part.column_names)
    columns = {
        name: _cast(part[name], kind) if name in have else pa.nulls(part.num_rows, kind)
        for name, kind in types.items()
    }
    return pa.table(columns)


def _facts(runs: Sequence[FinishedRun]) -> pa.Table:
    """One row a run."""
    params = dict.fromkeys(name for run in runs for name in run.params if name not in _NO_SETTING)
    return pa.table(
        {
            "run": [run.name for run in runs],
            "run_id": [run.run_id for run in runs],
            "kind": [run.kind for run in runs],
            "arm": [run.arm for run in runs],
            "seed": pa.array([run.seed for run in runs], pa.int64()),
            **{
                f"{_PARAM}{name}": _param([run.params.get(name) for run in runs]) for name in params
            },
        }
    )


def _param(values: Sequence[Any]) -> pa.Array:
    """A column of a parameter; JSON text if it is not of one plain type."""
    kinds = {type(value) for value in values if value is not None}
    if kinds in ({bool}, {int}, {float}, {str}):
        return pa.array(values)
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    return pa.array([None if value is None else _json(value) for value in values], pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# --- over seeds --------------------------------------------------------------------------


def _summary(
    runs: Sequence[FinishedRun], steps: Sequence[pa.Table], sets: Sequence[pa.Table]
) -> Iterator[SeedMean]:
    found: dict[Subject, dict[str, dict[int | None, float]]] = {}
    owners: dict[tuple[str, Setting, str, int | None], FinishedRun] = {}
    names = _setting_names(runs)
    for run, step_table, set_table in zip(runs, steps, sets, strict=True):
        setting = _setting(run, names[run.kind])
        other = owners.setdefault((run.kind, setting, run.arm, run.seed), run)
        if other is not run:
            raise CollectError(
                f"{other.name} ({other.run_id}) and {run.name} ({run.run_id}) have the same seed "
                "and parameters, so they are of two notebooks: give each a sweep of its own"
            )
        for source, part, metric, value in (*_last_steps(step_table), *_held_out(set_table)):
            subject = Subject(run.kind, setting, source, part, metric)
            found.setdefault(subject, {}).setdefault(run.arm, {})[run.seed] = value
    for subject in _in_order(found):
        for arm, values in found[subject].items():
            yield SeedMean(subject, arm, None, values, _interval(list(values.values())))


def _compare(runs: Sequence[FinishedRun], summary: Sequence[SeedMean]) -> Iterator[SeedMean]:
    first: dict[str, str] = {}
    for run in runs:
        first.setdefault(run.kind, run.arm)
    found = {(mean.subject, mean.arm): mean.values for mean in summary}
    for mean in summary:
        minus = first[mean.subject.kind]
        others = found.get((mean.subject, minus), {})
        values = {seed: v - others[seed] for seed, v in mean.values.items() if seed in others}
        if values and mean.arm != minus:
            interval = _interval(list(values.values()))
            yield SeedMean(mean.subject, mean.arm, minus, values, interval)


def _setting_names(runs: Sequence[FinishedRun]) -> dict[str, list[str]]:
    """The parameters of each kind of run whose values differ within an arm, by name."""
    seen: dict[tuple[str, str, str], set[str | None]] = {}
    names = sorted({name for run in runs for name in run.params} - _NO_SETTING)
    for run in runs:
        for name in names:
            arm = "" if name in _ALWAYS_SETTING else run.arm
            value = _json(run.params[name]) if name in run.params else None
            seen.setdefault((run.kind, name, arm), set()).add(value)
    differ = {(kind, name) for (kind, name, _), values in seen.items() if len(values) > 1}
    return {run.kind: [name for name in names if (run.kind, name) in differ] for run in runs}


def _setting(run: FinishedRun, names: Sequence[str]) -> Setting:
    values = {name: run.params[name] for name in names if name in run.params}
    plain = (bool, int, float, str)
    return tuple((k, v if isinstance(v, plain) else _json(v)) for k, v in values.items())


def _last_steps(table: pa.Table) -> Iterator[tuple[Source, str, str, float]]:
    names = [field.name for field in table.schema if field.type != pa.string()]
    names = [name for name in names if name not in _NO_MEAN]
    if not names:
        return
    values = np.column_stack(
        [table[name].to_numpy().astype(np.float64, copy=False) for name in names]
    )
    for phase, rows in _phases(table).items():
        last = values[rows[-max(1, len(rows) // 10) :]]
        defined = ~np.isnan(last)
        totals = np.where(defined, last, 0.0).sum(axis=0)
        for name, total, count in zip(names, totals, defined.sum(axis=0), strict=True):
            if count:
                yield Source.LAST_STEPS, phase, name, float(total / count)


def _phases(table: pa.Table) -> dict[str, list[int]]:
    """The rows of each phase; one phase without a name if the run has none."""
    if "phase" not in table.column_names or table["phase"].type != pa.string():
        return {"": list(range(table.num_rows))} if table.num_rows else {}
    rows: dict[str, list[int]] = {}
    for row, phase in enumerate(table["phase"].to_pylist()):
        rows.setdefault(phase or "", []).append(row)
    return rows


def _held_out(table: pa.Table) -> Iterator[tuple[Source, str, str, float]]:
    for row in table.to_pylist():
        for name, _, _ in _RATES:
            if not math.isnan(row[name]):
                yield Source.HELD_OUT, row["set"], name, row[name]


def _in_order(subjects: Mapping[Subject, Any]) -> list[Subject]:
    """As they came, but kind by kind, setting by setting, part by part."""
    ranks = []
    for key in map(attrgetter, ("kind", "setting", "source", "part")):
        values = dict.fromkeys(map(key, subjects))
        ranks.append((key, {value: rank for rank, value in enumerate(values)}))
    return sorted(subjects, key=lambda subject: [rank[key(subject)] for key, rank in ranks])


def _interval(values: Sequence[float]) -> Interval:
    if all(map(math.isfinite, values)):
        return mean_interval(values)
    return Interval(sum(values) / len(values), math.nan, math.nan)


# --- what people read --------------------------------------------------------------------

_SHOWN = {
    "sft": ("loss",),
    "rl": ("accuracy", "tool_error_in_correct", "tokens", "truncated"),
    "evaluation": (),
}
"""Step metrics that are shown unasked; of other kinds of run the first few."""
_SHOWN_OF_OTHERS = 6
_SHOWN_HELD_OUT = ("accuracy",)


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
