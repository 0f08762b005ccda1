"""Resample-on-Correct: penalties from records, a quota that holds, seeded weighted draws."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.algorithm.roc import (
    DropReason,
    Penalty,
    Selection,
    error_penalty,
    format_penalty,
    inclusion_probabilities,
    penalty,
    quota,
    resample_on_correct,
    sampling_weights,
    select_all,
)
from rstar2.protocol.types import CallStatus, StopReason, ToolCall, Trajectory, Turn

SEEDED = settings(deadline=None, derandomize=True)
OK, ERROR, TIMEOUT, MALFORMED = CallStatus


def rollout(*turns, stop=StopReason.ANSWERED):
    return Trajectory("r", (), (), (), (), tuple(turns), stop)


def calling(*statuses, text="", response="", answer_tags=0):
    calls = tuple(ToolCall("{}", status, response=response) for status in statuses)
    return Turn(text, 1, calls, answer_tags)


ANSWER = calling(answer_tags=1)


# --- penalties come from records --------------------------------------------------------


@pytest.mark.parametrize(
    ("trajectory", "error", "format"),
    [
        (rollout(ANSWER), 0.5, 0.0),  # no tool: 0.5, and one turn is no fault of format
        (rollout(calling(OK), ANSWER), 0.0, 0.0),
        (rollout(calling(ERROR), calling(OK), ANSWER), 1 / 2, 0.0),
        (rollout(calling(ERROR, OK, OK), calling(OK), ANSWER), 1 / 4, 0.0),
        (rollout(calling(OK), calling(OK)), 0.0, 1.0),  # never answered
        (rollout(calling(OK), calling(answer_tags=2)), 0.0, 1 / 2),
        (rollout(calling(OK, answer_tags=1), ANSWER), 0.0, 1 / 2),
        (rollout(calling(answer_tags=9)), 0.5, 1.0),  # not more than 1
        (rollout(stop=StopReason.PROMPT_TOO_LONG), 0.5, 1.0),
    ],
)
def test_penalties_by_hand(trajectory, error, format):
    assert penalty(trajectory) == Penalty(error, format)
    assert penalty(trajectory).total == error + format


@pytest.mark.parametrize("status", [ERROR, TIMEOUT, MALFORMED])
def test_each_way_to_fail_counts(status):
    assert penalty(rollout(calling(status), calling(OK), ANSWER)).error == 0.5


def test_typing_tool_responses_gains_nothing():
    typed = "<tool_response>ok</tool_response>" * 9
    assert penalty(rollout(calling(ERROR, text=typed), ANSWER)).error == 1.0


def test_printing_the_word_error_is_no_error():
    printing = calling(OK, response="relative error: 1e-12\nTraceback: Error")
    assert penalty(rollout(printing, ANSWER)).error == 0.0


def test_an_error_that_does_not_say_so_is_one():
    assert penalty(rollout(calling(TIMEOUT, response="all is well"), ANSWER)).error == 1.0


def test_a_turn_that_was_cut_is_a_turn():
    cut = rollout(calling(OK), calling(answer_tags=3), calling(), stop=StopReason.MAX_TOKENS)
    assert penalty(cut).format == pytest.approx(2 / 3)


def test_tags_are_counted_by_the_record_not_in_the_text():
    quoting = Turn("</answer> <answer> <answer>", 1, (), answer_tags=1)
    assert penalty(rollout(quoting)).format == 0.0


@SEEDED
@given(st.integers(0, 50), st.data())
def test_the_error_penalty_is_a_share(calls, data):
    errors = data.draw(st.integers(0, calls))
    assert error_penalty(calls, errors) == (errors / calls if calls else 0.5)


@SEEDED
@given(st.integers(0, 50), st.integers(1, 30))
def test_the_format_penalty_stays_between_0_and_1_and_one_tag_is_best(tags, turns):
    assert 0 == format_penalty(1, turns) <= format_penalty(tags, turns) <= 1


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="3 errors in 2 calls"):
        error_penalty(2, 3)
    with pytest.raises(ValueError, match="impossible"):
        format_penalty(1, 0)
    with pytest.raises(ValueError, match="impossible"):
        format_penalty(-1, 2)


# --- the quota --------------------------------------------------------------------------


def test_the_quota_holds_for_every_count_up_to_32():
    for size in range(1, 33):
        for negatives in range(size + 1):
            positives = size - negatives
            mixed = positives > 0 and negatives > 0
            for keep in range(2 if mixed else 1, size + 1):
                kept_positives, kept_negatives = quota(positives, negatives, keep)
                assert kept_positives + kept_negatives == keep
                assert min(positives, 1) <= kept_positives <= positives
                assert min(negatives, 1) <= kept_negatives <= negatives


def test_half_of_a_group_is_the_papers_rule_except_for_a_single_negative():
    for keep in range(2, 33):
        for negatives in range(2, 2 * keep):
            positives = 2 * keep - negatives
            assert quota(positives, negatives, keep) == (keep - negatives // 2, negatives // 2)
        assert quota(2 * keep - 1, 1, keep) == (keep - 1, 1)


@pytest.mark.parametrize(
    ("positives", "negatives", "expected"),
    [
        (31, 1, (15, 1)),
        (29, 3, (15, 1)),
        (17, 15, (9, 7)),
        (16, 16, (8, 8)),
        (2, 30, (1, 15)),
        (1, 31, (1, 15)),
        (32, 0, (16, 0)),
        (0, 32, (0, 16)),
    ],
)
def test_the_quota_of_the_papers_group_size(positives, negatives, expected):
    assert quota(positives, negatives, 16) == expected


@pytest.mark.parametrize(("positives", "negatives", "keep"), [(3, 3, 3), (7, 7, 7), (9, 9, 9)])
def test_odd_halves_do_not_fail(positives, negatives, keep):
    assert sum(quota(positives, negatives, keep)) == keep


def test_a_quota_without_a_solution_is_refused():
    with pytest.raises(ValueError, match="cannot keep 5"):
        quota(2, 2, 5)
    with pytest.raises(ValueError, match="one of each sign"):
        quota(2, 2, 1)
    with pytest.raises(ValueError, match="cannot keep 0"):
        quota(2, 2, 0)


# --- the selection of a group -----------------------------------------------------------

PENALTIES = st.builds(
    Penalty,
    st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


@st.composite
def full_groups(draw):
    keep = draw(st.integers(2, 16))
    size = 2 * keep
    ids = draw(st.lists(st.integers(0, 10_000), min_size=size, max_size=size, unique=True))
    rewards = draw(st.lists(st.sampled_from([0, 1]), min_size=size, max_size=size))
    penalties = draw(st.lists(PENALTIES, min_size=size, max_size=size))
    seed = tuple(draw(st.lists(st.integers(0, 2**32), min_size=3, max_size=3)))
    epsilon = draw(st.sampled_from([0.01, 0.05, 0.5, 10.0]))
    return (
        ids,
        rewards,
        penalties,
        {
            "group_size": size,
            "keep": keep,
            "epsilon": epsilon,
            "seed": seed,
        },
    )


@SEEDED
@given(full_groups())
def test_the_group_is_kept_by_its_quota_or_dropped_with_a_name(group):
    ids, rewards, penalties, options = group
    selection = resample_on_correct(ids, rewards, penalties, **options)
    if len(set(rewards)) == 1:
        assert selection == Selection((), DropReason.EQUAL_REWARD)
        return
    assert selection.dropped is None
    assert list(selection.kept) == sorted(set(selection.kept) & set(ids))
    reward_of = dict(zip(ids, rewards, strict=True))
    positives = sum(reward_of[each] for each in selection.kept)
    negatives = len(selection.kept) - positives
    assert (positives, negatives) == quota(sum(rewards), rewards.count(0), options["keep"])
    assert positives >= 1
    assert negatives >= 1


@SEEDED
@given(full_groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(group, random):
    ids, rewards, penalties, options = group
    shuffled = list(zip(ids, rewards, penalties, strict=True))
    random.shuffle(shuffled)
    again = resample_on_correct(*zip(*shuffled, strict=True), **options)
    assert again == resample_on_correct(ids, rewards, penalties, **options)


@SEEDED
@given(full_groups(), st.data())
def test_a_group_that_lacks_a_rollout_is_dropped_as_incomplete(group, data):
    ids, rewards, penalties, options = group
    left = data.draw(st.integers(0, len(ids) - 1))
    selection = resample_on_correct(ids[:left], rewards[:left], penalties[:left], **options)
    assert selection == Selection((), DropReason.INCOMPLETE)
    plain = select_all(ids[:left], rewards[:left], group_size=len(ids))
    assert plain == selection


@SEEDED
@given(full_groups())
def test_plain_grpo_keeps_everything_or_drops_for_the_same_reasons(group):
    ids, rewards, _, options = group
    selection = select_all(ids, rewards, group_size=options["group_size"])
    equal = len(set(rewards)) == 1
    assert selection.kept == (() if equal else tuple(sorted(ids)))
    assert selection.dropped == (DropReason.EQUAL_REWARD if equal else None)


@SEEDED
@given(full_groups())
def test_the_penalties_of_wrong_answers_never_matter(group):
    ids, rewards, penalties, options = group
    flat = [
        each if reward else Penalty(0, 0) for each, reward in zip(penalties, rewards, strict=True)
    ]
    assert resample_on_correct(ids, rewards, flat, **options) == resample_on_correct(
        ids, rewards, penalties, **options
    )


def test_the_seed_decides():
    penalties = [Penalty(0.5, 0.0)] * 16
    rewards = [0, 1] * 8

    def select(*seed):
        options = {"group_size": 16, "keep": 8, "epsilon": 0.05, "seed": seed}
        return resample_on_correct(range(16), rewards, penalties, **options)

    assert select(1, 2, 3) == select(1, 2, 3)
    assert len({select(0, step, problem) for step in range(5) for problem in range(5)}) > 20


GROUP = {
    "sample_ids": [1, 2, 3, 4],
    "rewards": [0, 1, 1, 0],
    "penalties": [Penalty(0, 0)] * 4,
    "group_size": 4,
    "keep": 2,
    "epsilon": 0.05,
    "seed": (0, 0, 0),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [0, 1, 1]}, "4 sample ids, 3 rewards"),
        ({"penalties": []}, "4 sample ids, 0 penalties"),
        ({"sample_ids": [1, 2, 3, 3]}, "comes twice"),
        ({"rewards": [0, 1, 0.5, 0]}, "0 or 1"),
        ({"group_size": 3}, "4 rollouts in a group of size 3"),
        ({"keep": 5}, "cannot keep 5"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
    ],
)
def test_what_is_no_group_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        resample_on_correct(**(GROUP | change))


# --- the draws --------------------------------------------------------------------------

TRIALS = 4000


def frequencies(rewards, penalties, keep, epsilon=0.05):
    """How often each rollout of a group is kept, over many steps."""
    counts = np.zeros(len(rewards))
    for step in range(TRIALS):
        selection = resample_on_correct(
            range(len(rewards)),
            rewards,
            penalties,
            group_size=len(rewards),
            keep=keep,
            epsilon=epsilon,
            seed=(7, step, 1),
        )
        counts[list(selection.kept)] += 1
    return counts / TRIALS


def assert_close(observed, expected):
    """Within 4.5 standard errors: a right sampler fails once in 150,000 comparisons."""
    bound = 4.5 * np.sqrt(expected * (1 - expected) / TRIALS) + 1e-9
    assert (np.abs(observed - expected) <= bound).all(), (observed, expected)


CLEAN, HALF, THIRD, NO_ANSWER = (Penalty(0, 0), Penalty(0.5, 0), Penalty(1 / 3, 0), Penalty(0, 1))


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_first_draws_match_the_weights(epsilon):
    # five positives and one negative, keep 2: one positive is drawn
    penalties = [CLEAN, HALF, THIRD, HALF, NO_ANSWER, CLEAN]
    observed = frequencies([1, 1, 1, 1, 1, 0], penalties, keep=2, epsilon=epsilon)
    weights = np.array([1 / (p.total + epsilon) for p in penalties[:5]])
    assert_close(observed[:5], weights / weights.sum())


@pytest.mark.parametrize(
    ("penalties", "num_negative"),
    [
        ([CLEAN, HALF], 2),
        ([CLEAN, HALF, THIRD], 1),
        ([CLEAN, HALF, HALF, THIRD], 2),
        ([CLEAN, CLEAN, HALF, HALF, NO_ANSWER], 1),
        ([CLEAN, THIRD, HALF], 3),
        ([HALF, HALF, CLEAN, NO_ANSWER, THIRD, CLEAN], 6),
    ],
)
def test_inclusions_match_exact_enumeration(penalties, num_negative):
    rewards = [1] * len(penalties) + [0] * num_negative
    of_negatives = [NO_ANSWER, CLEAN, HALF, THIRD, CLEAN, NO_ANSWER][:num_negative]
    keep = len(rewards) // 2
    observed = frequencies(rewards, penalties + of_negatives, keep)
    num_kept_positive, num_kept_negative = quota(len(penalties), num_negative, keep)
    weights = [1 / (p.total + 0.05) for p in penalties]
    expected = inclusion_probabilities(weights, num_kept_positive)
    assert_close(observed[: len(penalties)], expected)
    uniform = np.full(num_negative, num_kept_negative / num_negative)
    assert_close(observed[len(penalties) :], uniform)


def test_imperfect_positives_are_seen_sometimes():
    observed = frequencies([1, 1, 1, 1, 0, 0, 0, 0], [CLEAN] * 2 + [HALF] * 2 + [CLEAN] * 4, 4)
    assert 0.02 < observed[2] < observed[0] < 0.98


def test_weights_prefer_the_clean_by_the_ratio_that_epsilon_sets():
    clean, half = sampling_weights([CLEAN, HALF], 0.05)
    assert clean / half == pytest.approx(11)
    clean, half = sampling_weights([CLEAN, HALF], 0.5)
    assert clean / half == pytest.approx(2)


# --- the exact enumeration --------------------------------------------------------------

WEIGHTS = st.lists(st.floats(0.05, 20), min_size=1, max_size=6)


@SEEDED
@given(WEIGHTS, st.data())
def test_enumeration_equals_the_sum_over_every_sequence_of_draws(weights, data):
    draws = data.draw(st.integers(0, len(weights)))
    expected = np.zeros(len(weights))
    for sequence in permutations(range(len(weights)), draws):
        probability, left = 1.0, sum(weights)
        for item in sequence:
            probability *= weights[item] / left
            left -= weights[item]
        expected[list(sequence)] += probability
    np.testing.assert_allclose(inclusion_probabilities(weights, draws), expected, rtol=1e-6)


@SEEDED
@given(WEIGHTS)
def test_one_draw_is_in_proportion_to_the_weights_and_all_draws_take_all(weights):
    shares = np.array(weights) / sum(weights)
    np.testing.assert_allclose(inclusion_probabilities(weights, 1), shares)
    np.testing.assert_allclose(inclusion_probabilities(weights, len(weights)), 1.0)


@SEEDED
@given(st.integers(1, 10), st.data())
def test_equal_weights_are_drawn_equally(size, data):
    draws = data.draw(st.integers(0, size))
    np.testing.assert_allclose(inclusion_probabilities([3.0] * size, draws), draws / size)


def test_the_enumeration_refuses_impossible_draws():
    with pytest.raises(ValueError, match="cannot draw 3 of 2"):
        inclusion_probabilities([1.0, 1.0], 3)
    with pytest.raises(ValueError, match="positive"):
        inclusion_probabilities([1.0, 0.0], 1)
