"""Copies finished runs from ``runs/`` to ``results/``, where they are committed.

Only what a clean, known commit made may go there. The folder of a record is replaced
whole, and folders of no plan are removed, so that ``results/`` never mixes two runs.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from rstar2.errors import UserError
from rstar2.experiments.plans import Plan
from rstar2.records import RunFolder, atomic_write, provenance

_FILES = (
    "params.json",
    "metrics.parquet",
    "timing.jsonl",
    "evaluation.parquet",
    "grades.parquet",
    "examples.jsonl",
)
_CHECKPOINT_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


class PublishError(UserError):
    """A run may not go to ``results/``."""


def refuse_unpublishable() -> None:
    """Stops before a long run whose records could not be published.

    Raises:
        PublishError: If the commit is unknown or the tree has changes outside ``results/``.
    """
    here = provenance()
    if not here.publishable:
        what = "the commit is unknown" if here.commit is None else "the tree has changes"
        raise PublishError(f"records come from a clean commit, but {what}: commit, then run again")


def publish(plans: Sequence[Plan], folder: Path) -> list[Path]:
    """Copies finished runs to ``folder``, one folder per run named without its id.

    ``run.json`` gets ``settings``, the content of the preset, which the run's id covers. Other
    folders in ``folder`` are removed at the end, also what an interrupted copy left.

    Returns:
        The folders of the records.

    Raises:
        PublishError: If a run is not done, was made by a dirty or unknown commit, or a file
            cannot be copied; what was published before stays.
    """
    for plan in plans:
        if not plan.is_done:
            raise PublishError(f"{plan.name} is not done; nothing was published")
        run = RunFolder.open(plan.folder).read()
        if run["commit"] is None or run["dirty"] is not False:
            raise PublishError(
                f"{plan.name} was made by an unknown or dirty commit; nothing was published: "
                f"remove {plan.folder} and run it again from a clean commit"
            )
    try:
        published = [_publish_one(plan, folder / plan.name) for plan in plans]
        for other in folder.iterdir():
            if other.is_dir() and other not in published:
                shutil.rmtree(other)
        return published
    except OSError as error:
        raise PublishError(f"cannot publish to {folder}: {error}") from error


def _publish_one(plan: Plan, target: Path) -> Path:
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in _FILES:
        shutil.copyfile(plan.folder / name, partial / name)
    final = partial / "checkpoint"
    final.mkdir()
    for name in _CHECKPOINT_FILES:
        shutil.copyfile(plan.folder / "checkpoints" / "final" / name, final / name)
    assert plan.preset is not None
    run = {
        **RunFolder.open(plan.folder).read(),
        "label": "laptop run",
        "settings": plan.preset.model_dump(mode="json"),
    }
    text = json.dumps(run, indent=1, ensure_ascii=False)
    atomic_write(partial / "run.json", text.encode() + b"\n")
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)
    return target
