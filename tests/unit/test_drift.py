"""Drift of a habit: exact, in closed form, and as measured on groups that were really selected."""

from itertools import pairwise
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import nchypergeom_wallenius

from rstar2.algorithm.advantage import group_advantages
from rstar2.algorithm.drift import (
    Habit,
    Sampling,
    expected_drift,
    fluid_drift,
    hidden_cost,
    measured_drift,
    predicted_course,
    weight_ratio,
)
from rstar2.algorithm.roc import (
    Penalty,
    inclusion_probabilities,
    quota,
    resample_on_correct,
    select_all,
)

SEEDED = settings(deadline=None, derandomize=True, max_examples=60)
FREE = Habit(probability=0.4, success=0.5)
ROC = Sampling(16, 8, weight_ratio(0.05))
GRPO = Sampling(8, 8)

INSIDE = st.floats(0.02, 0.98)
RATIOS = st.floats(1.05, 1000)


@st.composite
def habits(draw, cost=None):
    """Habits of any cost, or of the one that is given."""
    probability, success = draw(INSIDE), draw(INSIDE)
    if cost is None:
        cost = success - draw(INSIDE)
    return Habit(probability, success, cost)


@st.composite
def samplings(draw, ratios=RATIOS, thinned=False):
    sampled = draw(st.integers(3, 24))
    kept = draw(st.integers(2, sampled - thinned))
    return Sampling(sampled, kept, draw(ratios))


# --- the habit --------------------------------------------------------------------------


def test_shares_by_hand():
    habit = Habit(probability=0.4, success=0.5, cost=0.2)
    assert habit.overall_success == pytest.approx(0.6 * 0.5 + 0.4 * 0.3)
    assert habit.share_among_right == pytest.approx(0.12 / 0.42)
    assert habit.share_among_wrong == pytest.approx(0.28 / 0.58)


@SEEDED
@given(habits())
def test_the_shares_mix_to_the_probability_of_the_habit(habit):
    right, wrong = habit.overall_success, habit.overall_failure
    assert right + wrong == pytest.approx(1)
    mixed = right * habit.share_among_right + wrong * habit.share_among_wrong
    assert mixed == pytest.approx(habit.probability)


def test_nobody_right_has_no_share_among_the_right():
    assert np.isnan(Habit(0.4, 0.0).share_among_right)
    assert np.isnan(Habit(0.4, 1.0).share_among_wrong)


# --- exact drift ------------------------------------------------------------------------


@SEEDED
@given(habits(cost=0.0), samplings(ratios=st.just(1.0)), st.booleans())
def test_a_free_habit_does_not_drift_under_equal_weights_whatever_the_quota(
    habit, sampling, refilled
):
    assert expected_drift(habit, sampling, refilled=refilled) == 0.0


@SEEDED
@given(habits(), samplings(), st.booleans())
def test_a_costly_habit_is_unlearned_by_every_rule(habit, sampling, refilled):
    assume(habit.cost > 0.001)
    assert expected_drift(habit, sampling, refilled=refilled) < 0


@SEEDED
@given(habits(), st.integers(2, 24))
def test_plain_grpo_learns_a_habit_that_helps(habit, group):
    assume(habit.cost < -0.001)
    assert expected_drift(habit, Sampling(group, group)) > 0


@SEEDED
@given(habits(cost=0.0), samplings(thinned=True))
def test_a_preference_for_clean_ones_unlearns_a_free_habit(habit, sampling):
    assert expected_drift(habit, sampling) < 0


def test_the_drift_falls_with_every_step_of_the_ratio():
    drifts = [expected_drift(FREE, Sampling(16, 8, ratio)) for ratio in (0.5, 1, 1.1, 2, 11, 51)]
    assert all(later < earlier for earlier, later in pairwise(drifts))


@SEEDED
@given(habits(), st.integers(2, 24), RATIOS)
def test_weights_do_nothing_where_all_are_kept(habit, group, ratio):
    weighted = expected_drift(habit, Sampling(group, group, ratio))
    assert weighted == expected_drift(habit, Sampling(group, group))


