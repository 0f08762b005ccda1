"""A worker: one RL step of ours, with the code that ``rstar2`` is imported from.

``python -m benchmarks.training.rl_step TASK`` runs beside today's code and beside our first. It
answers ``step``: roll out, run the tools, grade, select, update, hand the weights to the engine;
and ``rollouts``: the same without update. A request may bring another task. The weights are put
back after each, outside the times, so that an equal request is equal work.
"""

import asyncio
import hashlib
import inspect
import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.sandbox.kernel import cpu_seconds
from benchmarks.training.workers import Channel, Stopwatch
from rstar2.experiments.presets import load_torch_preset
from rstar2.problems import Problem, Split, draw_mixed
from rstar2.rollout import TorchEngine
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import load_policy
from rstar2.training.collect import Batch, collect
from rstar2.training.curriculum import RLRun
from rstar2.training.grpo import update
from rstar2.training.spec import Arm, RLSpec
from rstar2.training.world import RL_STREAM, stream_seed

SEED = 11
PLACES = 1000
"""Places of a step in the problem stream, as the laptop run has it."""

PRESET = "laptop"


class Step:
    """One arm's settings, as a task file has them.

    Args:
        task: ``policy``, the checkpoint's folder; ``spec``, what differs from the preset's
            settings of RL; ``learning_rate``; ``share``, of compositions among the problems, or
            None for the preset's; ``places``, the problems of every step by their index in the
            stream, or None for those that the laptop run has.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        preset = load_torch_preset(PRESET)
        stage = preset.stages[0]
        self.policy = load_policy(Path(task["policy"]), preset.texts)
        run = RLRun(Arm.GRPO_ROC, preset.rl, preset.world, preset.limits, SEED)
        self.limits = run.rollout_limits(stage)
        self._share: float = stage.composition_share
        self._settings: RLSpec = preset.rl
        self.take(task)

    def take(self, task: dict[str, Any]) -> None:
        """Takes over another task; the policy stays."""
        self.spec: RLSpec = self._settings.model_copy(update=task["spec"])
        self.learning_rate: float = task["learning_rate"]
        self._places: list[int] | None = task["places"]
        if task["share"] is not None:
            self._share = task["share"]

    def problem(self, step: int, place: int) -> Problem:
        """The problem at a place of a step."""
        index = self._places[place] if self._places else step * PLACES + place
        stream = stream_seed(SEED, RL_STREAM)
        return draw_mixed(Split.TRAIN, stream, index, self._share).problem

    def optimizer(self) -> torch.optim.AdamW:
        """A fresh one, as the laptop run has it."""
        return torch.optim.AdamW(
            self.policy.model.parameters(),
            lr=self.learning_rate,
            betas=self.spec.adam_betas,
            weight_decay=self.spec.weight_decay,
        )

    async def collect(self, number: int, engine: Any, sandbox: Sandbox) -> Batch:
        """Rolls out, runs tools, grades and selects."""
        return await collect(
            self.problem,
            number,
            Arm.GRPO_ROC,
            self.spec,
            seed=SEED,
            engine=engine,
            sandbox=sandbox,
            template=self.policy.template,
            limits=self.limits,
        )


def work_of(batch: Batch) -> dict[str, Any]:
    """What a batch was: two sides that did the same have the same."""
    rolled = [rollout.trajectory for group in batch.groups for rollout in group.rollouts]
    kept = [rollout.trajectory for group in batch.used for rollout in group.kept]
    names = "\n".join(sorted(trajectory.request_id for trajectory in kept))
    tokens = [t.prompt_ids + t.response_ids for t in sorted(rolled, key=lambda t: t.request_id)]
    return {
        "rollouts": len(rolled),
        "generated_tokens": sum(t.num_model_tokens for t in rolled),
        "tool_tokens": sum(len(t.response_ids) - t.num_model_tokens for t in rolled),
        "turns": sum(len(t.turns) for t in rolled),
        "tool_calls": sum(len(turn.calls) for t in rolled for turn in t.turns),
        "conversations": hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16],
        "kept": len(kept),
        "kept_names": hashlib.sha256(names.encode()).hexdigest()[:16],
        "update_tokens": sum(len(t.prompt_ids) + len(t.response_ids) for t in kept),
    }


def script_of(batch: Batch) -> dict[str, list[list[int]]]:
    """The ids of each model turn of each rollout, by the rollout's name."""
    return {
        rollout.trajectory.request_id: model_turns(
            rollout.trajectory.response_ids, rollout.trajectory.response_mask
        )
        for group in batch.groups
        for rollout in group.rollouts
    }


def model_turns(ids: Sequence[int], mask: Sequence[int]) -> list[list[int]]:
    """Cut a response into the turns that the model wrote."""
    runs = groupby(zip(ids, mask, strict=True), key=lambda pair: pair[1])
    return [[token for token, _ in run] for written, run in runs if written]


def update_seed(step: int) -> Any:
    """The seed of a step's update, in the form that the imported code takes."""
    plain = inspect.signature(update).parameters["seed"].annotation in (int, "int")
    return step if plain else (SEED, step)


async def serve(step: Step, channel: Channel) -> None:
    """Answers until there is no further request."""
    model = step.policy.model
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    engine = TorchEngine(model, end_id=step.policy.template.end_id, seed=SEED)
    async with Sandbox() as sandbox:
        while (request := await asyncio.to_thread(channel.receive)) is not None:
            number = request["number"]
            if "task" in request:
                step.take(json.loads(Path(request["task"]).read_text()))
            optimizer = step.optimizer()
            cpu, watch = cpu_seconds(), Stopwatch()
            batch = await step.collect(number, engine, sandbox)
            rollout_cpu, rollout = cpu_seconds() - cpu, watch.read()
            watch = Stopwatch()
            if request["work"] == "step":
                model.train()
                update(model, optimizer, batch.used, step.spec, seed=update_seed(number))
                engine.load(model)
            spent = watch.read()
            answer = {
                "cpu_s": cpu_seconds() - cpu,
                "rollout_cpu_s": rollout_cpu,
                "update_cpu_s": spent["cpu_s"],
                "rollout_wall_s": rollout["wall_s"],
                "update_wall_s": spent["wall_s"],
                "work": work_of(batch),
                "solved": [sum(r.reward for r in group.rollouts) for group in batch.groups],
            }
            if "script" in request:
                Path(request["script"]).write_text(json.dumps(script_of(batch)))
            model.load_state_dict(start)
            engine.load(model)
            channel.reply(answer)


def main(task: Path) -> None:
    """Serves until the asker is done."""
    torch.set_num_threads(1)
    asyncio.run(serve(Step(json.loads(task.read_text())), Channel()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
