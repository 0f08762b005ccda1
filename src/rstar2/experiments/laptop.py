"""The laptop experiment: one SFT policy a seed, and two RL arms from the same weights.

``train_sft`` and ``train_arm`` are what the run notebooks call; each fills a run folder:
``run.json``, ``params.json``, ``metrics.parquet``, ``timing.jsonl``,
``evaluation.parquet``, ``examples.jsonl`` (rollouts of the evaluation), ``grades.parquet``
(what the grader said), ``checkpoints/final`` and, for an arm, ``trajectories.jsonl``
(rollouts of the training).
"""

import io
import json
from dataclasses import dataclass

import pandas as pd
import torch

from rstar2.experiments.plans import Plan
from rstar2.experiments.presets import Preset
from rstar2.experiments.progress import ProgressFile
from rstar2.problems import Split
from rstar2.protocol import TokenTemplate
from rstar2.records import RunFolder, RunState, Session, atomic_write
from rstar2.records.grades import read_grades, write_grades
from rstar2.rollout.serialise import rollout_to_json
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy, find_final, find_step, load_policy, save_step
from rstar2.training.curriculum import RLRun, train_rl
from rstar2.training.evaluate import Evaluation, evaluate, evaluation_limits
from rstar2.training.grpo import Arm
from rstar2.training.laptop_data import (
    laptop_tokenizer,
    load_examples,
    make_laptop_data,
    save_examples,
)
from rstar2.training.mining import mined_grades
from rstar2.training.model import new_model
from rstar2.training.spec import EvaluationSpec
from rstar2.training.supervised import SupervisedPhase, train_phases
from rstar2.training.tokenizer import END_OF_TEXT
from rstar2.training.traces import encode_demonstration, encode_document

HELD_OUT_SEED = 20_000
"""Seed of the held-out problems and their sampling; the same for every run and arm."""

_EXAMPLES = "examples.safetensors"
"""What the supervised phases learn from, encoded; kept until they are over."""

_SFT_SHARES = {"data": 1.0, "pretrain": 6.0, "sft": 5.0, "evaluation": 1.0}
_ARM_SHARES = {"RL": 8.0, "evaluation": 1.0}


@dataclass(frozen=True, slots=True)
class Job:
    """A run and its folder."""

    plan: Plan
    folder: RunFolder

    @property
    def preset(self) -> Preset:
        """Its settings."""
        return self.plan.preset

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.plan.params["seed"])

    @property
    def evaluation(self) -> EvaluationSpec:
        """The size of its evaluation."""
        sizes = self.preset.evaluation
        return sizes.results if self.plan.params["evaluation"] == "results" else sizes.book


def job(plan: Plan, folder: RunFolder) -> Job:
    """Joins a plan and its folder."""
    return Job(plan, folder)


async def train_sft(job: Job) -> None:
    """Makes the data, trains the tokenizer, pretrains, runs the SFT and evaluates.

    A run that was interrupted goes on from its last checkpoint, one that is done stays as it
    is. The data alone are made again when the run ended before they stood.
    """
    if job.folder.state is RunState.DONE:
        return
    torch.set_num_threads(1)
    session = Session(job.folder)
    progress = ProgressFile(job.folder.path, _SFT_SHARES)
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
            policy = _teach(job, session, progress)
        (job.folder.path / _EXAMPLES).unlink(missing_ok=True)
        await _evaluate(job, policy, sandbox, session, progress)
    _finish(job, session)


