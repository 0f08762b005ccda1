"""One stage of RL as verl trains it: what decides it, where it lies, and what cannot be trained."""

from dataclasses import dataclass
from pathlib import Path

from rstar2.errors import UserError
from rstar2.experiments.presets import VerlPreset
from rstar2.training.spec import Arm, RLSpec, StageSpec


class RecipeError(UserError):
    """verl cannot train what a preset says."""


@dataclass(frozen=True, slots=True)
class StageJob:
    """One stage of an arm, as verl trains it.

    Attributes:
        preset: Settings.
        arm: How rollouts are chosen.
        stage: From 1.
        seed: Of order, sampling and selection.
        folder: Where all that verl reads and writes lies; every node sees it.
        model: Weights as ``transformers`` reads them, a folder or a name; empty for the preset's.
        sandbox: Address of a ``rstar2 sandbox serve``; empty for one in each agent-loop process.

    Raises:
        RecipeError: If verl cannot train it.
    """

    preset: VerlPreset
    arm: Arm
    stage: int
    seed: int
    folder: Path
    model: str = ""
    sandbox: str = ""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def spec(self) -> StageSpec:
        """The stage itself."""
        return self.preset.stages[self.stage - 1]

    @property
    def rl(self) -> RLSpec:
        """Settings of the stage."""
        return self.preset.rl.of_stage(self.spec)

    @property
    def first_step(self) -> int:
        """Steps of the stages before."""
        return sum(stage.steps for stage in self.preset.stages[: self.stage - 1])

    @property
    def last_step(self) -> int:
        """Steps done when the stage is over."""
        return self.first_step + self.spec.steps

    @property
    def rows(self) -> int:
        """Rollouts of a full batch, and so of the one update of a step."""
        return self.preset.rl.problems_per_step * _kept(self)

    @property
    def problems_file(self) -> Path:
        """The problems, as ``write_problem_rows`` writes them."""
        return self.folder / "problems.parquet"

    @property
    def router_file(self) -> Path:
        """The router's settings."""
        return self.folder / "router.yaml"

    @property
    def checkpoints(self) -> Path:
        """Where verl writes ``global_step_N``."""
        return self.folder / "checkpoints"


def _kept(job: StageJob) -> int:
    """Rollouts of a problem that go into the update."""
    rl = job.preset.rl
    return rl.oversample if job.arm is Arm.GRPO_2G else rl.group_size


def _check(job: StageJob) -> None:
    preset, rl = job.preset, job.preset.rl
    if not 1 <= job.stage <= len(preset.stages):
        stages = len(preset.stages)
        raise RecipeError(f"stage is {job.stage}: preset {preset.name} has stages 1 to {stages}")
    if not job.spec.steps:
        raise RecipeError(f"preset {preset.name}: stage {job.stage} has no step to train")
    refused = {
        "rl.minibatches": (rl.minibatches != 1, "a step is one update: give 1"),
        "rl.overlong_filtering": (rl.overlong_filtering, "verl has no place for it: give false"),
    }
    for place, (wrong, why) in refused.items():
        if wrong:
            raise RecipeError(f"preset {preset.name}: {place}: on a cluster {why}")
    samples, gpus = job.arm.samples(rl), preset.resources.gpus
    if job.rows % samples:
        raise RecipeError(
            f"preset {preset.name}: a batch of {job.rows} rollouts is no multiple of the {samples} "
            "sampled of a problem, as verl counts: change rl.problems_per_step or rl.oversample"
        )
    if job.rows % gpus:
        raise RecipeError(
            f"preset {preset.name}: a batch of {job.rows} rollouts is no multiple of {gpus} GPUs: "
            "change rl.problems_per_step or rl.group_size"
        )
