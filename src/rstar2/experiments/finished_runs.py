"""Reads finished runs and joins them: one row a run and step, or a run and held-out set.

=============================  =============================================================
``run run_id kind arm seed``   which run; ``seed`` is null for a run without one
``param/…``                    the notebook's parameters, but for ``seed`` and ``out``
``set``                        the held-out set; null in the row of a step
``step``, names of metrics     as the run wrote them; null where it has none
=============================  =============================================================

A metric whose name is one of these columns is called ``metric/NAME``. A column that is text in
one run is text in all.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rstar2.errors import UserError
from rstar2.experiments.plans import Kind
from rstar2.experiments.sweeps import Task

NO_SETTING = frozenset({"seed", "out"})
"""Parameters that say nothing of what a run does: its seed has a column of its own."""

_FACTS = ("run", "run_id", "kind", "arm", "seed", "set")
_PARAM = "param/"

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


def finished_runs(tasks: Sequence[Task]) -> list[FinishedRun]:
    """The runs of a sweep that are done."""
    return [
        FinishedRun(
            name=task.plan.name,
            run_id=task.plan.run_id,
            arm=task.arm,
            seed=task.seed,
            kind=(
                task.plan.notebook.stem if task.plan.kind is Kind.NOTEBOOK else task.plan.kind.value
            ),
            folder=task.plan.folder,
            params=task.plan.params,
        )
        for task in tasks
        if task.plan.is_done
    ]


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


def read_steps(run: FinishedRun) -> pa.Table:
    """One row a step: int64, float64 or text.

    Raises:
        CollectError: The file is missing, damaged or holds what is no metric.
    """
    path = run.folder / "metrics.parquet"
    table = _read(path)
    columns = {}
    for name in table.column_names:
        taken = name in _FACTS or name.startswith(_PARAM)
        columns[f"metric/{name}" if taken else name] = _metric(table[name], name, path)
    return pa.table(columns)


def read_sets(run: FinishedRun) -> pa.Table:
    """One row a held-out set; none if the run was not evaluated.

    Raises:
        CollectError: The file is damaged, or that of an evaluation is missing.
    """
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


def join_runs(
    runs: Sequence[FinishedRun], steps: Sequence[pa.Table], sets: Sequence[pa.Table]
) -> pa.Table:
    """All rows of all runs, those of a run together."""
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
    params = dict.fromkeys(name for run in runs for name in run.params if name not in NO_SETTING)
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
    return pa.array([None if value is None else as_text(value) for value in values], pa.string())


def as_text(value: Any) -> str:
    """A parameter as JSON."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
