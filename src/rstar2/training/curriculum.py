"""The staged RL run (paper, section 4.3): 8K, 12K, then hard problems, in small.

A run is a pure function of its settings and seed: problems, sampling and selection are
all keyed by (seed, step), so a run that was killed goes on from its last checkpoint as
if nothing had happened.
"""

import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rstar2.problems import Problem, Split, draw_mixed
from rstar2.records import RunFolder, append_json_line, atomic_write, cut_json_lines
from rstar2.records.grades import Phase, append_grades, count_grades
from rstar2.rollout import RolloutLimits, ToolRunner, TorchEngine
from rstar2.rollout.groups import roll_out
from rstar2.rollout.serialise import rollout_to_json
from rstar2.training.checkpoint import Policy, load_optimizer, load_policy, save_policy
from rstar2.training.collect import Batch, ProblemSource, collect
from rstar2.training.grpo import Arm, update
from rstar2.training.laptop_data import RL_STREAM, stream_seed
from rstar2.training.metrics import step_metrics, update_metrics
from rstar2.training.screening import is_hard
from rstar2.training.spec import LimitsSpec, RLSpec, StageSpec

_PLACES = 1000
"""Places of a step in the problem stream; far more than its groups."""

OnStep = Callable[[int, int, dict[str, float]], None]
"""``on_step(step, steps, metrics)``, step from 1."""


