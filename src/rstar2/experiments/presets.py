"""Presets: everything that decides a run, as one YAML file in ``presets/``.

A preset is data. No code asks for its name; a misspelt or impossible value is one clear
line with the place where it stands. Its ``trainer`` says which sections it has.
"""

import difflib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from rstar2.experiments.checkout import project_root
from rstar2.experiments.preset_changes import change
from rstar2.experiments.preset_classes import (
    FamilyPreset,
    LaboratoryPreset,
    TorchPreset,
    VerlPreset,
)
from rstar2.experiments.preset_faults import first_fault, shown
from rstar2.experiments.preset_files import (
    Origin,
    PresetError,
    PresetFile,
    Setting,
    read_preset_file,
)

__all__ = [
    "FamilyPreset",
    "LaboratoryPreset",
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

Preset = TorchPreset | VerlPreset
"""A preset of either trainer."""

_TRAINERS = ("torch", "verl")
_SECTIONS = frozenset(
    name for one in (FamilyPreset, LaboratoryPreset, VerlPreset) for name in one.model_fields
)


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
    found = _class_of(file)
    try:
        # As JSON: strict, and yet a list is a tuple and a text an enum's member.
        return found.model_validate_json(json.dumps(file.values), strict=True)
    except ValidationError as error:
        place, fault = first_fault(error, found)
        at = file.where(place)
        raise PresetError(f"{at}: {place}: {fault}" if place else f"{at}: {fault}") from error


def _class_of(file: PresetFile) -> type[FamilyPreset | LaboratoryPreset | VerlPreset]:
    """The sections that a preset must have: by its trainer, and by the habit of a laboratory."""
    trainers = " or ".join(_TRAINERS)
    if "trainer" not in file.values:
        unknown = [name for name in file.values if name not in _SECTIONS]
        close = difflib.get_close_matches("trainer", unknown, n=1)
        if close:
            at = file.where(close[0])
            raise PresetError(f"{at}: {close[0]}: there is no such setting; did you mean trainer?")
        raise PresetError(f"{file.label}: trainer: is missing: give {trainers}")
    trainer = file.values["trainer"]
    if trainer not in _TRAINERS:
        at = file.where("trainer")
        raise PresetError(f"{at}: trainer: is {shown(trainer)}: give {trainers}")
    if trainer == "verl":
        return VerlPreset
    return LaboratoryPreset if "habit" in file.values else FamilyPreset
