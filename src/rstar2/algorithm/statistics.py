"""What a handful of samples says: pass@k, and intervals over seeds and over problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate that one of k samples is right, from c right ones in n.

    ``1 - binomial(n - c, k) / binomial(n, k)``, as a product that never overflows.

    Args:
        n: Samples of the problem.
        c: How many of them are right.
        k: Samples that one may use.

    Raises:
        ValueError: If ``c`` is not between 0 and ``n``, or ``k`` not between 1 and ``n``
            (n samples say nothing unbiased about more than n).
    """
    if not 0 <= c <= n:
        raise ValueError(f"{c} right of {n} samples: must be 0 to {n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} from {n} samples: draw at least k samples, k at least 1")
    if n - c < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval.

    Attributes:
        mean: The mean of the values.
        low: Lower end; nan if one value alone tells no spread.
        high: Upper end; nan likewise.
    """

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of a mean, for independent runs such as seeds.

    For paired arms pass the differences, one a seed.

    Args:
        values: One number a run.
        confidence: Coverage, between 0 and 1.

    Returns:
        The interval; its ends are nan for a single run, which tells no spread.

    Raises:
        ValueError: If there is no value, one is not finite, or ``confidence`` is out of range.
    """
    array, tail = _checked(values, confidence)
    mean = float(array.mean())
    if array.size == 1:
        return Interval(mean, np.nan, np.nan)
    quantile = float(stdtrit(array.size - 1, 1.0 - tail))
    half = quantile * float(array.std(ddof=1)) / float(np.sqrt(array.size))
    return Interval(mean, mean - half, mean + half)


def bootstrap_interval(
    per_problem_means: Sequence[float],
    seed: int,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """Percentile bootstrap over problems: how the mean would vary with other problems.

    Problems are resampled, not rollouts: rollouts of one problem are not independent.

    Args:
        per_problem_means: One mean a problem, over its samples.
        seed: Seed of the resampling.
        confidence: Coverage, between 0 and 1.
        resamples: Bootstrap samples.

    Returns:
        The interval; its ends are nan for a single problem, which tells no spread.

    Raises:
        ValueError: If there is no value, one is not finite, ``confidence`` is out of
            range or ``resamples`` is less than 1.
    """
    array, tail = _checked(per_problem_means, confidence)
    if resamples < 1:
        raise ValueError(f"{resamples} bootstrap resamples: need at least 1")
    mean = float(array.mean())
    if array.size == 1:
        return Interval(mean, np.nan, np.nan)
    chosen = np.random.default_rng(seed).integers(array.size, size=(resamples, array.size))
    low, high = np.quantile(array[chosen].mean(axis=1), [tail, 1.0 - tail])
    return Interval(mean, float(low), float(high))


def _checked(values: Sequence[float], confidence: float) -> tuple[NDArray[np.float64], float]:
    """The values as an array, and the probability of one tail."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values {array.tolist()}: need a list of one or more finite numbers")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: must lie between 0 and 1, as 0.95")
    return array, (1.0 - confidence) / 2
