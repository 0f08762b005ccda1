"""One update without a run: verl with our parts differentiates what the laptop's trainer does.

The same rollouts go the two ways. On verl's they pass through a real TransferQueue, verl's
padding, ``PPOTrainer._compute_advantage`` and ``ppo_loss``; each rank has half of the batch, cut
into micro-batches, and FSDP takes the mean of the ranks' gradients.
"""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from made_steps import (
    END,
    RL,
    as_sampled_by,
    buffer,
    changed,
    made_groups,
    put_prompts,
    put_rows,
)
from torch import Tensor
from transformers import Qwen3ForCausalLM
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

import rstar2.verl_plugin.plugin  # noqa: F401  registers what the configuration names
from rstar2.algorithm.weights import Normaliser
from rstar2.errors import UserError
from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.rollout.groups import Rollout
from rstar2.training.grpo import update, update_rows
from rstar2.training.selection import Group, select_group
from rstar2.verl_plugin.objective import summed_policy_loss, weighted_advantages

RANKS = 2
STEP = 1


class Recorder(torch.optim.SGD):
    """Takes no step; remembers the gradient."""

    def step(self, closure: Any = None) -> None:  # noqa: ARG002
        self.gradient = gradient_of(p for group in self.param_groups for p in group["params"])


def gradient_of(parameters: Any) -> Tensor:
    return torch.cat([p.grad.flatten().clone() for p in parameters])


def selected(groups: Sequence[Sequence[Rollout]], spec: PluginSpec) -> list[Group]:
    return [
        select_group(rollouts, spec.arm, spec.rl, (spec.seed, STEP - 1, place))
        for place, rollouts in enumerate(groups)
    ]


def on_the_laptop(
    model: Qwen3ForCausalLM, groups: Sequence[Sequence[Rollout]], spec: PluginSpec
) -> tuple[float, Tensor]:
    """Loss and gradient of the laptop's own update."""
    mine = copy.deepcopy(model)
    optimizer = Recorder(mine.parameters(), lr=1.0)
    kept = [group for group in selected(groups, spec) if group.selection.dropped is None]
    report = update(mine, optimizer, kept, spec.rl, seed=(spec.seed, STEP - 1))
    assert report.optimizer_steps == 1
    assert report.clip_low_ratio > 0, "the case must let both bounds act"
    assert report.clip_high_ratio > 0, "the case must let both bounds act"
    return report.loss, optimizer.gradient


def on_verl(
    model: Qwen3ForCausalLM,
    groups: Sequence[Sequence[Rollout]],
    spec: PluginSpec,
    queue: Any,
    config: Any,
    ranks: int = RANKS,
) -> tuple[float, Tensor]:
    """Loss and mean gradient of the ranks; the batch is padded to a multiple of 10."""
    config = copy.deepcopy(config)
    config.algorithm.normaliser = str(spec.rl.normaliser)
    uids = put_prompts(queue, len(groups), STEP)
    put_rows(queue, uids, groups, STEP, spec)
    batch, _ = buffer(spec).sample(STEP, "train", len(groups))
    rows = len(batch)
    batch = upsample_batch_to_divisible_size(batch, 10, eos_token_id=END)
    assert len(batch) > rows, "the case must have padding"
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1)).tolist()
    batch.reorder(order)
    old = queue.kv_batch_get(batch.keys, "train", select_fields=["rollout_log_probs"])
    old["old_log_probs"] = old.pop("rollout_log_probs")
    queue.kv_batch_put(keys=batch.keys, partition_id="train", fields=old)
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, {})

    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    share = len(batch) // ranks
    losses, gradients = [], []
    for rank in range(ranks):
        mine = copy.deepcopy(model)
        keys = batch.keys[rank * share : (rank + 1) * share]
        losses.append(
            sum(
                _backward(mine, queue, keys[at : at + 3], actor, ranks, len(batch))
                for at in range(0, share, 3)
            )
        )
        gradients.append(gradient_of(mine.parameters()))
    queue.kv_clear(keys=batch.keys, partition_id="train")
    return sum(losses) / ranks, sum(gradients, torch.zeros(())) / ranks