@SEEDED
@given(habits(), samplings(ratios=st.floats(0.01, 100), thinned=True), st.floats(1.1, 10))
def test_the_stronger_the_preference_the_more_the_habit_falls(habit, sampling, factor):
    stronger = Sampling(sampling.sampled, sampling.kept, sampling.ratio * factor)
    assert expected_drift(habit, stronger) <= expected_drift(habit, sampling) + 1e-12


@SEEDED
@given(habits(), samplings())
def test_the_mean_over_mixed_groups_is_the_mean_over_all_divided_by_their_share(habit, sampling):
    right, wrong = habit.overall_success, habit.overall_failure
    mixed = 1 - right**sampling.sampled - wrong**sampling.sampled
    refilled = expected_drift(habit, sampling, refilled=True)
    assert refilled * mixed == pytest.approx(expected_drift(habit, sampling), abs=1e-12)


@pytest.mark.parametrize("habit", [Habit(0.4, 1.0), Habit(0.4, 0.0), Habit(0, 0.5), Habit(1, 0.5)])
@pytest.mark.parametrize("refilled", [False, True])
def test_nothing_drifts_where_no_group_is_mixed_or_no_habit_varies(habit, refilled):
    assert expected_drift(habit, ROC, refilled=refilled) == 0.0
    assert fluid_drift(habit, ROC.ratio) == 0.0


@pytest.mark.parametrize("success", [5e-324, 1e-300, 1e-9, 1 - 1e-12])
def test_success_next_to_its_ends_stays_finite(success):
    habit = Habit(0.4, success)
    assert -1e-5 < expected_drift(habit, ROC) <= 0
    assert -0.5 < expected_drift(habit, ROC, refilled=True) <= 0
    assert -0.5 < fluid_drift(habit, ROC.ratio) <= 0


def test_a_group_of_two_by_hand():
    # one right, one wrong: σ̂ = 1/2, ē₊ - ē₋ is the difference of two single rollouts
    habit = Habit(0.4, 0.5, 0.2)
    gap = habit.share_among_right - habit.share_among_wrong
    mixed = 2 * habit.overall_success * habit.overall_failure
    assert expected_drift(habit, Sampling(2, 2)) == pytest.approx(mixed * gap / 2)
    assert expected_drift(habit, Sampling(2, 2), refilled=True) == pytest.approx(gap / 2)


@pytest.mark.parametrize(
    ("group", "drift"), [(4, -0.0975), (8, -0.1247), (16, -0.1399), (32, -0.1467)]
)
def test_the_drift_of_roc_by_group_size(group, drift):
    sampling = Sampling(2 * group, group, weight_ratio(0.05))
    assert expected_drift(FREE, sampling) == pytest.approx(drift, abs=5e-5)


@pytest.mark.parametrize(
    ("epsilon", "drift"),
    [(0.01, -0.148), (0.05, -0.125), (0.2, -0.079), (0.5, -0.047), (1, -0.028)],
)
def test_the_drift_of_roc_by_epsilon(epsilon, drift):
    sampling = Sampling(16, 8, weight_ratio(epsilon))
    assert expected_drift(FREE, sampling) == pytest.approx(drift, abs=5e-4)


def test_a_clean_rollout_weighs_11_times_one_with_a_failed_call_of_two():
    assert weight_ratio(0.05) == pytest.approx(11)
    assert weight_ratio(0.5) == pytest.approx(2)
    assert weight_ratio(0.05, penalty=1) == pytest.approx(21)
    assert weight_ratio(0.05, penalty=0) == 1


# --- against other ways to the same number ----------------------------------------------


def enumerated_drift(habit, sampling, mean_drawn):
    """The drift as a plain double sum; ``mean_drawn`` counts habits among the drawn."""
    total = 0.0
    size, right_share = sampling.sampled, habit.share_among_right
    for right in range(1, size):
        kept, kept_wrong = quota(right, size - right, sampling.kept)
        share = sum(
            comb(right, h)
            * right_share**h
            * (1 - right_share) ** (right - h)
            * mean_drawn(h, right - h, kept)
            / kept
            for h in range(right + 1)
        )
        weight = comb(size, right) * habit.overall_success**right
        weight *= habit.overall_failure ** (size - right)
        total += (
            weight * sqrt(kept * kept_wrong) / sampling.kept * (share - habit.share_among_wrong)
        )
    return total


