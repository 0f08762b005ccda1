"""One GRPO update: weigh, differentiate, step. The loss is ``rstar2.algorithm.policy_loss``.

1. The weight of a token is fixed before the micro-batches are cut, so that the cut
   does not matter.
2. Old log-probs are those that the engine recorded while it sampled.
3. A gradient that is not finite stops the run before it reaches the weights.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.algorithm.advantage import group_advantages
from rstar2.algorithm.loss import ClipRange, PolicyLoss, policy_loss
from rstar2.algorithm.weights import row_weights
from rstar2.errors import UserError
from rstar2.protocol import Trajectory
from rstar2.training.packed import TokenSequence, micro_batches, token_log_probs
from rstar2.training.selection import Group, shaped_reward
from rstar2.training.spec import RLSpec


class NonFiniteGradientError(UserError):
    """A minibatch's gradient is infinite or not a number; the weights are as before it.

    The minibatches before it, of the same step, have changed them.
    """


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One trajectory with what the loss needs of it."""

    trajectory: Trajectory
    advantage: float
    weight: float

    @property
    def sequence(self) -> TokenSequence:
        """Prompt and response; the tokens of the model count."""
        path = self.trajectory
        length = len(path.prompt_ids)
        return TokenSequence(
            path.prompt_ids + path.response_ids, (0,) * length + path.response_mask, length
        )


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Means over the model tokens and optimiser steps of one batch; NaN over none.

    Attributes:
        optimizer_steps: Optimiser steps taken; 0 if no group had a gradient.
        loss: Mean loss.
        clip_low_ratio: Share of tokens held by the lower bound.
        clip_high_ratio: Share of tokens held by the upper bound.
        kl: Mean estimate of the KL divergence from the policy that sampled, in nats.
        grad_norm: Mean norm of the gradient before clipping.
    """

    optimizer_steps: int
    loss: float
    clip_low_ratio: float
    clip_high_ratio: float
    kl: float
    grad_norm: float


def update(
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    spec: RLSpec,
    *,
    seed: tuple[int, int],
) -> UpdateReport:
    """Takes the optimiser steps of one batch of groups, in place.

    Args:
        model: The policy.
        optimizer: Over all its parameters.
        groups: Groups whose selection kept something.
        spec: Settings.
        seed: (seed of the run, step), for the order of groups in the minibatches.

    Raises:
        NonFiniteGradientError: If the norm of a gradient is not finite.
    """
    order = list(groups)
    random.Random(f"minibatches:{seed[0]}:{seed[1]}").shuffle(order)
    count = min(spec.minibatches, len(order))
    losses, norms = [], []
    tokens = low = high = kl = 0.0
    for number in range(count):
        rows = update_rows(order[number::count], spec)
        loss = 0.0
        written = [row for row in rows if row.trajectory.num_model_tokens]
        sequences = [row.sequence for row in written]
        for cut in micro_batches(sequences, spec.micro_batch_tokens):
            log_probs = token_log_probs(model, sequences[cut], spec.temperature)
            part = _row_loss(log_probs, written[cut], spec)
            part.loss.backward()
            loss += part.loss.item()
            tokens += part.tokens.item()
            low += part.clipped_low.item()
            high += part.clipped_high.item()
            kl += part.kl.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip).item()
        if not math.isfinite(norm):
            raise NonFiniteGradientError(
                f"the gradient of minibatch {number + 1} of {count} has norm {norm} (loss {loss}): "
                "nothing was changed by it; set a lower rl.learning_rate in the preset"
            )
        norms.append(norm)
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    per_token, per_step = tokens or math.nan, count or math.nan
    return UpdateReport(
        optimizer_steps=count,
        loss=sum(losses) / per_step,
        clip_low_ratio=low / per_token,
        clip_high_ratio=high / per_token,
        kl=kl / per_token,
        grad_norm=sum(norms) / per_step,
    )


def update_rows(groups: Sequence[Group], spec: RLSpec) -> list[UpdateRow]:
    """The rows of one optimiser step, each with its advantage and token weight.

    Overlong filtering leaves rows out after the advantages are made, as DAPO does: a rollout
    that a limit ended still lowers the mean of its group.
    """
    rows = [
        (number, rollout, float(advantage))
        for number, group in enumerate(groups)
        for rollout, advantage in zip(
            group.kept,
            group_advantages([shaped_reward(rollout, spec) for rollout in group.kept]),
            strict=True,
        )
        if not (spec.overlong_filtering and rollout.trajectory.stop.is_truncated)
    ]
    if not rows:
        return []
    weights = row_weights(
        [rollout.trajectory.num_model_tokens for _, rollout, _ in rows],
        [number for number, _, _ in rows],
        spec.normaliser,
    )
    return [
        UpdateRow(rollout.trajectory, advantage, float(weight))
        for (_, rollout, advantage), weight in zip(rows, weights, strict=True)
    ]


def _row_loss(log_probs: Tensor, rows: Sequence[UpdateRow], spec: RLSpec) -> PolicyLoss:
    trajectories = [row.trajectory for row in rows]
    counts = torch.tensor([t.num_model_tokens for t in trajectories])
    old = [
        log_prob
        for t in trajectories
        for log_prob, mask in zip(t.log_probs, t.response_mask, strict=True)
        if mask
    ]
    return policy_loss(
        log_probs,
        torch.tensor(old),
        torch.tensor([row.advantage for row in rows]).repeat_interleave(counts),
        torch.tensor([row.weight for row in rows]).repeat_interleave(counts),
        torch.ones(int(counts.sum())),
        ClipRange(spec.clip_low, spec.clip_high),
    )
