"""What a report says of records: which runs count, means over seeds, where arms started."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_runs import all_finished, finished, quick

from rstar2.experiments.planner import Planner, plan_experiment
from rstar2.experiments.publish import publish, results_folder
from rstar2.experiments.report import (
    BrokenRecordError,
    NoRecordsError,
    Record,
    arm_names,
    arms_report,
    committed_records,
    evaluated,
    held_out,
    laptop_report,
    of_arm,
    over_seeds,
    records_in,
    records_of_this_machine,
    sft_names,
)
from rstar2.experiments.sweeps import load_sweep
from rstar2.problems import ProblemSet
from rstar2.records import RunFolder

RIGHT = {"sft": 2, "grpo": 3, "grpo-roc": 4}
"""Right rollouts of the 4 of a problem, by arm."""


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without sweeps, runs and records, in which the test stands."""
    quick(monkeypatch)
    shutil.rmtree("sweeps")
    Path("sweeps").mkdir()
    return own_checkout


def experiment(*seeds: int, **scores: int) -> list[Record]:
    """The finished runs of `make book` with these scores."""
    plans = all_finished(plan_experiment("test", seeds, "book"), **scores)
    return [Record(plan.folder, RunFolder.open(plan.folder).read()) for plan in plans]


def sweep_records(*runs: dict[str, Any], preset: str = "test", **settings: Any) -> list[Record]:
    """The records of a sweep whose every run is done, with scores by arm."""
    content = {"preset": preset, "seeds": [0], **settings, "runs": list(runs)}
    Path("sweeps", "laptop-x.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    sweep = load_sweep("laptop-x")
    for task in sweep.tasks:
        finished(task.plan, correct=RIGHT.get(task.plan.arm, 1))
    publish(sweep, results_folder(sweep))
    return committed_records("laptop-x")


def test_without_records_there_is_no_report() -> None:
    with pytest.raises(NoRecordsError, match="`make results` makes them"):
        committed_records()
    assert records_in("laptop-x") == []
    assert records_of_this_machine("test", 0) == []
    assert laptop_report([]) == {"arms": {}}


def test_the_runs_of_this_machine_are_those_of_the_sources_as_they_are() -> None:
    experiment(0)
    assert [record.arm for record in records_of_this_machine("test", 0)] == [
        "sft",
        "grpo",
        "grpo-roc",
    ]


def test_a_single_seed_has_no_interval() -> None:
    report = laptop_report(experiment(0), "book")
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert list(report["arms"]) == ["grpo", "grpo-roc"]
    arm = report["arms"]["grpo-roc"]
    assert arm["seeds"] == 1
    assert arm["final_accuracy"] == arm["sft_accuracy"] == [0.75, None, None]
    assert arm["final_tool_error_in_correct"] == [pytest.approx(1 / 6), None, None]
    assert arm["final_tokens"] == [50.0, None, None]
    assert list(arm["by_set"]) == [problem_set.value for problem_set in ProblemSet]
    assert all(0 <= row["guessing"] <= 1 for row in arm["by_set"].values())


def test_several_seeds_have_a_mean_and_an_interval() -> None:
    records = experiment(0, correct=2) + experiment(1, correct=4)
    assert [record.seed for record in of_arm(records, "grpo")] == [0, 1]
    mean, low, high = laptop_report(records, "book")["arms"]["grpo"]["final_accuracy"]
    assert mean == 0.75
    # Student t of two values: half the distance times t(1, 0.975) = 12.706.
    assert (low, high) == (pytest.approx(0.75 - 3.1766, abs=1e-3), pytest.approx(3.9266, abs=1e-3))


def test_what_never_happened_is_null() -> None:
    report = laptop_report(experiment(0, correct=0, calls=0, errors=0), "book")
    assert report["arms"]["grpo"]["final_tool_error_in_correct"] == [None, None, None]
    assert json.dumps(report, allow_nan=False)


def test_an_arm_without_records_is_left_out() -> None:
    plans = [Planner().sft("test", 0, "book"), Planner().rl("test", 0, "book", "grpo")]
    all_finished(plans)
    assert list(laptop_report(records_of_this_machine("test", 0), "book")["arms"]) == ["grpo"]


def test_an_evaluation_of_another_size_does_not_count() -> None:
    assert arms_report(experiment(0), "results") == {}


def test_an_arm_starts_from_the_sft_policy_that_its_run_names() -> None:
    """An arm that changes its SFT is never compared with the shared one."""
    records = sweep_records(
        {"notebook": "10_run_sft", "with": {"evaluation": "results"}},
        {"notebook": "11_run_rl", "with": {"evaluation": "results"}},
        arms={"grpo": {"arm": "grpo"}, "own": {"arm": "grpo", "changes": {"sft.batch_size": 4}}},
    )
    assert sft_names(records) == ["sft", "own-sft"]
    assert arm_names(records) == ["grpo", "own"]
    (own,) = of_arm(records, "own-sft")
    assert own.run["id"] == of_arm(records, "own")[0].run["sft_run"]
    table = own.evaluation
    table["correct"] = 0
    table.to_parquet(own.path / "evaluation.parquet")
    arms = arms_report(records)
    assert arms["own"]["sft_accuracy"][0] == 0
    assert arms["grpo"]["sft_accuracy"][0] == 0.5


def test_a_policy_that_a_run_of_its_own_evaluates_counts_once() -> None:
    unevaluated = {"evaluation": "none"}
    records = sweep_records(
        {"notebook": "10_run_sft", "with": unevaluated},
        {
            "notebook": "13_run_evaluation",
            "with": {"arm": "sft", "evaluation": ["results", "premise"]},
        },
        {"notebook": "11_run_rl", "with": unevaluated},
        {"notebook": "13_run_evaluation", "with": {"evaluation": "results"}},
        preset="laboratory",
        arms={
            "calm": {"arm": "grpo-roc"},
            "key": {"arm": "grpo", "changes": {"stages.0.key": "first"}},
        },
    )
    for arm in ("sft", "calm", "key"):
        assert [r.path.name for r in of_arm(records, arm)] == [f"{arm}-seed0"]
        assert [r.path.name for r in evaluated(records, arm)] == [f"{arm}-results-seed0"]
    assert len(evaluated(records, "sft", "premise")) == 1
    arms = arms_report(records)
    assert {arm: numbers["seeds"] for arm, numbers in arms.items()} == {"calm": 1, "key": 1}
    assert list(arms["calm"]["by_set"]) == ["hidden"]
    assert list(arms["key"]["by_set"]) == ["first"]
    assert arms["calm"]["sft_accuracy"][0] == 0.5, "the same set, before RL"
    assert arms["calm"]["final_accuracy"][0] == 1.0
    assert list(held_out(evaluated(records, "sft")[0])) == ["hidden", "first"]


def test_a_set_that_a_run_was_not_evaluated_on_has_no_mean() -> None:
    records = of_arm(experiment(0), "grpo")
    assert over_seeds(records, "hidden", "accuracy") == [None, None, None]


def test_a_damaged_table_is_named() -> None:
    (record,) = of_arm(experiment(0), "grpo")
    for damage in (b"x", None):
        path = record.path / "metrics.parquet"
        path.write_bytes(damage) if damage else path.unlink()
        with pytest.raises(BrokenRecordError, match=r"metrics\.parquet cannot be read: "):
            _ = record.metrics