CASES = [
    (FREE, Sampling(8, 4, 11.0)),
    (Habit(0.7, 0.9, 0.3), Sampling(8, 4, 2.0)),
    (Habit(0.2, 0.3, -0.4), Sampling(9, 5, 30.0)),
    (Habit(0.5, 0.6, 0.1), Sampling(7, 6, 0.3)),
    (Habit(0.5, 0.6, 0.1), Sampling(6, 6)),
]


@pytest.mark.parametrize(("habit", "sampling"), CASES)
def test_the_drift_follows_the_enumeration_of_every_set_of_draws(habit, sampling):
    def mean_drawn(with_habit, clean, draws):
        weights = [1.0] * with_habit + [sampling.ratio] * clean
        return inclusion_probabilities(weights, draws)[:with_habit].sum()

    expected = enumerated_drift(habit, sampling, mean_drawn)
    assert expected_drift(habit, sampling) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 2.0, 11.0, 51.0])
def test_the_drift_follows_scipys_wallenius_distribution(ratio):
    def mean_drawn(with_habit, clean, draws):
        return nchypergeom_wallenius.mean(with_habit + clean, with_habit, draws, 1 / ratio)

    expected = enumerated_drift(Habit(0.4, 0.5, 0.1), Sampling(16, 8, ratio), mean_drawn)
    found = expected_drift(Habit(0.4, 0.5, 0.1), Sampling(16, 8, ratio))
    assert found == pytest.approx(expected, abs=1e-6)  # scipy integrates numerically


TRIALS = 2500


def sampled_drifts(habit, sampling, epsilon):
    """Measured drift of groups that ``resample_on_correct`` or ``select_all`` selected."""
    rng = np.random.default_rng(11)
    size = sampling.sampled
    has_habit = rng.random((TRIALS, size)) < habit.probability
    success = np.where(has_habit, habit.success_with_habit, habit.success)
    right = (rng.random((TRIALS, size)) < success).astype(int)
    for trial in range(TRIALS):
        rewards, flags = right[trial].tolist(), has_habit[trial].tolist()
        if sampling.kept == size:
            selection = select_all(range(size), rewards, group_size=size)
        else:
            selection = resample_on_correct(
                range(size),
                rewards,
                [Penalty(0.5 * flag, 0.0) for flag in flags],
                group_size=size,
                keep=sampling.kept,
                epsilon=epsilon,
                seed=(3, trial, 0),
            )
        yield measured_drift(rewards, flags, selection.kept)


@pytest.mark.parametrize(
    ("habit", "sampled", "kept", "epsilon"),
    [
        (FREE, 16, 8, 0.05),
        (FREE, 16, 8, 0.5),
        (FREE, 32, 16, 0.05),
        (Habit(0.4, 0.9, 0.2), 16, 8, 0.05),
        (Habit(0.3, 0.1, -0.1), 12, 8, 0.2),
        (Habit(0.4, 0.5, 0.2), 8, 8, 0.05),
        (FREE, 8, 8, 0.05),
    ],
)
def test_the_drift_is_the_mean_over_groups_that_were_really_selected(habit, sampled, kept, epsilon):
    sampling = Sampling(sampled, kept, weight_ratio(epsilon))
    drifts = list(sampled_drifts(habit, sampling, epsilon))
    error = np.std(drifts) / sqrt(TRIALS)
    assert np.mean(drifts) == pytest.approx(expected_drift(habit, sampling), abs=4 * error)


# --- the closed form --------------------------------------------------------------------


