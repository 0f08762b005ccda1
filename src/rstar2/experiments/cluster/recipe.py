"""What verl is told: a preset, an arm and a stage as verl's own settings, by dotted place.

One job trains one stage. verl writes its checkpoints below the job's folder, and a job that is
begun again goes on from the last of them; steps are counted through all stages.

    words = overrides(rl_settings(StageJob(preset, Arm.GRPO_ROC, 1, seed=0, folder=folder)))
    python -m rstar2.verl_plugin.train ...      # composes them onto verl's configuration

Nothing here imports verl. Where its defaults are what we want, they are not repeated.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rstar2.experiments.cluster.job import StageJob
from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.experiments.presets import VerlPreset

VERL = "0.9.1"
"""The one version whose settings these are."""

EVERYTHING = ("model", "optimizer", "extra")
"""Parts of a checkpoint: weights, AdamW's state, and what is left (schedule, random state)."""

AGENT_WORKERS = 8
"""Processes of a node that run agent loops."""

CHECKPOINTS_KEPT = 2
"""The last ones of a job; one of the 14B run has 177 GB."""


def rl_settings(job: StageJob, load: Sequence[str] = EVERYTHING) -> dict[str, Any]:
    """The settings of ``ppo_trainer`` for a stage; a place with ``+`` is new to verl.

    Args:
        job: The stage.
        load: What is read of the checkpoint that the job goes on from; weights alone where a
            stage begins with a fresh optimizer.
    """
    return {
        **_data(job),
        **_model(job),
        **_actor(job, load),
        **_rollout(job),
        **_algorithm(),
        **trainer_settings(job.preset, job.folder, job.preset.rl.checkpoint_every),
        "trainer.total_training_steps": job.last_step,
        "trainer.total_epochs": job.last_step,  # an epoch has a step at least
        "trainer.max_actor_ckpt_to_keep": CHECKPOINTS_KEPT,
        "trainer.val_before_train": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2 * _nodes(job),
        **_plugin(job),
    }


def trainer_settings(preset: VerlPreset, folder: Path, save_every: int) -> dict[str, Any]:
    """What verl's trainers share: machines, checkpoints, and metrics as JSON lines.

    verl empties the file of its metrics when it starts, so every start has one of its own.
    """
    metrics = folder / "metrics"
    session = len(list(metrics.glob("session-*.jsonl"))) + 1
    return {
        "trainer.nnodes": preset.resources.nodes,
        "trainer.n_gpus_per_node": preset.resources.gpus_per_node,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.save_freq": save_every,
        "trainer.resume_mode": "auto",
        "trainer.logger": ["console", "file"],
        # The file is <project>/<experiment>.jsonl.
        "trainer.project_name": str(metrics),
        "trainer.experiment_name": f"session-{session:03}",
    }


def precision_settings(dtype: str, place: str) -> dict[str, Any]:
    """FSDP with 32-bit weights and a forward pass in ``dtype``."""
    short = {"bfloat16": "bf16", "float32": "fp32"}[dtype]
    return {
        f"{place}.model_dtype": "fp32",
        f"{place}.dtype": dtype,
        f"+{place}.mixed_precision": {"param_dtype": short, "reduce_dtype": "fp32"},
    }


def router_settings(job: StageJob) -> dict[str, Any]:
    """The router's file."""
    return {
        "router_class": "rstar2.verl_plugin.plugin.RouterActor",
        "kv_tokens": job.preset.engine.kv_tokens,
        "max_tokens": job.preset.limits.max_prompt_tokens + job.spec.max_response_tokens,
    }


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the words of a command line of Hydra."""
    return [f"{place}={_word(value)}" for place, value in settings.items()]


def _word(value: Any) -> str:
    """A value in Hydra's grammar; a text is quoted, whatever is in it."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return "'" + value.replace("'", "\\'") + "'"
        case Mapping():
            return "{" + ",".join(f"{name}:{_word(one)}" for name, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_word, value)) + "]"
    return repr(value)


def _data(job: StageJob) -> dict[str, Any]:
    return {
        "data.train_files": [str(job.problems_file)],
        "data.val_files": [str(job.problems_file)],  # verl opens one and, as told below, ends there
        "data.val_max_samples": 1,
        "data.train_batch_size": job.preset.rl.problems_per_step,
        # One by one where groups are replaced, for any number of them may be missing.
        "data.gen_batch_size": 1 if job.preset.rl.refill else None,
        "data.max_prompt_length": job.preset.limits.max_prompt_tokens,
        "data.max_response_length": job.spec.max_response_tokens,
        "data.shuffle": True,
        "data.seed": job.seed,
        "data.dataloader_num_workers": 0,
    }