@dataclass(frozen=True, slots=True)
class RLRun:
    """Everything that decides an RL run, but for its weights."""

    arm: Arm
    spec: RLSpec
    stages: tuple[StageSpec, ...]
    limits: LimitsSpec
    seed: int

    @property
    def total_steps(self) -> int:
        """RL steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_of(self, step: int) -> tuple[int, int]:
        """The stage of a step, and the first step of that stage; both from 0."""
        first = 0
        for number, stage in enumerate(self.stages):
            if step < first + stage.steps:
                return number, first
            first += stage.steps
        raise ValueError(f"step {step} lies beyond the {first} steps of the run")

    def rollout_limits(self, stage: StageSpec) -> RolloutLimits:
        """Budgets of a rollout in a stage."""
        return RolloutLimits(
            max_prompt_tokens=self.limits.max_prompt_tokens,
            max_response_tokens=stage.max_response_tokens,
            max_turns=stage.max_turns,
            max_tool_tokens=self.limits.max_tool_tokens,
            tool_timeout=self.limits.tool_timeout,
            temperature=self.spec.temperature,
        )


async def train_rl(
    policy: Policy, run: RLRun, folder: RunFolder, sandbox: ToolRunner, on_step: OnStep
) -> Policy:
    """Trains through all stages, or goes on from the folder's last checkpoint.

    What was logged after that checkpoint is made again.

    Args:
        policy: The SFT policy; left as it is when the folder holds a checkpoint.
        run: Settings.
        folder: Gets metrics, grades, timing, sample trajectories and checkpoints.
        sandbox: Runs programs.
        on_step: Called after every step.

    Returns:
        The trained policy; its weights stand in ``checkpoints/final`` too.
    """
    final = folder.checkpoints / "final"
    if final.exists():
        return load_policy(final, policy.template.manifest)
    done, latest = _latest(folder.checkpoints)
    if latest is not None:
        policy = load_policy(latest, policy.template.manifest)
    folder.metrics.truncate_after(done)
    for file in (folder.trajectories, folder.grades):
        cut_json_lines(file, lambda row: row["step"] <= done)
    optimizer = _new_optimizer(policy, run)
    if latest is not None:
        load_optimizer(optimizer, latest)
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=run.seed)
    for step in range(done, run.total_steps):
        number, first = run.stage_of(step)
        stage = run.stages[number]
        if step == first and stage.reset_optimizer and step > 0:
            optimizer = _new_optimizer(policy, run)
        source = await _source(run, number, folder, engine, policy, sandbox)
        began, cpu = time.perf_counter(), time.process_time()
        batch = await collect(
            source,
            step,
            run.arm,
            run.spec,
            seed=run.seed,
            engine=engine,
            sandbox=sandbox,
            template=policy.template,
            limits=run.rollout_limits(stage),
        )
        sampled = time.perf_counter()
        _set_rate(optimizer, run.spec, step)
        policy.model.train()
        report = update(policy.model, optimizer, batch.used, run.spec, seed=step)
        engine.load(policy.model)
        metrics = {**step_metrics(batch.groups, batch.used), **update_metrics(report)}
        folder.metrics.append({"step": step + 1, "stage": number + 1, **metrics})
        _append_grades(folder, step + 1, batch)
        folder.append_timing(
            {
                "step": step + 1,
                "rollout_seconds": sampled - began,
                "update_seconds": time.perf_counter() - sampled,
                "cpu_seconds": time.process_time() - cpu,
            }
        )
        on_step(step + 1, run.total_steps, metrics)
        last = step + 1 == run.total_steps
        if last or (step + 1) % run.spec.checkpoint_every == 0:
            _save_samples(folder, step + 1, batch)
        if not last and (step + 1) % run.spec.checkpoint_every == 0:
            _save(policy, optimizer, folder.checkpoints, step + 1)
    save_policy(policy, final)
    return policy


async def mine_hard_problems(
    candidates: Sequence[Problem],
    samples: int,
    *,
    name: str,
    engine: TorchEngine,
    policy: Policy,
    limits: RolloutLimits,
    sandbox: ToolRunner,
) -> list[Problem]:
    """The problems that the policy does not solve every time (paper, section 4.3).

    Args:
        candidates: Problems to try.
        samples: Rollouts of each; 8 in the paper.
        name: Names the rollouts.
        engine: Samples with the policy's weights.
        policy: Gives the template.
        limits: Budgets.
        sandbox: Runs programs.

    Returns:
        Those with at least one wrong rollout, in order; none if all are solved.
    """
    groups = await roll_out(
        candidates,
        samples,
        name=name,
        engine=engine,
        sandbox=sandbox,
        template=policy.template,
        limits=limits,
    )
    return [
        problem
        for problem, rollouts in zip(candidates, groups, strict=True)
        if is_hard(sum(rollout.verdict.correct for rollout in rollouts), len(rollouts) - 1)
    ]


async def _source(
    run: RLRun,
    number: int,
    folder: RunFolder,
    engine: TorchEngine,
    policy: Policy,
    sandbox: ToolRunner,
) -> ProblemSource:
    stage = run.stages[number]
    stream = stream_seed(run.seed, RL_STREAM)
    if stage.data == "all":

        def fresh(step: int, place: int) -> Problem:
            index = step * _PLACES + place
            return draw_mixed(Split.TRAIN, stream, index, stage.composition_share).problem

        return fresh
    # Mining draws before the first place of step 0: indices below it belong to no step.
    candidates = [
        draw_mixed(Split.TRAIN, stream, -1 - index, stage.composition_share).problem
        for index in range(stage.mine_problems)
    ]
    mined_file = folder.path / f"mined-{number + 1}.json"
    if not mined_file.exists():
        mined = await mine_hard_problems(
            candidates,
            run.spec.mining_samples,
            name=f"mine/{number}",
            engine=engine,
            policy=policy,
            limits=run.rollout_limits(stage),
            sandbox=sandbox,
        )
        names = [problem.problem_id for problem in mined or candidates]
        atomic_write(mined_file, json.dumps(names, indent=0).encode())
    kept = set(json.loads(mined_file.read_bytes()))
    hard = [problem for problem in candidates if problem.problem_id in kept]

    def from_pool(step: int, place: int) -> Problem:
        lap, position = divmod(place, len(hard))
        order = random.Random(f"hard:{run.seed}:{step}:{lap}").sample(range(len(hard)), len(hard))
        return hard[order[position]]

    return from_pool


def _new_optimizer(policy: Policy, run: RLRun) -> torch.optim.AdamW:
    spec = run.spec
    return torch.optim.AdamW(
        policy.model.parameters(),
        lr=spec.learning_rate,
        betas=spec.adam_betas,
        weight_decay=spec.weight_decay,
    )


def _set_rate(optimizer: torch.optim.Optimizer, spec: RLSpec, step: int) -> None:
    warm = min(1.0, (step + 1) / max(1, spec.warmup_steps))
    for group in optimizer.param_groups:
        group["lr"] = spec.learning_rate * warm


def _latest(checkpoints: Path) -> tuple[int, Path | None]:
    found = sorted(path for path in checkpoints.glob("step-*") if path.name[5:].isdigit())
    return (int(found[-1].name[5:]), found[-1]) if found else (0, None)


def _save(policy: Policy, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    newest = folder / f"step-{step:06d}"
    save_policy(policy, newest, optimizer)
    for path in folder.glob("step-*"):
        if path != newest:
            shutil.rmtree(path)


def _append_grades(folder: RunFolder, step: int, batch: Batch) -> None:
    sampled = (rollout for group in batch.groups for rollout in group.rollouts)
    graded = ((rollout.problem.answer, rollout.verdict) for rollout in sampled)
    append_grades(folder.grades, step, count_grades(Phase.RL, graded))


def _save_samples(folder: RunFolder, step: int, batch: Batch) -> None:
    for group in batch.groups[:4]:
        append_json_line(folder.trajectories, {"step": step, **rollout_to_json(group.rollouts[0])})
