"""What this machine trains: one SFT policy a seed, and RL arms from the same weights.

``train_sft``, ``train_arm``, ``mine`` and ``evaluate_policy`` are the work of the run
notebooks; each fills a run folder: ``run.json``, ``params.json``, ``metrics.parquet``,
``timing.jsonl``, ``evaluation.parquet`` (a row a problem), ``rollouts.parquet`` (a row a
rollout), ``examples.jsonl`` (rollouts of the evaluation as they were),
``grades.parquet`` (what the grader said), ``checkpoints/final`` and, for an arm,
``sampled.parquet`` (a row a rollout of the training) and ``trajectories.jsonl`` (some as they
were).

A run whose session is asked to stop raises ``RunStoppedError`` from a safe place, and goes on
from there when it is made again.
"""

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from rstar2.experiments.plans import NOT_EVALUATED, SFT_ARM, Kind, Plan
from rstar2.experiments.presets import TorchPreset
from rstar2.experiments.progress import ProgressFile, sandbox_figures
from rstar2.protocol import TokenTemplate
from rstar2.records import RunFolder, RunState, Session, atomic_write
from rstar2.records.grades import Grade, read_grades, write_grades
from rstar2.rollout.serialise import rollout_to_json
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy, find_final, find_step, load_policy, save_step
from rstar2.training.curriculum import RLRun, mine_stage, train_rl
from rstar2.training.evaluate import Evaluation, evaluate, evaluation_limits
from rstar2.training.examples import load_examples, save_examples
from rstar2.training.mining import mined_file, mined_grades
from rstar2.training.model import new_model
from rstar2.training.spec import Arm, EvaluationSpec
from rstar2.training.step_records import write_sampled_table
from rstar2.training.supervised import SupervisedPhase, train_phases

HELD_OUT_SEED = 20_000
"""Seed of the held-out problems and their sampling; the same for every run and arm."""

_EXAMPLES = "examples.safetensors"
"""What the supervised phases learn from, encoded; kept until they are over."""

_ARM_SHARES = {"RL": 8.0}
_EVALUATION_SHARE = {"evaluation": 1.0}


@dataclass(frozen=True, slots=True)
class Job:
    """A run, its folder, and how it is told to stop."""

    plan: Plan
    folder: RunFolder
    asked_to_stop: Callable[[], bool] = lambda: False

    @property
    def preset(self) -> TorchPreset:
        """Its settings."""
        assert isinstance(self.plan.preset, TorchPreset)
        return self.plan.preset

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.plan.params["seed"])

    @property
    def evaluation(self) -> EvaluationSpec | None:
        """The size of its evaluation; None if another run evaluates it."""
        size = self.plan.params["evaluation"]
        return None if size == NOT_EVALUATED else self.preset.evaluation[size]

    @property
    def rl(self) -> RLRun:
        """The RL run that it is, or belongs to."""
        params, preset = self.plan.params, self.preset
        return RLRun(
            Arm(params["arm"]), preset.rl, preset.world, preset.limits, self.seed, params["stage"]
        )

    @property
    def last_stage(self) -> int | None:
        """The last stage, from 0, that its policy is trained in; None before RL."""
        if self.plan.arm in ("", SFT_ARM):
            return None
        return (self.plan.params["stage"] or len(self.preset.stages)) - 1

    def progress(self, shares: dict[str, float]) -> ProgressFile:
        """Where its progress goes; an evaluation, if it has one, comes last."""
        evaluated = {} if self.evaluation is None else _EVALUATION_SHARE
        return ProgressFile(self.folder.path, {**shares, **evaluated})

    def session(self) -> Session:
        """Begins to work on it."""
        torch.set_num_threads(1)
        return Session(self.folder, self.asked_to_stop)


