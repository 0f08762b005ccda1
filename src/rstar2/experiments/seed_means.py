"""What the seeds of each arm say together: a mean with its interval, and arms compared.

A run's value of a metric is its mean over the last tenth of the run's steps (at least one), in
each phase if the rows name a ``phase``; of a held-out set it is the rate pooled over the
problems. Steps at which a metric is undefined (NaN or null) are left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.experiments.finished_runs import NO_SETTING, CollectError, FinishedRun, as_text

Setting = tuple[tuple[str, Any], ...]
"""Name and value of the parameters in which runs of one kind and arm differ, but the seed."""

_NO_MEAN = frozenset({"step", "stage"})
"""Columns that say when, not how well."""
_ALWAYS_SETTING = frozenset({"stage", "size"})
"""Never what makes an arm: runs that differ here are neither averaged nor compared."""


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


def means_over_seeds(
    runs: Sequence[FinishedRun], steps: Sequence[pa.Table], sets: Sequence[pa.Table]
) -> Iterator[SeedMean]:
    """Means of every metric; the arms of a subject follow each other.

    Args:
        runs: The runs, each once.
        steps: Of each run, its ``read_steps``.
        sets: Of each run, its ``read_sets``.

    Raises:
        CollectError: Two runs differ in nothing but their notebook.
    """
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


def compare_arms(runs: Sequence[FinishedRun], summary: Sequence[SeedMean]) -> Iterator[SeedMean]:
    """Every arm minus the first of its kind of run, over the seeds that both have."""
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
    names = sorted({name for run in runs for name in run.params} - NO_SETTING)
    for run in runs:
        for name in names:
            arm = "" if name in _ALWAYS_SETTING else run.arm
            value = as_text(run.params[name]) if name in run.params else None
            seen.setdefault((run.kind, name, arm), set()).add(value)
    differ = {(kind, name) for (kind, name, _), values in seen.items() if len(values) > 1}
    return {run.kind: [name for name in names if (run.kind, name) in differ] for run in runs}


def _setting(run: FinishedRun, names: Sequence[str]) -> Setting:
    values = {name: run.params[name] for name in names if name in run.params}
    plain = (bool, int, float, str)
    return tuple((k, v if isinstance(v, plain) else as_text(v)) for k, v in values.items())


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
        for name, rate in row.items():
            if name != "set" and not math.isnan(rate):
                yield Source.HELD_OUT, row["set"], name, rate


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
