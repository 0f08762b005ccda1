"""Advantages compare a rollout with its siblings (paper, Eq. 7)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.algorithm.advantage import group_advantages

SEEDED = settings(deadline=None, derandomize=True)
groups = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=32)


def test_by_hand():
    # mean 1/4, population variance 3/16
    expected = np.array([0.75, -0.25, -0.25, -0.25]) / (np.sqrt(3) / 4)
    np.testing.assert_allclose(group_advantages([1, 0, 0, 0], epsilon=0), expected)


def test_the_standard_deviation_is_the_populations_as_torch_computes_it():
    rewards = torch.tensor([1.0, 0, 1, 1, 0, 0, 0], dtype=torch.float64)
    expected = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)
    np.testing.assert_allclose(group_advantages(rewards.tolist()), expected.numpy(), rtol=1e-12)


@SEEDED
@given(groups)
def test_advantages_add_up_to_nothing_and_have_unit_spread(rewards):
    advantages = group_advantages(rewards)
    assert abs(advantages.sum()) < 1e-9
    mixed = len(set(rewards)) == 2
    assert advantages.std() == pytest.approx(1.0 if mixed else 0.0, abs=1e-5)


@SEEDED
@given(groups)
def test_right_is_above_zero_and_wrong_below_when_both_exist(rewards):
    if len(set(rewards)) == 2:
        assert ((group_advantages(rewards) > 0) == (np.array(rewards) == 1)).all()


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_equal_rewards_give_exactly_zero(reward):
    assert group_advantages([reward] * 8).tolist() == [0.0] * 8


@pytest.mark.parametrize("rewards", [[], [1.0, float("nan")]])
def test_bad_rewards_are_refused(rewards):
    with pytest.raises(ValueError, match="finite"):
        group_advantages(rewards)
