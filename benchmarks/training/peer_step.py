"""A worker of the peer: an RL step of TRL's loop with Resample-on-Correct in ``rollout_func``.

TRL's own loop over tools keeps every completion that it makes, so oversampling has its place in
``rollout_func`` alone. Within it all is ours but the engine: the agent loop, the sandbox in which
all calls of a turn run at once, the grader, the selection. TRL's own loop runs the calls of one
row after another and renders a dummy conversation for each: that would cost it more.

The engine is ``GRPOTrainer._generate_single_turn``, as TRL's loop calls it: all conversations that
are open go through one ``generate`` with a cache, from their first token, until the longest turn
of them ends. Finished conversations leave between turns.

The conversations are those that ours had, see ``lockstep``.
"""

import asyncio
import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import LogitsProcessorList

from benchmarks.sandbox.kernel import cpu_seconds
from benchmarks.training.inputs import Inputs
from benchmarks.training.lockstep import Lockstep, Script
from benchmarks.training.peer_trainer import OnRequest, make_trainer
from benchmarks.training.rl_step import Step, work_of
from benchmarks.training.workers import Channel
from rstar2.sandbox import Sandbox


class Rollouts:
    """The ``rollout_func``: oversamples, runs tools, grades, and gives back what is kept."""

    def __init__(self, step: Step, script: Script, sandbox: Sandbox, runner: Any) -> None:
        self._step, self._script, self._sandbox, self._runner = step, script, sandbox, runner
        self.turns: dict[str, list[list[int]]] = {}
        self.work: dict[str, Any] = {}

    def __call__(self, _prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """One batch; the groups stand in their own order, whatever the loader's is."""
        engine = Lockstep(trainer, self._script, self.turns)
        batch = self._runner.run(self._step.collect(0, engine, self._sandbox))
        self.work = work_of(batch)
        kept = [rollout for group in batch.used for rollout in group.kept]
        return {
            "prompt_ids": [list(r.trajectory.prompt_ids) for r in kept],
            "completion_ids": [list(r.trajectory.response_ids) for r in kept],
            "env_mask": [list(r.trajectory.response_mask) for r in kept],
            "logprobs": None,
            "score": [r.reward for r in kept],
        }


def main(folder: Path, task: Path, micro_rows: int) -> None:
    """Serves until the asker is done."""
    torch.set_num_threads(1)
    channel, inputs, step = Channel(), Inputs(folder), Step(json.loads(task.read_text()))
    script = Script(step.policy.template.end_id)
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as scratch:
        sandbox = Sandbox()
        runner.run(sandbox.__aenter__())
        try:
            rollouts = Rollouts(step, script, sandbox, runner)
            rollouts.turns = json.loads(inputs.script.read_text())
            asked = OnRequest(
                channel,
                lambda: cpu_seconds() - script.cpu,
                lambda: {"work": rollouts.work, "script_cpu_s": script.cpu},
            )
            trainer = make_trainer(
                inputs.policy,
                Path(scratch),
                rollout=rollouts,
                questions=[step.problem(0, n).question for n in range(step.spec.problems_per_step)],
                micro_rows=micro_rows,
                tokens=step.limits.max_response_tokens,
                generation={},
                callbacks=[asked],
            )
            asked.trainer = trainer
            trainer.model.generate = functools.partial(
                trainer.model.generate, logits_processor=LogitsProcessorList([script])
            )
            trainer.train()
        finally:
            runner.run(sandbox.__aexit__(None, None, None))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
