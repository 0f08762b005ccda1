"""verl's agent loop: one sample of a problem, by ``rstar2.rollout.roll_out``.

verl makes a loop for each sample. What its samples share, the sandbox above all, belongs to
the process of the worker and dies with it.
"""

import asyncio
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.experiments.cluster.rows import problem_of
from rstar2.protocol import Manifest, TokenTemplate
from rstar2.rollout.agent import ToolRunner
from rstar2.rollout.condensed import condensed
from rstar2.rollout.engine import SamplingParams, TokenOutput
from rstar2.rollout.groups import Rollout, roll_out
from rstar2.sandbox import Sandbox
from rstar2.sandbox.client import SandboxClient
from rstar2.training.selection import shaped_reward
from rstar2.verl_plugin.router import tagged

FACTS = "rstar2"
"""Where ``extra_fields`` holds the condensed rollout."""

TOKEN_VARIABLE = "RSTAR2_SANDBOX_TOKEN"
"""Holds what the sandbox nodes ask for, if they do."""


class EngineFault(RuntimeError):
    """A server's answer is of no use; the rollout's group will be incomplete."""


class ServerEngine:
    """verl's client of its servers as our engine, for the turns of one sample.

    Args:
        client: An ``LLMServerClient`` whose router is ``RouterActor``.
        end_id: Id of ``<|im_end|>``, the only token that ends a turn for us; the model's own end
            token may be another.
        params: verl's sampling parameters, which hold beside ours.
        step: verl's training step, which the router is told.
    """

    def __init__(self, client: Any, end_id: int, params: Mapping[str, Any], step: int) -> None:
        self._client = client
        self._step = step
        self._params = {**params, "logprobs": True, "stop_token_ids": [end_id]}
        self._tokens: int | None = None
        self.versions: list[int] = []

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        """Samples one turn; see ``Engine``.

        Raises:
            EngineFault: If the server gave up, or recorded no log-probs.
        """
        self._tokens = None
        output = await self._client.generate(
            tagged(self._step, request_id, len(prompt_ids)),
            prompt_ids=list(prompt_ids),
            sampling_params={**self._params, **sampling_params},
        )
        ids, log_probs = output.token_ids, output.log_probs or []
        if not ids or len(ids) != len(log_probs):
            raise EngineFault(
                f"{request_id}: {len(ids)} tokens with {len(log_probs)} log-probs came from the "
                f"server, which ended as {output.stop_reason!r}; its log says why"
            )
        self._tokens = len(prompt_ids) + len(ids)
        told = output.extra_fields
        versions = (told.get("min_global_steps"), told.get("max_global_steps"))
        self.versions += [version for version in versions if version is not None]
        return TokenOutput(tuple(ids), tuple(log_probs))

    async def end(self, request_id: str) -> None:
        """Tells the router, which verl does not."""
        await self._client._load_balancer.end.remote(request_id, self._tokens)
        self._tokens = None


class RStarLoop(AgentLoopBase):
    """Rolls out and grades one sample; registered as ``rstar2``."""

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """One sample of a row of the data set.

        Args:
            sampling_params: verl's, for training or for validation.
            row: The columns that ``problem_of`` reads, and ``uid``, ``session_id`` and
                ``global_steps``.

        Returns:
            The rollout; an empty list, which verl leaves out of the group, if the sandbox
            lost it and all fresh samples.

        Raises:
            EngineFault: If a server failed; verl then marks the group.
        """
        spec = PluginSpec.of(self.config.rstar2)
        template = _template(self.tokenizer, spec.texts)
        step = row["global_steps"]
        engine = ServerEngine(self.server_manager, template.end_id, sampling_params, step)
        [finished] = await roll_out(
            [problem_of(row)],
            1,
            name=f"{row['uid']}/{row['session_id']}",
            engine=engine,
            sandbox=await shared_sandbox(spec.sandbox),
            template=template,
            limits=spec.rollout_limits(sampling_params["temperature"]),
        )
        versions = engine.versions or [step - 1]
        return [
            output_of(replace(rollout, sample=row["session_id"]), spec, template.end_id, versions)
            for rollout in finished
        ]


async def shared_sandbox(addresses: str) -> ToolRunner:
    """The sandbox of this process and event loop: nodes, or a pool where there is no address.

    It is never left: it ends with the process, as do the interpreters of a pool.

    Raises:
        SandboxUnsupported: If this machine cannot run a pool.
        SandboxUnavailable: If the pool did not come up; the next call tries again.
    """
    entering = _entering(asyncio.get_running_loop(), addresses)
    try:
        return await asyncio.shield(entering)
    except Exception:
        _entering.cache_clear()
        raise


def output_of(
    rollout: Rollout, spec: PluginSpec, end_id: int, versions: Sequence[int]
) -> AgentLoopOutput:
    """A rollout as verl takes it.

    verl puts the reward on a response's last token, so one without any gets one that is masked.

    Args:
        rollout: With its number in the group.
        spec: Says what failed calls cost.
        end_id: Id of ``<|im_end|>``.
        versions: Of the weights that sampled it, as the servers count them; one or more.
    """
    path = rollout.trajectory
    return AgentLoopOutput(
        prompt_ids=list(path.prompt_ids),
        response_ids=list(path.response_ids) or [end_id],
        response_mask=list(path.response_mask) or [0],
        response_logprobs=list(path.log_probs) or [0.0],
        reward_score=shaped_reward(rollout, spec.rl),
        num_turns=2 * len(path.turns),
        metrics=AgentLoopMetrics(),
        extra_fields={
            FACTS: condensed(rollout),
            "reward_extra_info": {"acc": rollout.reward},
            "global_steps": versions[-1],
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
        },
    )


@functools.cache
def _entering(loop: asyncio.AbstractEventLoop, addresses: str) -> "asyncio.Task[ToolRunner]":
    return loop.create_task(_enter(addresses))


async def _enter(addresses: str) -> ToolRunner:
    if not addresses:
        return await Sandbox().__aenter__()
    urls = [url.strip() for url in addresses.split(",")]
    return await SandboxClient(urls, token=os.environ.get(TOKEN_VARIABLE)).__aenter__()


@functools.cache
def _template(tokenizer: Any, manifest: Manifest) -> TokenTemplate:
    return TokenTemplate(tokenizer, manifest)
