"""Sweeps: notebooks × preset × arms × seeds, as one YAML file in ``sweeps/``.

    preset: laptop
    seeds: [11, 12, 13]
    arms: [grpo, grpo-roc]
    runs:
      - notebook: 10_run_sft
      - notebook: 11_run_rl
        with: {stage: [1, 2]}

Every run is made for every seed and arm that its notebook declares; lists in ``with`` are
crossed. The place of a run in the sweep is its *task*, the number that a scheduler counts.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, StrictInt, ValidationError

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.conditions import satisfying
from rstar2.experiments.notebook_files import NotebookError
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Plan
from rstar2.experiments.presets import PresetError
from rstar2.training.spec import Spec

_NO_SWEEPS = frozenset({"claims", "verdicts"})
"""Files of ``sweeps/`` that say what was claimed of the runs and what came of it."""


class SweepError(UserError):
    """A sweep is unknown, or says something impossible."""


class RunSpec(Spec):
    """Runs of one notebook.

    Attributes:
        notebook: A file in ``notebooks/`` without its ending, or a path in the checkout.
        params: Parameters; each value of a list makes a run. Written ``with`` in the file.
    """

    notebook: str
    params: dict[str, Any] = Field(default_factory=dict, alias="with")


class SweepSpec(Spec):
    """What stands in the file.

    Attributes:
        description: What the sweep is for.
        preset: A file in ``presets/``; none where no notebook asks for one.
        seeds: Seeds; none where no notebook asks for one.
        arms: RL arms, or names of one's own, each with its parameters.
        runs: The notebooks, in order.
        out: Folder of the run folders; a relative one lies in the checkout.
        copy_to: Folder or URL that every record is copied to as its run ends.
        keep_weights: Arms whose weights are published, of the first seed alone; the SFT policies
            are ``sft`` and, of an arm that changes its own, ``ARM-sft``.
    """

    description: str = ""
    preset: str | None = None
    seeds: tuple[StrictInt, ...] | None = Field(default=None, min_length=1)
    arms: tuple[str, ...] | dict[str, dict[str, Any]] | None = Field(default=None, min_length=1)
    runs: tuple[RunSpec, ...] = Field(min_length=1)
    out: str = "runs"
    copy_to: str | None = None
    keep_weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A run in its place of a sweep.

    Attributes:
        number: Its place, from 0.
        plan: The run.
        arm: The sweep's name of its arm; empty if its notebook has none.
    """

    number: int
    plan: Plan
    arm: str

    @property
    def seed(self) -> int | None:
        """Its seed, if it has one."""
        return self.plan.params.get("seed")


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep with its runs.

    Attributes:
        name: Name of the file without its ending.
        spec: What stands in it.
        tasks: The runs, each once, in the order of seeds, arms and notebooks.
    """

    name: str
    spec: SweepSpec
    tasks: tuple[Task, ...]

    @property
    def plans(self) -> list[Plan]:
        """The runs by task."""
        return [task.plan for task in self.tasks]


def load_sweep(name: str) -> Sweep:
    """Reads ``sweeps/<name>.yaml``, or the file of this path, and plans its runs.

    Raises:
        SweepError: If there is no such sweep, or it says something impossible.
        NotebookError: If a notebook cannot be read, or does not declare a parameter.
        PresetError: If the preset, or a parameter of a run notebook, is impossible.
    """
    path = _find(name)
    spec = _read(path)
    planner, tasks = Planner(spec.out), dict[Path, Task]()
    runs = [(planner.read(notebook_path(run.notebook)), run) for run in spec.runs]
    _refuse_unknown_parameters(path, spec, {name for one, _ in runs for name in one.parameters})
    for seed, (arm, arm_params), (notebook, run) in itertools.product(
        spec.seeds or (None,), _arms(spec).items(), runs
    ):
        declared = notebook.parameters
        common = {"preset": spec.preset, "seed": seed, **arm_params}
        offered = {key: value for key, value in common.items() if value is not None}
        known = {key: value for key, value in offered.items() if key in declared}
        for params in _crossed(run.params):
            plan = _planned(planner, path, notebook.path, {**known, **params})
            own = {key: arm_params[key] for key in known.keys() & arm_params.keys() - params.keys()}
            label = arm if any(_keeps(plan.params[key], own[key]) for key in own) else plan.arm
            tasks.setdefault(plan.folder, Task(len(tasks), plan, label))
    return Sweep(path.stem, spec, tuple(tasks.values()))


def notebook_path(name: str) -> Path:
    """The file of a notebook: one of ``notebooks/`` by its name, or a path in the checkout.

    Raises:
        SweepError: If there is no such file.
    """
    root = project_root()
    for path in (root / "notebooks" / f"{name}.ipynb", root / name):
        if os.path.isfile(path):  # no error where no system has such a name
            return path
    known = ", ".join(sorted(path.stem for path in (root / "notebooks").glob("*_run_*.ipynb")))
    raise SweepError(f"there is no notebook {name!r}: give a path, or one of {known}")


def select(sweep: Sweep, only: Sequence[str]) -> list[Task]:
    """The tasks that satisfy every condition.

    Args:
        sweep: The sweep.
        only: Conditions ``name=value``: the arm, the seed, the kind, or any parameter.

    Raises:
        ConditionError: As ``satisfying``.
    """
    return satisfying([(task, _facts(task)) for task in sweep.tasks], only, "run")


def with_needs(sweep: Sweep, tasks: Sequence[Task]) -> list[Task]:
    """Tasks, and those of the sweep that they need and that are not done, in the sweep's order."""
    wanted = {one.folder for task in tasks for one in task.plan.chain[:-1] if not one.is_done}
    wanted |= {task.plan.folder for task in tasks}
    return [task for task in sweep.tasks if task.plan.folder in wanted]


