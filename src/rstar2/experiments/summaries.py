"""What the run notebooks show of a finished run, as tables."""

import pandas as pd

from rstar2.records import RunFolder


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
    totals = table.groupby("problem_set", sort=False).sum(numeric_only=True)
    return pd.DataFrame(
        {
            "set": totals.index,
            "problems": table.groupby("problem_set", sort=False).size().to_numpy(),
            "accuracy": (totals["correct"] / totals["samples"]).to_numpy(),
            "tool errors in correct": (
                totals["errors_in_correct"] / totals["calls_in_correct"]
            ).to_numpy(),
            "tokens": (totals["tokens"] / totals["samples"]).to_numpy(),
        }
    ).round(3)