def _backward(
    model: Qwen3ForCausalLM, queue: Any, keys: list[str], actor: Any, ranks: int, rows: int
) -> float:
    """A micro-batch of one rank, as verl's FSDP engine runs it."""
    fields = ["prompts", "responses", "input_ids", "response_mask", "old_log_probs", "advantages"]
    data = queue.kv_batch_get(keys, "train", select_fields=fields)
    tu.assign_non_tensor(data, dp_size=ranks, batch_num_tokens=1, global_batch_size=rows)
    found = []
    for ids in data["input_ids"].unbind():
        logits = model(input_ids=ids.unsqueeze(0)).logits[0]
        following = ids.roll(-1).unsqueeze(-1)
        found.append(logits.log_softmax(-1).gather(-1, following).squeeze(-1))
    log_probs = torch.nested.as_nested_tensor(found, layout=torch.jagged)
    loss, _ = ppo_loss(actor, {"log_probs": log_probs}, data)
    loss.backward()
    return float(loss)


def largest_difference(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> float:
    """Of the losses and of the gradients, the latter as part of the largest entry."""
    gradients = (one[1] - other[1]).abs().max() / one[1].abs().max()
    return max(abs(one[0] - other[0]), float(gradients))


@pytest.mark.parametrize("tool_penalty", [0.0, 0.1])
@pytest.mark.parametrize("normaliser", list(Normaliser))
@pytest.mark.parametrize("ranks", [1, RANKS])
def test_loss_and_gradient_are_those_of_the_laptop(
    model: Qwen3ForCausalLM,
    queue: Any,
    verl_config: Any,
    normaliser: Normaliser,
    tool_penalty: float,
    ranks: int,
    record_property: Any,
) -> None:
    spec = changed(normaliser=normaliser, tool_penalty=tool_penalty)
    groups = as_sampled_by(model, made_groups(4, seed=21), spread=0.3)
    expected = on_the_laptop(model, groups, spec)
    found = on_verl(model, groups, spec, queue, verl_config, ranks)
    difference = largest_difference(expected, found)
    record_property("largest difference", difference)
    print(f"{normaliser}, penalty {tool_penalty}, {ranks} ranks: {difference:.1e}")
    assert expected[1].abs().max() > 1e-3
    assert difference < 1e-6


def test_a_wrong_normaliser_is_seen(model: Qwen3ForCausalLM, queue: Any, verl_config: Any) -> None:
    """The comparison above would notice the other weights."""
    groups = as_sampled_by(model, made_groups(4, seed=21), spread=0.3)
    expected = on_the_laptop(model, groups, changed(normaliser=Normaliser.GROUP))
    found = on_verl(model, groups, changed(normaliser=Normaliser.BATCH), queue, verl_config)
    assert largest_difference(expected, found) > 1e-3


def test_the_estimator_gives_each_row_its_advantage_times_its_weight() -> None:
    groups = made_groups(4, seed=22)
    kept = [g for g in selected(groups, changed()) if g.selection.dropped is None]
    rows = update_rows(kept, RL)
    names = [row.trajectory.request_id.rpartition("/")[0] for row in rows]
    longest = max(len(row.trajectory.response_ids) for row in rows)
    mask = torch.zeros(len(rows) + 2, longest, dtype=torch.long)
    rewards = torch.zeros(len(rows) + 2, longest)
    rollouts = [rollout for group in kept for rollout in group.kept]
    for n, rollout in enumerate(rollouts):
        path = rollout.trajectory
        mask[n, : len(path.response_mask)] = torch.tensor(path.response_mask)
        rewards[n, len(path.response_mask) - 1] = rollout.reward
    index = np.array([*names, "pad", "pad"], dtype=object)
    found, returns = weighted_advantages(rewards, mask, index, SimpleNamespace(normaliser="batch"))
    for n, row in enumerate(rows):
        wanted = row.advantage * row.weight * mask[n]
        assert torch.allclose(found[n].double(), wanted.double(), rtol=1e-6, atol=0)
    assert not found[len(rows) :].any()
    assert torch.equal(found, returns)


def test_a_batch_of_padding_alone_has_no_advantage() -> None:
    nothing = torch.zeros(3, 2, dtype=torch.long)
    found, _ = weighted_advantages(
        torch.zeros(3, 2), nothing, ["a", "b", "c"], SimpleNamespace(normaliser="group")
    )
    assert not found.any()


def test_correcting_for_the_engine_is_refused() -> None:
    one = torch.zeros(1, 1)
    with pytest.raises(UserError, match="rollout_is to null"):
        summed_policy_loss(one, one, one, one.bool(), rollout_is_weights=one)