def waves(tasks: Sequence[Task]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the tasks that are not done, each wave after those that it needs."""
    left = [task for task in tasks if not task.plan.is_done]
    order = sorted({task.plan.wave for task in left})
    found = (tuple(task.number for task in left if task.plan.wave == wave) for wave in order)
    return tuple(found)


def _facts(task: Task) -> dict[str, Any]:
    return {**task.plan.params, "arm": task.arm, "kind": task.plan.kind.value}


def _find(name: str) -> Path:
    folder = project_root() / "sweeps"
    for path in (Path(name), folder / f"{name}.yaml", project_root() / name):
        if os.path.isfile(path):  # no error where no system has such a name
            return path.resolve()
    files = (file.stem for file in folder.glob("*.yaml"))
    known = ", ".join(sorted(name for name in files if name not in _NO_SWEEPS))
    raise SweepError(f"there is no sweep {name!r}; sweeps/ has: {known}")


def _read(path: Path) -> SweepSpec:
    try:
        values: Any = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        return SweepSpec.model_validate(values)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SweepError(f"{path.name} cannot be read: {error}") from error
    except ValidationError as error:
        fault = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        place = ".".join(str(part) for part in fault["loc"]) or "the file"
        known = ", ".join(SweepSpec.model_fields)
        what = f"there is no such setting; they are {known}"
        if fault["type"] != "extra_forbidden":
            what = fault["msg"]
        raise SweepError(f"{path.name}: {place}: {what}") from error


def _arms(spec: SweepSpec) -> Mapping[str, Mapping[str, Any]]:
    if spec.arms is None:
        return {"": {}}
    if isinstance(spec.arms, tuple):
        return {arm: {"arm": arm} for arm in spec.arms}
    return spec.arms


def _refuse_unknown_parameters(path: Path, spec: SweepSpec, declared: set[str]) -> None:
    """A parameter of an arm must be one of a notebook's, and a list must hold something."""
    for arm, params in _arms(spec).items():
        if isinstance(spec.arms, dict) and (unknown := sorted(params.keys() - declared)):
            raise SweepError(
                f"{path.name}: arms.{arm}: no notebook has a parameter {unknown[0]!r}; "
                f"they have: {', '.join(sorted(declared))}"
            )
    for number, run in enumerate(spec.runs):
        if empty := [name for name, value in run.params.items() if value == []]:
            raise SweepError(f"{path.name}: runs.{number}.with.{empty[0]}: is empty: give a value")


def _keeps(kept: Any, given: Any) -> bool:
    """Whether a run kept something of what it was given; it drops changes it does not read."""
    if isinstance(kept, Mapping) and isinstance(given, Mapping):
        return bool(kept.keys() & given.keys())
    return bool(kept == given)


class _Loader(yaml.SafeLoader):
    """Refuses a setting that is said twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if isinstance(key.value, str) and names.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is said twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


def _crossed(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = [value if isinstance(value, list) else [value] for value in params.values()]
    return [dict(zip(params, choice, strict=True)) for choice in itertools.product(*values)]


def _planned(planner: Planner, sweep: Path, notebook: Path, params: dict[str, Any]) -> Plan:
    try:
        return planner.notebook(notebook, params)
    except (NotebookError, PresetError) as error:
        raise SweepError(f"{sweep.name}: {notebook.name}: {error}") from error
