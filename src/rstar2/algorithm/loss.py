"""The policy loss: clipped token-level objective without KL or entropy (paper, Eq. 6).

    L = - sum over rows i of w_i * sum over model tokens t of
            min(ratio * A_i, clip(ratio, 1 - low, 1 + high) * A_i)

The loss is a *sum* with the weight of each row fixed beforehand for the whole
optimiser step: gradients of micro-batches add up to those of the whole, however
the rows are split. A mean inside each micro-batch would not do that.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ClipRange:
    """How far the ratio may move before its gradient stops: ``[1 - low, 1 + high]``.

    Attributes:
        low: Bound on making a token of a bad rollout less likely.
        high: Bound on making a token of a good rollout more likely; larger than
            ``low`` in the paper, to leave room for exploration ("Clip-Higher").
    """

    low: float = 0.2
    high: float = 0.28

    def __post_init__(self) -> None:
        if not (0 <= self.low < 1 and self.high >= 0):
            raise ValueError(f"clip range {self.low}, {self.high}: need 0 <= low < 1, 0 <= high")


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Loss of some rows, and sums over their model tokens. All are scalar tensors.

    Every field is a sum: micro-batches of a step add up, and a mean is a sum
    divided by the summed ``tokens``. Only ``loss`` carries a gradient.

    Attributes:
        loss: The weighted sum to minimise.
        tokens: Number of model tokens.
        clipped_low: Tokens whose gradient the lower bound stops (advantage < 0).
        clipped_high: Tokens whose gradient the upper bound stops (advantage > 0).
        kl: Sum of ``ratio - 1 - log ratio``, an estimate of the KL divergence of the policy
            that sampled from the one being trained that is never negative; reported, no part
            of the loss.
    """

    loss: Tensor
    tokens: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    kl: Tensor


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    mask: Tensor,
    clip: ClipRange,
) -> PolicyLoss:
    """Clipped policy loss over the model tokens of some rows (paper, Eq. 6).

    Args:
        log_probs: Under the policy being trained, shape [rows, tokens] or flat [tokens].
        old_log_probs: Under the policy that sampled, same shape; no gradient flows here.
        advantages: One a row, shape [rows], or one a token, the shape of ``log_probs``.
        weights: From :func:`row_weights`, shaped as ``advantages``.
        mask: 1 (or True) where the model wrote the token; same shape as ``log_probs``.
            Elsewhere neither the values nor the gradients of any input matter.
        clip: Bounds of the ratio.

    Returns:
        The loss, a sum over rows, with its token sums.

    Raises:
        ValueError: If the shapes do not fit.
    """
    if not log_probs.shape == old_log_probs.shape == mask.shape:
        raise ValueError(
            f"log_probs {tuple(log_probs.shape)}, old_log_probs {tuple(old_log_probs.shape)} and "
            f"mask {tuple(mask.shape)} must have one shape"
        )
    written = mask.bool()
    # Masked one by one: a product with 0 afterwards would let inf and nan through.
    advantage = torch.where(written, _per_token(advantages, log_probs, "advantages"), 0.0).detach()
    weight = torch.where(written, _per_token(weights, log_probs, "weights"), 0.0).detach()
    log_ratio = torch.where(written, log_probs - old_log_probs.detach(), 0.0)
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    objective = torch.minimum(ratio * advantage, bounded * advantage)
    fixed = ratio.detach()
    return PolicyLoss(
        loss=-(weight * objective).sum(),
        tokens=written.sum(),
        clipped_low=(written & (advantage < 0) & (fixed < 1 - clip.low)).sum(),
        clipped_high=(written & (advantage > 0) & (fixed > 1 + clip.high)).sum(),
        kl=(fixed - 1 - log_ratio.detach()).sum(),
    )


def _per_token(values: Tensor, like: Tensor, name: str) -> Tensor:
    """``values`` of rows or of tokens, expanded to the shape of ``like``."""
    column = values.unsqueeze(-1) if values.dim() < like.dim() else values
    if column.shape not in (like.shape, (*like.shape[:-1], 1)):
        raise ValueError(
            f"{name} {tuple(values.shape)} fit neither the rows nor the tokens of "
            f"log_probs {tuple(like.shape)}"
        )
    return column.expand_as(like)
