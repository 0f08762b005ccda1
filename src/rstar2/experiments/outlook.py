"""What a batch would do, why, and what it would cost: ``rstar2 batch plan``."""

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rstar2.experiments.plans import NOT_EVALUATED, Kind, Plan
from rstar2.experiments.standing import Standing, View, view
from rstar2.experiments.sweeps import Task
from rstar2.records import RecordError, RunFolder, RunState


@dataclass(frozen=True, slots=True)
class Outlook:
    """One run of a batch.

    Attributes:
        task: The run.
        view: How it stands.
        why: What would be done with it, and why.
        minutes: Wall minutes that it would take; None if nothing tells.
        source: What the minutes come from; empty without any.
    """

    task: Task
    view: View
    why: str
    minutes: float | None
    source: str

    @property
    def is_left(self) -> bool:
        """Whether it would be executed."""
        return self.view.standing is not Standing.DONE

    @property
    def gpu_hours(self) -> float | None:
        """Accelerator hours that it would take; 0 on a machine without one."""
        if self.minutes is None:
            return None
        preset = self.task.plan.preset
        return self.minutes / 60 * (preset.resources.gpus if preset else 0)


def outlook(tasks: Sequence[Task]) -> list[Outlook]:
    """Looks at every run of a batch.

    Raises:
        RecordError: A ``run.json`` cannot be read.
    """
    measured = _Measured()
    numbers = {task.plan.folder: task.number for task in tasks}
    found = []
    for task in tasks:
        now = view(task.plan)
        minutes, source = _estimate(task.plan, measured)
        found.append(Outlook(task, now, _why(task.plan, now, numbers), minutes, source))
    return found


def _why(plan: Plan, now: View, numbers: Mapping[Path, int]) -> str:
    match now.standing:
        case Standing.DONE:
            return "done: skipped"
        case Standing.RUNNING:
            return "at work: attached to"
        case Standing.STOPPED | Standing.LOST:
            return f"{_last_step(plan)}: goes on"
        case Standing.FAILED:
            return f"failed: {now.error}: tried again"
        case Standing.WAITING:
            assert plan.needs is not None
            number = numbers.get(plan.needs.folder)
            return f"after {plan.needs.name}" if number is None else f"after task {number}"
    former = _former(plan)
    return f"begins: {former}" if former else "begins"


def _last_step(plan: Plan) -> str:
    steps = sorted(path.name for path in plan.folder.glob("checkpoints/step-??????"))
    return f"has step {int(steps[-1][5:])}" if steps else "has no step yet"


def _former(plan: Plan) -> str:
    """What the run of the same name in another folder says of a changed id."""
    others = [
        path
        for path in plan.folder.parent.glob(f"{glob.escape(plan.name)}-*")
        if path != plan.folder
    ]
    others = sorted(path for path in others if path.name[len(plan.name) + 1 :].isalnum())
    if not others:
        return ""
    return f"the one of {others[0].name[-10:]} had other code or values"


class _Measured:
    """Wall minutes of finished runs of the same kind, read once for each folder."""

    def __init__(self) -> None:
        self._runs: dict[Path, list[tuple[str, float]]] = {}

    def minutes(self, plan: Plan) -> list[float]:
        """Of runs of the same notebook, preset and stage in the same folder."""
        folder = plan.folder.parent
        if folder not in self._runs:
            self._runs[folder] = list(_finished(folder))
        key = _key(plan.notebook.name, plan.params)
        return [wall / 60 for its, wall in self._runs[folder] if its == key]


def _finished(folder: Path) -> list[tuple[str, float]]:
    found = []
    for path in folder.glob("*/run.json"):
        try:
            record = RunFolder(path.parent).read()
            params = RunFolder(path.parent).params
            notebook = record["notebook"]
        except (RecordError, KeyError):  # damaged, or of an older version
            continue
        if record["state"] == RunState.DONE and "wall_seconds" in record:
            found.append((_key(notebook, params), record["wall_seconds"]))
    return found


def _key(notebook: str, params: dict[str, object]) -> str:
    """Runs that differ in their seed alone take about as long."""
    return json.dumps([notebook, {name: params[name] for name in sorted(params) if name != "seed"}])


def _estimate(plan: Plan, measured: _Measured) -> tuple[float | None, str]:
    """Minutes of a whole run, and where they come from."""
    seen = measured.minutes(plan)
    if seen:
        return mean(seen), "measured" if len(seen) == 1 else f"mean of {len(seen)} runs"
    if plan.preset is None:
        return None, ""
    cost, params = plan.preset.cost, plan.params
    evaluated = params.get("evaluation", NOT_EVALUATED) != NOT_EVALUATED
    minutes = cost.evaluation if evaluated else 0.0
    match plan.kind:
        case Kind.SFT:
            minutes += cost.sft
        case Kind.MINING:
            minutes += cost.mining
        case Kind.RL:
            stages = plan.preset.stages
            own = stages if params["stage"] == 0 else stages[params["stage"] - 1 :][:1]
            minutes += cost.rl_step * sum(stage.steps for stage in own)
            if params["stage"] == 0:
                minutes += cost.mining * sum(stage.data == "mined" for stage in own)
    return minutes, "the preset's guess"
