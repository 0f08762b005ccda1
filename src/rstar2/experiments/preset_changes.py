"""Other values for a preset, by dotted place: what a sweep or a notebook changes in it."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rstar2.experiments.preset_faults import shown, unknown_name
from rstar2.experiments.preset_files import (
    NAME,
    Origin,
    PresetError,
    PresetFile,
    Setting,
    leaves,
    within,
)

_PLAIN = (str, int, float, bool, type(None))


def change(file: PresetFile, changes: Mapping[str, Any]) -> PresetFile:
    """The file with other values; whoever's they were, they are ours now.

    Args:
        file: What the preset says.
        changes: New values by dotted place; a list or section is replaced whole.

    Raises:
        PresetError: If a place does not exist, lies within another one that is changed, or is
            given what no preset can hold.
    """
    label = f"{file.label} with changes"
    if not isinstance(changes, Mapping):
        raise PresetError(f"{label}: give places and values, not {shown(changes)}")
    if not changes:
        return file
    values = copy.deepcopy(file.values)
    settings = dict(file.settings)
    for place, value in changes.items():
        if not isinstance(place, str):
            raise PresetError(f"{label}: {shown(place)} is no dotted place, as rl.epsilon")
        _refuse_nested(label, place, changes)
        plain = _plain(value, label, place)
        _set(values, place, plain, label)
        for old in [one for one in settings if within(one, place)]:
            del settings[old]
        settings |= {one: Setting(at, Origin.OURS, "changed") for one, at in leaves(plain, place)}
    ordered = {place: settings[place] for place, _ in leaves(values, "")}
    return replace(file, values=values, settings=ordered, changed=frozenset(changes))


def _refuse_nested(label: str, place: str, changes: Mapping[str, Any]) -> None:
    for other in changes:
        if other != place and isinstance(other, str) and within(place, other):
            raise PresetError(f"{label}: {place}: {other} is changed too, and holds it")


def _plain(value: Any, label: str, place: str) -> Any:
    """A copy of a value as YAML would give it."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one, label, f"{place}.{number}") for number, one in enumerate(value)]
    if not isinstance(value, Mapping):
        raise PresetError(f"{label}: {place}: {shown(value)} is no text, number, list or section")
    for name in value:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise PresetError(f"{label}: {place}: {shown(name)} is no name of a setting")
    return {name: _plain(one, label, f"{place}.{name}") for name, one in value.items()}


def _set(values: dict[str, Any], place: str, value: Any, label: str) -> None:
    """Puts a value where one stands already."""
    here: Any = values
    parts = place.split(".")
    for depth, part in enumerate(parts):
        names = list(here) if isinstance(here, dict) else []
        if isinstance(here, list):
            names = [str(number) for number in range(len(here))]
        if part not in names:
            raise PresetError(
                f"{label}: {'.'.join(parts[: depth + 1])}: {unknown_name(part, names)}"
            )
        key: Any = int(part) if isinstance(here, list) else part
        if depth == len(parts) - 1:
            here[key] = value
        else:
            here = here[key]
