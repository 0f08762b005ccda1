"""The staged RL run (paper, section 4.3): 8K, 12K, then hard problems, in small.

A run is a pure function of its settings and seed: problems, sampling and selection are
all keyed by (seed, step), so a run that was killed goes on from its last checkpoint as
if nothing had happened.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rstar2.problems.types import Problem
from rstar2.records import RunFolder, Session, cut_json_lines
from rstar2.rollout import RolloutLimits, ToolRunner, TorchEngine
from rstar2.training.checkpoint import (
    Policy,
    find_final,
    find_step,
    load_optimizers,
    load_policy,
    save_final,
    save_step,
)
from rstar2.training.collect import ProblemSource, collect
from rstar2.training.grpo import update
from rstar2.training.metrics import step_metrics, update_metrics
from rstar2.training.mining import (
    Mined,
    find_mined,
    load_mined,
    mine_hard_problems,
    mined_file,
    save_mined,
)
from rstar2.training.spec import Arm, LimitsSpec, RLSpec, StageSpec
from rstar2.training.step_records import record_rollouts, save_samples
from rstar2.training.world import World

_PLACES = 1000
"""Places of a step in the problem stream; far more than its groups."""

OnStep = Callable[[int, int, dict[str, float]], None]
"""``on_step(step, steps, metrics)``, step from 1."""

OnMining = Callable[[int, int], None]
"""``on_mining(done, problems)``, as mining begins and as it ends."""


@dataclass(frozen=True, slots=True)
class RLRun:
    """Everything that decides an RL run, but for its weights.

    Attributes:
        arm: How rollouts are chosen.
        spec: Settings of every step, but for what its stage changes.
        world: Its problems and stages; steps are counted through all stages.
        limits: Budgets that hold in every stage.
        seed: Seed of problems, sampling and selection.
        stage: The one stage that is trained, from 1; 0 for all of them. It goes on from what
            the stage before it left as if they were one run.
    """

    arm: Arm
    spec: RLSpec
    world: World
    limits: LimitsSpec
    seed: int
    stage: int = 0

    @property
    def stages(self) -> Sequence[StageSpec]:
        """All stages."""
        return self.world.stages

    @property
    def first_step(self) -> int:
        """Steps before the first that is trained."""
        return sum(stage.steps for stage in self.stages[: max(0, self.stage - 1)])

    @property
    def total_steps(self) -> int:
        """Steps from the first stage to the last that is trained."""
        return sum(stage.steps for stage in self.stages[: self.stage or None])

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
            temperature=self.spec.of_stage(stage).temperature,
        )


async def train_rl(
    policy: Policy,
    run: RLRun,
    folder: RunFolder,
    sandbox: ToolRunner,
    on_step: OnStep,
    *,
    session: Session | None = None,
    on_mining: OnMining = lambda _done, _problems: None,
    start: Path | None = None,
) -> Policy:
    """Trains through the stages of a run, or goes on from the folder's last checkpoint.

    What was logged after that checkpoint is made again.

    Args:
        policy: The SFT policy, or what the stage before left; left as it is when the folder
            holds a checkpoint.
        run: Settings.
        folder: Gets metrics, grades, timing, sample trajectories and checkpoints. A
            ``mined-3.json`` in it that these weights have made is not made again.
        sandbox: Runs programs.
        on_step: Called after every step.
        session: Times it; a new one if none is given.
        on_mining: Called when problems are mined.
        start: The checkpoint that ``policy`` was read from, if a stage before wrote it: its
            optimizer goes on.

    Returns:
        The trained policy; its weights stand in ``checkpoints/final`` too, with the optimizer
        if one stage alone is trained, from which the next goes on.

    Raises:
        RunStoppedError: If the session is asked to stop; the last step has a checkpoint.
    """
    final = find_final(folder.checkpoints)
    if final is not None:
        return load_policy(final, policy.template.manifest)
    done, policy, optimizer = _where_it_stands(policy, run, folder, start)
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=run.seed)
    trainer = _Trainer(run, policy, engine, folder, sandbox, session or Session(folder), on_mining)
    for step in range(done, run.total_steps):
        number, first = run.stage_of(step)
        if step == first and run.stages[number].reset_optimizer and step > 0:
            optimizer = _new_optimizer(policy, run)
        if step in (done, first):
            source = await trainer.source(number, begins=step == first)
        metrics = await trainer.step(step, source, optimizer)
        on_step(step + 1, run.total_steps, metrics)
        if trainer.session.asked_to_stop():
            save_step(policy, folder.checkpoints, step + 1, optimizer)
            trainer.session.stop_if_asked()
    save_final(policy, folder.checkpoints, *([optimizer] if run.stage else []))
    return policy


def _where_it_stands(
    policy: Policy, run: RLRun, folder: RunFolder, start: Path | None
) -> tuple[int, Policy, torch.optim.AdamW]:
    """Steps done, policy and optimizer of the last checkpoint; what was logged after it goes."""
    done, latest = find_step(folder.checkpoints) or (run.first_step, None)
    if latest is not None:
        policy = load_policy(latest, policy.template.manifest)
    optimizer = _new_optimizer(policy, run)
    if moved := latest or start:
        load_optimizers(moved, optimizer)
    folder.metrics.truncate_after(done)
    for file in (folder.trajectories, folder.grades, folder.sampled):
        cut_json_lines(file, lambda row: row["step"] <= done)
    return done, policy, optimizer


async def mine_stage(
    policy: Policy,
    run: RLRun,
    folder: RunFolder,
    sandbox: ToolRunner,
    session: Session,
    on_mining: OnMining,
) -> Mined:
    """Mines the hard problems of ``run.stage`` with what the stage before left.

    Returns:
        What was mined; it stands in the folder too, as ``mined-3.json`` of stage 3.
    """
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=run.seed)
    trainer = _Trainer(run, policy, engine, folder, sandbox, session, on_mining)
    return await trainer.mined(run.stage - 1, begins=True)


@dataclass(frozen=True, slots=True)
class _Trainer:
    run: RLRun
    policy: Policy
    engine: TorchEngine
    folder: RunFolder
    sandbox: ToolRunner
    session: Session
    on_mining: OnMining

    async def step(
        self, step: int, source: ProblemSource, optimizer: torch.optim.Optimizer
    ) -> dict[str, float]:
        """One step, from 0: rollouts, update, records."""
        run, model = self.run, self.policy.model
        number, first = run.stage_of(step)
        spec = run.spec.of_stage(run.stages[number])
        began = time.perf_counter()
        batch = await collect(
            source,
            step,
            run.arm,
            spec,
            seed=run.seed,
            engine=self.engine,
            sandbox=self.sandbox,
            template=self.policy.template,
            limits=run.rollout_limits(run.stages[number]),
        )
        sampled = time.perf_counter()
        _set_rate(optimizer, spec, step)
        model.train()
        report = update(model, optimizer, batch.used, spec, seed=(run.seed, step))
        self.engine.load(model)
        updated = time.perf_counter()
        metrics = {**step_metrics(batch.groups, batch.used), **update_metrics(report)}
        self.folder.metrics.append({"step": step + 1, "stage": number + 1, **metrics})
        record_rollouts(self.folder, step + 1, batch)
        stage_ends = step + 1 == first + run.stages[number].steps
        if stage_ends or (step + 1) % spec.checkpoint_every == 0:
            save_samples(self.folder, step + 1, batch)
            save_step(self.policy, self.folder.checkpoints, step + 1, optimizer)
        self.session.lap(
            "rl",
            step=step + 1,
            rollout_seconds=sampled - began,
            update_seconds=updated - sampled,
        )
        return metrics

    async def source(self, number: int, *, begins: bool) -> ProblemSource:
        """Where the problems of a stage come from; hard ones are mined as it begins."""
        run = self.run
        if run.stages[number].data == "all":
            return lambda step, place: run.world.problem(number, run.seed, step * _PLACES + place)
        hard = (await self.mined(number, begins=begins)).problems or self._candidates(number)

        def from_pool(step: int, place: int) -> Problem:
            lap, position = divmod(place, len(hard))
            key = f"hard:{run.seed}:{step}:{lap}"
            order = random.Random(key).sample(range(len(hard)), len(hard))
            return hard[order[position]]

        return from_pool

    def _candidates(self, number: int) -> list[Problem]:
        """What is rolled out for a stage; drawn below the indices of all steps."""
        world, seed = self.run.world, self.run.seed
        return [world.problem(number, seed, -1 - i) for i in range(world.candidates(number))]

    async def mined(self, number: int, *, begins: bool) -> Mined:
        """The hard problems of a stage, from 0: mined as it begins, read after that."""
        candidates = self._candidates(number)
        file = self.folder.path / mined_file(number + 1)
        if not begins:  # the weights have moved on since the problems were mined
            return load_mined(file, candidates)
        mined = find_mined(file, candidates, self.policy)
        if mined is None:
            self.on_mining(0, len(candidates))
            mined = await mine_hard_problems(
                candidates,
                self.run.spec.mining_samples,
                name=f"mine/{number}",
                engine=self.engine,
                policy=self.policy,
                limits=self.run.rollout_limits(self.run.stages[number]),
                sandbox=self.sandbox,
            )
            save_mined(file, mined, self.policy)
            self.session.lap("mining", stage=number + 1)
            self.on_mining(len(candidates), len(candidates))
        return mined


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
