"""Checkpoints of verl: how a stage goes on from the one before.

verl writes ``checkpoints/global_step_N/actor`` (a shard a GPU of weights, AdamW's state and what
is left), ``checkpoints/global_step_N/data.pt`` (the place in the data), and, last of all,
``checkpoints/latest_checkpointed_iteration.txt``. A run finds its last checkpoint by that file.

A stage begins in a folder of its own, in which the last checkpoint of the stage before is linked
under the same step. So one rule, ``resume_mode: auto``, begins a stage and goes on with it; no
weight is rounded or copied. Only the number of GPUs must stay the same.
"""

from collections.abc import Sequence
from pathlib import Path

from rstar2.experiments.cluster.job import RecipeError, StageJob
from rstar2.experiments.cluster.recipe import EVERYTHING
from rstar2.records import atomic_write
from rstar2.records.files import make_folder

_LATEST = "latest_checkpointed_iteration.txt"


def latest_step(checkpoints: Path) -> int | None:
    """The step of the last checkpoint; None if there is none.

    Raises:
        RecipeError: If its folder is gone, or the file that names it is no number.
    """
    try:
        text = (checkpoints / _LATEST).read_text()
    except FileNotFoundError:
        return None
    step = int(text) if text.strip().isdigit() else -1
    if not step_folder(checkpoints, step).is_dir():
        raise RecipeError(
            f"{checkpoints / _LATEST} names step {text.strip()!r}, which has no checkpoint: "
            "write the number of one that is there, or remove the file and begin again"
        )
    return step


def step_folder(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return checkpoints / f"global_step_{step}"


def trained_model(checkpoints: Path) -> Path:
    """The model that a cold start left, as ``transformers`` reads it; its weights have 32 bits.

    Raises:
        RecipeError: If it left none.
    """
    step = latest_step(checkpoints)
    folder = step_folder(checkpoints, step or 0) / "huggingface"
    if not list(folder.glob("*.safetensors")):
        raise RecipeError(f"{checkpoints} holds no model of a cold start: run that to its end")
    return folder


def begin_from(job: StageJob, before: Path | None) -> Sequence[str]:
    """Makes a stage's folder such that verl begins, or goes on, where it should.

    Args:
        job: The stage.
        before: The folder ``checkpoints`` of the stage before; None for the first.

    Returns:
        What verl is to load: weights alone while a stage that begins with a fresh optimizer has
        no checkpoint of its own.

    Raises:
        RecipeError: If the stage before is missing, or ended at another step.
    """
    latest = latest_step(job.checkpoints)
    if latest is None and job.stage > 1:
        _link(job, before)
        latest = job.first_step
    inherited = job.stage > 1 and latest == job.first_step
    return ("model",) if inherited and job.spec.reset_optimizer else EVERYTHING


def _link(job: StageJob, before: Path | None) -> None:
    """Links the last checkpoint of the stage before; the place in the data, if they go on."""
    if before is None:
        raise RecipeError(f"stage {job.stage} begins where stage {job.stage - 1} ended: name it")
    step = latest_step(before)
    if step != job.first_step:
        raise RecipeError(
            f"{before} has come to step {step}, and stage {job.stage} begins after step "
            f"{job.first_step}: finish the stage before, with the same preset"
        )
    source, target = step_folder(before, step), step_folder(job.checkpoints, step)
    make_folder(target)
    same_data = job.spec.data == job.preset.stages[job.stage - 2].data
    for name in ("actor", "data.pt") if same_data else ("actor",):
        link = target / name
        if not link.is_symlink():
            link.symlink_to((source / name).resolve(strict=True))
    atomic_write(job.checkpoints / _LATEST, str(step).encode())
