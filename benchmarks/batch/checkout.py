"""A checkout with a sweep of a notebook that does nothing, and the folders of its runs."""

import json
import random
import shutil
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

import yaml

from rstar2.experiments.standing import Standing
from rstar2.experiments.sweeps import Task, load_sweep
from rstar2.experiments.worker import working_on
from rstar2.records import RunFolder, RunState, RunStoppedError, atomic_write

ROOT = Path(__file__).resolve().parents[2]
SWEEP = "nothing"
STEPS, METRICS = 20, 10

_STANDINGS = (*[Standing.DONE] * 14, *[Standing.STOPPED] * 2, *[Standing.FAILED] * 2)
_CYCLE = (*_STANDINGS, *[Standing.TODO] * 2)
"""How twenty runs that follow each other stand."""

_NOTEBOOK = """\
seed: int = 0
run_dir: str = ""
"""


def make_checkout(root: Path, runs: int) -> dict[Standing, int]:
    """Copies what the commands read, writes the sweep, and makes the folders of its runs.

    Args:
        root: The folder to be made.
        runs: Runs of the sweep.

    Returns:
        Runs of each standing.
    """
    for name in ("presets", "notebooks", "sweeps"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    cell: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {"tags": ["parameters"]},
        "source": _NOTEBOOK,
        "outputs": [],
        "execution_count": None,
    }
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (root / "notebooks" / f"{SWEEP}.ipynb").write_text(json.dumps(content))
    sweep = {"seeds": list(range(runs)), "runs": [{"notebook": SWEEP}]}
    (root / "sweeps" / f"{SWEEP}.yaml").write_text(yaml.safe_dump(sweep))
    made: Counter[Standing] = Counter()
    with chdir(root):
        for task in load_sweep(SWEEP).tasks:
            standing = _CYCLE[task.number % len(_CYCLE)]
            _leave(task, standing)
            made[standing] += 1
    return dict(made)


def _leave(task: Task, standing: Standing) -> None:
    """Leaves a run as its worker does."""
    if standing is Standing.TODO:
        return
    try:
        with working_on(task.plan) as folder:
            if standing is Standing.STOPPED:
                raise RunStoppedError("it was asked to")
            if standing is Standing.FAILED:
                raise ValueError("it was to fail")
            _finish(folder, task.number)
    except (RunStoppedError, ValueError):
        if RunFolder.open(task.plan.folder).state.value != standing.value:
            raise


def _finish(folder: RunFolder, seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        {"step": step, **{f"metric_{number}": rng.random() for number in range(METRICS)}}
        for step in range(1, STEPS + 1)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    atomic_write(folder.metrics.path, lines.encode())
    folder.metrics.to_parquet(folder.metrics_parquet)
    folder.update(RunState.DONE, wall_seconds=60.0)
