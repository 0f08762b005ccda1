"""Group-relative advantage: how much better a rollout is than its siblings (paper, Eq. 7)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_advantages(rewards: Sequence[float], *, epsilon: float = 1e-6) -> NDArray[np.float64]:
    """``(r - mean) / (std + epsilon)`` over the rollouts that were kept (paper, Eq. 7).

    The standard deviation is the population's: the group is all there is, not a
    sample of a larger one.

    Args:
        rewards: Rewards of the G kept rollouts of one problem.
        epsilon: Added to the standard deviation, so that equal rewards give 0.

    Returns:
        Advantages, shape [G]; they add up to 0.

    Raises:
        ValueError: If there is no reward, or one is not finite.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"rewards {values.tolist()}: need one or more finite numbers")
    advantages: NDArray[np.float64] = (values - values.mean()) / (values.std() + epsilon)
    return advantages
