"""What the run notebooks show of a finished run, or of all runs of a sweep, as tables."""

from collections.abc import Sequence

import pandas as pd
from rich.table import Table

from rstar2.experiments.collect import Collected, difference_table, summary_table
from rstar2.experiments.finished_runs import FinishedRun, as_text, pooled_rates, read_steps
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.progress import read_progress
from rstar2.experiments.progress_view import duration, place
from rstar2.experiments.standing import Standing, View, view
from rstar2.experiments.sweeps import Task
from rstar2.records import RunFolder

_ONE_CURVE = frozenset({"seed", "stage", "out"})
"""Parameters in which the runs of one curve may differ: the stages of a run follow each other."""


def loss_summary(folder: RunFolder) -> pd.DataFrame:
    """Mean loss of the first and the last tenth of each phase, in nats per counted token."""
    table = pd.read_parquet(folder.metrics_parquet)
    rows = []
    for phase, part in table.groupby("phase", sort=False):
        tenth = max(1, len(part) // 10)
        first, last = part["loss"].head(tenth).mean(), part["loss"].tail(tenth).mean()
        rows.append({"phase": phase, "steps": len(part), "first": first, "last": last})
    return pd.DataFrame(rows).round(3)


def stage_summary(folder: RunFolder) -> pd.DataFrame:
    """Means of each stage of an arm."""
    table = pd.read_parquet(folder.metrics_parquet)
    names = ["accuracy", "tool_error_in_correct", "tokens", "truncated", "groups_used"]
    names.append("kept/entropy")
    means = table.groupby("stage")[names].mean()
    return means.assign(steps=table.groupby("stage").size()).round(3).reset_index()


def mining_summary(folder: RunFolder) -> pd.DataFrame:
    """Problems tried, and those that were not solved every time."""
    table = pd.read_parquet(folder.metrics_parquet)
    return table[["candidates", "hard"]].assign(share=table["hard"] / table["candidates"]).round(3)


def evaluation_summary(folder: RunFolder) -> pd.DataFrame:
    """Accuracy, tool errors in right rollouts and tokens of each held-out set.

    One sentence if another run evaluates this one.
    """
    path = folder.path / "evaluation.parquet"
    if not path.exists():
        return pd.DataFrame({"evaluation": ["another run evaluates this one"]})
    table = pd.read_parquet(path)
    rows = []
    for name, part in table.groupby("problem_set", sort=False):
        totals = part.sum(numeric_only=True)
        rates = pooled_rates({str(count): float(value) for count, value in totals.items()})
        rows.append(
            {
                "set": name,
                "problems": len(part),
                "accuracy": rates["accuracy"],
                "tool errors in correct": rates["tool_error_in_correct"],
                "tokens": rates["tokens"],
            }
        )
    return pd.DataFrame(rows).round(3)


def standing_summary(tasks: Sequence[Task]) -> pd.DataFrame:
    """How every run of a sweep stands, a row a task: its time, its place, or why it failed.

    Raises:
        RecordError: A ``run.json`` cannot be read.
    """
    rows = []
    for task in tasks:
        now = view(task.plan)
        rows.append(
            {
                "task": task.number,
                "run": task.plan.name,
                "id": task.plan.run_id,
                "state": now.standing.value,
                "what": _what(task.plan, now),
            }
        )
    return pd.DataFrame(rows)


def mean_summary(collected: Collected) -> pd.DataFrame:
    """Means over seeds with 95% t intervals, as ``rstar2 batch collect`` shows them."""
    return _frame(summary_table(collected))


def difference_summary(collected: Collected) -> pd.DataFrame:
    """Every arm minus the first, paired by seed, with 95% t intervals.

    One sentence if no two arms share a seed.
    """
    table = difference_table(collected)
    if table is None:
        return pd.DataFrame({"difference": ["no two arms that are done share a seed"]})
    return _frame(table)


def training_curves(runs: Sequence[FinishedRun], metric: str) -> dict[str, pd.DataFrame]:
    """A metric of the RL runs, a curve for each arm and setting.

    Args:
        runs: Finished runs of any kind.
        metric: A column of ``metrics.parquet``.

    Returns:
        For each label a row a step and a column a seed, NaN where there is no value; none
        without RL runs.

    Raises:
        CollectError: A file of a run is missing or damaged.
        KeyError: A run has no such metric.
    """
    trained = [run for run in runs if run.kind == Kind.RL]
    parts: dict[str, list[pd.DataFrame]] = {}
    for run in trained:
        steps = read_steps(run).select(["step", metric]).to_pandas().assign(seed=run.seed)
        parts.setdefault(_label(run, trained), []).append(steps)
    # A stage that is also part of a run of all stages has the same numbers there.
    return {
        label: pd.concat(some)
        .drop_duplicates(["seed", "step"])
        .pivot(index="step", columns="seed", values=metric)
        for label, some in parts.items()
    }


def _what(plan: Plan, now: View) -> str:
    match now.standing:
        case Standing.DONE:
            return "" if now.wall_seconds is None else duration(now.wall_seconds)
        case Standing.FAILED:
            return now.error
        case Standing.TODO:
            return ""
        case Standing.WAITING:
            assert plan.needs is not None
            return f"for {plan.needs.name}"
    return place(read_progress(plan.folder))


def _frame(table: Table) -> pd.DataFrame:
    """The cells of a table that is made for a terminal."""
    return pd.DataFrame(
        {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    )


def _label(run: FinishedRun, runs: Sequence[FinishedRun]) -> str:
    """Its arm, and the parameters in which other runs of the arm differ from it."""
    mates = [one for one in runs if one.arm == run.arm]
    said = [
        f"{name} {as_text(value)}"
        for name, value in run.params.items()
        if name not in _ONE_CURVE
        and any(as_text(one.params.get(name)) != as_text(value) for one in mates)
    ]
    return ", ".join([run.arm, *said])
