"""verl's replay buffer: of each group of a step, the rollouts that our selection keeps.

verl samples a step's groups, and ours is the rule which of their rows it trains on. The random
numbers of a group are named by seed, step and the place of its prompt in the step, so that a run
that was resumed selects the same.
"""

import time
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from rstar2.errors import UserError
from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.rollout.condensed import from_condensed
from rstar2.rollout.groups import Rollout
from rstar2.training.collect import RolloutsLostError
from rstar2.training.metrics import step_metrics
from rstar2.training.selection import Group, select_group
from rstar2.verl_plugin.agent_loop import FACTS

_TRAINING = "train"


class SelectingBuffer(ReplayBuffer):
    """Selects as ``rstar2.training.collect`` does; its settings are node ``rstar2``.

    With ``rl.refill`` it asks verl for further prompts in place of dropped groups, as many as
    are missing; that needs ``data.gen_batch_size: 1``, or verl refuses their number.

    Raises:
        UserError: If verl's trainer is not ``sync``: in the others a batch is none of a step.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.trainer_mode != "sync":
            raise UserError(
                f"trainer.v1.trainer_mode is {self.trainer_mode}: the selection of rstar2 looks "
                "at whole steps; set it to sync"
            )
        self._spec = PluginSpec.of(self.sampler_kwargs)

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Waits for the groups of a step and clears from the queue what is not kept.

        Args:
            global_steps: The step, from 1; it is step 0 to the seeds.
            partition_id: ``train``; verl's own rule serves ``val``.
            batch_size: Groups that the update is to use.

        Returns:
            The rows to train on, by place and sample, and the step's metrics under our names.
            If no group is left verl needs a row all the same: one stays, and being alone in its
            group it has an advantage of 0.

        Raises:
            RolloutsLostError: If not one rollout of a round could be finished.
        """
        if partition_id != _TRAINING:
            passed: tuple[KVBatchMeta, dict[str, Any]]
            passed = super().sample(global_steps, partition_id, batch_size)
            return passed
        places: list[str] = []
        groups: list[Group] = []
        rl = self._spec.rl
        for wave in range(1 + (rl.max_refills if rl.refill else 0)):
            missing = batch_size - len(_used(groups))
            if not missing:
                break
            if wave:
                self.refill_fn(missing)
            uids = self._finished_prompts()[len(places) :]
            rolled = self._rollouts(uids)
            if not any(rolled):
                raise RolloutsLostError(
                    f"every rollout of step {global_steps} was lost: the logs of the agent-loop "
                    "workers say why, and `rstar2 doctor` looks at the sandbox"
                )
            for rollouts in rolled:
                seed = (self._spec.seed, global_steps - 1, len(groups))
                groups.append(select_group(rollouts, self._spec.arm, rl, seed))
            places += uids
        batch = self._keep(places, groups)
        return batch, step_metrics(groups, _used(groups))

    def _finished_prompts(self) -> list[str]:
        """Waits until nothing is under way; the prompts in the order they were asked for."""
        since = time.time()
        while True:
            self._sync_metadata_from_transfer_queue()
            if not self.pending_keys[_TRAINING] and not self.running_keys[_TRAINING]:
                return list(self.prompt_global_steps[_TRAINING])
            since = self._wait_for_next_poll(_TRAINING, since)

    def _rollouts(self, uids: Sequence[str]) -> list[list[Rollout]]:
        """The finished rollouts of each prompt, by sample."""
        found: dict[str, list[Rollout]] = {uid: [] for uid in uids}
        keys = [key for key in self.partitions[_TRAINING] if _uid(key) in found]
        if keys:
            rows = tq.kv_batch_get(keys, _TRAINING, select_fields=["extra_fields"])
            for key, extra in zip(keys, rows.pop("extra_fields").tolist(), strict=True):
                found[_uid(key)].append(from_condensed(extra[FACTS]))
        return [sorted(rollouts, key=lambda one: one.sample) for rollouts in found.values()]

    def _keep(self, places: Sequence[str], groups: Sequence[Group]) -> KVBatchMeta:
        keys = [
            f"{uid}_{rollout.sample}_0"
            for uid, group in zip(places, groups, strict=True)
            for rollout in group.kept
        ]
        rows = self.partitions[_TRAINING]
        keys = keys or [next(key for uid in places for key in rows if _uid(key) == uid)]
        batch = KVBatchMeta(keys=keys, tags=[rows[k] for k in keys], partition_id=_TRAINING)
        kept = set(keys)
        tq.kv_clear([*places, *(key for key in rows if key not in kept)], _TRAINING)
        return batch


def _used(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.selection.dropped is None]


def _uid(key: str) -> str:
    """The prompt of a row's key, ``{uid}_{sample}_{output}``."""
    return key.split("_")[0]