@pytest.mark.parametrize(
    "habit", [FREE, Habit(0.1, 0.9), Habit(0.8, 0.4, 0.2), Habit(0.3, 0.5, -0.3)]
)
@pytest.mark.parametrize("ratio", [2.0, 11.0])
def test_the_gap_to_the_closed_form_halves_when_the_group_doubles(habit, ratio):
    fluid = fluid_drift(habit, ratio)
    gaps = [expected_drift(habit, Sampling(2 * g, g, ratio)) - fluid for g in (32, 64, 128)]
    assert 0 < gaps[-1] < 0.006
    for earlier, later in pairwise(gaps):
        assert later / earlier == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(
    "habit", [Habit(0.4, 0.5, 0.2), Habit(0.1, 0.9, 0.4), Habit(0.7, 0.2, -0.5)]
)
def test_large_groups_of_plain_grpo_drift_as_the_closed_form_says(habit):
    success = habit.overall_success
    p = habit.probability
    by_hand = -p * (1 - p) * habit.cost / sqrt(success * (1 - success))
    assert fluid_drift(habit) == pytest.approx(by_hand)
    assert expected_drift(habit, Sampling(400, 400)) == pytest.approx(by_hand, rel=0.02)


def test_the_closed_form_of_the_laboratory():
    assert fluid_drift(FREE, weight_ratio(0.05)) == pytest.approx(-0.1522, abs=5e-5)
    assert fluid_drift(FREE) == 0.0


@SEEDED
@given(INSIDE)
def test_a_total_preference_takes_all_it_can(p):
    # of the right ones half are kept: the clean ones first, then as many others as are missing
    assert fluid_drift(Habit(p, 0.5), 1e7) == pytest.approx(-0.5 * min(p, 1 - p), abs=1e-5)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 11.0])
def test_a_rare_habit_falls_in_proportion(ratio):
    p = 1e-6
    assert fluid_drift(Habit(p, 0.5), ratio) == pytest.approx(
        -0.5 * p * (2 ** (1 - 1 / ratio) - 1), rel=1e-4
    )


@SEEDED
@given(habits(), st.floats(0.05, 100), st.floats(1.1, 10))
def test_the_closed_form_falls_with_the_ratio(habit, ratio, factor):
    # once x^ρ has vanished the root is 1/(2s), and a larger ratio changes no digit of it
    assert fluid_drift(habit, ratio * factor) <= fluid_drift(habit, ratio) + 1e-11
    assert fluid_drift(habit, factor) < fluid_drift(habit)


# --- hidden cost ------------------------------------------------------------------------


@SEEDED
@given(habits(), st.integers(2, 16))
def test_the_hidden_cost_of_plain_grpo_is_the_cost_itself(habit, group):
    assert hidden_cost(habit, Sampling(group, group)) == pytest.approx(habit.cost, abs=1e-9)


@pytest.mark.parametrize("habit", [FREE, Habit(0.2, 0.9), Habit(0.4, 0.5, 0.1), Habit(0.1, 0.3)])
def test_plain_grpo_with_the_hidden_cost_drifts_as_much(habit):
    cost = hidden_cost(habit, ROC)
    assert cost > habit.cost
    plain = expected_drift(Habit(habit.probability, habit.success, cost), GRPO)
    assert plain == pytest.approx(expected_drift(habit, ROC))


@pytest.mark.parametrize(("success", "cost"), [(0.5, 0.275), (0.9, 0.152), (0.96, 0.081)])
def test_the_hidden_cost_of_the_laboratory(success, cost):
    assert hidden_cost(Habit(0.4, success), ROC) == pytest.approx(cost, abs=5e-4)


def test_equal_weights_hide_no_cost():
    assert hidden_cost(FREE, Sampling(16, 8)) == pytest.approx(0, abs=1e-9)


def test_a_preference_can_be_worth_more_than_any_cost():
    with pytest.raises(ValueError, match=r"no cost between -0\.8 and 0\.2 makes plain GRPO"):
        hidden_cost(Habit(0.5, 0.2), Sampling(128, 64, 1000.0))
    with pytest.raises(ValueError, match="no cost makes it drift"):
        hidden_cost(Habit(0.0, 0.5), ROC)


