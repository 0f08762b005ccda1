"""One GRPO step: select, weigh, update. The loss is ``rstar2.algorithm.policy_loss``.

1. Selection sees records, never text. Groups of equal reward give no gradient and go.
2. The weight of a token is fixed before the micro-batches are cut, so that the cut
   does not matter.
3. Old log-probs are those that the engine recorded while it sampled.
4. A gradient that is not finite stops the run before it reaches the weights.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.algorithm.advantage import group_advantages
from rstar2.algorithm.loss import ClipRange, PolicyLoss, policy_loss, row_weights
from rstar2.algorithm.roc import Selection, penalty, resample_on_correct, select_all
from rstar2.errors import UserError
from rstar2.protocol import Trajectory
from rstar2.rollout.groups import Rollout
from rstar2.training.spec import RLSpec


class NonFiniteGradientError(UserError):
    """A minibatch's gradient is infinite or not a number; the weights are as before it.

    The minibatches before it, of the same step, have changed them.
    """


class Arm(StrEnum):
    """Which rollouts of a group go into the update."""

    GRPO = "grpo"
    """G are sampled and all are used."""
    GRPO_ROC = "grpo-roc"
    """2G are sampled and G are kept by Resample-on-Correct."""

    def samples(self, spec: RLSpec) -> int:
        """Rollouts sampled per group."""
        return spec.oversample if self is Arm.GRPO_ROC else spec.group_size


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one problem and the choice among them."""

    rollouts: tuple[Rollout, ...]
    selection: Selection

    @property
    def kept(self) -> tuple[Rollout, ...]:
        """The rollouts that go into the update."""
        chosen = set(self.selection.kept)
        return tuple(rollout for rollout in self.rollouts if rollout.sample in chosen)


def select_group(
    rollouts: Sequence[Rollout], arm: Arm, spec: RLSpec, seed: tuple[int, int, int]
) -> Group:
    """Chooses among the rollouts of a problem.

    Args:
        rollouts: All that were finished.
        arm: The rule.
        spec: Group sizes and ε.
        seed: (seed, step, problem), for the draws of Resample-on-Correct.
    """
    ids = [rollout.sample for rollout in rollouts]
    rewards = [rollout.reward for rollout in rollouts]
    if arm is Arm.GRPO_ROC:
        selection = resample_on_correct(
            ids,
            rewards,
            [penalty(rollout.trajectory) for rollout in rollouts],
            group_size=spec.oversample,
            keep=spec.group_size,
            epsilon=spec.epsilon,
            seed=seed,
        )
    else:
        selection = select_all(ids, rewards, group_size=spec.group_size)
    return Group(tuple(rollouts), selection)


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One trajectory with what the loss needs of it."""

    trajectory: Trajectory
    advantage: float
    weight: float


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Means over the model tokens and optimiser steps of one batch; NaN over none.

    Attributes:
        optimizer_steps: Optimiser steps taken; 0 if no group had a gradient.
        loss: Mean loss.
        entropy: Mean −log-prob of the sampled tokens, in nats.
        clip_low_ratio: Share of tokens held by the lower bound.
        clip_high_ratio: Share of tokens held by the upper bound.
        grad_norm: Mean norm of the gradient before clipping.
    """

    optimizer_steps: int
    loss: float
    entropy: float
    clip_low_ratio: float
    clip_high_ratio: float
    grad_norm: float


def update(
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    spec: RLSpec,
    *,
    seed: int,
) -> UpdateReport:
    """Takes the optimiser steps of one batch of groups, in place.

    Args:
        model: The policy.
        optimizer: Over all its parameters.
        groups: Groups whose selection kept something.
        spec: Settings.
        seed: Seed of the order of groups in the minibatches.

    Raises:
        NonFiniteGradientError: If the norm of a gradient is not finite.
    """
    order = list(groups)
    random.Random(seed).shuffle(order)
    count = min(spec.minibatches, len(order))
    losses, norms = [], []
    tokens = low = high = entropy = 0.0
    for number in range(count):
        rows = update_rows(order[number::count], spec)
        loss = 0.0
        for micro_batch in _micro_batches(rows, spec.micro_batch_tokens):
            part = _row_loss(model, micro_batch, spec)
            part.loss.backward()
            loss += part.loss.item()
            tokens += part.tokens.item()
            low += part.clipped_low.item()
            high += part.clipped_high.item()
        entropy -= sum(sum(row.trajectory.log_probs) for row in rows)
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
        entropy=entropy / per_token,
        clip_low_ratio=low / per_token,
        clip_high_ratio=high / per_token,
        grad_norm=sum(norms) / per_step,
    )


def update_rows(groups: Sequence[Group], spec: RLSpec) -> list[UpdateRow]:
    """The rows of one optimiser step, each with its advantage and token weight."""
    kept = [group.kept for group in groups]
    rollouts = [rollout for group in kept for rollout in group]
    advantages = [
        advantage
        for group in kept
        for advantage in group_advantages([rollout.reward for rollout in group])
    ]
    weights = row_weights(
        [rollout.trajectory.num_model_tokens for rollout in rollouts],
        [number for number, group in enumerate(kept) for _ in group],
        spec.normaliser,
    )
    return [
        UpdateRow(rollout.trajectory, float(advantage), float(weight))
        for rollout, advantage, weight in zip(rollouts, advantages, weights, strict=True)
    ]


def response_log_probs(
    model: Qwen3ForCausalLM, trajectories: Sequence[Trajectory], temperature: float
) -> Tensor:
    """Log-probs of the model's tokens under the policy, with gradient.

    Args:
        model: The policy.
        trajectories: Rows of any length.
        temperature: That of the sampling.

    Returns:
        ``[model tokens]``: row after row, each in order.
    """
    sequences = [t.prompt_ids + t.response_ids for t in trajectories]
    length = max(map(len, sequences))
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    written = torch.zeros(len(sequences), length, dtype=torch.bool)
    for row, (trajectory, sequence) in enumerate(zip(trajectories, sequences, strict=True)):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask = torch.tensor(trajectory.response_mask, dtype=torch.bool)
        written[row, len(trajectory.prompt_ids) : len(sequence)] = mask
    predicted = written[:, 1:]
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[predicted]) / temperature
    log_probs = torch.log_softmax(logits, dim=-1)
    return log_probs.gather(1, ids[:, 1:][predicted][:, None])[:, 0]


def _row_loss(model: Qwen3ForCausalLM, rows: Sequence[UpdateRow], spec: RLSpec) -> PolicyLoss:
    trajectories = [row.trajectory for row in rows]
    counts = torch.tensor([t.num_model_tokens for t in trajectories])
    old = [
        log_prob
        for t in trajectories
        for log_prob, mask in zip(t.log_probs, t.response_mask, strict=True)
        if mask
    ]
    return policy_loss(
        response_log_probs(model, trajectories, spec.temperature),
        torch.tensor(old),
        torch.tensor([row.advantage for row in rows]).repeat_interleave(counts),
        torch.tensor([row.weight for row in rows]).repeat_interleave(counts),
        torch.ones(int(counts.sum())),
        ClipRange(spec.clip_low, spec.clip_high),
    )


def _micro_batches(rows: Sequence[UpdateRow], max_tokens: int) -> list[list[UpdateRow]]:
    """Rows of like length together, at most ``max_tokens`` with padding."""

    def length(row: UpdateRow) -> int:
        return len(row.trajectory.prompt_ids) + len(row.trajectory.response_ids)

    batches: list[list[UpdateRow]] = []
    for row in sorted(rows, key=length):
        if not batches or length(row) * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches
