"""The laptop experiment: one SFT policy a seed, and two RL arms from the same weights.

``train_sft`` and ``train_arm`` are what the run notebooks call; each fills a run folder:
``run.json``, ``params.json``, ``metrics.parquet``, ``timing.jsonl``,
``evaluation.parquet``, ``examples.jsonl`` (rollouts of the evaluation), ``grades.parquet``
(what the grader said), ``checkpoints/final`` and, for an arm, ``trajectories.jsonl``
(rollouts of the training).
"""

import json
import time
from dataclasses import dataclass

import pandas as pd
import torch

from rstar2.experiments.plans import Plan
from rstar2.experiments.presets import Preset
from rstar2.experiments.progress import ProgressFile
from rstar2.problems import Split
from rstar2.protocol import TokenTemplate
from rstar2.records import RunFolder, RunState, atomic_write
from rstar2.records.grades import read_grades, write_grades
from rstar2.rollout.serialise import rollout_to_json
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy, load_policy, save_policy
from rstar2.training.curriculum import RLRun, train_rl
from rstar2.training.evaluate import Evaluation, evaluate, evaluation_limits
from rstar2.training.grpo import Arm
from rstar2.training.laptop_data import laptop_tokenizer, make_laptop_data
from rstar2.training.model import new_model
from rstar2.training.spec import EvaluationSpec
from rstar2.training.supervised import train_supervised
from rstar2.training.tokenizer import END_OF_TEXT
from rstar2.training.traces import encode_demonstration, encode_document

HELD_OUT_SEED = 20_000
"""Seed of the held-out problems and their sampling; the same for every run and arm."""

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

    A run that was interrupted begins again: it takes minutes and has no middle. A run
    that is done stays as it is.
    """
    if job.folder.state is RunState.DONE:
        return
    began = time.perf_counter()
    torch.set_num_threads(1)
    preset, folder = job.preset, job.folder
    progress = ProgressFile(folder.path, _SFT_SHARES)
    folder.metrics.truncate_after(0)
    async with Sandbox() as sandbox:
        progress.report("data", 0, 1)
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
        documents = [encode_document(text, template, end_of_text) for text in data.documents]
        demonstrations = [
            encode_demonstration(one, template, preset.limits.max_tool_tokens)
            for one in data.demonstrations
        ]
        steps = 0
        for phase, examples, spec in (
            ("pretrain", documents, preset.pretrain),
            ("sft", demonstrations, preset.sft),
        ):

            def log(step: int, total: int, loss: float, phase: str = phase) -> None:
                nonlocal steps
                steps += 1
                folder.metrics.append({"step": steps, "phase": phase, "loss": loss})
                progress.report(phase, step, total, f"loss {loss:.2f}")

            train_supervised(model, examples, spec, seed=job.seed, on_step=log)
            folder.append_timing({"phase": phase, "seconds": time.perf_counter() - began})
        policy = Policy(model, tokenizer, template)
        save_policy(policy, folder.checkpoints / "final")
        await _evaluate(job, policy, sandbox, progress)
    _finish(job, began)


async def train_arm(job: Job) -> None:
    """Trains one arm from the SFT policy, or goes on from its last checkpoint, and evaluates.

    Raises:
        CheckpointError: If the SFT run that it starts from has not been made.
    """
    if job.folder.state is RunState.DONE:
        return
    assert job.plan.needs is not None
    sft_checkpoint = job.plan.needs.folder / "checkpoints" / "final"
    began = time.perf_counter()
    torch.set_num_threads(1)
    preset, folder = job.preset, job.folder
    progress = ProgressFile(folder.path, _ARM_SHARES)
    run = RLRun(Arm(job.plan.arm), preset.rl, preset.stages, preset.limits, job.seed)

    def log(step: int, total: int, metrics: dict[str, float]) -> None:
        detail = f"accuracy {metrics['accuracy']:.2f} tool errors {metrics['tool_error']:.2f}"
        progress.report("RL", step, total, detail)

    async with Sandbox() as sandbox:
        policy = load_policy(sft_checkpoint, preset.texts)
        policy = await train_rl(policy, run, folder, sandbox, log)
        await _evaluate(job, policy, sandbox, progress)
    _finish(job, began)


def loss_summary(folder: RunFolder) -> pd.DataFrame:
    """Mean loss of the first and the last tenth of each phase, in nats per counted token."""
    table = pd.read_parquet(folder.metrics_parquet)
    rows = []
    for phase, part in table.groupby("phase", sort=False):
        tenth = max(1, len(part) // 10)
        first, last = part["loss"].head(tenth).mean(), part["loss"].tail(tenth).mean()
        rows.append({"phase": phase, "steps": len(part), "first": first, "last": last})
    return pd.DataFrame(rows).round(3)


def stage_summary(folder: RunFolder) -> pd.DataFrame:
    """Means of each stage of an arm."""
    table = pd.read_parquet(folder.metrics_parquet)
    names = ["accuracy", "tool_error_in_correct", "tokens", "truncated", "groups_used", "entropy"]
    means = table.groupby("stage")[names].mean()
    return means.assign(steps=table.groupby("stage").size()).round(3).reset_index()


def evaluation_summary(folder: RunFolder) -> pd.DataFrame:
    """Accuracy, tool errors in right rollouts and tokens of each held-out set."""
    table = pd.read_parquet(folder.path / "evaluation.parquet")
    totals = table.groupby("problem_set", sort=False).sum(numeric_only=True)
    return pd.DataFrame(
        {
            "set": totals.index,
            "problems": table.groupby("problem_set", sort=False).size().to_numpy(),
            "accuracy": (totals["correct"] / totals["samples"]).to_numpy(),
            "tool errors in correct": (
                totals["errors_in_correct"] / totals["calls_in_correct"]
            ).to_numpy(),
            "tokens": (totals["tokens"] / totals["samples"]).to_numpy(),
        }
    ).round(3)


async def _evaluate(job: Job, policy: Policy, sandbox: Sandbox, progress: ProgressFile) -> None:
    evaluation = await evaluate(
        policy,
        job.evaluation,
        evaluation_limits(job.evaluation, job.preset.limits, job.preset.rl.temperature),
        split=Split.HELD_OUT,
        seed=HELD_OUT_SEED,
        sandbox=sandbox,
        on_problems=lambda done, total: progress.report("evaluation", done, total),
    )
    _write_evaluation(job.folder, evaluation)


def _write_evaluation(folder: RunFolder, evaluation: Evaluation) -> None:
    table = pd.DataFrame([score.as_row() for score in evaluation.scores])
    table.to_parquet(folder.path / "evaluation.parquet", index=False)
    lines = [json.dumps(rollout_to_json(rollout)) + "\n" for rollout in evaluation.examples]
    atomic_write(folder.path / "examples.jsonl", "".join(lines).encode())
    write_grades(folder.grades_parquet, read_grades(folder.grades) + evaluation.grades)


def _finish(job: Job, began: float) -> None:
    job.folder.metrics.to_parquet(job.folder.metrics_parquet)
    seconds = round(time.perf_counter() - began, 1)
    job.folder.update(RunState.DONE, wall_seconds=seconds)
