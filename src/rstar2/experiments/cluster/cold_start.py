"""What verl's SFT trainer is told: the cold start of a preset as its own settings.

The conversations are the lines of ``rstar2 data sft-mix``; ``rstar2.verl_plugin.mix_dataset``
encodes them with our template, so the loss is on what the assistant wrote and ended, and on
nothing else. Each checkpoint holds the model in the form of ``transformers`` too, in
``global_step_N/huggingface``: RL begins from that of the last.
"""

from pathlib import Path
from typing import Any

from rstar2.experiments.checkout import project_root
from rstar2.experiments.cluster.job import RecipeError
from rstar2.experiments.cluster.recipe import (
    CHECKPOINTS_KEPT,
    EVERYTHING,
    precision_settings,
    trainer_settings,
)
from rstar2.experiments.presets import VerlPreset


def cold_start_settings(preset: VerlPreset, seed: int, folder: Path) -> dict[str, Any]:
    """The settings of ``sft_trainer_engine``; a place with ``+`` is new to verl.

    Args:
        preset: The preset.
        seed: Of the workers. verl shuffles the conversations with a seed of its own.
        folder: Where verl writes; every node sees it.

    Raises:
        RecipeError: If the preset has no SFT, or verl has no such schedule.
    """
    sft = preset.sft
    if sft is None:
        raise RecipeError(f"preset {preset.name} has no SFT: its RL starts from the model itself")
    if sft.schedule == "linear":
        raise RecipeError(f"preset {preset.name}: sft.schedule: verl has cosine and constant")
    if sft.batch_size % preset.resources.gpus:
        raise RecipeError(
            f"preset {preset.name}: sft.batch_size is {sft.batch_size}, no multiple of "
            f"{preset.resources.gpus} GPUs"
        )
    return {
        "data.train_files": [str(project_root() / sft.mix)],
        "data.custom_cls.path": "pkg://rstar2.verl_plugin.mix_dataset",
        "data.custom_cls.name": "MixDataset",
        "data.train_batch_size": sft.batch_size,
        "data.use_dynamic_bsz": True,
        "data.max_token_len_per_gpu": sft.micro_batch_tokens,
        "data.max_length": sft.max_tokens,
        "data.pad_mode": "no_padding",
        "model.path": preset.model.path,
        "model.enable_gradient_checkpointing": True,
        "model.use_remove_padding": True,
        "engine.strategy": "fsdp2",
        "engine.seed": seed,
        **precision_settings(preset.model.dtype, "engine"),
        "optim.optimizer": "AdamW",
        "optim.lr": sft.learning_rate,
        "optim.betas": list(sft.adam_betas),
        "optim.weight_decay": sft.weight_decay,
        "optim.clip_grad": sft.grad_clip,
        "optim.lr_warmup_steps_ratio": sft.warmup_share,
        "optim.lr_scheduler_type": sft.schedule,
        "checkpoint.save_contents": [*EVERYTHING, "hf_model"],
        "checkpoint.load_contents": list(EVERYTHING),
        **trainer_settings(preset, folder, sft.checkpoint_every),
        "trainer.total_epochs": sft.epochs,
        "trainer.max_ckpt_to_keep": CHECKPOINTS_KEPT,
        "trainer.seed": seed,
    }
