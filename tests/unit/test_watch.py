"""Who looks at a run is told what the collapse monitor says of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Plan
from rstar2.experiments.watch import alarms_of, warning
from rstar2.records import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Plan:
    plan = Planner().rl("test", 0, "none", "grpo")
    return replace(plan, folder=tmp_path / plan.name)


def log(plan: Plan, accuracies: list[float]) -> None:
    plan.folder.mkdir()
    metrics = RunFolder(plan.folder).metrics
    for step, accuracy in enumerate(accuracies, start=1):
        metrics.append({"step": step, "stage": 1, "accuracy": accuracy})


def test_a_healthy_run_and_one_that_has_not_begun_are_told_nothing(run: Plan) -> None:
    assert warning(run) == ""
    log(run, [0.5] * 30)
    assert alarms_of(run) == ()
    assert warning(run) == ""


def test_the_last_warning_is_told_as_a_line(run: Plan) -> None:
    log(run, [0.8] * 15 + [0.2] * 15)
    (alarm,) = alarms_of(run)
    assert 15 < alarm.step < 25
    assert warning(run) == f"the monitor warns: {alarm.message}"
    assert f"step {alarm.step}: " in warning(run)


def test_only_rl_has_a_policy_that_may_collapse(run: Plan) -> None:
    log(run, [0.8] * 15 + [0.2] * 15)
    needs = run.needs
    assert needs is not None
    assert warning(replace(needs, folder=run.folder)) == ""
