"""The arms: how many rollouts each samples, which it keeps, what a failed call costs it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.experiments.presets import load_torch_preset
from rstar2.grading import Reason, Verdict
from rstar2.problems import Problem
from rstar2.protocol import CallStatus, StopReason, ToolCall, Trajectory, Turn
from rstar2.rollout.groups import Rollout
from rstar2.training.grpo import update_rows
from rstar2.training.selection import Group, select_group, shaped_reward
from rstar2.training.spec import Arm, RLSpec, StageSpec

SPEC = load_torch_preset("laptop").rl.model_copy(update={"group_size": 4, "oversample": 8})
PROBLEM = Problem("p", "What?", 1, "family")
STAGE = StageSpec(steps=1, max_response_tokens=9, max_turns=2, data="all", reset_optimizer=False)


def rollout(
    sample: int,
    *,
    right: bool,
    errors: int = 0,
    answers: int = 1,
    stop: StopReason = StopReason.ANSWERED,
) -> Rollout:
    """A rollout of two calls, of which some fail."""
    statuses = [CallStatus.ERROR] * errors + [CallStatus.OK] * (2 - errors)
    calls = tuple(ToolCall("", status) for status in statuses)
    turns = (Turn("", 2, calls), Turn("", 1, (), answers))
    path = Trajectory(str(sample), (0,), (1, 2, 3), (1, 1, 1), (-1.0,) * 3, turns, stop)
    reason = Reason.CORRECT if right else Reason.MISMATCH
    return Rollout(PROBLEM, sample, path, Verdict(right, None, reason, ""))


def kept(rollouts: Sequence[Rollout], arm: Arm, seed: int = 0, spec: RLSpec = SPEC) -> set[int]:
    return set(select_group(rollouts, arm, spec, (seed, 0, 0)).selection.kept)


MIXED = [
    *(rollout(number, right=True, errors=number % 2) for number in range(6)),
    rollout(6, right=False),
    rollout(7, right=False, errors=2),
]
"""Six right ones, every other with an error; a clean wrong one, and one with two errors."""


def shares(arm: Arm, draws: int = 400) -> list[float]:
    """How often each rollout of ``MIXED`` is kept."""
    chosen = [kept(MIXED, arm, seed) for seed in range(draws)]
    return [sum(number in some for some in chosen) / draws for number in range(len(MIXED))]


def test_an_arm_samples_g_or_twice_as_many() -> None:
    assert {arm: arm.samples(SPEC) for arm in Arm if arm.samples(SPEC) != 8} == {Arm.GRPO: 4}


def test_the_arms_without_a_selection_keep_all_that_they_sample() -> None:
    assert kept(MIXED[3:7], Arm.GRPO) == {3, 4, 5, 6}
    assert kept(MIXED, Arm.GRPO_2G) == set(range(8))


@given(st.sampled_from([arm for arm in Arm if arm.value.startswith(("roc", "grpo-roc"))]))
def test_every_resampling_arm_keeps_the_same_numbers_of_right_and_wrong(arm: Arm) -> None:
    chosen = kept(MIXED, arm)
    assert len(chosen) == SPEC.group_size
    assert len(chosen & {6, 7}) == 1


def test_resample_on_correct_prefers_clean_right_rollouts_and_asks_nothing_of_wrong_ones() -> None:
    often = shares(Arm.GRPO_ROC)
    assert min(often[0:6:2]) > 2 * max(often[1:6:2])
    assert often[6] == pytest.approx(0.5, abs=0.1)
    assert often[7] == pytest.approx(0.5, abs=0.1)


def test_equal_weights_prefer_nothing() -> None:
    assert shares(Arm.ROC_UNIFORM)[:6] == pytest.approx([0.5] * 6, abs=0.1)


def test_each_half_of_the_penalty_sees_only_its_own() -> None:
    twice = [rollout(n, right=n < 6, errors=n == 0, answers=1 + (n == 1)) for n in range(8)]
    chosen = {
        arm: [kept(twice, arm, seed) for seed in range(300)]
        for arm in (Arm.ROC_ERROR, Arm.ROC_FORMAT)
    }
    often = {
        arm: [sum(n in some for some in sets) / 300 for n in range(6)]
        for arm, sets in chosen.items()
    }
    assert often[Arm.ROC_ERROR][0] < 0.2 < often[Arm.ROC_ERROR][1]
    assert often[Arm.ROC_FORMAT][1] < 0.2 < often[Arm.ROC_FORMAT][0]


def test_the_cleanest_are_kept_without_chance_and_the_first_of_equals() -> None:
    assert {frozenset(kept(MIXED, Arm.ROC_CLEANEST, seed)) for seed in range(20)} == {
        frozenset({0, 2, 4, 6})
    }


def test_with_both_signs_wrong_rollouts_are_filtered_too() -> None:
    often = shares(Arm.ROC_BOTH_SIGNS)
    assert often[6] > 0.85
    assert often[6] + often[7] == pytest.approx(1.0)


def test_a_penalty_on_failed_calls_moves_the_advantage_and_not_the_grade() -> None:
    spec = SPEC.model_copy(update={"tool_penalty": 0.25})
    rollouts = [rollout(n, right=n < 2, errors=n % 2) for n in range(4)]
    assert [shaped_reward(one, spec) for one in rollouts] == [1.0, 0.75, 0.0, -0.25]
    assert [one.reward for one in rollouts] == [1.0, 1.0, 0.0, 0.0]
    rows = update_rows([select_group(rollouts, Arm.GRPO, spec, (0, 0, 0))], spec)
    advantages = [row.advantage for row in rows]
    assert advantages == sorted(advantages, reverse=True)
    assert len(set(advantages)) == 4


def test_a_group_that_is_all_wrong_still_teaches_to_avoid_a_cost() -> None:
    rollouts = [rollout(n, right=False, errors=n % 2) for n in range(4)]
    assert kept(rollouts, Arm.GRPO) == set()
    spec = SPEC.model_copy(update={"tool_penalty": 0.25})
    assert kept(rollouts, Arm.GRPO, spec=spec) == {0, 1, 2, 3}


def test_overlong_filtering_leaves_cut_rollouts_out_of_the_loss_but_in_the_mean() -> None:
    stops = [StopReason.ANSWERED, StopReason.MAX_TOKENS, StopReason.ANSWERED, StopReason.MAX_TURNS]
    rollouts = [rollout(n, right=n == 0, stop=stop) for n, stop in enumerate(stops)]
    group = [select_group(rollouts, Arm.GRPO, SPEC, (0, 0, 0))]
    whole = update_rows(group, SPEC)
    spec = SPEC.model_copy(update={"overlong_filtering": True})
    filtered = update_rows(group, spec)
    assert [row.trajectory.request_id for row in filtered] == ["0", "2"]
    assert [row.advantage for row in filtered] == [whole[0].advantage, whole[2].advantage]
    assert sum(row.weight * row.trajectory.num_model_tokens for row in filtered) == pytest.approx(1)


def test_a_batch_of_which_all_is_filtered_has_no_row() -> None:
    spec = SPEC.model_copy(update={"overlong_filtering": True, "tool_penalty": 0.5})
    rollouts = [rollout(n, right=False, errors=n % 2, stop=StopReason.MAX_TOKENS) for n in range(4)]
    group: list[Group] = [select_group(rollouts, Arm.GRPO, spec, (0, 0, 0))]
    assert group[0].kept
    assert update_rows(group, spec) == []


def test_a_stage_changes_what_it_says_and_nothing_else() -> None:
    assert SPEC.of_stage(STAGE) == SPEC
    warm = STAGE.model_copy(update={"temperature": 1.2, "clip_high": 0.4})
    changed = SPEC.of_stage(warm)
    assert (changed.temperature, changed.clip_high) == (1.2, 0.4)
    back = {"temperature": SPEC.temperature, "clip_high": SPEC.clip_high}
    assert changed.model_copy(update=back) == SPEC
