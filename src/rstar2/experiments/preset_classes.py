"""What a preset may say, as classes: their sections, and which values go together."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from rstar2.experiments.cluster_spec import (
    BenchmarkSpec,
    ColdStartSpec,
    DataSpec,
    EngineSpec,
    PretrainedSpec,
)
from rstar2.experiments.manifests import ALL_MANIFESTS
from rstar2.experiments.preset_files import Origin, Setting
from rstar2.experiments.resources import CostSpec, ResourcesSpec
from rstar2.protocol import Manifest
from rstar2.training.laboratory_spec import AmbiguousStageSpec, HabitSpec
from rstar2.training.spec import (
    Demonstrations,
    EvaluationSpec,
    FamilyStageSpec,
    FamilySupervisedSpec,
    LimitsSpec,
    ModelSpec,
    NoiseSpec,
    RLSpec,
    Spec,
    StageSpec,
    SupervisedSpec,
)

if TYPE_CHECKING:
    from rstar2.training.world import World

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
    manifest: Literal["laptop", "laptop-no-tool", "paper", "paper-no-tool"]
    limits: LimitsSpec
    rl: RLSpec
    resources: ResourcesSpec
    cost: CostSpec
    _settings: Mapping[str, Setting] = PrivateAttr(default_factory=dict)

    @property
    def texts(self) -> Manifest:
        """The manifest itself."""
        return ALL_MANIFESTS[self.manifest]

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
    sft: SupervisedSpec
    stages: tuple[StageSpec, ...] = Field(min_length=1)
    evaluation: dict[Literal["book", "results", "premise"], EvaluationSpec] = Field(min_length=2)

    @property
    @abstractmethod
    def world(self) -> "World":
        """What is learnt from and measured on; the first to load torch."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        responses = [one.max_response_tokens for one in self.evaluation.values()]
        positions = self.model.max_positions
        _check_stages(self.stages, self.limits, responses, positions, "model.max_positions")
        return self


class FamilyPreset(TorchPreset):
    """One on the families of the laptop run."""

    pretrain: FamilySupervisedSpec
    sft: FamilySupervisedSpec
    demonstrations: Demonstrations
    noise: NoiseSpec
    stages: tuple[FamilyStageSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _shows_what_the_manifest_offers(self) -> Self:
        if bool(self.texts.tool_name) == (self.demonstrations is Demonstrations.BY_HAND):
            raise ValueError(
                f"demonstrations is {self.demonstrations.value} with manifest {self.manifest}, "
                f"which has {'a' if self.texts.tool_name else 'no'} tool"
            )
        return self

    @property
    def world(self) -> "World":
        """The families."""
        from rstar2.training.family_world import FamilyWorld

        return FamilyWorld(
            manifest=self.texts,
            pretrain=self.pretrain,
            sft=self.sft,
            demonstrations=self.demonstrations,
            noise=self.noise,
            limits=self.limits,
            stages=self.stages,
            vocab_size=self.model.vocab_size,
        )


class LaboratoryPreset(TorchPreset):
    """One on the ambiguous problems of the laboratory."""

    habit: HabitSpec
    stages: tuple[AmbiguousStageSpec, ...] = Field(min_length=1)

    @property
    def world(self) -> "World":
        """The ambiguous problems."""
        from rstar2.training.laboratory_world import LaboratoryWorld

        return LaboratoryWorld(
            manifest=self.texts,
            sft=self.sft,
            habit=self.habit,
            limits=self.limits,
            stages=self.stages,
            vocab_size=self.model.vocab_size,
        )


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
        if any(stage.temperature or stage.clip_high for stage in self.stages):
            raise ValueError("temperature and clip_high hold for all stages: set them in rl")
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
