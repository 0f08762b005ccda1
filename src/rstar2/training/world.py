"""What a policy that is made on this machine learns from and is measured on.

The trainer knows a world by this protocol alone. There are two: the families of the laptop
run, and the ambiguous problems of the laboratory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedTokenizerFast

from rstar2.problems.types import Problem
from rstar2.protocol import Manifest
from rstar2.rollout import ToolRunner
from rstar2.training.examples import Example
from rstar2.training.spec import StageSpec, SupervisedSpec

RL_STREAM = 3
"""The stream of the problems of RL; those of the supervised phases have other numbers."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """What the supervised phases learn from.

    Attributes:
        tokenizer: Trained on their texts.
        examples: The encoded examples of each phase, by its name.
    """

    tokenizer: PreTrainedTokenizerFast
    examples: Mapping[str, Sequence[Example]]


class World(Protocol):
    """Problems and lessons, each a pure function of its arguments."""

    @property
    def manifest(self) -> Manifest:
        """What the model is told."""
        ...

    @property
    def phases(self) -> Mapping[str, SupervisedSpec]:
        """Settings of the supervised phases by name, in order."""
        ...

    @property
    def stages(self) -> Sequence[StageSpec]:
        """The stages of RL."""
        ...

    async def lessons(self, seed: int, sandbox: ToolRunner) -> Lessons:
        """Writes what the supervised phases learn from; programs run for real."""
        ...

    def problem(self, stage: int, seed: int, index: int) -> Problem:
        """A training problem of a stage, from 0; the index may be negative."""
        ...

    def candidates(self, stage: int, /) -> int:
        """Problems that are rolled out when hard ones are mined for a stage; 0 if none are."""
        ...

    def held_out(self, seed: int, problems: int, stage: int | None, /) -> dict[str, list[Problem]]:
        """The sets that a policy is measured on, by name.

        Args:
            seed: Names the problems.
            problems: Problems a set.
            stage: The last stage that the policy was trained in, from 0; None before RL.
        """
        ...


def stream_seed(seed: int, stream: int) -> int:
    """Seed of one problem stream of a run: no two streams of it share a problem by plan."""
    return 10 * seed + stream
