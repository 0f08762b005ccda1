"""Presets: everything that decides a run, as one YAML file in ``presets/``.

A preset is data. No code asks for its name; a misspelt or impossible value is one
clear line with the place where it stands.
"""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from rstar2.errors import UserError
from rstar2.protocol import MANIFESTS, Manifest
from rstar2.training.spec import (
    EvaluationSpec,
    LimitsSpec,
    ModelSpec,
    NoiseSpec,
    RLSpec,
    Spec,
    StageSpec,
    SupervisedSpec,
)


class PresetError(UserError):
    """A preset is unknown or says something impossible."""


class EvaluationSizes(Spec):
    """Evaluation of ``make book`` and of ``make results``."""

    book: EvaluationSpec
    results: EvaluationSpec


class Preset(Spec):
    """All settings of a laptop experiment."""

    name: str
    manifest: Literal["laptop", "paper"]
    model: ModelSpec
    pretrain: SupervisedSpec
    sft: SupervisedSpec
    noise: NoiseSpec
    limits: LimitsSpec
    stages: tuple[StageSpec, ...]
    rl: RLSpec
    evaluation: EvaluationSizes

    @property
    def texts(self) -> Manifest:
        """The manifest itself."""
        return MANIFESTS[self.manifest]


def project_root() -> Path:
    """The checkout: the nearest folder upwards that holds ``presets/``, else the package's.

    Raises:
        PresetError: If there is none.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if (folder / "presets").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise PresetError(f"no presets/ above {here}: run this inside a checkout of rstar2")


def load_preset(name: str) -> Preset:
    """Reads ``presets/<name>.yaml``.

    Raises:
        PresetError: If there is no such preset, or it is invalid.
    """
    folder = project_root() / "presets"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise PresetError(f"there is no preset {name!r}; presets/ has: {known}")
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Preset.model_validate(values)
    except yaml.YAMLError as error:
        raise PresetError(f"presets/{name}.yaml is not YAML: {error}") from error
    except ValidationError as error:
        raise PresetError(f"presets/{name}.yaml: {_first_fault(error)}") from error


def _first_fault(error: ValidationError) -> str:
    faults = error.errors()
    place = ".".join(str(part) for part in faults[0]["loc"]) or "the file"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}"
