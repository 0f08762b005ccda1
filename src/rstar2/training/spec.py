"""Settings of training, as data. Presets compose them; only what a stage changes has a default."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rstar2.algorithm.weights import Normaliser


class Spec(BaseModel):
    """A frozen group of settings; a misspelt or missing name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSpec(Spec):
    """Shape of a ``Qwen3ForCausalLM``."""

    vocab_size: int = Field(gt=300)
    hidden_size: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    num_kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    max_positions: int = Field(gt=0)

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}, no multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}: rotary positions need an even one")
        return self


class SupervisedSpec(Spec):
    """Training on fixed examples: next-token loss, linear warm-up, linear decay to zero.

    Attributes:
        examples: Examples, each seen once.
        batch_size: Examples per step.
        random_batches: Share of the last steps whose batches are purely random;
            earlier batches hold examples of about the same length.
        matrix_lr: Peak learning rate of Muon, for the matrices of the layers.
        other_lr: Peak learning rate of AdamW, for embeddings and norms.
        warmup_steps: Steps of linear warm-up.
        checkpoint_every: Steps between checkpoints.
    """

    examples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    random_batches: float = Field(ge=0, le=1)
    matrix_lr: float = Field(gt=0)
    other_lr: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    checkpoint_every: int = Field(gt=0)

    @model_validator(mode="after")
    def _fill_a_batch(self) -> Self:
        if self.examples < self.batch_size:
            raise ValueError(f"examples is {self.examples}, less than batch_size {self.batch_size}")
        return self


class FamilySupervisedSpec(SupervisedSpec):
    """Training on examples about the laptop's families.

    Attributes:
        composition_share: Share of compositions among their problems.
    """

    composition_share: float = Field(ge=0, le=1)


class Demonstrations(StrEnum):
    """What the demonstrations of the laptop SFT show."""

    TOOL = "tool"
    """A plan in a clause, then calls: the paper's non-reasoning SFT (section 4.1)."""
    REASONING = "reasoning"
    """Steps by hand before the call, as in a cold start on reasoning (ReTool)."""
    BY_HAND = "by-hand"
    """Steps by hand to the answer, without a tool."""


class NoiseSpec(Spec):
    """What the demonstrations of the laptop SFT get wrong on purpose (probabilities).

    Attributes:
        direct: An answer without a tool call.
        wrong_program: A program that runs and answers another question.
        slip: A call that fails, followed by a corrected one; at most two in a row.
        verify: A second program that checks the first.
        repeat_answer: The answer block written twice.
    """

    direct: float = Field(ge=0, le=1)
    wrong_program: float = Field(ge=0, le=1)
    slip: float = Field(ge=0, le=1)
    verify: float = Field(ge=0, le=1)
    repeat_answer: float = Field(ge=0, le=1)


class LimitsSpec(Spec):
    """Limits that hold for every rollout of a preset; the rest belongs to the stage."""

    max_prompt_tokens: int = Field(gt=0)
    max_tool_tokens: int = Field(gt=0)
    tool_timeout: float = Field(gt=0)


class StageSpec(Spec):
    """One stage of the curriculum.

    Attributes:
        steps: RL steps.
        max_response_tokens: Response budget, tool tokens counted.
        max_turns: The paper's T.
        data: ``all`` for fresh problems, ``mined`` for those that the policy does not
            solve every time when the stage begins; for all, if it solves every one.
        reset_optimizer: Whether the stage starts with a fresh optimizer.
        temperature: Sampling temperature of the stage; that of all steps if none is given.
        clip_high: Upper clip range of the stage; that of all steps if none is given.
    """

    steps: int = Field(ge=0)
    max_response_tokens: int = Field(gt=0)
    max_turns: int = Field(gt=0)
    data: Literal["all", "mined"]
    reset_optimizer: bool
    temperature: float | None = Field(default=None, gt=0)
    clip_high: float | None = Field(default=None, gt=0)


class FamilyStageSpec(StageSpec):
    """A stage whose problems are drawn from the laptop's families.

    Attributes:
        composition_share: Share of compositions among the problems.
        mine_problems: Problems rolled out for mining; 0 with ``data: all``.
    """

    composition_share: float = Field(ge=0, le=1)
    mine_problems: int = Field(ge=0)

    @model_validator(mode="after")
    def _mining_has_candidates(self) -> Self:
        if (self.data == "mined") != (self.mine_problems > 0):
            raise ValueError(f"mine_problems is {self.mine_problems} with data: {self.data}")
        return self


