"""A small true run of GRPO-RoC under verl on this machine, for test_end_to_end.py.

    python cpu_job.py '{"folder": "/tmp/run", "steps": 3, "replica": "torch_cpu"}'

The policy is the laptop's SFT of seed 21, which is right about every other time; the problems are
of its families. Everything but the machine's settings is what a cluster runs.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstar2.experiments.checkout import project_root
from rstar2.experiments.cluster.job import StageJob
from rstar2.experiments.pool_files import write_pool
from rstar2.experiments.presets import VerlPreset, load_preset
from rstar2.problems.data.rows import Row
from rstar2.problems.laptop import ProblemSet, Split, draw
from rstar2.training.spec import Arm
from rstar2.verl_plugin.train import train_stage

POLICY = project_root() / "results" / "laptop-natural" / "sft-seed21" / "checkpoint"
RANKS, PROBLEMS, SAMPLES, KEPT, SEED = 2, 4, 8, 4, 5
POOL = 40
PROMPT_TOKENS, RESPONSE_TOKENS = 160, 240

CHANGES: dict[str, Any] = {
    "manifest": "laptop",
    "model": {"path": str(POLICY), "dtype": "float32"},
    "data.problems": POOL,
    "limits": {"max_prompt_tokens": PROMPT_TOKENS, "max_tool_tokens": 48, "tool_timeout": 4.0},
    "rl.problems_per_step": PROBLEMS,
    "rl.group_size": KEPT,
    "rl.oversample": SAMPLES,
    "rl.learning_rate": 2e-4,
    "rl.warmup_steps": 0,
    "rl.micro_batch_tokens": 1600,
    "rl.checkpoint_every": 1,
    "engine.kv_tokens": 16 * (PROMPT_TOKENS + RESPONSE_TOKENS),
    "engine.max_model_len": 2 * (PROMPT_TOKENS + RESPONSE_TOKENS),
    "engine.offload": False,
    "evaluation.results.max_response_tokens": RESPONSE_TOKENS,
    "resources.gpus_per_node": RANKS,
}
"""Of preset one-gpu: the laptop's sizes, on two ranks."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the command is told.

    Attributes:
        folder: Of the run.
        steps: Steps of the stage.
        replica: ``torch_cpu`` or ``vllm``.
    """

    folder: str
    steps: int
    replica: str

    @property
    def job(self) -> StageJob:
        """The stage."""
        stage = {"steps": self.steps, "max_response_tokens": RESPONSE_TOKENS, "max_turns": 4}
        rest = {"data": "all", "reset_optimizer": False}
        preset = load_preset("one-gpu", {**CHANGES, "stages": [{**stage, **rest}]})
        assert isinstance(preset, VerlPreset)
        return StageJob(preset, Arm.GRPO_ROC, 1, SEED, Path(self.folder))

    def settings(self) -> dict[str, Any]:
        """What verl needs to know of this machine."""
        model, actor = "actor_rollout_ref.model", "actor_rollout_ref.actor"
        rollout, ray = "actor_rollout_ref.rollout", "+ray_kwargs.ray_init"
        return {
            "trainer.device": "cpu",
            "trainer.rollout_data_dir": f"{self.folder}/rows",
            f"+{model}.override_config.attn_implementation": "sdpa",
            f"{model}.use_remove_padding": False,  # it needs flash-attn
            f"{model}.enable_gradient_checkpointing": False,
            f"{actor}.use_torch_compile": False,
            f"{actor}.fsdp_config.use_torch_compile": False,
            f"{rollout}.name": self.replica,
            f"{rollout}.max_num_seqs": 64,
            f"{rollout}.enforce_eager": True,
            f"{rollout}.free_cache_engine": False,
            f"+{rollout}.enable_sleep_mode": False,
            f"{rollout}.load_format": "auto",
            f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": 64,
            f"{rollout}.agent.num_workers": 1,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
            f"{ray}.num_cpus": 64,  # verl's actors ask for one each, and mostly wait
            f"{ray}.num_gpus": RANKS,
            f"{ray}.include_dashboard": False,
            f"{ray}.object_store_memory": 400 << 20,
        }


def main() -> None:
    """Makes the run, or goes on with it."""
    run = Run(**json.loads(sys.argv[1]))
    pool = Path(run.folder).with_suffix(".pool.parquet")
    problems = [draw(ProblemSet.FAMILIES, Split.TRAIN, SEED, i).problem for i in range(POOL)]
    rows = [
        Row("families", str(number), one.question, str(one.answer))
        for number, one in enumerate(problems)
    ]
    write_pool(pool, rows)
    train_stage(run.job, pool, None, run.settings())


if __name__ == "__main__":
    main()