async def train_arm(job: Job) -> None:
    """Trains one arm from the SFT policy, or goes on from its last checkpoint, and evaluates.

    Raises:
        CheckpointError: If the SFT run that it starts from has not been made.
    """
    if job.folder.state is RunState.DONE:
        return
    assert job.plan.needs is not None
    sft_checkpoint = job.plan.needs.folder / "checkpoints" / "final"
    torch.set_num_threads(1)
    preset, folder = job.preset, job.folder
    session = Session(folder)
    progress = ProgressFile(folder.path, _ARM_SHARES)
    run = RLRun(Arm(job.plan.arm), preset.rl, preset.stages, preset.limits, job.seed)

    def log(step: int, total: int, metrics: dict[str, float]) -> None:
        detail = f"accuracy {metrics['accuracy']:.2f} tool errors {metrics['tool_error']:.2f}"
        progress.report("RL", step, total, detail)

    if find_final(folder.checkpoints) is None:
        found = find_step(folder.checkpoints)
        progress.report("RL", found[0] if found else 0, run.total_steps)
    async with Sandbox() as sandbox:
        policy = load_policy(sft_checkpoint, preset.texts)
        session.lap("start")
        policy = await train_rl(
            policy,
            run,
            folder,
            sandbox,
            log,
            session=session,
            on_mining=lambda done, problems: progress.report("mining", done, problems),
        )
        await _evaluate(job, policy, sandbox, session, progress)
    _finish(job, session)


async def _prepare(job: Job, sandbox: Sandbox) -> None:
    """Writes the encoded examples and the checkpoint of step 0: fresh weights, tokenizer."""
    preset = job.preset
    data = await make_laptop_data(
        preset.pretrain,
        preset.sft,
        preset.noise,
        preset.limits,
        seed=job.seed,
        sandbox=sandbox,
        manifest=preset.texts,
    )
    tokenizer = laptop_tokenizer(data, preset.texts, preset.model.vocab_size)
    template = TokenTemplate(tokenizer, preset.texts)
    model = new_model(
        preset.model, vocab_size=len(tokenizer), end_id=template.end_id, seed=job.seed
    )
    end_of_text = tokenizer.get_vocab()[END_OF_TEXT]
    examples = {
        "pretrain": [encode_document(text, template, end_of_text) for text in data.documents],
        "sft": [
            encode_demonstration(one, template, preset.limits.max_tool_tokens)
            for one in data.demonstrations
        ],
    }
    save_examples(job.folder.path / _EXAMPLES, examples)
    save_step(Policy(model, tokenizer, template), job.folder.checkpoints, 0)


def _teach(job: Job, session: Session, progress: ProgressFile) -> Policy:
    file = job.folder.path / _EXAMPLES
    specs = {"pretrain": job.preset.pretrain, "sft": job.preset.sft}
    return train_phases(
        [SupervisedPhase(name, load_examples(file, name), spec) for name, spec in specs.items()],
        job.folder,
        job.preset.texts,
        seed=job.seed,
        session=session,
        on_step=lambda phase, step, total, loss: progress.report(
            phase, step, total, f"loss {loss:.2f}"
        ),
    )


async def _evaluate(
    job: Job, policy: Policy, sandbox: Sandbox, session: Session, progress: ProgressFile
) -> None:
    def log(done: int, total: int) -> None:
        session.lap("evaluation", problems=done)
        progress.report("evaluation", done, total)

    progress.report("evaluation", 0, 1)
    evaluation = await evaluate(
        policy,
        job.evaluation,
        evaluation_limits(job.evaluation, job.preset.limits, job.preset.rl.temperature),
        split=Split.HELD_OUT,
        seed=HELD_OUT_SEED,
        sandbox=sandbox,
        on_problems=log,
        chunks=job.folder.path / "evaluation.jsonl",
    )
    _write_evaluation(job.folder, evaluation)


def _write_evaluation(folder: RunFolder, evaluation: Evaluation) -> None:
    table = pd.DataFrame([score.as_row() for score in evaluation.scores])
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    atomic_write(folder.path / "evaluation.parquet", buffer.getvalue())
    lines = [json.dumps(rollout_to_json(rollout)) + "\n" for rollout in evaluation.examples]
    atomic_write(folder.path / "examples.jsonl", "".join(lines).encode())
    mined = mined_grades(sorted(folder.path.glob("mined-*.json")))
    write_grades(folder.grades_parquet, read_grades(folder.grades) + mined + evaluation.grades)


def _finish(job: Job, session: Session) -> None:
    job.folder.metrics.to_parquet(job.folder.metrics_parquet)
    session.lap("records")
    job.folder.update(RunState.DONE, wall_seconds=round(session.total_seconds(), 1))
