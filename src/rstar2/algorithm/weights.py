"""The weight of each rollout in the loss of an optimiser step (paper, Eq. 6)."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Normaliser(StrEnum):
    """Over which tokens the loss is averaged."""

    BATCH = "batch"
    """Over all model tokens of the optimiser step: every token counts the same."""
    GROUP = "group"
    """Inside each group, then over groups (paper, Eq. 6): every problem counts the same."""


def row_weights(
    token_counts: Sequence[int], groups: Sequence[int], normaliser: Normaliser
) -> NDArray[np.float64]:
    """Weight of each rollout of one optimiser step.

    Args:
        token_counts: Model tokens of each row of *this* optimiser step.
        groups: Group of each row.
        normaliser: BATCH gives ``1 / N``, N the tokens of the step; GROUP gives
            ``1 / (number of groups * tokens of the row's group)``.

    Returns:
        Weights, shape [rows]; ``sum(weights * token_counts)`` is 1.

    Raises:
        ValueError: If the inputs differ in length, or there is no model token to
            average over in the step (BATCH) or in one of its groups (GROUP).
    """
    if len(token_counts) != len(groups):
        raise ValueError(f"{len(token_counts)} token counts, {len(groups)} groups")
    if normaliser is Normaliser.BATCH:
        total = sum(token_counts)
        if total == 0:
            raise ValueError(f"no model token in the {len(groups)} rows of this step")
        return np.full(len(groups), 1.0 / total)
    tokens_of: Counter[int] = Counter()
    for group, count in zip(groups, token_counts, strict=True):
        tokens_of[group] += count
    empty = sorted(group for group, tokens in tokens_of.items() if tokens == 0)
    if empty or not tokens_of:
        raise ValueError(f"no model token in groups {empty} of the {len(tokens_of)} in this step")
    return np.array([1.0 / (len(tokens_of) * tokens_of[group]) for group in groups])
