"""What the plugin needs of a preset: node ``rstar2`` of verl's configuration."""

from typing import Any, Self

from pydantic import Field, field_validator

from rstar2.experiments.manifests import ALL_MANIFESTS
from rstar2.protocol import Manifest
from rstar2.rollout.agent import RolloutLimits
from rstar2.training.spec import Arm, LimitsSpec, RLSpec, Spec


class PluginSpec(Spec):
    """One stage of one arm, as the agent loops and the replay buffer read it.

    Attributes:
        manifest: Name of the texts of the conversation.
        arm: How rollouts are chosen.
        seed: Seed of the selection.
        rl: Settings of the stage.
        limits: Limits of every rollout.
        max_response_tokens: Response budget of the stage, tool tokens counted.
        max_turns: The paper's T, in the stage.
        sandbox: Addresses of ``rstar2 sandbox serve``, with commas between them; empty for a
            pool of programs in each agent-loop worker.
    """

    manifest: str
    arm: Arm
    seed: int
    rl: RLSpec
    limits: LimitsSpec
    max_response_tokens: int = Field(gt=0)
    max_turns: int = Field(gt=0)
    sandbox: str

    @field_validator("manifest")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in ALL_MANIFESTS:
            known = ", ".join(ALL_MANIFESTS)
            raise ValueError(f"there is no manifest {name!r}: take one of {known}")
        return name

    @classmethod
    def of(cls, node: Any) -> Self:
        """The settings of a node of verl's configuration, a ``DictConfig``.

        Raises:
            ValidationError: If a setting is wrong, missing or of another name.
        """
        from omegaconf import OmegaConf  # comes with verl

        return cls.model_validate(OmegaConf.to_container(node, resolve=True))

    @property
    def texts(self) -> Manifest:
        """The manifest itself."""
        return ALL_MANIFESTS[self.manifest]

    def rollout_limits(self, temperature: float) -> RolloutLimits:
        """The limits of a rollout that is sampled at a temperature."""
        return RolloutLimits(
            max_prompt_tokens=self.limits.max_prompt_tokens,
            max_response_tokens=self.max_response_tokens,
            max_turns=self.max_turns,
            max_tool_tokens=self.limits.max_tool_tokens,
            tool_timeout=self.limits.tool_timeout,
            temperature=temperature,
        )
