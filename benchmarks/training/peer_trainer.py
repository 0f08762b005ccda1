"""TRL's ``GRPOTrainer`` with stopwatches around its own methods; nothing in it is replaced.

Each round is one step of its own training loop: it waits at the start of the step until it is
asked, and answers at the end. So data loading, logging and saving are outside the times.
"""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.training.environment import PEER_LIBRARIES
from benchmarks.training.inputs import GROUP
from benchmarks.training.workers import Channel, Stopwatch

Rollout = Callable[[list[Any], Any], dict[str, Any]]
"""A ``rollout_func``; the field ``score`` of what it gives is the reward."""

_FOREVER = 1_000_000
"""Steps that nobody asks for."""


class WatchedTrainer(GRPOTrainer):
    """Its step with the times of what stands before forward and backward.

    Attributes:
        making: CPU seconds of rollouts, rewards and advantages in the step so far.
    """

    making = 0.0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        watch = Stopwatch()
        made = super()._generate_and_score_completions(inputs)
        self.making += watch.read()["cpu_s"]
        return made


def versions() -> dict[str, str]:
    """Those of the peer's libraries."""
    return {name: version(name) for name in PEER_LIBRARIES}


def make_trainer(
    model: Path,
    scratch: Path,
    *,
    rollout: Rollout | None,
    questions: list[str],
    micro_rows: int,
    tokens: int,
    generation: dict[str, Any],
    callbacks: list[TrainerCallback],
) -> WatchedTrainer:
    """Build the trainer with the settings of our loss; its learning rate is 0, as ours.

    Args:
        model: Weights and tokenizer.
        scratch: A folder that it may write into.
        rollout: What makes the completions, if not its own generation.
        questions: The prompts of every step, one per group.
        micro_rows: Rows of one forward and backward.
        tokens: Most new tokens.
        generation: Further settings of its generation.
        callbacks: What watches its loop.
    """
    rows = len(questions) * GROUP
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    prompts = [{"prompt": [{"role": "user", "content": question}]} for question in questions]
    settings = GRPOConfig(
        output_dir=str(scratch),
        per_device_train_batch_size=micro_rows,
        gradient_accumulation_steps=rows // micro_rows,
        steps_per_generation=rows // micro_rows,
        num_generations=GROUP,
        max_completion_length=tokens,
        max_steps=_FOREVER,
        learning_rate=0.0,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        temperature=1.0,
        generation_kwargs=generation,
        bf16=False,
        fp16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    return WatchedTrainer(
        model=policy,
        reward_funcs=_score,
        args=settings,
        train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer,
        rollout_func=rollout,
        callbacks=callbacks,
    )


class OnRequest(TrainerCallback):
    """Holds each step of the loop until it is asked for, and answers with its times.

    Args:
        channel: The asker.
        clock: CPU seconds of all that the step is charged with.
        told: What the answer holds beside the times.
    """

    def __init__(
        self,
        channel: Channel,
        clock: Callable[[], float],
        told: Callable[[], dict[str, Any]],
    ) -> None:
        self.trainer: WatchedTrainer | None = None
        self._channel, self._clock, self._told = channel, clock, told
        self._gradient: float | None = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Wait for the request; leave when there is none."""
        if self._channel.receive() is None:
            raise SystemExit
        assert self.trainer is not None
        self.trainer.making = 0.0
        self._cpu, self._watch = self._clock(), Stopwatch()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Take the norm of the gradient, in the round that warms up alone."""
        assert self.trainer is not None
        if self._gradient is None:
            parts = [p.grad.norm() for p in self.trainer.model.parameters() if p.grad is not None]
            self._gradient = torch.stack(parts).norm().item()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Answer; the optimizer has taken its step."""
        assert self.trainer is not None
        making, spent = self.trainer.making, self._watch.read()
        self._channel.reply(
            {
                "all_cpu_s": self._clock() - self._cpu,
                "making_cpu_s": making,
                "update_cpu_s": spent["cpu_s"] - making,
                "wall_s": spent["wall_s"],
                "gradient": self._gradient,
                **self._told(),
            }
        )


def _score(*, score: list[float], **_: Any) -> list[float]:
    return score
