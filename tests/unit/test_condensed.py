"""A condensed rollout is small, and says the same to selection and metrics."""

import json
from dataclasses import replace

import pytest

from rstar2.experiments.curves import examples
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.report import evaluated, records_in
from rstar2.rollout.condensed import condensed, from_condensed
from rstar2.rollout.groups import Rollout
from rstar2.training.metrics import step_metrics
from rstar2.training.selection import Group, select_group
from rstar2.training.spec import Arm

RL = load_torch_preset("laptop").rl


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    """Recorded ones, before RL: right and wrong, with failed calls and without a call."""
    return [
        replace(rollout, sample=number)
        for record in evaluated(records_in("laptop-natural"), "sft")
        for number, rollout in enumerate(examples(record))
    ]


def groups_of(rollouts: list[Rollout], arm: Arm) -> list[Group]:
    size = arm.samples(RL)
    return [
        select_group(rollouts[start : start + size], arm, RL, (1, 2, start))
        for start in range(0, len(rollouts) - size, size)
    ]


@pytest.mark.parametrize("arm", [Arm.GRPO, Arm.GRPO_ROC, Arm.ROC_BOTH_SIGNS])
def test_selection_and_metrics_are_those_of_the_whole_rollout(
    rollouts: list[Rollout], arm: Arm
) -> None:
    whole = groups_of(rollouts, arm)
    short = groups_of([from_condensed(condensed(one)) for one in rollouts], arm)
    assert [group.selection for group in short] == [group.selection for group in whole]
    used = [[g for g in groups if g.selection.dropped is None] for groups in (whole, short)]
    assert len(used[0]) > 1
    told, again = step_metrics(whole, used[0]), step_metrics(short, used[1])
    assert again == pytest.approx(told, rel=1e-12, nan_ok=True)


def test_it_names_the_rollout_and_is_condensed_once(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        told = condensed(rollout)
        back = from_condensed(told)
        assert back.problem == replace(rollout.problem, question="")
        assert (back.sample, back.verdict) == (rollout.sample, replace(rollout.verdict, box=""))
        assert back.trajectory.stop is rollout.trajectory.stop
        assert condensed(back) == told


def test_it_is_small_and_holds_no_text_of_the_model(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        told = condensed(rollout)
        assert len(told) < 2_000
        assert not any(turn["text"] for turn in json.loads(told)["trajectory"]["turns"])