def _model(job: StageJob) -> dict[str, Any]:
    place = "actor_rollout_ref.model"
    return {
        f"{place}.path": job.model or job.preset.model.path,
        f"{place}.enable_gradient_checkpointing": True,
        f"{place}.use_remove_padding": True,
    }


def _actor(job: StageJob, load: Sequence[str]) -> dict[str, Any]:
    rl, place = job.rl, "actor_rollout_ref.actor"
    # verl multiplies it by rollout.n, and pads a batch to a multiple of that.
    problems = job.rows // job.arm.samples(rl)
    offload = job.preset.engine.offload
    return {
        f"{place}.strategy": "fsdp2",
        f"{place}.ppo_mini_batch_size": problems,
        f"{place}.ppo_epochs": 1,
        f"{place}.use_dynamic_bsz": True,
        f"{place}.ppo_max_token_len_per_gpu": rl.micro_batch_tokens,
        f"{place}.policy_loss.loss_mode": "rstar2",
        f"{place}.clip_ratio": rl.clip_low,
        f"{place}.clip_ratio_low": rl.clip_low,
        f"{place}.clip_ratio_high": rl.clip_high,
        f"{place}.use_kl_loss": False,
        f"{place}.entropy_coeff": 0,
        **_optimizer(job, f"{place}.optim"),
        **precision_settings(job.preset.model.dtype, f"{place}.fsdp_config"),
        f"{place}.fsdp_config.param_offload": offload,
        f"{place}.fsdp_config.optimizer_offload": offload,
        f"{place}.fsdp_config.seed": job.seed,
        f"{place}.checkpoint.save_contents": list(EVERYTHING),
        f"{place}.checkpoint.load_contents": list(load),
    }


def _optimizer(job: StageJob, place: str) -> dict[str, Any]:
    """AdamW at a constant rate after a linear warm-up, counted through all stages.

    verl's constant schedule begins at a rate of 0. Its cosine with the least at the most is
    constant too, and its step may be counted from 1: the rates of the laptop, step by step.
    """
    rl = job.rl
    begins_anew = job.spec.reset_optimizer and job.stage > 1
    return {
        f"{place}.optimizer": "AdamW",
        f"{place}.lr": rl.learning_rate,
        f"{place}.betas": list(rl.adam_betas),
        f"{place}.weight_decay": rl.weight_decay,
        f"{place}.clip_grad": rl.grad_clip,
        f"{place}.lr_warmup_steps": max(0, rl.warmup_steps - begins_anew * job.first_step),
        f"{place}.lr_scheduler_type": "cosine",
        f"{place}.min_lr_ratio": 1.0,
        f"{place}.zero_indexed_step": False,
    }


def _rollout(job: StageJob) -> dict[str, Any]:
    rl, engine, place = job.rl, job.preset.engine, "actor_rollout_ref.rollout"
    return {
        f"{place}.name": engine.name,
        f"{place}.n": job.arm.samples(rl),
        f"{place}.temperature": rl.temperature,
        f"{place}.top_p": engine.top_p,
        f"{place}.seed": job.seed,
        f"{place}.dtype": job.preset.model.dtype,
        f"{place}.gpu_memory_utilization": engine.gpu_memory_utilization,
        f"{place}.tensor_model_parallel_size": engine.tensor_parallel,
        f"{place}.max_model_len": engine.max_model_len,
        f"{place}.calculate_log_probs": True,
        f"{place}.disable_log_stats": False,
        f"{place}.router_config_path": str(job.router_file),
        f"{place}.agent.num_workers": AGENT_WORKERS * _nodes(job),
        f"{place}.agent.default_agent_loop": "rstar2",
    }


def _algorithm() -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "rstar2",
        "algorithm.use_kl_in_reward": False,
        "+algorithm.normaliser": "${rstar2.rl.normaliser}",
        "critic.enable": False,
        "reward.num_workers": 1,  # the agent loop grades; verl starts one all the same
    }


def _plugin(job: StageJob) -> dict[str, Any]:
    preset = job.preset
    return {
        "+rstar2": PluginSpec(
            manifest=preset.manifest,
            arm=job.arm,
            seed=job.seed,
            rl=job.rl,
            limits=preset.limits,
            max_response_tokens=job.spec.max_response_tokens,
            max_turns=job.spec.max_turns,
            sandbox=job.sandbox,
        ).model_dump(mode="json"),
        "trainer.v1.trainer_mode": "sync",
        "trainer.v1.sampler.custom_sampler.path": "pkg://rstar2.verl_plugin.replay_buffer",
        "trainer.v1.sampler.custom_sampler.name": "SelectingBuffer",
        "trainer.v1.sampler.sampler_kwargs": "${rstar2}",
    }


def _nodes(job: StageJob) -> int:
    return job.preset.resources.nodes