class RLSpec(Spec):
    """GRPO, with or without Resample-on-Correct (paper, sections 2.2 and 4.3).

    Attributes:
        problems_per_step: Groups in a batch.
        group_size: G, rollouts per group in the update.
        oversample: 2G with Resample-on-Correct; rollouts per group that are sampled.
        epsilon: The ε of the weights ``1 / (p_total + ε)``.
        temperature: Sampling temperature.
        refill: Whether groups of equal reward are replaced by further problems.
        max_refills: Most rounds of replacement in a step.
        minibatches: Optimiser steps per batch.
        normaliser: What a token's weight is divided by.
        clip_low: Lower clip range.
        clip_high: Upper clip range.
        tool_penalty: Subtracted from the reward for every failed call; the paper has none.
        overlong_filtering: Whether rollouts that a limit ended are left out of the loss, as in
            DAPO; the paper keeps them (section 4.3.1).
        learning_rate: Constant rate of AdamW after warm-up.
        warmup_steps: Rollout steps of linear warm-up.
        adam_betas: Of AdamW.
        weight_decay: Of AdamW.
        grad_clip: Largest norm of the gradient.
        micro_batch_tokens: Most tokens of one forward pass; a shared prompt counts once.
        mining_samples: Rollouts per problem when hard problems are mined.
        checkpoint_every: Steps between checkpoints; rollouts of those steps are kept as samples.
    """

    problems_per_step: int = Field(gt=0)
    group_size: int = Field(gt=1)
    oversample: int = Field(gt=1)
    epsilon: float = Field(gt=0)
    temperature: float = Field(gt=0)
    refill: bool
    max_refills: int = Field(ge=0)
    minibatches: int = Field(gt=0)
    normaliser: Normaliser
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    tool_penalty: float = Field(ge=0)
    overlong_filtering: bool
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    adam_betas: tuple[float, float]
    weight_decay: float = Field(ge=0)
    grad_clip: float = Field(gt=0)
    micro_batch_tokens: int = Field(gt=0)
    mining_samples: int = Field(gt=0)
    checkpoint_every: int = Field(gt=0)

    @model_validator(mode="after")
    def _enough_to_keep(self) -> Self:
        if self.oversample < self.group_size:
            raise ValueError(
                f"oversample is {self.oversample}, less than group_size {self.group_size}"
            )
        return self

    def of_stage(self, stage: StageSpec) -> "RLSpec":
        """The settings with what the stage changes."""
        changes = {"temperature": stage.temperature, "clip_high": stage.clip_high}
        return self.model_copy(
            update={name: value for name, value in changes.items() if value is not None}
        )


class Arm(StrEnum):
    """How many rollouts of a problem are sampled, and which go into the update."""

    GRPO = "grpo"
    """G are sampled and all are used."""
    GRPO_2G = "grpo-2g"
    """2G are sampled and all are used: the rollouts of Resample-on-Correct, none dropped."""
    GRPO_ROC = "grpo-roc"
    """2G are sampled and G are kept by Resample-on-Correct (paper, section 2.2.3)."""
    ROC_UNIFORM = "roc-uniform"
    """As ``grpo-roc`` with equal weights: its quota alone."""
    ROC_ERROR = "roc-error"
    """As ``grpo-roc`` with ``p_err`` alone."""
    ROC_FORMAT = "roc-format"
    """As ``grpo-roc`` with ``p_format`` alone."""
    ROC_CLEANEST = "roc-cleanest"
    """As ``grpo-roc``, but the cleanest positives are kept without chance, as the release does."""
    ROC_BOTH_SIGNS = "roc-both-signs"
    """As ``grpo-roc``, but negatives are drawn by their weights too."""

    def samples(self, spec: RLSpec) -> int:
        """Rollouts sampled per group."""
        return spec.group_size if self is Arm.GRPO else spec.oversample


class EvaluationSpec(Spec):
    """How a checkpoint is evaluated on each set.

    Attributes:
        problems: Problems a set.
        samples: Rollouts a problem.
        max_response_tokens: Response budget.
        max_turns: The paper's T.
    """

    problems: int = Field(gt=0)
    samples: int = Field(gt=0)
    max_response_tokens: int = Field(gt=0)
    max_turns: int = Field(gt=0)
