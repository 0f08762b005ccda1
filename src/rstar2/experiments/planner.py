"""Plans runs: what would be run, under which id, in which folder, after which other run.

A run's id hashes the code of its notebook, its parameters, what its preset says of it and
the sources that decide its numbers; no comment or text changes it. The same plan gives
the same folder, so what is done is skipped and what was interrupted goes on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rstar2
from rstar2.experiments.checkout import project_root
from rstar2.experiments.notebook_files import NotebookError, NotebookFile
from rstar2.experiments.plans import BOOK_ARMS, NOT_EVALUATED, NOTEBOOKS, SFT_ARM, Kind, Plan
from rstar2.experiments.presets import (
    FamilyPreset,
    LaboratoryPreset,
    Preset,
    PresetError,
    load_preset,
)
from rstar2.experiments.secret_forms import refuse_secret_parameters
from rstar2.records import (
    RecordError,
    deciding_imports,
    deciding_sources,
    fingerprint,
    run_id,
)
from rstar2.training.spec import Arm

_EXPERIMENT = Path(__file__).with_name("laptop.py")
"""The order of the phases and the held-out problems: a source that decides numbers too."""

_PACKAGE = Path(rstar2.__file__).parent

_OTHER_WORLDS: Mapping[type[Preset], tuple[str, ...]] = MappingProxyType(
    {
        FamilyPreset: (
            "training/laboratory_world.py",
            "training/laboratory_spec.py",
            "problems/ambiguous.py",
        ),
        LaboratoryPreset: ("training/family_world.py", "problems/laptop.py"),
    }
)
"""Modules that decide nothing of a run on a preset of this class: those of the other world."""

_SFT_SECTIONS = (
    "manifest",
    "model",
    "pretrain",
    "sft",
    "demonstrations",
    "noise",
    "habit",
    "limits",
)
"""What an SFT run takes from its preset."""

_RL_SECTIONS = (*_SFT_SECTIONS, "stages", "rl", "data", "engine")


@dataclass(frozen=True)
class Planner:
    """Plans runs of one checkout as it is now; sources and presets are read once.

    Attributes:
        out: The folder of the run folders; a relative one lies in the checkout.
    """

    out: str = "runs"
    _fingerprints: dict[Path | type, str] = field(default_factory=dict)
    _presets: dict[str, Preset] = field(default_factory=dict)
    _notebooks: dict[Path, NotebookFile] = field(default_factory=dict)

    @cached_property
    def root(self) -> Path:
        """The checkout."""
        return project_root()

    def sft(
        self,
        preset: str,
        seed: int,
        evaluation: str = NOT_EVALUATED,
        changes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The run that makes the SFT policy of a seed; it keeps the changes that touch it.

        Raises:
            PresetError: If the preset, a change, the size of the evaluation or the seed is
                impossible, or the preset has no SFT.
        """
        settings = self._settings(preset, changes, evaluation)
        if settings.sft is None:
            raise PresetError(f"preset {preset} has no SFT: its RL starts from the model itself")
        params = {"preset": preset, "seed": seed, "evaluation": evaluation, "changes": changes}
        return self._job(Kind.SFT, SFT_ARM, params, settings, _SFT_SECTIONS, None)

    def rl(
        self,
        preset: str,
        seed: int,
        evaluation: str,
        arm: str,
        stage: int = 0,
        changes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The run of one arm: all stages from the SFT policy, or one from the stage before.

        A run that is evaluated starts from an SFT run that is evaluated as well, so that there
        is a before to its after.

        Raises:
            PresetError: As ``sft``, or if there is no such arm or stage, or one stage alone
                is to be evaluated.
        """
        settings = self._settings(preset, changes, evaluation)
        _check_stage(settings, arm, stage, least=0)
        if stage and evaluation != NOT_EVALUATED:
            raise PresetError(
                f"stage {stage} alone is not evaluated by its own run: give the evaluation "
                f"{NOT_EVALUATED!r}, and 13_run_evaluation evaluates it"
            )
        params = {"preset": preset, "seed": seed, "evaluation": evaluation, "changes": changes}
        params |= {"arm": arm, "stage": stage}
        if stage and settings.stages[stage - 1].data == "mined":
            needs: Plan | None = self.mining(preset, seed, arm, stage, changes)
        else:
            needs = self._before(settings, seed, evaluation, arm, stage, changes)
        return self._job(Kind.RL, _policy_name(arm, stage), params, settings, _RL_SECTIONS, needs)

    def mining(
        self,
        preset: str,
        seed: int,
        arm: str,
        stage: int,
        changes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The run that mines the hard problems of a stage with what the stage before left.

        Raises:
            PresetError: As ``rl``, or if the stage has no mining, or is the first.
        """
        settings = self._settings(preset, changes, NOT_EVALUATED)
        _check_stage(settings, arm, stage, least=1)
        if settings.stages[stage - 1].data != "mined":
            raise PresetError(f"preset {preset}: stage {stage} has no mined problems")
        params = {"preset": preset, "seed": seed, "changes": changes, "arm": arm, "stage": stage}
        needs = self._before(settings, seed, NOT_EVALUATED, arm, stage, changes)
        return self._job(Kind.MINING, f"{arm}-mining{stage}", params, settings, _RL_SECTIONS, needs)

    def evaluation(
        self,
        preset: str,
        seed: int,
        evaluation: str,
        arm: str,
        stage: int = 0,
        changes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The run that evaluates a policy: of the SFT, of an arm, or of one of its stages.

        Raises:
            PresetError: As ``rl``, or if the evaluation is none.
        """
        settings = self._settings(preset, changes, evaluation)
        if evaluation == NOT_EVALUATED:
            raise PresetError(f"evaluation is none: give one of {', '.join(settings.evaluation)}")
        if arm == SFT_ARM:
            if stage:
                raise PresetError(f"the SFT policy has no stage {stage}: give 0")
            needs = self.sft(preset, seed, NOT_EVALUATED, changes)
        else:
            needs = self.rl(preset, seed, NOT_EVALUATED, arm, stage, changes)
        params = {"preset": preset, "seed": seed, "evaluation": evaluation, "changes": changes}
        params |= {"arm": arm, "stage": stage}
        sections = _SFT_SECTIONS if arm == SFT_ARM else _RL_SECTIONS
        name = f"{_policy_name(arm, stage)}-evaluation"
        return self._job(Kind.EVALUATION, name, params, settings, sections, needs)

    def notebook(self, path: Path, params: Mapping[str, Any]) -> Plan:
        """The run of any notebook: one of the run notebooks, or one that is its own work.

        Args:
            path: The notebook.
            params: Parameters; the others have their defaults.

        Raises:
            NotebookError: It cannot be read, or does not declare a parameter.
            PresetError: As the other methods.
            SecretParameterError: A parameter is a secret.
        """
        notebook = self.read(path)
        final = notebook.final_parameters(params)
        refuse_secret_parameters(final)
        kind = Kind.NOTEBOOK
        if path.parent == self.root / "notebooks":
            kind = NOTEBOOKS.get(path.name, Kind.NOTEBOOK)
        folder = "run_dir" if kind is Kind.NOTEBOOK else "out"
        if folder in params:
            raise NotebookError(
                f"{path.name}: {folder} is no parameter of a run: a sweep says it once, as `out`"
            )
        if kind is not Kind.NOTEBOOK:
            return self.job(kind, {key: value for key, value in final.items() if key != "out"})
        final.pop("run_dir", None)
        try:
            code = notebook.code
            if path not in self._fingerprints:
                self._fingerprints[path] = fingerprint(deciding_imports(notebook.tree))
            decided = {"params": final, "sources": self._fingerprints[path]}
            if isinstance(final.get("preset"), str) and final["preset"]:
                settings = self._settings(final["preset"], None, NOT_EVALUATED)
                decided["content"] = settings.deciding_values()
            identity = run_id(code, decided, [])
        except RecordError as error:
            raise NotebookError(f"{path.name}: {error}") from error
        said = [str(final[key]) for key in ("preset", "arm") if isinstance(final.get(key), str)]
        if isinstance(final.get("seed"), int):
            said.append(f"seed{final['seed']}")
        name = "-".join([path.stem, *said])
        return Plan(kind, name, path, final, identity, self._folder(name, identity))

    def job(self, kind: Kind, params: Mapping[str, Any]) -> Plan:
        """The run of a run notebook, of its parameters by name.

        Raises:
            PresetError: As the method of its kind.
        """
        match kind:
            case Kind.SFT:
                return self.sft(**params)
            case Kind.RL:
                return self.rl(**params)
            case Kind.MINING:
                return self.mining(**params)
            case Kind.EVALUATION:
                return self.evaluation(**params)
            case Kind.NOTEBOOK:
                raise ValueError("a notebook that is its own work is planned by its path")

    def _before(
        self,
        settings: Preset,
        seed: int,
        evaluation: str,
        arm: str,
        stage: int,
        changes: Mapping[str, Any] | None,
    ) -> Plan | None:
        """The training that a stage goes on from; None where RL starts from the model itself."""
        if stage > 1:
            return self.rl(settings.name, seed, evaluation, arm, stage - 1, changes)
        return self.sft(settings.name, seed, evaluation, changes) if settings.sft else None

    def _settings(self, preset: str, changes: Mapping[str, Any] | None, evaluation: str) -> Preset:
        key = json.dumps([preset, changes or {}], sort_keys=True, default=str)
        if key not in self._presets:
            self._presets[key] = load_preset(preset, changes or {})
        settings = self._presets[key]
        sizes = (NOT_EVALUATED, *settings.evaluation)
        if evaluation not in sizes:
            raise PresetError(f"evaluation is {evaluation!r}: give one of {', '.join(sizes)}")
        return settings

    def _job(
        self,
        kind: Kind,
        what: str,
        params: dict[str, Any],
        settings: Preset,
        sections: Sequence[str],
        needs: Plan | None,
    ) -> Plan:
        sources = self._sources(settings)
        seed = params["seed"]
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise PresetError(f"seed is {seed!r}: give a number from 0")
        notebook = next(name for name, its in NOTEBOOKS.items() if its is kind)
        path = self.root / "notebooks" / notebook
        sized = params.get("evaluation", NOT_EVALUATED) != NOT_EVALUATED
        touching = (*sections, "evaluation", "rl.temperature") if sized else tuple(sections)
        changes, stage = params["changes"] or {}, params.get("stage", 0)
        own = {name: changes[name] for name in sorted(changes) if _touches(name, touching, stage)}
        content = settings.model_dump(mode="json")
        size = content["evaluation"][params["evaluation"]] if sized else None
        known = {name: content[name] for name in sections if name in content}
        if stage:
            known["stages"] = known["stages"][:stage]
        decided = {
            **{name: value for name, value in params.items() if name != "changes"},
            "content": known,
            "size": [size, content["rl"]["temperature"]] if sized else None,
            "needs": needs.run_id if needs else None,
            "sources": sources,
        }
        identity = run_id(self.read(path).code, decided, [])
        name = f"{settings.name}-seed{seed}-{what}"
        folder = self._folder(name, identity)
        final = {**params, "changes": own}
        return Plan(kind, name, path, final, identity, folder, settings, needs)

    def _sources(self, settings: Preset) -> str:
        """Fingerprint of what decides the numbers of a run on a preset."""
        without = _OTHER_WORLDS.get(type(settings), ())
        key = type(settings)
        if key not in self._fingerprints:
            others = [_PACKAGE / name for name in without]
            self._fingerprints[key] = fingerprint(deciding_sources(_EXPERIMENT, others))
        return self._fingerprints[key]

    def _folder(self, name: str, identity: str) -> Path:
        return self.root / Path(self.out).expanduser() / f"{name}-{identity}"

    def read(self, path: Path) -> NotebookFile:
        """A notebook, read once."""
        return self._notebooks.setdefault(path, NotebookFile(path))


def _policy_name(arm: str, stage: int) -> str:
    return f"{arm}-stage{stage}" if stage else arm


def _touches(name: str, sections: Sequence[str], stage: int) -> bool:
    """Whether a change reaches a run that reads these sections, and the stages up to its own."""
    first, *rest = name.split(".")
    later = first == "stages" and stage and rest and rest[0].isdigit() and int(rest[0]) >= stage
    return (first in sections or name in sections) and not later


def plan_experiment(preset: str, seeds: Sequence[int], evaluation: str) -> list[Plan]:
    """Plans the SFT run and the book's arms of every seed, each after what it needs."""
    planner, plans = Planner(), list[Plan]()
    for seed in seeds:
        plans.append(planner.sft(preset, seed, evaluation))
        plans += [planner.rl(preset, seed, evaluation, arm) for arm in BOOK_ARMS]
    return plans


def _check_stage(settings: Preset, arm: str, stage: int, *, least: int) -> None:
    if arm not in tuple(Arm):
        raise PresetError(f"there is no arm {arm!r}; the arms are: {', '.join(Arm)}")
    stages = len(settings.stages)
    if isinstance(stage, bool) or not isinstance(stage, int) or not least <= stage <= stages:
        whole = " (0 is all of them)" if least == 0 else ""
        raise PresetError(
            f"stage is {stage!r}: preset {settings.name} has stages 1 to {stages}{whole}"
        )
    if stage and not settings.stages[stage - 1].steps:
        raise PresetError(f"preset {settings.name}: stage {stage} has no step to train alone")
