"""Copies finished runs of a sweep from ``runs/`` to ``results/<sweep>/``, to be committed.

Only what a clean, known commit made may go there. Runs are copied as they finish: what is there
already stays as it is, and no record is removed. A record is named by its arm in the sweep,
``-stage2`` or ``-mining3`` if it is a part of one, the size of its evaluation if it is one alone,
and its seed: ``dapo-cot-seed21``, ``dapo-cot-sft-seed21``, ``sft-premise-seed101``.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.plans import NOT_EVALUATED, RECORD_SWEEPS, SFT_ARM, Kind, Plan
from rstar2.experiments.sweeps import Sweep, Task, load_sweep
from rstar2.records import RecordError, RunFolder, atomic_write, provenance

_FILES = ("params.json", "metrics.parquet", "timing.jsonl", "grades.parquet")
_RL_FILES = ("sampled.parquet",)
_EVALUATION_FILES = ("evaluation.parquet", "rollouts.parquet", "examples.jsonl")
_CHECKPOINT_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


class PublishError(UserError):
    """A run may not go to ``results/``."""


class Standing(StrEnum):
    """How a run of a sweep stands in ``results/``."""

    PUBLISHED = "published"
    """Its record is there, with the files that it is to have."""
    READY = "ready"
    """It is done here, and its record is not there."""
    STALE = "stale"
    """It is not done here, and the record of this name is of another run or has other files."""
    MISSING = "missing"
    """It is not done here, and there is no record."""


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """A record that a sweep is to have.

    Attributes:
        name: Its folder's name.
        task: The run.
        keeps_weights: Whether it holds the final weights.
    """

    name: str
    task: Task
    keeps_weights: bool

    @property
    def plan(self) -> Plan:
        """The run's plan."""
        return self.task.plan

    def standing(self, folder: Path) -> Standing:
        """How it stands in a folder of records.

        Raises:
            RecordError: If ``run.json`` of the record that is there cannot be read.
        """
        there = _published(folder / self.name)
        if there.get("id") == self.plan.run_id and self._has_its_files(folder / self.name):
            return Standing.PUBLISHED
        if self.plan.is_done:
            return Standing.READY
        return Standing.STALE if there else Standing.MISSING

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it has of the run folder, beside ``run.json`` and the weights."""
        files: tuple[str, ...] = _FILES
        if self.plan.kind is Kind.RL:
            files += _RL_FILES
        if self.plan.params.get("evaluation") not in (None, NOT_EVALUATED):
            files += _EVALUATION_FILES
        return files

    def _has_its_files(self, record: Path) -> bool:
        whole = all((record / name).exists() for name in self.files)
        return whole and (record / "checkpoint").is_dir() == self.keeps_weights


def refuse_unpublishable() -> None:
    """Stops before a long run whose records could not be published.

    Raises:
        PublishError: If the commit is unknown or the tree has changes outside ``results/``.
    """
    here = provenance()
    if not here.publishable:
        what = "the commit is unknown" if here.commit is None else "the tree has changes"
        raise PublishError(f"records come from a clean commit, but {what}: commit, then run again")


def record_sweeps() -> list[Sweep]:
    """The sweeps whose records are committed, by name.

    Raises:
        SweepError: As ``load_sweep``.
    """
    found = (project_root() / "sweeps").glob(f"{RECORD_SWEEPS}.yaml")
    return [load_sweep(str(path)) for path in sorted(found)]


def results_folder(sweep: Sweep) -> Path:
    """Where the records of a sweep are."""
    return project_root() / "results" / sweep.name


def record_arm(task: Task) -> str:
    """The arm of a task as its record tells it: an SFT policy is none of the RL arms."""
    if task.plan.arm != SFT_ARM or task.arm == SFT_ARM:
        return task.arm
    return f"{task.arm}-{SFT_ARM}"


def record_plans(sweep: Sweep) -> list[RecordPlan]:
    """The records of a sweep, in the order of its tasks.

    Raises:
        PublishError: If two runs would have the same record, a run is of a notebook that has no
            record, or ``keep_weights`` names no arm that is trained.
    """
    found: dict[str, RecordPlan] = {}
    for task in sweep.tasks:
        name = _name(sweep, task)
        if name in found:
            raise PublishError(
                f"sweep {sweep.name}: {found[name].plan.name} ({found[name].plan.run_id}) and "
                f"{task.plan.name} ({task.plan.run_id}) would both be the record {name}: give "
                "them arms of two names, or a sweep each"
            )
        found[name] = RecordPlan(name, task, _keeps_weights(sweep, task))
    trained = {record_arm(task) for task in sweep.tasks if _trains(task.plan)}
    if unknown := sorted(set(sweep.spec.keep_weights) - trained):
        raise PublishError(
            f"sweep {sweep.name}: keep_weights: nothing trains {unknown[0]!r}; its arms are: "
            f"{', '.join(sorted(trained))}"
        )
    return list(found.values())


def unplanned(records: Sequence[RecordPlan], folder: Path) -> list[str]:
    """Names of the records in a folder that are none of these."""
    there = (path.parent.name for path in folder.glob("*/run.json"))
    names = {record.name for record in records}
    return sorted(name for name in there if name not in names and not name.startswith("."))


def publish(sweep: Sweep, folder: Path) -> list[Path]:
    """Copies the runs of a sweep that are done and have no record yet, a folder each.

    ``run.json`` gets ``sweep``, ``sweep_arm`` and ``settings``, the content of the preset. What an
    interrupted copy left is removed.

    Returns:
        The folders that are new.

    Raises:
        PublishError: As ``record_plans``, or if a run was made by a dirty or unknown commit, or a
            file cannot be copied; what was published before stays.
    """
    ready = [one for one in record_plans(sweep) if one.standing(folder) is Standing.READY]
    for one in ready:
        run = RunFolder.open(one.plan.folder).read()
        if run["commit"] is None or run["dirty"] is not False:
            raise PublishError(
                f"{one.plan.name} was made by an unknown or dirty commit; nothing was published: "
                f"remove {one.plan.folder} and run it again from a clean commit"
            )
    try:
        for leftover in folder.glob(".*.partial"):
            shutil.rmtree(leftover)
        return [_publish_one(sweep, one, folder / one.name) for one in ready]
    except OSError as error:
        raise PublishError(f"cannot publish to {folder}: {error}") from error


def _publish_one(sweep: Sweep, record: RecordPlan, target: Path) -> Path:
    plan, partial = record.plan, target.with_name(f".{target.name}.partial")
    partial.mkdir(parents=True)
    for name in record.files:
        shutil.copyfile(plan.folder / name, partial / name)
    if record.keeps_weights:
        (partial / "checkpoint").mkdir()
        for name in _CHECKPOINT_FILES:
            final = plan.folder / "checkpoints" / "final" / name
            shutil.copyfile(final, partial / "checkpoint" / name)
    assert plan.preset is not None
    run = {
        **RunFolder.open(plan.folder).read(),
        "label": "laptop run",
        "sweep": sweep.name,
        "sweep_arm": record_arm(record.task),
        "settings": plan.preset.model_dump(mode="json"),
    }
    text = json.dumps(run, indent=1, ensure_ascii=False)
    atomic_write(partial / "run.json", text.encode() + b"\n")
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)
    return target


def _name(sweep: Sweep, task: Task) -> str:
    plan, parts = task.plan, [record_arm(task)]
    if plan.preset is None:
        raise PublishError(
            f"sweep {sweep.name}: {plan.name} is the work of its own notebook, and records are of "
            "the run notebooks: leave it out"
        )
    if stage := plan.params.get("stage"):
        parts.append(f"{'mining' if plan.kind is Kind.MINING else 'stage'}{stage}")
    if plan.kind is Kind.EVALUATION:
        parts.append(plan.params["evaluation"])
    return "-".join([*parts, f"seed{task.seed}"])


def _trains(plan: Plan) -> bool:
    return plan.kind in (Kind.SFT, Kind.RL)


def _keeps_weights(sweep: Sweep, task: Task) -> bool:
    is_first = task.seed == (sweep.spec.seeds or (None,))[0]
    return is_first and _trains(task.plan) and record_arm(task) in sweep.spec.keep_weights


def _published(folder: Path) -> Mapping[str, Any]:
    """``run.json`` of the record in a folder; empty if there is none."""
    try:
        return RunFolder.open(folder).read()
    except RecordError:
        if (folder / "run.json").exists():
            raise
        return {}
