"""What the report of a batch shows: how runs stand, means over seeds, curves of the arms."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from rstar2.experiments import summaries, worker
from rstar2.experiments.collect import collect
from rstar2.experiments.finished_runs import finished_runs
from rstar2.experiments.plans import Plan
from rstar2.experiments.progress import ProgressFile
from rstar2.experiments.sweeps import Task, load_sweep
from rstar2.records import RunFolder, RunState, RunStoppedError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path) -> Path:
    """A checkout of its own, without runs, in which the test stands."""
    return own_checkout


def tasks_of(checkout: Path, **spec: object) -> tuple[Task, ...]:
    """A sweep of preset test over both arms: SFT, then what ``runs`` says of RL."""
    sweep = {"preset": "test", "seeds": [0, 1], "arms": ["grpo", "grpo-roc"], **spec}
    (checkout / "sweeps" / "mine.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    return load_sweep("mine").tasks


def rl(**params: object) -> dict[str, object]:
    return {"notebook": "11_run_rl", "with": {"evaluation": "none", **params}}


SFT = {"notebook": "10_run_sft", "with": {"evaluation": "none"}}


def finish(plan: Plan, accuracy: Sequence[float], first: int = 1) -> None:
    """Gives an RL run a record with a step for each value."""
    with worker.working_on(plan) as folder:
        for step, value in enumerate(accuracy, start=first):
            row = {"accuracy": value, "tool_error_in_correct": math.nan, "tokens": 10.0}
            folder.metrics.append({"step": step, "stage": 1, "truncated": 0.0, **row})
        folder.metrics.to_parquet(folder.metrics_parquet)
        folder.update(RunState.DONE, wall_seconds=61.0)


def test_every_run_of_a_sweep_has_a_row_that_says_how_it_stands(checkout: Path) -> None:
    tasks = tasks_of(checkout, seeds=[0], runs=[SFT, rl()])
    sft, grpo, roc = (task.plan for task in tasks)
    before = summaries.standing_summary(tasks)
    assert before["task"].tolist() == [0, 1, 2]
    assert before["id"].tolist() == [plan.run_id for plan in (sft, grpo, roc)]
    assert before["state"].tolist() == ["todo", "waiting", "waiting"]
    assert before["what"].tolist() == ["", "for test-seed0-sft", "for test-seed0-sft"]
    finish(sft, [0.0])
    with pytest.raises(ZeroDivisionError), worker.working_on(grpo):
        raise ZeroDivisionError("by nothing")
    with pytest.raises(RunStoppedError), worker.working_on(roc):
        raise RunStoppedError("asked")
    ProgressFile(roc.folder, {"RL": 1.0}).report("RL", 1, 4)
    after = summaries.standing_summary(tasks)
    assert after["state"].tolist() == ["done", "failed", "stopped"]
    assert after["what"].tolist() == ["61 s", "ZeroDivisionError: by nothing", "RL 1/4 · 25%"]


def test_a_run_at_work_says_where_it_is(checkout: Path) -> None:
    tasks = tasks_of(checkout, seeds=[0], runs=[SFT])
    with worker.working_on(tasks[0].plan) as folder:
        ProgressFile(folder.path, {"sft": 1.0}).report("sft", 1, 2)
        row = summaries.standing_summary(tasks).iloc[0]
        folder.metrics.append({"step": 1})
        folder.metrics.to_parquet(folder.metrics_parquet)
        folder.update(RunState.DONE)
    assert (row["state"], row["what"]) == ("running", "sft 1/2 · 50%")


def test_only_what_is_done_is_collected_under_the_arm_of_the_sweep(checkout: Path) -> None:
    arms = {"plain": {"arm": "grpo"}, "chosen": {"arm": "grpo-roc"}}
    tasks = tasks_of(checkout, seeds=[0], arms=arms, runs=[rl()])
    assert finished_runs(tasks) == []
    finish(tasks[1].plan, [0.5])
    (run,) = finished_runs(tasks)
    assert (run.name, run.arm, run.seed, run.kind) == ("test-seed0-grpo-roc", "chosen", 0, "rl")
    assert run.folder == tasks[1].plan.folder


def test_means_and_differences_are_tables_of_text(checkout: Path) -> None:
    tasks = tasks_of(checkout, runs=[rl()])
    for task, accuracy in zip(tasks, (0.2, 0.4, 0.4, 0.6), strict=True):
        finish(task.plan, [accuracy])
    collected = collect(finished_runs(tasks))
    means = summaries.mean_summary(collected)
    assert list(means) == ["run", "part", "metric", "arm", "mean", "seeds"]
    row = means.iloc[0]
    assert (row["run"], row["metric"], row["arm"], row["seeds"]) == ("rl", "accuracy", "grpo", "2")
    assert row["mean"].startswith("0.300 [")
    differences = summaries.difference_summary(collected)
    assert differences.iloc[0]["arms"] == "grpo-roc − grpo"
    assert differences.iloc[0]["mean"] == "+0.200 [+0.200, +0.200]"
    assert not means.map(lambda cell: "\x1b" in cell).to_numpy().any(), "no codes of a terminal"


def test_arms_without_a_common_seed_are_not_compared_and_that_is_said(checkout: Path) -> None:
    tasks = tasks_of(checkout, runs=[rl()])
    finish(tasks[0].plan, [0.1])
    finish(tasks[3].plan, [0.1])
    collected = collect(finished_runs(tasks))
    table = summaries.difference_summary(collected)
    assert table.to_numpy().tolist() == [["no two arms that are done share a seed"]]


# --- curves -------------------------------------------------------------------------------


def test_a_curve_has_a_row_a_step_and_a_column_a_seed(checkout: Path) -> None:
    tasks = tasks_of(checkout, runs=[SFT, rl()])
    for task in tasks:
        if task.arm != "sft":
            finish(task.plan, [0.1 * len(task.arm), 0.2 + task.plan.params["seed"]])
    found = summaries.training_curves(finished_runs(tasks), "accuracy")
    assert list(found) == ["grpo", "grpo-roc"]
    for arm, frame in found.items():
        assert frame.index.tolist() == [1, 2]
        assert frame.columns.tolist() == [0, 1]
        assert frame[1].tolist() == [0.1 * len(arm), 1.2]


def test_a_seed_that_is_not_done_yet_leaves_the_others(checkout: Path) -> None:
    tasks = tasks_of(checkout, runs=[rl()])
    finish(tasks[0].plan, [0.1, 0.2, 0.3])
    finish(tasks[2].plan, [0.5])
    (frame,) = summaries.training_curves(finished_runs(tasks), "accuracy").values()
    expected = pd.DataFrame({0: [0.1, 0.2, 0.3], 1: [0.5, np.nan, np.nan]}, index=[1, 2, 3])
    pd.testing.assert_frame_equal(frame, expected, check_names=False)


def test_the_stages_of_a_run_are_one_curve(checkout: Path) -> None:
    tasks = tasks_of(checkout, seeds=[0], arms=["grpo"], runs=[rl(stage=[2, 1, 0])])
    for task, (first, values) in zip(
        tasks, ((2, [0.2]), (1, [0.1]), (1, [0.1, 0.2, 0.3])), strict=True
    ):
        finish(task.plan, values, first)
    (frame,) = summaries.training_curves(finished_runs(tasks), "accuracy").values()
    assert frame[0].to_dict() == {1: 0.1, 2: 0.2, 3: 0.3}


def test_settings_of_an_arm_are_curves_of_their_own(checkout: Path) -> None:
    settings = [{"rl.epsilon": value} for value in (0.1, 0.5)]
    tasks = tasks_of(checkout, arms=["grpo"], runs=[rl(changes=settings)])
    for task in tasks:
        finish(task.plan, [task.plan.params["changes"]["rl.epsilon"]])
    found = summaries.training_curves(finished_runs(tasks), "accuracy")
    assert {label: frame.to_numpy().tolist() for label, frame in found.items()} == {
        'grpo, changes {"rl.epsilon": 0.1}': [[0.1, 0.1]],
        'grpo, changes {"rl.epsilon": 0.5}': [[0.5, 0.5]],
    }


def test_a_metric_that_is_never_defined_is_a_curve_of_nan(checkout: Path) -> None:
    tasks = tasks_of(checkout, seeds=[0], arms=["grpo"], runs=[rl()])
    finish(tasks[0].plan, [0.1, 0.2])
    runs = finished_runs(tasks)
    assert summaries.training_curves(runs, "tool_error_in_correct")["grpo"].isna().all(axis=None)


def test_without_rl_runs_there_are_no_curves(checkout: Path) -> None:
    assert summaries.training_curves([], "accuracy") == {}
    tasks = tasks_of(checkout, seeds=[0], runs=[SFT])
    finish(tasks[0].plan, [0.1])
    assert RunFolder.open(tasks[0].plan.folder).state is RunState.DONE
    assert summaries.training_curves(finished_runs(tasks), "accuracy") == {}
