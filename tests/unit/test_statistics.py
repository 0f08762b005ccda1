"""Statistics of a few samples: pass@k and two kinds of interval."""

from math import comb, isnan

import numpy as np
import pytest
import scipy.stats

from rstar2.algorithm.statistics import bootstrap_interval, mean_interval, pass_at_k


@pytest.mark.parametrize("n", range(1, 17))
def test_pass_at_k_equals_the_binomial_formula_for_every_count(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            expected = 1 - comb(n - c, k) / comb(n, k)
            assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_1_is_the_accuracy():
    assert pass_at_k(16, 5, 1) == pytest.approx(5 / 16)


def test_pass_at_k_stays_exact_where_binomials_overflow_a_float():
    assert pass_at_k(5000, 10, 2500) == pytest.approx(1 - comb(4990, 2500) / comb(5000, 2500))


def test_pass_at_k_is_unbiased():
    right = np.random.default_rng(0).binomial(8, 0.3, size=4000)
    estimate = np.mean([pass_at_k(8, int(c), 4) for c in right])
    assert estimate == pytest.approx(1 - 0.7**4, abs=0.02)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n, c, k):
    with pytest.raises(ValueError, match=r"samples"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("values", [[0.2, 0.5], [0.85, 0.9, 0.82], [1.0, 2.0, 4.0, 8.0, 16.0]])
def test_mean_interval_is_scipys_t_interval(values, confidence):
    interval = mean_interval(values, confidence)
    low, high = scipy.stats.t.interval(
        confidence, len(values) - 1, np.mean(values), scipy.stats.sem(values)
    )
    assert (interval.mean, interval.low, interval.high) == pytest.approx(
        (np.mean(values), low, high)
    )


def test_mean_interval_of_three_seeds_by_hand():
    # the laptop's paired differences: mean 0.2, standard deviation 0.1, t(2, .975) = 4.302653
    interval = mean_interval([0.1, 0.2, 0.3])
    assert interval.high - interval.mean == pytest.approx(4.302653 * 0.1 / np.sqrt(3))


def test_the_t_interval_covers_as_often_as_it_says():
    samples = np.random.default_rng(1).normal(3.0, 2.0, size=(2000, 4))
    intervals = [mean_interval(row.tolist()) for row in samples]
    assert np.mean([i.low <= 3.0 <= i.high for i in intervals]) == pytest.approx(0.95, abs=0.02)


def test_the_bootstrap_agrees_with_scipys_percentile_bootstrap():
    means = np.random.default_rng(2).beta(2, 1, size=60)
    interval = bootstrap_interval(means.tolist(), 3)
    reference = scipy.stats.bootstrap(
        (means,), np.mean, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    assert interval.mean == pytest.approx(means.mean())
    assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high), abs=5e-3)


def test_the_bootstrap_is_seeded():
    means = [0.0, 0.25, 0.5, 1.0, 1.0]
    assert bootstrap_interval(means, 1) == bootstrap_interval(means, 1)
    # few distinct means: the ends can agree, the resamples do not
    fine = np.linspace(0, 1, 37).tolist()
    assert bootstrap_interval(fine, 1) != bootstrap_interval(fine, 2)


def test_more_confidence_is_a_wider_interval():
    means = np.linspace(0, 1, 20).tolist()
    for make in (
        mean_interval,
        lambda m, confidence: bootstrap_interval(m, 0, confidence=confidence),
    ):
        narrow, wide = make(means, confidence=0.5), make(means, confidence=0.99)
        assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


@pytest.mark.parametrize("interval", [mean_interval([0.7]), bootstrap_interval([0.7], 0)])
def test_one_value_has_a_mean_and_no_interval(interval):
    assert interval.mean == 0.7
    assert isnan(interval.low)
    assert isnan(interval.high)


def test_equal_values_have_an_interval_of_no_width():
    assert mean_interval([0.5] * 3).low == mean_interval([0.5] * 3).high == 0.5
    assert bootstrap_interval([0.5] * 3, 0).low == 0.5


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_intervals_refuse_values_that_are_not_numbers(values):
    with pytest.raises(ValueError, match="finite"):
        mean_interval(values)
    with pytest.raises(ValueError, match="finite"):
        bootstrap_interval(values, 0)


def test_intervals_refuse_bad_parameters():
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean_interval([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match="at least 1"):
        bootstrap_interval([1.0, 2.0], 0, resamples=0)
