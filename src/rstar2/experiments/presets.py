"""Presets: everything that decides a run, as one YAML file in ``presets/``.

A preset is data. No code asks for its name; a misspelt or impossible value is one clear
line with the place where it stands. Its ``trainer`` says which sections it has.
"""

import difflib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from rstar2.experiments.checkout import project_root
from rstar2.experiments.cluster_spec import (
    BenchmarkSpec,
    ColdStartSpec,
    DataSpec,
    EngineSpec,
    PretrainedSpec,
)
from rstar2.experiments.preset_changes import change
from rstar2.experiments.preset_faults import first_fault, shown
from rstar2.experiments.preset_files import (
    Origin,
    PresetError,
    PresetFile,
    Setting,
    read_preset_file,
)
from rstar2.experiments.resources import CostSpec, ResourcesSpec
from rstar2.protocol import MANIFESTS, Manifest
from rstar2.training.spec import (
    EvaluationSpec,
    FamilyStageSpec,
    LimitsSpec,
    ModelSpec,
    NoiseSpec,
    RLSpec,
    Spec,
    StageSpec,
    SupervisedSpec,
)

__all__ = [
    "Origin",
    "Preset",
    "PresetError",
    "Setting",
    "TorchPreset",
    "VerlPreset",
    "load_preset",
    "load_torch_preset",
    "preset_names",
]

_NOT_DECIDING = {"description", "resources", "cost"}


class BasePreset(Spec):
    """What every preset has.

    Attributes:
        name: That of the file.
        description: What it is for and what to expect.
        manifest: Which texts the model is told.
    """

    name: str
    description: str = Field(min_length=1)
    manifest: Literal["laptop", "paper"]
    limits: LimitsSpec
    rl: RLSpec
    resources: ResourcesSpec
    cost: CostSpec
    _settings: Mapping[str, Setting] = PrivateAttr(default_factory=dict)

    @property
    def texts(self) -> Manifest:
        """The manifest itself."""
        return MANIFESTS[self.manifest]

    @property
    def settings(self) -> Mapping[str, Setting]:
        """Every value with its origin and note, by dotted place."""
        return self._settings

    @property
    def origins(self) -> dict[str, Origin]:
        """Whose each value is, by dotted place."""
        return {place: setting.origin for place, setting in self._settings.items()}

    def deciding_values(self) -> dict[str, Any]:
        """The values that decide the numbers of a run, as JSON values."""
        return self.model_dump(mode="json", exclude=_NOT_DECIDING)


class TorchPreset(BasePreset):
    """An experiment that one process trains on this machine, from fresh weights."""

    trainer: Literal["torch"]
    model: ModelSpec
    pretrain: SupervisedSpec
    sft: SupervisedSpec
    noise: NoiseSpec
    stages: tuple[FamilyStageSpec, ...] = Field(min_length=1)
    evaluation: dict[Literal["book", "results"], EvaluationSpec] = Field(min_length=2)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        responses = [one.max_response_tokens for one in self.evaluation.values()]
        positions = self.model.max_positions
        _check_stages(self.stages, self.limits, responses, positions, "model.max_positions")
        return self


