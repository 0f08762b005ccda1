"""Steps for tests: rollouts as an agent loop finishes them, and the queue that holds their rows."""

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from omegaconf import OmegaConf
from transformers import Qwen3ForCausalLM
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.grading import Reason, Verdict
from rstar2.problems import Problem
from rstar2.protocol import CallStatus, StopReason, ToolCall, Trajectory, Turn
from rstar2.rollout.groups import Rollout
from rstar2.training.packed import TokenSequence, token_log_probs
from rstar2.training.spec import Arm, LimitsSpec, RLSpec
from rstar2.verl_plugin.agent_loop import output_of
from rstar2.verl_plugin.replay_buffer import SelectingBuffer

RL = RLSpec(
    problems_per_step=4,
    group_size=4,
    oversample=8,
    epsilon=0.05,
    temperature=1.0,
    refill=False,
    max_refills=0,
    minibatches=1,
    normaliser="batch",
    clip_low=0.2,
    clip_high=0.28,
    tool_penalty=0.0,
    overlong_filtering=False,
    learning_rate=1.0e-6,
    warmup_steps=0,
    adam_betas=(0.9, 0.999),
    weight_decay=0.0,
    grad_clip=1.0e9,
    micro_batch_tokens=256,
    mining_samples=8,
    checkpoint_every=1,
)
SPEC = PluginSpec(
    manifest="laptop",
    arm=Arm.GRPO_ROC,
    seed=3,
    rl=RL,
    limits=LimitsSpec(max_prompt_tokens=100, max_tool_tokens=48, tool_timeout=2.0),
    max_response_tokens=400,
    max_turns=5,
    sandbox="",
)
END = 2
"""An id below the smallest vocabulary."""


def changed(**rl: Any) -> PluginSpec:
    """The settings with some of ``rl`` changed."""
    return SPEC.model_copy(update={"rl": RL.model_copy(update=rl)})


def made_groups(problems: int, seed: int, lost: int = 0) -> list[list[Rollout]]:
    """Groups of eight with all that selection looks at; the last problem is never solved.

    Args:
        problems: Their number.
        seed: Decides everything.
        lost: Rollouts that the first group is short of.
    """
    rng = random.Random(seed)
    groups = []
    for place in range(problems):
        problem = Problem(f"made/{place}", f"What is {place}?", place, "made")
        prompt = tuple(rng.randrange(3, 300) for _ in range(rng.randint(5, 12)))
        right = 0.0 if place == problems - 1 else 0.5
        groups.append([_rollout(problem, n, prompt, right, rng) for n in range(8)])
    groups[0] = groups[0][lost:]
    return groups


def _rollout(
    problem: Problem, sample: int, prompt: tuple[int, ...], right: float, rng: random.Random
) -> Rollout:
    turns = []
    mask: list[int] = []
    for number in range(rng.randint(1, 3)):
        calls = tuple(
            ToolCall("raw", rng.choice(list(CallStatus)), "code", "", "response", "Error")
            for _ in range(rng.randint(0, 2))
        )
        turns.append(Turn("text", rng.randint(1, 9), calls, rng.randint(0, 2)))
        mask += [0] * (rng.randint(1, 5) if number else 0) + [1] * turns[-1].num_tokens
    correct = rng.random() < right
    path = Trajectory(
        request_id=f"{problem.problem_id}/{sample}",
        prompt_ids=prompt,
        response_ids=tuple(rng.randrange(3, 300) for _ in mask),
        response_mask=tuple(mask),
        log_probs=tuple(rng.uniform(-3, 0) * one for one in mask),
        turns=tuple(turns),
        stop=StopReason.ANSWERED if correct else rng.choice(list(StopReason)[:4]),
    )
    reason = Reason.CORRECT if correct else Reason.MISMATCH
    return Rollout(problem, sample, path, Verdict(correct, 7, reason, "7"))


def as_sampled_by(
    model: Qwen3ForCausalLM, groups: Sequence[Sequence[Rollout]], spread: float
) -> list[list[Rollout]]:
    """The groups with old log-probs around the model's own, so that some ratios are clipped."""
    noise = torch.Generator().manual_seed(0)

    def sampled(rollout: Rollout) -> Rollout:
        path = rollout.trajectory
        length = len(path.prompt_ids)
        sequence = TokenSequence(
            path.prompt_ids + path.response_ids, (0,) * length + path.response_mask, length
        )
        with torch.no_grad():
            found = token_log_probs(model, [sequence], 1.0)
        near = iter((found + spread * torch.randn(len(found), generator=noise)).tolist())
        log_probs = tuple(next(near) if one else 0.0 for one in path.response_mask)
        return replace(rollout, trajectory=replace(path, log_probs=log_probs))

    return [[sampled(rollout) for rollout in group] for group in groups]


def put_prompts(queue: Any, number: int, step: int, partition: str = "train") -> list[str]:
    """Registers prompts, as verl's trainer does before it hands them to the agent loops."""
    uids = [str(uuid.uuid4()) for _ in range(number)]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
    queue.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
    return uids


def put_rows(
    queue: Any,
    uids: Sequence[str],
    groups: Sequence[Sequence[Rollout]],
    step: int,
    spec: PluginSpec = SPEC,
    partition: str = "train",
) -> None:
    """Puts the rows of groups, in no order, by the code of verl's agent-loop worker."""
    worker_class = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = object.__new__(worker_class)
    worker.processor = worker.reward_loop_worker_handles = None
    worker.distillation_enabled = False
    rows = [(uid, rollout) for uid, group in zip(uids, groups, strict=True) for rollout in group]
    random.Random(step).shuffle(rows)

    async def put() -> None:
        for uid, rollout in rows:
            await worker._agent_loop_postprocess(
                output_of(rollout, spec, END, [step - 1]),
                validate=partition == "val",
                uid=uid,
                session_id=rollout.sample,
                global_steps=step,
            )

    asyncio.run(put())
    done = [{"status": "finished"} if group else {"status": "failure"} for group in groups]
    queue.kv_batch_put(keys=list(uids), partition_id=partition, tags=done)


def buffer(spec: PluginSpec = SPEC, **settings: Any) -> SelectingBuffer:
    """The buffer as verl's trainer makes it, but for how often it looks."""
    return SelectingBuffer(
        **{
            "trainer_mode": "sync",
            "trainer_config": {},
            "max_off_policy_threshold": 8,
            "max_off_policy_strategy": "drop",
            "sampler_kwargs": OmegaConf.create(spec.model_dump(mode="json")),
            "refill_fn": None,
            "poll_interval": 0.05,
            **settings,
        }
    )
