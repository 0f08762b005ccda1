"""Finished runs for tests, written by the functions that write real ones; nothing is trained."""

from collections import Counter
from collections.abc import Sequence

import pytest

import rstar2.problems.laptop
from rstar2.experiments import laptop, planner, worker
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.presets import TorchPreset
from rstar2.grading import Reason
from rstar2.protocol import LAPTOP, TokenTemplate
from rstar2.records import Hardware, Provenance, RunFolder, Session, append_json_line
from rstar2.training.checkpoint import Policy, save_policy
from rstar2.training.evaluate import Evaluation
from rstar2.training.model import new_model
from rstar2.training.scores import ProblemScore, RolloutScore
from rstar2.training.step_records import write_sampled_table
from rstar2.training.tokenizer import train_tokenizer

CLEAN = Provenance("a" * 40, False, Hardware("cpu", 2, 4.0), {"python": "3.11"})

_PROBLEMS, _SAMPLES = 2, 4


def quick(patch: pytest.MonkeyPatch) -> None:
    """Runs of a clean commit; fewer sources to hash, fewer problems to learn guessing from."""
    patch.setattr(worker, "provenance", lambda: CLEAN)
    patch.setattr(planner, "deciding_sources", lambda entry, _others: [entry])
    patch.setattr(rstar2.problems.laptop, "BASELINE_DRAWS", 50)


def finished(plan: Plan, correct: int = 3, calls: int = 6, errors: int = 1) -> Plan:
    """Gives the plan a finished run whose every problem has the same score.

    Args:
        plan: Its kind and its evaluation decide which files the run has.
        correct: Right rollouts of the 4 of a problem.
        calls: Tool calls in them.
        errors: Those that failed.
    """
    with worker.working_on(plan) as folder:
        if plan.kind is Kind.RL:
            folder.metrics.append({"step": 1, "accuracy": 0.5, "tool_error_in_correct": 0.25})
            append_json_line(folder.sampled, {"step": 1, "rollouts": [{"correct": True}]})
            write_sampled_table(folder)
        else:
            folder.metrics.append({"step": 1, "phase": "sft", "loss": 1.0})
        folder.append_timing({"step": 1, "seconds": 0.1})
        job = laptop.Job(plan, folder)
        if plan.params.get("evaluation", "none") != "none":
            laptop._write_evaluation(folder, _evaluation(job, correct, calls, errors))
        if plan.kind in (Kind.SFT, Kind.RL):
            _save_policy(job.preset, folder)
        laptop._finish(job, Session(folder), Counter())
    return plan


def all_finished(plans: Sequence[Plan], **scores: int) -> list[Plan]:
    """Gives each plan a finished run."""
    return [finished(plan, **scores) for plan in plans]


def _evaluation(job: laptop.Job, correct: int, calls: int, errors: int) -> Evaluation:
    sets = job.preset.world.held_out(0, _PROBLEMS, job.last_stage)
    scores = [
        ProblemScore(
            problem_set=name,
            problem_id=problem.problem_id,
            family=problem.family,
            composition=problem.composition,
            samples=_SAMPLES,
            correct=correct,
            calls=8,
            errors=4,
            calls_in_correct=calls,
            errors_in_correct=errors,
            tokens=200,
            tokens_in_correct=100,
            truncated=1,
        )
        for name, problems in sets.items()
        for problem in problems
    ]
    rollouts = [
        RolloutScore(
            problem_set=score.problem_set,
            problem_id=score.problem_id,
            family=score.family,
            composition=score.composition,
            sample=sample,
            correct=sample < correct,
            reason=(Reason.CORRECT if sample < correct else Reason.MISMATCH).value,
            value="42",
            calls=2,
            errors=1,
            error_types="NameError",
            turns=2,
            answer_tags=1,
            tokens=50,
            response_tokens=60,
            stop="answered",
        )
        for score in scores
        for sample in range(_SAMPLES)
    ]
    return Evaluation(tuple(scores), tuple(rollouts), ())


def _save_policy(preset: TorchPreset, folder: RunFolder) -> None:
    tokenizer = train_tokenizer(["a b c"], 310)
    template = TokenTemplate(tokenizer, LAPTOP)
    model = new_model(preset.model, vocab_size=len(tokenizer), end_id=template.end_id, seed=0)
    save_policy(Policy(model, tokenizer, template), folder.checkpoints / "final")
