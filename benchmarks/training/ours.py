"""A worker: our generation, our update, what limits them, and the rate of matmul.

Generation is ``TorchEngine`` on so many requests at once, all of them in the batch, each with its
tokens' log-probs recorded; no row ends early. The update is ``training.grpo.update`` with one
minibatch: advantages, forward, backward, clipping, one AdamW step.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from benchmarks.training import limits
from benchmarks.training.inputs import GROUP, TOKENS, Inputs, prompts
from benchmarks.training.rl_step import update_seed
from benchmarks.training.workers import Channel, Stopwatch
from rstar2.algorithm.roc import select_all
from rstar2.experiments.presets import load_torch_preset
from rstar2.grading import Reason, Verdict
from rstar2.problems import Problem
from rstar2.protocol import StopReason, Trajectory
from rstar2.rollout import SamplingParams, TorchEngine
from rstar2.rollout.groups import Rollout
from rstar2.training.checkpoint import load_policy
from rstar2.training.grpo import update
from rstar2.training.selection import Group

NO_END = -1
"""An id that no token has: every row gets all its tokens."""
ROWS = 64


class Ours:
    """Our side of the comparison: ``generation``, ``update``, and what limits them."""

    def __init__(self, inputs: Inputs) -> None:
        preset = load_torch_preset("laptop")
        self._inputs = inputs
        self._model: Qwen3ForCausalLM = load_policy(inputs.model, preset.texts).model
        self._spec = preset.rl.model_copy(update={"minibatches": 1, "group_size": GROUP})
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=0.0, betas=self._spec.adam_betas, weight_decay=0.0
        )
        self._groups: list[Group] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what is asked."""
        match request["work"]:
            case "generation":
                return self._generation(request["rows"], request["tokens"])
            case "record":
                return self._record(request["rows"], request["tokens"])
            case "update":
                return self._update()
            case "profile":
                return self._profile(request["of"])
            case "matmul":
                return {"flop_per_s": limits.matmul_rate()}
            case "size":
                return {"parameters": sum(p.numel() for p in self._model.parameters())}
            case other:
                raise ValueError(f"no such work: {other}")

    def _generate(self, rows: int, tokens: int) -> list[Trajectory]:
        """Samples so many completions, and makes a trajectory of each."""
        params = SamplingParams(temperature=1.0, max_tokens=tokens)
        given = prompts(rows)

        async def one(name: str, prompt: list[int]) -> Trajectory:
            output = await engine.generate(name, prompt_ids=prompt, sampling_params=params)
            await engine.end(name)
            ids, mask = tuple(output.token_ids), (1,) * len(output.token_ids)
            logps = tuple(output.log_probs)
            return Trajectory(name, tuple(prompt), ids, mask, logps, (), StopReason.MAX_TOKENS)

        async def every() -> list[Trajectory]:
            return await asyncio.gather(*(one(str(n), prompt) for n, prompt in enumerate(given)))

        engine = TorchEngine(self._model, end_id=NO_END, seed=0, max_rows=rows)
        return asyncio.run(every())

    def _generation(self, rows: int, tokens: int) -> dict[str, Any]:
        watch = Stopwatch()
        made = self._generate(rows, tokens)
        return {**watch.read(), "tokens": sum(t.num_model_tokens for t in made)}

    def _record(self, rows: int, tokens: int) -> dict[str, Any]:
        """Makes the trajectories of the update, for us and for the peer."""
        made = self._generate(rows, tokens)
        ids = [[t.prompt_ids, t.response_ids] for t in made]
        self._inputs.trajectories.write_text(json.dumps(ids))
        self._groups = [group(made[i : i + GROUP]) for i in range(0, rows, GROUP)]
        return {"rows": rows}

    def _update(self) -> dict[str, Any]:
        kept = [rollout.trajectory for group in self._groups for rollout in group.kept]
        tokens = sum(len(t.prompt_ids) + len(t.response_ids) for t in kept)
        self._model.train()
        watch = Stopwatch()
        report = update(self._model, self._optimizer, self._groups, self._spec, seed=update_seed(0))
        spent = watch.read()
        return {**spent, "tokens": tokens, "rows": len(kept), "gradient": report.grad_norm}

    def _profile(self, of: str) -> dict[str, Any]:
        if of == "generation":
            return limits.profiled(lambda: self._generate(ROWS, TOKENS))
        return limits.profiled(self._update)


def group(trajectories: list[Trajectory]) -> Group:
    """A group in which every other rollout is right."""
    verdicts = [Verdict(n % 2 == 0, n, Reason.CORRECT, str(n)) for n in range(len(trajectories))]
    problem = Problem("benchmark", "", 0, "benchmark", "")
    rollouts = [
        Rollout(problem, number, trajectory, verdict)
        for number, (trajectory, verdict) in enumerate(zip(trajectories, verdicts, strict=True))
    ]
    ids = list(range(len(rollouts)))
    rewards = [rollout.reward for rollout in rollouts]
    return Group(tuple(rollouts), select_all(ids, rewards, group_size=len(rollouts)))


def main(folder: Path) -> None:
    """Serves until the asker is done."""
    ours, channel = Ours(Inputs(folder)), Channel()
    while (request := channel.receive()) is not None:
        channel.reply(ours.answer(request))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