async def work(job: Job) -> None:
    """Does the work of a run, whatever its kind; nothing if it is done.

    Raises:
        RunStoppedError: If it is asked to stop.
        CheckpointError: If the checkpoint that it starts from cannot be read.
    """
    if job.folder.state is RunState.DONE:
        return
    match job.plan.kind:
        case Kind.SFT:
            await train_sft(job)
        case Kind.RL:
            await train_arm(job)
        case Kind.MINING:
            await mine(job)
        case Kind.EVALUATION:
            await evaluate_policy(job)
        case Kind.NOTEBOOK:
            raise ValueError(f"{job.plan.name} is the work of its own notebook")


async def train_sft(job: Job) -> None:
    """Makes the data, trains the tokenizer, pretrains, runs the SFT and evaluates.

    A run that was interrupted goes on from its last checkpoint. The data alone are made again
    when the run ended before they stood.
    """
    session = job.session()
    progress = job.progress({"data": 1.0, **dict.fromkeys(job.preset.world.phases, 5.0)})
    async with Sandbox() as sandbox:
        session.lap("start")
        final = find_final(job.folder.checkpoints)
        if final is not None:
            policy = load_policy(final, job.preset.texts)
        else:
            if find_step(job.folder.checkpoints) is None:
                progress.report("data", 0, 1)
                await _prepare(job, sandbox)
                session.lap("data")
                session.stop_if_asked()
            policy = _teach(job, session, progress)
        (job.folder.path / _EXAMPLES).unlink(missing_ok=True)
        graded = await _evaluate(job, policy, sandbox, session, progress)
    _finish(job, session, graded)


async def train_arm(job: Job) -> None:
    """Trains one arm, or one stage of it, or goes on from its last checkpoint; then evaluates."""
    run, folder = job.rl, job.folder
    session = job.session()
    progress = job.progress(_ARM_SHARES)
    start = _start_of(job)
    if find_final(folder.checkpoints) is None:
        found = find_step(folder.checkpoints)
        done = found[0] - run.first_step if found else 0
        progress.report("RL", done, run.total_steps - run.first_step)
    async with Sandbox() as sandbox:

        def log(step: int, total: int, metrics: dict[str, float]) -> None:
            progress.report(
                "RL",
                step - run.first_step,
                total - run.first_step,
                tokens=metrics["tokens"] * metrics["rollouts"],
                **{name: metrics[name] for name in ("accuracy", "tool_error", "truncated")},
                **sandbox_figures(sandbox.stats),
            )

        policy = load_policy(start, job.preset.texts)
        session.lap("start")
        policy = await train_rl(
            policy,
            run,
            folder,
            sandbox,
            log,
            session=session,
            on_mining=lambda done, problems: progress.report("mining", done, problems),
            start=start if run.stage > 1 else None,
        )
        graded = await _evaluate(job, policy, sandbox, session, progress)
    write_sampled_table(folder)
    # What another run has mined stands in its own record.
    mined = [] if run.stage else sorted(folder.path.glob("mined-*.json"))
    _finish(job, session, read_grades(folder.grades) + mined_grades(mined) + graded)


async def mine(job: Job) -> None:
    """Mines the hard problems of a stage."""
    run, session = job.rl, job.session()
    progress = ProgressFile(job.folder.path, {"mining": 1.0})
    async with Sandbox() as sandbox:
        policy = load_policy(_start_of(job), job.preset.texts)
        session.lap("start")
        mined = await mine_stage(
            policy,
            run,
            job.folder,
            sandbox,
            session,
            lambda done, problems: progress.report("mining", done, problems),
        )
    job.folder.metrics.truncate_after(-1)
    job.folder.metrics.append(
        {
            "step": run.first_step,
            "candidates": run.world.candidates(run.stage - 1),
            "hard": len(mined.problems),
        }
    )
    _finish(job, session, mined.grades)


