"""Plans runs: what would be run, under which id, in which folder, after which other run.

A run's id hashes the code of its notebook, its parameters, the content of its preset and
the sources that decide its numbers; no comment or text changes it. The same plan gives
the same folder, so what is done is skipped and what was interrupted goes on.
"""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.presets import Preset, PresetError, load_preset
from rstar2.records import (
    RecordError,
    RunFolder,
    RunState,
    deciding_sources,
    provenance,
    run_id,
)
from rstar2.training.grpo import Arm

SFT_ARM = "sft"
"""What ``run.json`` calls the run that both arms start from."""

_EXPERIMENT = Path(__file__).with_name("laptop.py")
"""The order of the phases and the held-out problems: a source that decides numbers too."""

RECORD_SEEDS = (11, 12, 13)
"""Seeds of the committed laptop records; settings were searched on other seeds."""

BOOK_SEED = RECORD_SEEDS[0]
"""Seed of the run that ``make book`` makes."""

_NOTEBOOKS = {SFT_ARM: "10_run_sft.ipynb", "rl": "11_run_rl.ipynb"}


class MissingBaseError(UserError):
    """An arm is to begin, but the SFT run that it starts from is not done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run that is to be.

    Attributes:
        arm: ``sft``, or the name of an RL arm.
        notebook: What papermill executes.
        params: The notebook's parameters.
        preset: The preset's content.
        run_id: Hash of all that decides the numbers.
        folder: Where the run lives.
        needs: The run whose checkpoint this one starts from.
    """

    arm: str
    notebook: Path
    params: dict[str, Any]
    preset: Preset
    run_id: str
    folder: Path
    needs: "Plan | None" = None

    @property
    def name(self) -> str:
        """What people call the run."""
        return f"{self.preset.name}-seed{self.params['seed']}-{self.arm}"

    @property
    def is_done(self) -> bool:
        """Whether the run has ended well."""
        try:
            return RunFolder.open(self.folder).state is RunState.DONE
        except RecordError:
            return False


def plan_sft(preset: str, seed: int, evaluation: str) -> Plan:
    """Plans the run that makes the SFT policy of a seed.

    Raises:
        PresetError: If the preset, the size of the evaluation or the seed is impossible.
    """
    params = {"preset": preset, "seed": seed, "evaluation": evaluation}
    return _plan(SFT_ARM, _NOTEBOOKS[SFT_ARM], params, None)


def plan_arm(preset: str, seed: int, evaluation: str, arm: str) -> Plan:
    """Plans the run of one arm, from the SFT policy of the same preset and seed.

    Raises:
        PresetError: As ``plan_sft``, or if there is no such arm.
    """
    if arm not in tuple(Arm):
        raise PresetError(f"there is no arm {arm!r}; the arms are: {', '.join(Arm)}")
    base = plan_sft(preset, seed, evaluation)
    params = {**base.params, "arm": arm}
    return _plan(arm, _NOTEBOOKS["rl"], params, base)


def plan_experiment(preset: str, seeds: Sequence[int], evaluation: str) -> list[Plan]:
    """Plans the SFT run and both arms of every seed, each after what it needs."""
    plans: list[Plan] = []
    for seed in seeds:
        plans.append(plan_sft(preset, seed, evaluation))
        plans += [plan_arm(preset, seed, evaluation, arm) for arm in Arm]
    return plans


def begin(plan: Plan) -> RunFolder:
    """Makes the folder of a run, or opens it to go on.

    Raises:
        RecordError: If the folder cannot be written, or belongs to another version.
        MissingBaseError: If the run that it starts from is not done; nothing is made then.
    """
    if plan.is_done:
        return RunFolder.open(plan.folder)
    refuse_without_base(plan)
    if (plan.folder / "run.json").exists():
        folder = RunFolder.open(plan.folder)
        folder.update(RunState.RUNNING)
        return folder
    return RunFolder.create(
        plan.folder,
        plan.params,
        name=plan.name,
        run_id=plan.run_id,
        provenance=provenance(),
        arm=plan.arm,
        preset=plan.preset.name,
        seed=plan.params["seed"],
        evaluation=plan.params["evaluation"],
        sft_run=plan.needs.run_id if plan.needs else plan.run_id,
        label="this machine",
    )


def refuse_without_base(plan: Plan) -> None:
    """Stops before a run whose start does not exist.

    Raises:
        MissingBaseError: If the run that it starts from is not done; the message says how to
            make it.
    """
    base = plan.needs
    if base is None or base.is_done:
        return
    preset, seed, evaluation = (base.params[key] for key in ("preset", "seed", "evaluation"))
    raise MissingBaseError(
        f"{plan.name} starts from {base.name} ({base.run_id}), which is not done: make it first "
        f"(rstar2 train --preset {preset} --seed {seed} --evaluation {evaluation}, or "
        f"notebooks/{base.notebook.name} with the same preset, seed and evaluation)"
    )


def _plan(arm: str, notebook: str, params: dict[str, Any], needs: Plan | None) -> Plan:
    if params["evaluation"] not in ("book", "results"):
        raise PresetError(f"evaluation is {params['evaluation']!r}: give book or results")
    if not isinstance(params["seed"], int) or params["seed"] < 0:
        raise PresetError(f"seed is {params['seed']!r}: give a number from 0")
    root = project_root()
    path = root / "notebooks" / notebook
    preset = load_preset(params["preset"])
    decided = {**params, "content": preset.model_dump(mode="json")}
    if needs is not None:
        decided["sft_run"] = needs.run_id
    identity = run_id(_notebook_code(path), decided, deciding_sources(_EXPERIMENT))
    name = f"{preset.name}-seed{params['seed']}-{arm}-{identity}"
    return Plan(arm, path, params, preset, identity, root / "runs" / name, needs)


def _notebook_code(path: Path) -> str:
    """The code of a notebook's cells without comments; cells may await."""
    cells = json.loads(path.read_bytes())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return ast.unparse(compile(code, path.name, "exec", flags))
