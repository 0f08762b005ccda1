"""The bandit: its selection is that of the trainer, its mean course is that of the drift."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from rstar2.algorithm.bandit import group_drifts, simulate
from rstar2.algorithm.drift import (
    Habit,
    Sampling,
    expected_drift,
    measured_drift,
    predicted_course,
    weight_ratio,
)
from rstar2.algorithm.roc import Penalty, resample_on_correct, select_all

FREE = Habit(probability=0.4, success=0.5)
GRPO, GRPO_2G, UNIFORM = Sampling(8, 8), Sampling(16, 16), Sampling(16, 8)
ROC, MILD_ROC = Sampling(16, 8, weight_ratio(0.05)), Sampling(16, 8, weight_ratio(0.5))
FEW = {"rate": 0.3, "steps": 3, "problems": 2, "seeds": 5, "seed": 0}


# --- one group --------------------------------------------------------------------------


@settings(deadline=None, derandomize=True)
@given(st.data())
def test_a_group_keeps_the_very_rollouts_that_the_trainer_keeps(data):
    sampled = data.draw(st.integers(2, 20))
    kept = data.draw(st.integers(2, sampled))
    epsilon = data.draw(st.sampled_from([0.01, 0.05, 0.5]))
    flags = st.lists(st.booleans(), min_size=sampled, max_size=sampled)
    right, has_habit = data.draw(flags), data.draw(flags)
    seed = (data.draw(st.integers(0, 1000)), 0, 0)
    selection = resample_on_correct(
        range(sampled),
        [int(each) for each in right],
        [Penalty(0.5 * each, 0.0) for each in has_habit],
        group_size=sampled,
        keep=kept,
        epsilon=epsilon,
        seed=seed,
    )
    clocks = np.random.default_rng(seed).exponential(size=sampled)
    found = group_drifts(
        np.array(right), np.array(has_habit), clocks, Sampling(sampled, kept, weight_ratio(epsilon))
    )
    expected = measured_drift([int(each) for each in right], has_habit, selection.kept)
    assert found == pytest.approx(expected, abs=1e-12)


def test_plain_grpo_keeps_all_whatever_the_clocks():
    rng = np.random.default_rng(0)
    right, has_habit = rng.random((2, 50, 8)) < 0.5
    found = group_drifts(right, has_habit, rng.exponential(size=(50, 8)), GRPO)
    for one, rewards, flags in zip(found, right.astype(int).tolist(), has_habit, strict=True):
        kept = select_all(range(8), rewards, group_size=8).kept
        assert one == pytest.approx(measured_drift(rewards, flags.tolist(), kept))


# --- one step ---------------------------------------------------------------------------


@pytest.mark.parametrize("refilled", [False, True])
@pytest.mark.parametrize(
    ("habit", "sampling"),
    [
        (FREE, GRPO),
        (FREE, UNIFORM),
        (FREE, ROC),
        (Habit(0.4, 0.95), ROC),
        (Habit(0.3, 0.9, 0.5), GRPO),
        (Habit(0.6, 0.2, -0.2), MILD_ROC),
    ],
)
def test_a_step_moves_the_logit_by_the_exact_drift_on_average(habit, sampling, refilled):
    course = simulate(
        habit, sampling, rate=1.0, steps=1, problems=4, seeds=3000, seed=1, refilled=refilled
    )
    moved = np.diff(logit(course), axis=1)[:, 0]
    error = moved.std() / sqrt(len(moved))
    expected = expected_drift(habit, sampling, refilled=refilled)
    assert moved.mean() == pytest.approx(expected, abs=4 * error)


def test_a_refilled_step_uses_as_many_groups_as_there_are_problems():
    # of a free habit a mixed group has variance σ̂² (1/k + 1/(N - k)) p (1 - p) = p (1 - p) / N
    options = {"rate": 1.0, "steps": 1, "problems": 4, "seeds": 3000, "seed": 6}
    runs = simulate(Habit(0.4, 0.85), GRPO_2G, refilled=True, **options)
    expected = sqrt(0.4 * 0.6 / 16 / 4)
    assert np.diff(logit(runs), axis=1).std() == pytest.approx(expected, rel=0.06)


# --- a run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("habit", "sampling"),
    [
        (FREE, GRPO),
        (FREE, GRPO_2G),
        (FREE, UNIFORM),
        (FREE, ROC),
        (FREE, MILD_ROC),
        (Habit(0.4, 0.9), ROC),
        (Habit(0.4, 0.5, 0.2), GRPO),
        (Habit(0.4, 0.5, 0.2), ROC),
        (Habit(0.4, 0.5, 0.4), GRPO),
    ],
)
def test_the_mean_run_follows_the_predicted_course(habit, sampling):
    runs = simulate(habit, sampling, rate=0.3, steps=120, problems=8, seeds=200, seed=2)
    course = predicted_course(habit, sampling, rate=0.3, steps=120)
    for step in (10, 40, 120):
        error = runs[:, step].std() / sqrt(200)
        assert runs[:, step].mean() == pytest.approx(course[step], abs=4 * error)


def test_the_mean_run_with_refilled_groups_follows_its_course():
    habit = Habit(0.4, 0.95)
    options = {"rate": 0.3, "steps": 60, "refilled": True}
    runs = simulate(habit, ROC, problems=8, seeds=200, seed=3, **options)
    course = predicted_course(habit, ROC, **options)
    assert runs[:, -1].mean() == pytest.approx(course[-1], abs=4 * runs[:, -1].std() / sqrt(200))
    assert course[-1] < 0.8 * predicted_course(habit, ROC, rate=0.3, steps=60)[-1]


def test_free_errors_separate_the_rules_and_costly_ones_do_not():
    def last(habit, sampling):
        runs = simulate(habit, sampling, rate=0.3, steps=120, problems=8, seeds=200, seed=4)
        return runs[:, -1]

    assert last(FREE, ROC).max() < 0.1 < last(FREE, GRPO).min()
    costly = Habit(0.4, 0.5, 0.4)
    assert abs(last(costly, ROC).mean() - last(costly, GRPO).mean()) < 0.01


def test_without_a_drift_a_run_wanders_less_with_more_problems():
    few, many = (
        simulate(FREE, GRPO, rate=0.3, steps=40, problems=problems, seeds=400, seed=5)[:, -1].std()
        for problems in (4, 16)
    )
    assert few / many == pytest.approx(2, rel=0.2)


# --- seeds and ends ---------------------------------------------------------------------


def test_the_seed_decides_and_a_longer_run_begins_like_a_shorter_one():
    short = simulate(FREE, ROC, **FEW)
    assert short.shape == (5, 4)
    assert short[:, 0] == pytest.approx(0.4)
    assert len(set(short[:, -1])) == 5
    np.testing.assert_array_equal(short, simulate(FREE, ROC, **FEW))
    np.testing.assert_array_equal(short, simulate(FREE, ROC, **(FEW | {"steps": 6}))[:, :4])
    assert (short[:, 1:] != simulate(FREE, ROC, **(FEW | {"seed": 1}))[:, 1:]).any()


@pytest.mark.parametrize("refilled", [False, True])
@pytest.mark.parametrize("habit", [Habit(0.4, 1.0), Habit(0.4, 0.0), Habit(0, 0.5), Habit(1, 0.5)])
def test_where_nothing_can_be_learned_nothing_moves(habit, refilled):
    runs = simulate(habit, ROC, refilled=refilled, **FEW)
    assert runs == pytest.approx(habit.probability)


@pytest.mark.parametrize(
    "change", [{"rate": 0.0}, {"rate": float("nan")}, {"steps": -1}, {"problems": 0}, {"seeds": 0}]
)
def test_what_is_no_run_is_refused(change):
    with pytest.raises(ValueError, match="rate must be positive, steps 0 or more"):
        simulate(FREE, ROC, **(FEW | change))