async def evaluate_policy(job: Job) -> None:
    """Evaluates the policy of another run."""
    session = job.session()
    progress = job.progress({})
    async with Sandbox() as sandbox:
        policy = load_policy(_start_of(job), job.preset.texts)
        session.lap("start")
        graded = await _evaluate(job, policy, sandbox, session, progress)
    table = pd.read_parquet(job.folder.path / "evaluation.parquet").sum(numeric_only=True)
    job.folder.metrics.truncate_after(-1)
    job.folder.metrics.append({"step": 0, "accuracy": float(table["correct"] / table["samples"])})
    _finish(job, session, graded)


def _start_of(job: Job) -> Path:
    """The weights that a run starts from; what was mined for it comes to its folder."""
    base = job.plan.needs
    assert base is not None
    if base.kind is Kind.MINING:
        name = mined_file(job.plan.params["stage"])
        if not (job.folder.path / name).exists():
            atomic_write(job.folder.path / name, (base.folder / name).read_bytes())
        base = base.needs
        assert base is not None
    return base.folder / "checkpoints" / "final"


async def _prepare(job: Job, sandbox: Sandbox) -> None:
    """Writes the encoded examples and the checkpoint of step 0: fresh weights, tokenizer."""
    preset = job.preset
    lessons = await preset.world.lessons(job.seed, sandbox)
    template = TokenTemplate(lessons.tokenizer, preset.texts)
    model = new_model(
        preset.model, vocab_size=len(lessons.tokenizer), end_id=template.end_id, seed=job.seed
    )
    save_examples(job.folder.path / _EXAMPLES, lessons.examples)
    save_step(Policy(model, lessons.tokenizer, template), job.folder.checkpoints, 0)


def _teach(job: Job, session: Session, progress: ProgressFile) -> Policy:
    file = job.folder.path / _EXAMPLES
    phases = job.preset.world.phases
    return train_phases(
        [SupervisedPhase(name, load_examples(file, name), spec) for name, spec in phases.items()],
        job.folder,
        job.preset.texts,
        seed=job.seed,
        session=session,
        on_step=lambda phase, step, total, loss: progress.report(phase, step, total, loss=loss),
    )


async def _evaluate(
    job: Job, policy: Policy, sandbox: Sandbox, session: Session, progress: ProgressFile
) -> Counter[Grade]:
    """What the grader said; nothing if another run evaluates this one."""
    spec = job.evaluation
    if spec is None:
        return Counter()

    def log(done: int, total: int) -> None:
        session.lap("evaluation", problems=done)
        progress.report("evaluation", done, total, **sandbox_figures(sandbox.stats))
        session.stop_if_asked()

    progress.report("evaluation", 0, 1)
    evaluation = await evaluate(
        policy,
        spec.samples,
        evaluation_limits(spec, job.preset.limits, job.preset.rl.temperature),
        job.preset.world.held_out(HELD_OUT_SEED, spec.problems, job.last_stage),
        seed=HELD_OUT_SEED,
        sandbox=sandbox,
        on_problems=log,
        chunks=job.folder.path / "evaluation.jsonl",
    )
    _write_evaluation(job.folder, evaluation)
    return evaluation.grades


def _write_evaluation(folder: RunFolder, evaluation: Evaluation) -> None:
    for name, rows in (("evaluation", evaluation.scores), ("rollouts", evaluation.rollouts)):
        buffer = io.BytesIO()
        pd.DataFrame([row.as_row() for row in rows]).to_parquet(buffer, index=False)
        atomic_write(folder.path / f"{name}.parquet", buffer.getvalue())
    lines = [json.dumps(rollout_to_json(rollout)) + "\n" for rollout in evaluation.examples]
    atomic_write(folder.path / "examples.jsonl", "".join(lines).encode())


def _finish(job: Job, session: Session, grades: Counter[Grade]) -> None:
    write_grades(job.folder.grades_parquet, grades)
    job.folder.metrics.to_parquet(job.folder.metrics_parquet)
    session.lap("records")
    job.folder.update(RunState.DONE, wall_seconds=round(session.total_seconds(), 1))
