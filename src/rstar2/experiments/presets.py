"""Presets: everything that decides a run, as one YAML file in ``presets/``.

A preset is data. No code asks for its name; a misspelt or impossible value is one
clear line with the place where it stands.
"""

from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
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
    stages: tuple[StageSpec, ...] = Field(min_length=1)
    rl: RLSpec
    evaluation: EvaluationSizes

    @model_validator(mode="after")
    def _rollouts_fit_the_model(self) -> Self:
        if not any(stage.steps for stage in self.stages):
            raise ValueError("the stages have no step in all")
        responses = [stage.max_response_tokens for stage in self.stages]
        sizes = (self.evaluation.book, self.evaluation.results)
        responses += [size.max_response_tokens for size in sizes]
        longest = self.limits.max_prompt_tokens + max(responses)
        if longest > self.model.max_positions:
            raise ValueError(
                f"a rollout may have {longest} tokens, the model has {self.model.max_positions} "
                "positions (model.max_positions)"
            )
        return self

    @property
    def texts(self) -> Manifest:
        """The manifest itself."""
        return MANIFESTS[self.manifest]


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
        preset = Preset.model_validate(values)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PresetError(f"presets/{name}.yaml is not YAML: {error}") from error
    except ValidationError as error:
        raise PresetError(f"presets/{name}.yaml: {_first_fault(error)}") from error
    if preset.name != name:
        raise PresetError(f"presets/{name}.yaml: name: is {preset.name!r}, not that of the file")
    return preset


def _first_fault(error: ValidationError) -> str:
    """The place and the fault; a name that does not exist first, since it is often misspelt."""
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    place = ".".join(str(part) for part in faults[0]["loc"]) or "the file"
    unknown = faults[0]["type"] == "extra_forbidden"
    what = "there is no such setting" if unknown else faults[0]["msg"]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {what.removeprefix('Value error, ')}{more}"