class VerlPreset(BasePreset):
    """An experiment that verl trains on GPUs, from a published base model.

    Attributes:
        sft: The cold start; none where RL starts from the base model itself.
    """

    trainer: Literal["verl"]
    model: PretrainedSpec
    data: DataSpec
    sft: ColdStartSpec | None
    stages: tuple[StageSpec, ...] = Field(min_length=1)
    engine: EngineSpec
    evaluation: dict[Literal["results", "paper"], BenchmarkSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        engine, gpus = self.engine, self.resources.gpus_per_node
        responses = [one.max_response_tokens for one in self.evaluation.values()]
        _check_stages(
            self.stages, self.limits, responses, engine.max_model_len, "engine.max_model_len"
        )
        if not gpus or gpus % engine.tensor_parallel:
            raise ValueError(
                f"resources.gpus_per_node is {gpus}, no multiple of engine.tensor_parallel "
                f"{engine.tensor_parallel}"
            )
        longest = self.limits.max_prompt_tokens + max(s.max_response_tokens for s in self.stages)
        if self.rl.micro_batch_tokens < longest:
            raise ValueError(
                f"rl.micro_batch_tokens is {self.rl.micro_batch_tokens}: a rollout of training "
                f"may have {longest} tokens, and no row is split"
            )
        if self.sft and self.sft.micro_batch_tokens < self.sft.max_tokens:
            raise ValueError(
                f"sft.micro_batch_tokens is {self.sft.micro_batch_tokens}: a conversation may "
                f"have {self.sft.max_tokens} tokens (sft.max_tokens), and no row is split"
            )
        return self


Preset = TorchPreset | VerlPreset
"""A preset of either trainer."""

_CLASSES: Mapping[str, type[TorchPreset] | type[VerlPreset]] = MappingProxyType(
    {"torch": TorchPreset, "verl": VerlPreset}
)
_SECTIONS = TorchPreset.model_fields.keys() | VerlPreset.model_fields.keys()


def preset_names() -> list[str]:
    """The presets of the checkout, by name."""
    return sorted(file.stem for file in (project_root() / "presets").glob("*.yaml"))


def load_preset(name: str, changes: Mapping[str, Any] = MappingProxyType({})) -> Preset:
    """Reads ``presets/<name>.yaml``.

    Args:
        name: Of the preset.
        changes: Other values, by dotted place, as ``{"rl.epsilon": 0.5}``; they are ours.

    Raises:
        PresetError: If there is no such preset, a change names nothing, or it is invalid.
    """
    known = preset_names()
    if name not in known:
        raise PresetError(f"there is no preset {name!r}; presets/ has: {', '.join(known)}")
    path = project_root() / "presets" / f"{name}.yaml"
    file = change(read_preset_file(path, f"presets/{name}.yaml"), changes)
    preset = _validated(file)
    if preset.name != name:
        at = file.where("name")
        raise PresetError(f"{at}: name: is {preset.name!r}, not that of the file")
    preset._settings = dict(file.settings)
    return preset


def load_torch_preset(name: str, changes: Mapping[str, Any] = MappingProxyType({})) -> TorchPreset:
    """Reads a preset that this machine can train.

    Raises:
        PresetError: As ``load_preset``, or if it is for another trainer.
    """
    preset = load_preset(name, changes)
    if not isinstance(preset, TorchPreset):
        raise PresetError(
            f"preset {name} trains with {preset.trainer} on {preset.resources.gpus} GPUs: "
            "give one with `trainer: torch`, as laptop"
        )
    return preset


def _validated(file: PresetFile) -> Preset:
    found = _trainer_class(file)
    try:
        # As JSON: strict, and yet a list is a tuple and a text an enum's member.
        return found.model_validate_json(json.dumps(file.values), strict=True)
    except ValidationError as error:
        place, fault = first_fault(error, found)
        at = file.where(place)
        raise PresetError(f"{at}: {place}: {fault}" if place else f"{at}: {fault}") from error


def _trainer_class(file: PresetFile) -> type[TorchPreset] | type[VerlPreset]:
    """The sections that a preset must have, by its trainer."""
    trainers = " or ".join(_CLASSES)
    if "trainer" not in file.values:
        unknown = [name for name in file.values if name not in _SECTIONS]
        close = difflib.get_close_matches("trainer", unknown, n=1)
        if close:
            at = file.where(close[0])
            raise PresetError(f"{at}: {close[0]}: there is no such setting; did you mean trainer?")
        raise PresetError(f"{file.label}: trainer: is missing: give {trainers}")
    trainer = file.values["trainer"]
    found = _CLASSES.get(trainer) if isinstance(trainer, str) else None
    if found is None:
        at = file.where("trainer")
        raise PresetError(f"{at}: trainer: is {shown(trainer)}: give {trainers}")
    return found


def _check_stages(
    stages: tuple[StageSpec, ...],
    limits: LimitsSpec,
    responses: list[int],
    positions: int,
    positions_place: str,
) -> None:
    """Refuses a curriculum without a step, and rollouts that the model has no room for."""
    if not any(stage.steps for stage in stages):
        raise ValueError("the stages have no step in all")
    longest = limits.max_prompt_tokens + max(
        *responses, *(stage.max_response_tokens for stage in stages)
    )
    if longest > positions:
        raise ValueError(
            f"a rollout may have {longest} tokens, the model has {positions} positions "
            f"({positions_place})"
        )
