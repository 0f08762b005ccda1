"""The instant check reads a premise off rollouts, and measures each arm's drift on them."""

import numpy as np
import pandas as pd
import pytest

from rstar2.experiments.instant_check import (
    EPSILONS,
    PremiseError,
    instant_check,
    premise,
    sampling_of,
)
from rstar2.experiments.presets import load_torch_preset
from rstar2.training.spec import Arm

SPEC = load_torch_preset("laboratory").rl


def sampled(habit: float, success: float, cost: float, problems: int = 150) -> pd.DataFrame:
    """Rollouts of a policy with one habit, by chance: one failed call of two, or none of one."""
    rng = np.random.default_rng(0)
    erring = rng.random((problems, SPEC.oversample)) < habit
    right = rng.random(erring.shape) < np.where(erring, success - cost, success)
    errors = erring.astype(int).ravel()
    return pd.DataFrame(
        {
            "problem_id": np.repeat(np.arange(problems), SPEC.oversample),
            "correct": right.ravel(),
            "calls": errors + 1,
            "errors": errors,
            "error_types": np.where(errors, "ModuleNotFoundError", ""),
            "turns": errors + 2,
            "answer_tags": 1,
        }
    )


def test_the_premise_is_read_off_the_rollouts() -> None:
    told = premise(sampled(0.4, 0.6, 0.2))
    assert told.habit.probability == pytest.approx(0.4, abs=0.03)
    assert told.habit.success == pytest.approx(0.6, abs=0.04)
    assert told.habit.cost == pytest.approx(0.2, abs=3 * told.cost_error)
    assert told.mixed > 0.99
    assert told.other_errors == 0


def test_failed_calls_of_another_kind_are_told_apart() -> None:
    rollouts = sampled(0.4, 0.5, 0.0)
    first = rollouts.index[rollouts["errors"] > 0][0]
    rollouts.loc[first, ["error_types", "errors", "calls"]] = ["ModuleNotFoundError bad_json", 2, 3]
    assert premise(rollouts).other_errors == pytest.approx(1 / rollouts["calls"].sum())


@pytest.mark.thorough
def test_every_arm_drifts_as_predicted_when_the_habit_is_free() -> None:
    checks = instant_check(sampled(0.4, 0.5, 0.0), SPEC)
    assert [(check.arm, check.epsilon) for check in checks] == [
        (Arm.GRPO, None),
        (Arm.GRPO_2G, None),
        (Arm.ROC_UNIFORM, None),
        *((Arm.GRPO_ROC, epsilon) for epsilon in EPSILONS),
    ]
    assert max(abs(check.deviation) for check in checks) < 3
    assert [check.predicted for check in checks[:3]] == [0.0, 0.0, 0.0]
    measured = [check.measured for check in checks[3:]]
    assert measured == sorted(measured), "the smaller ε, the stronger"
    assert measured[0] < -0.1


@pytest.mark.thorough
def test_a_habit_that_costs_success_drifts_away_under_every_arm() -> None:
    checks = instant_check(sampled(0.4, 0.6, 0.4), SPEC)
    assert all(check.measured < -5 * check.standard_error for check in checks)


def test_the_same_rollouts_give_the_same_numbers_in_any_order() -> None:
    rollouts = sampled(0.4, 0.5, 0.0, problems=20)
    shuffled = rollouts.assign(place=np.random.default_rng(1).permutation(len(rollouts)))
    by_problem = shuffled.sort_values(["problem_id", "place"])
    again = instant_check(rollouts, SPEC)
    assert instant_check(rollouts, SPEC) == again
    ours = {check.arm: check.measured for check in instant_check(by_problem, SPEC)}
    assert ours[Arm.GRPO_2G] == pytest.approx(again[1].measured)


def test_a_sample_that_shows_nothing_is_refused() -> None:
    with pytest.raises(PremiseError, match=r"groups of \[8\] rollouts: give 16"):
        instant_check(sampled(0.4, 0.5, 0.0).groupby("problem_id").head(8), SPEC)
    with pytest.raises(PremiseError, match="0 of 2400 rollouts have a failed call"):
        premise(sampled(0.0, 0.5, 0.0))
    with pytest.raises(PremiseError, match="2400 of 2400"):
        premise(sampled(1.0, 0.5, 0.0))


def test_only_the_arms_of_the_laboratory_have_a_prediction() -> None:
    assert sampling_of(Arm.GRPO_ROC, SPEC).ratio == pytest.approx(11)
    assert sampling_of(Arm.GRPO_2G, SPEC).kept == SPEC.oversample
    with pytest.raises(ValueError, match="roc-cleanest is no arm of the laboratory"):
        sampling_of(Arm.ROC_CLEANEST, SPEC)
