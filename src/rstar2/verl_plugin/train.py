r"""The entry of a Ray job: one stage of RL, or the cold start, by verl's own trainers.

    ray job submit -- python -m rstar2.verl_plugin.train \
        --preset mi300x-64 --arm grpo-roc --stage 2 --out runs/roc-2 --before runs/roc-1

It composes the recipe onto verl's configuration, asks every node of the cluster whether verl has
loaded our plugin there, and starts the trainer. Typed again, it goes on from the last checkpoint.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import hydra
import ray
import typer
import verl
from omegaconf import DictConfig
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.cluster.checkpoints import latest_step, trained_model
from rstar2.experiments.cluster.cold_start import cold_start_settings
from rstar2.experiments.cluster.files import prepare
from rstar2.experiments.cluster.job import RecipeError, StageJob
from rstar2.experiments.cluster.recipe import VERL, overrides, rl_settings
from rstar2.experiments.pool_files import read_pool
from rstar2.experiments.presets import PresetError, VerlPreset, load_preset
from rstar2.experiments.worker import USER_ERROR
from rstar2.training.spec import Arm
from rstar2.verl_plugin.canary import PluginMissing, loaded

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

COLD_START = "sft"
"""In place of an arm: the run that the arms start from."""


def composed(name: str, settings: Mapping[str, Any]) -> DictConfig:
    """The configuration of verl's trainer with our settings.

    Raises:
        UserError: If this is another version of verl.
        ConfigCompositionException: If verl has no such place.
    """
    if verl.__version__ != VERL:
        raise UserError(f"the recipe is for verl {VERL}, here is {verl.__version__}: install that")
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose(name, overrides=overrides(settings))


def refuse_nodes_without_plugin() -> None:
    """Asks each node of the cluster that Ray knows.

    Raises:
        PluginMissing: If verl trains with parts of its own on one of them.
    """
    ask = ray.remote(num_cpus=0, max_retries=0)(loaded)
    for node in (node for node in ray.nodes() if node["Alive"]):
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        try:
            ray.get(ask.options(scheduling_strategy=there).remote())
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", error)
            raise PluginMissing(f"node {node['NodeManagerHostname']}: {cause}") from error


def train_stage(
    job: StageJob,
    pool: Path,
    before: Path | None,
    besides: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Trains a stage to its end, or goes on with it.

    Args:
        job: The stage.
        pool: The problems, as ``rstar2 data build`` or ``keep`` wrote them.
        before: The folder ``checkpoints`` of the stage before; None for the first.
        besides: Further settings of verl, by dotted place, as a machine needs them.

    Raises:
        UserError: What the recipe, the pool or a node says is wrong.
    """
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    load = prepare(job, read_pool(pool), before)
    if latest_step(job.checkpoints) == job.last_step:
        return
    config = composed("ppo_trainer", {**rl_settings(job, load), **besides})
    validate_config(config, need_reference_policy(config), need_critic(config))
    # A connection of its own: that of the training gets the environment that verl gives it.
    with ray.init(include_dashboard=False):
        refuse_nodes_without_plugin()
    run_ppo(config, TaskRunnerV1)


def train_cold_start(preset: VerlPreset, seed: int, folder: Path) -> None:
    """Runs the SFT of a preset, or goes on with it."""
    from verl.trainer.sft_trainer_ray import run_sft

    run_sft(composed("sft_trainer_engine", cold_start_settings(preset, seed, folder)))


@app.command()
def main(
    preset: Annotated[str, typer.Option(help="A preset with `trainer: verl`.")],
    arm: Annotated[str, typer.Option(help="grpo, grpo-roc, …; sft for the cold start.")],
    out: Annotated[Path, typer.Option(help="Folder of the run, which every node sees.")],
    stage: Annotated[int, typer.Option(min=1, help="The stage of RL.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    changes: Annotated[str, typer.Option(help="Of the preset, as JSON by dotted place.")] = "{}",
    before: Annotated[
        Path | None, typer.Option(help="Folder of the run before: the cold start, or a stage.")
    ] = None,
    pool: Annotated[Path | None, typer.Option(help="Problems; else the preset's.")] = None,
    sandbox: Annotated[str, typer.Option(help="Addresses of `rstar2 sandbox serve`.")] = "",
) -> None:
    """Trains one stage of an arm with verl, or the cold start; goes on with what has begun."""
    settings, folder = load_preset(preset, json.loads(changes)), out.resolve()
    if not isinstance(settings, VerlPreset):
        raise PresetError(f"preset {preset} trains with torch, without verl: `rstar2 train`")
    if arm == COLD_START:
        train_cold_start(settings, seed, folder)
        return
    if arm not in tuple(Arm):
        raise RecipeError(f"there is no arm {arm!r}: give {COLD_START}, or one of {', '.join(Arm)}")
    last = before.resolve() / "checkpoints" if before else None
    model = str(trained_model(last)) if last and stage == 1 else ""
    job = StageJob(settings, Arm(arm), stage, seed, folder, model, sandbox)
    train_stage(job, pool or project_root() / settings.data.pool, last)


if __name__ == "__main__":
    try:
        app()
    except UserError as refused:
        print(refused, file=sys.stderr)
        sys.exit(USER_ERROR)
