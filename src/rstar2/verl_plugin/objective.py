"""verl's advantage estimator and policy loss, around ours.

The weight of a row is fixed for the whole optimiser step, and verl's loss function sees a
micro-batch. So the estimator, which sees the batch, folds the weight into the advantage: the
objective is linear in both. The loss is then a plain sum, times the number of ranks, over whose
gradients FSDP takes the mean.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rstar2.algorithm.advantage import group_advantages
from rstar2.algorithm.loss import ClipRange, policy_loss
from rstar2.algorithm.weights import Normaliser, row_weights
from rstar2.errors import UserError


def weighted_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[str],
    config: Any,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """The advantage of each row times its weight, over its model tokens.

    Rows without a model token get 0 and count nowhere: verl pads a batch with such rows. So a
    batch must be the whole of an optimiser step.

    Args:
        token_level_rewards: Shape [rows, tokens]; a row's sum is its shaped reward.
        response_mask: 1 where the model wrote the token, same shape.
        index: Group of each row.
        config: Node ``algorithm`` of verl's configuration; its ``normaliser`` is ours.

    Returns:
        Advantages and returns, which are the same, shape [rows, tokens].
    """
    counts = [int(count) for count in response_mask.sum(-1)]
    rewards = token_level_rewards.double().sum(-1)
    groups: dict[str, list[int]] = {}
    for row, count in enumerate(counts):
        if count:
            groups.setdefault(index[row], []).append(row)
    rows = [row for group in groups.values() for row in group]
    values = torch.zeros(len(counts), dtype=torch.float64)
    if rows:
        numbers = [number for number, group in enumerate(groups.values()) for _ in group]
        weights = row_weights([counts[r] for r in rows], numbers, Normaliser(config.normaliser))
        one_by_one = [group_advantages(rewards[group].tolist()) for group in groups.values()]
        values[rows] = torch.from_numpy(np.concatenate(one_by_one) * weights)
    spread = (values.unsqueeze(-1) * response_mask).to(token_level_rewards.dtype)
    return spread, spread


def summed_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch, of which rank and batch take sums.

    Args:
        old_log_prob: Under the policy that sampled, shape [rows, tokens].
        log_prob: Under the policy being trained.
        advantages: Of :func:`weighted_advantages`.
        response_mask: True where the model wrote the token.
        loss_agg_mode: Of no effect: the weights say how rows are added.
        config: verl's ``ActorConfig``, with its ``global_batch_info``.
        rollout_is_weights: Must be None; the paper has no importance correction.

    Returns:
        The loss, and shares of the micro-batch's model tokens that a bound of the clip range
        holds and their mean estimate of the KL divergence; verl takes the mean of the
        micro-batches.

    Raises:
        UserError: If verl is set to correct for the engine that sampled.
    """
    del loss_agg_mode
    if rollout_is_weights is not None:
        raise UserError(
            "algorithm.rollout_correction weighs tokens, and the loss of rstar2 has no such "
            "weight: set rollout_correction.rollout_is to null"
        )
    part = policy_loss(
        log_prob,
        old_log_prob,
        advantages,
        torch.ones_like(advantages),
        response_mask,
        ClipRange(config.clip_ratio_low, config.clip_ratio_high),
    )
    tokens = max(1, int(part.tokens))
    shares = {
        "clip_low_ratio": part.clipped_low.item() / tokens,
        "clip_high_ratio": part.clipped_high.item() / tokens,
        "kl": part.kl.item() / tokens,
    }
    return part.loss * config.global_batch_info["dp_size"], shares