# --- the course -------------------------------------------------------------------------


def test_the_first_step_of_the_course_by_hand():
    logit = np.log(0.4 / 0.6) + 0.3 * expected_drift(FREE, ROC)
    course = predicted_course(FREE, ROC, rate=0.3, steps=1)
    assert course == pytest.approx([0.4, 1 / (1 + np.exp(-logit))])


def test_the_course_of_a_free_habit_is_flat_without_a_preference_and_falls_with_one():
    flat = predicted_course(FREE, GRPO, rate=0.3, steps=20)
    assert (flat == 0.4).all()
    assert (np.diff(predicted_course(FREE, ROC, rate=0.3, steps=20)) < 0).all()


def test_refilled_groups_make_the_course_faster():
    rare = Habit(0.4, 0.96)
    plain = predicted_course(rare, ROC, rate=0.3, steps=20)
    refilled = predicted_course(rare, ROC, rate=0.3, steps=20, refilled=True)
    assert (refilled[1:] < plain[1:]).all()


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_a_habit_that_never_varies_stays(probability):
    course = predicted_course(Habit(probability, 0.5), ROC, rate=0.3, steps=3)
    assert course.tolist() == [probability] * 4


def test_no_step_is_the_start():
    assert predicted_course(FREE, ROC, rate=0.3, steps=0).tolist() == [0.4]


# --- measured groups --------------------------------------------------------------------


def test_a_measured_group_by_hand():
    rewards = [1, 1, 1, 0, 0, 0]
    has_habit = [True, False, False, True, True, False]
    assert measured_drift(rewards, has_habit, [0, 1, 3]) == pytest.approx(sqrt(2) / 3 * (0.5 - 1))
    assert measured_drift(rewards, has_habit, [0, 1, 2]) == 0
    assert measured_drift(rewards, has_habit, []) == 0
    assert measured_drift([], [], []) == 0


@SEEDED
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=20), INSIDE)
def test_it_is_the_policy_gradient_of_the_logit(rollouts, p):
    rewards = [float(right) for right, _ in rollouts]
    has_habit = [habit for _, habit in rollouts]
    assume(len(set(rewards)) == 2)
    advantages = group_advantages(rewards, epsilon=0.0)
    gradient = np.mean(advantages * (np.array(has_habit) - p))
    found = measured_drift(rewards, has_habit, range(len(rewards)))
    assert found == pytest.approx(gradient, abs=1e-12)


# --- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Habit(1.2, 0.5), "probability of the habit is 1.2"),
        (lambda: Habit(float("nan"), 0.5), "probability of the habit is nan"),
        (lambda: Habit(0.4, -0.1), "success of clean rollouts is -0.1"),
        (lambda: Habit(0.4, 0.5, 0.6), "minus cost 0.6"),
        (lambda: Habit(0.4, 0.5, -0.6), "minus cost -0.6"),
        (lambda: Sampling(8, 1), "cannot keep 1 of 8"),
        (lambda: Sampling(8, 9), "cannot keep 9 of 8"),
        (lambda: Sampling(8, 4, 0.0), "ratio of weights is 0.0"),
        (lambda: Sampling(8, 4, float("inf")), "ratio of weights is inf"),
        (lambda: fluid_drift(FREE, float("nan")), "ratio of weights is nan"),
        (lambda: weight_ratio(0.0), "epsilon is 0.0"),
        (lambda: weight_ratio(0.05, 3), "penalty is 3"),
        (lambda: predicted_course(FREE, ROC, rate=0, steps=1), "rate must be positive"),
        (lambda: predicted_course(FREE, ROC, rate=1, steps=-1), "steps 0 or more"),
        (lambda: measured_drift([1, 0], [True], [0]), "2 rewards, 1 entries"),
        (lambda: measured_drift([1, 0.5], [True, True], [0]), "each must be 0 or 1"),
        (lambda: measured_drift([1, 0], [True, True], [2]), "distinct positions among 2"),
        (lambda: measured_drift([1, 0], [True, True], [0, 0]), "distinct positions among 2"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
