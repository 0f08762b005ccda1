"""The map of regimes follows the formula; drifts and budgets are read off records as they are."""

import functools
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.algorithm.drift import (
    Habit,
    Sampling,
    expected_drift,
    measured_drift,
    predicted_course,
    weight_ratio,
)
from rstar2.experiments.instant_check import premise
from rstar2.experiments.regimes import (
    COST_SHARES,
    RegimeMap,
    fitted_rate,
    regime_map,
    step_drifts,
    within_budget,
)

GRPO = Sampling(8, 8)
ROC = Sampling(16, 8, weight_ratio(0.05))
START, RATE, STEPS = 0.4, 0.5, 12


@functools.cache
def small_map(seed: int = 0) -> RegimeMap:
    return regime_map(
        START,
        GRPO,
        ROC,
        rate=RATE,
        steps=STEPS,
        problems=8,
        runs=40,
        seed=seed,
        successes=(0.3, 0.5, 0.9),
    )


# --- the map -----------------------------------------------------------------------------


def test_each_point_of_the_map_is_the_formula_at_its_success_and_cost() -> None:
    regimes = small_map()
    for row, column in ((0, 0), (1, 4), (2, len(COST_SHARES) - 1)):
        habit = Habit(START, regimes.success[row], regimes.cost[row, column])
        one, other = (
            predicted_course(habit, sampling, rate=RATE, steps=STEPS, refilled=True)
            for sampling in (GRPO, ROC)
        )
        assert regimes.difference[:, row, column] == pytest.approx(one - other)


def test_the_lead_is_largest_where_errors_are_free_and_gone_where_they_cost_all() -> None:
    regimes = small_map()
    leads = regimes.difference[-1]
    assert (leads[:, 0] == leads.max(axis=1)).all()
    assert np.abs(leads[:, -1]).max() < 0.02
    assert (regimes.difference[0] == 0).all(), "both start from the same policy"


def test_formula_and_bandit_agree() -> None:
    assert small_map().largest_gap < 0.03


def test_more_runs_make_a_difference_more_certain() -> None:
    regimes = small_map()
    few, many = (regimes.certainty(STEPS, runs) for runs in (3, 30))
    assert (many >= few).all()
    assert many[1, 0] > 1 > few[:, -1].max()
    assert (regimes.certainty(0, 8) == 0).all(), "no difference is certain before the first step"


@pytest.mark.thorough
def test_the_same_seed_makes_the_same_map() -> None:
    one, again, other = small_map(), small_map.__wrapped__(), small_map(seed=1)
    assert np.array_equal(one.spread, again.spread)
    assert not np.array_equal(one.spread, other.spread)


# --- the rate ----------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    end=st.floats(0.05, 0.38),
    success=st.floats(0.2, 0.9),
    steps=st.integers(5, 15),
)
def test_the_fitted_rate_leads_to_the_end(end: float, success: float, steps: int) -> None:
    habit = Habit(START, success)
    rate = fitted_rate(habit, ROC, steps=steps, end=end)
    course = predicted_course(habit, ROC, rate=rate, steps=steps, refilled=True)
    assert course[-1] == pytest.approx(end, abs=1e-6)


def test_no_rate_leads_against_the_drift_or_anywhere_without_one() -> None:
    with pytest.raises(ValueError, match=r"no rate leads from 0\.4 to 0\.5 in 10 steps"):
        fitted_rate(Habit(START, 0.5), ROC, steps=10, end=0.5)
    with pytest.raises(ValueError, match="drifts by 0 at the start"):
        fitted_rate(Habit(START, 0.5), GRPO, steps=10, end=0.3)


# --- what records say --------------------------------------------------------------------


def test_a_rollout_that_is_longer_than_the_budget_is_wrong() -> None:
    rollouts = pd.DataFrame(
        {
            "problem_id": ["a"] * 4,
            "correct": [True, True, False, True],
            "response_tokens": [100, 101, 90, 100],
            "calls": [1, 2, 1, 2],
            "errors": [0, 1, 0, 1],
            "error_types": ["", "ModuleNotFoundError", "", "ModuleNotFoundError"],
        }
    )
    cut = within_budget(rollouts, 100)
    assert cut["correct"].tolist() == [True, False, False, True]
    assert rollouts["correct"].tolist() == [True, True, False, True], "the rollouts stay"
    assert premise(cut).habit.cost == pytest.approx(premise(rollouts).habit.cost + 0.5)
    assert within_budget(rollouts.head(0), 100).empty


def sampled(groups: list[tuple[int, int, list[tuple[bool, int, bool]]]]) -> pd.DataFrame:
    """Rows of ``sampled.parquet``: a group is its step, number and (right, errors, kept)."""
    return pd.DataFrame(
        [
            {"step": step, "group": group, "correct": right, "errors": errors, "kept": kept}
            for step, group, rollouts in groups
            for right, errors, kept in rollouts
        ]
    )


MIXED = [(True, 0, True), (True, 1, False), (False, 2, True), (False, 0, True)]
EQUAL = [(True, 0, False), (True, 1, False)]


def test_the_drift_of_a_step_is_the_mean_over_the_groups_that_were_used() -> None:
    other = [(True, 1, True), (False, 0, True)]
    regime = Habit(0.9, 0.6, 0.1)
    told = step_drifts(sampled([(1, 0, MIXED), (1, 1, EQUAL), (1, 2, other)]), regime, ROC)
    by_hand = [
        measured_drift([1, 1, 0, 0], [False, True, True, False], [0, 2, 3]),
        measured_drift([1, 0], [True, False], [0, 1]),
    ]
    assert told["measured"].tolist() == [pytest.approx(np.mean(by_hand))]
    assert told["probability"].tolist() == [pytest.approx(4 / 8)], "dropped groups count here"
    at_that_share = expected_drift(Habit(0.5, 0.6, 0.1), ROC, refilled=True)
    assert told["predicted"].tolist() == [pytest.approx(at_that_share)]


def test_a_step_without_a_used_group_has_no_drift_and_the_next_one_has() -> None:
    told = step_drifts(sampled([(1, 0, EQUAL), (2, 0, MIXED)]), Habit(0.4, 0.5), GRPO)
    assert told["step"].tolist() == [1, 2]
    assert math.isnan(told["measured"][0])
    assert math.isfinite(told["measured"][1])


def test_neither_the_order_of_the_rows_nor_equal_group_numbers_of_two_steps_matter() -> None:
    groups = [(step, group, MIXED) for step, group in itertools.product((1, 2), (0, 1))]
    rows = sampled(groups)
    shuffled = rows.sample(frac=1, random_state=0)
    one, other = (step_drifts(table, Habit(0.4, 0.5), ROC) for table in (rows, shuffled))
    pd.testing.assert_frame_equal(one, other)
    assert len(one) == 2
