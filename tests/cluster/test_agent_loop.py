"""The agent loop on verl's client: real router and servers in Ray, real sandbox and grader.

The servers replay what a scripted engine said to the same prompts. So a loop that sends another
prompt gets no answer.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import hydra
import pytest
import ray
from made_steps import SPEC
from omegaconf import OmegaConf
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopOutput,
    DictConfigWrap,
    ToolListWrap,
    _agent_loop_registry,
)
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout import replica
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.router import get_router_handle

import rstar2.verl_plugin.plugin  # noqa: F401  registers the loop
from rstar2.cli import sandbox_serve
from rstar2.cli.sandbox_serve import Listening, serve_until
from rstar2.experiments.cluster.rows import problem_row
from rstar2.problems import Problem
from rstar2.protocol import StopReason, TokenTemplate, ToolResult
from rstar2.rollout.condensed import condensed
from rstar2.rollout.engine import SamplingParams, TokenOutput
from rstar2.rollout.groups import Rollout, roll_out
from rstar2.sandbox import Sandbox
from rstar2.sandbox.client import SandboxClient
from rstar2.verl_plugin.agent_loop import (
    FACTS,
    TOKEN_VARIABLE,
    EngineFault,
    RStarLoop,
    shared_sandbox,
)

T = TypeVar("T")
Replies = dict[tuple[int, ...], TokenOutput]

SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "repetition_penalty": 1.0,
    "logprobs": True,
}


def call(code: str) -> str:
    body = json.dumps({"name": "python", "arguments": {"code": code}})
    return f"<tool_call>{body}</tool_call>"


RIGHT = "So it is 42.</reason><answer>\\boxed{42}</answer>"
CONVERSATIONS = {
    "one call, right": [f"Run it.</reason>{call('print(6 * 7)')}", RIGHT],
    "an error, then right": [
        f"Run it.</reason>{call('print(1 / 0)')}",
        f"Again.</reason>{call('print(6 * 7)')}",
        RIGHT,
    ],
    "a call that cannot be read": ["Run it.</reason><tool_call>{print</tool_call>", RIGHT],
    "without a call, wrong, twice": [
        "I know.</reason><answer>\\boxed{41}</answer><answer>\\boxed{41}</answer>"
    ],
    "neither call nor answer": ["I do not know."],
    "too many turns": [f"Run it.</reason>{call('print(7)')}"] * SPEC.max_turns,
    "too many tokens": ["Let me think. " * 200],
}


class ScriptedEngine:
    """Says texts in order, as tokens that a model would have sampled, and remembers to what."""

    def __init__(self, template: TokenTemplate, texts: Sequence[str]) -> None:
        self._template, self._texts = template, iter(texts)
        self.replies: Replies = {}

    async def generate(
        self,
        request_id: str,  # noqa: ARG002
        *,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
    ) -> TokenOutput:
        ids = [*self._template.encode(next(self._texts)), self._template.end_id]
        ids = ids[: sampling_params["max_tokens"]]
        said = TokenOutput(tuple(ids), tuple(-0.125 * (n % 7) for n in range(len(ids))))
        self.replies[tuple(prompt_ids)] = said
        return said

    async def end(self, request_id: str) -> None:
        pass


@ray.remote
class Server:
    """One of verl's servers as its client sees it: token ids in, token ids out."""

    def __init__(self, replies: Replies, version: int) -> None:
        self.replies, self.version = replies, version
        self.params: list[dict[str, Any]] = []

    async def generate(
        self,
        request_id: str,  # noqa: ARG002
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **_: Any,
    ) -> replica.TokenOutput:
        self.params.append(sampling_params)
        said = self.replies.get(tuple(prompt_ids), TokenOutput((), ()))
        return replica.TokenOutput(
            token_ids=list(said.token_ids),
            log_probs=list(said.log_probs),
            stop_reason="completed" if said.token_ids else "aborted",
            extra_fields={"global_steps": self.version},
        )

    async def asked(self) -> list[dict[str, Any]]:
        return self.params


def problem(number: int, question: str = "") -> Problem:
    return Problem(f"made/{number}", question or f"Question {number}: 6 times 7?", 42, "made")


def row_of(one: Problem, session: int) -> dict[str, Any]:
    row = problem_row(0, one)
    return {
        **row,
        "raw_prompt": row["prompt"],
        "index": 0,
        "uid": f"uid-{one.problem_id}",
        "session_id": session,
        "global_steps": 3,
    }


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def closing(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result; the sandbox of this event loop ends with it."""
    try:
        return await coroutine
    finally:
        sandbox = await shared_sandbox("")
        assert isinstance(sandbox, Sandbox)
        await sandbox.__aexit__(None, None, None)


async def laptop(
    one: Problem, texts: Sequence[str], template: TokenTemplate
) -> tuple[Rollout, Replies]:
    """What the laptop's loop makes of a conversation, and the replies that led to it."""
    engine = ScriptedEngine(template, texts)
    [[rollout]] = await roll_out(
        [one],
        1,
        name=f"uid-{one.problem_id}/5",
        engine=engine,
        sandbox=await shared_sandbox(""),
        template=template,
        limits=SPEC.rollout_limits(1.0),
    )
    return replace(rollout, sample=5), engine.replies


@pytest.fixture
def config(verl_config: Any) -> Any:
    """verl's configuration with our node."""
    return OmegaConf.merge(
        OmegaConf.to_container(verl_config), {"rstar2": SPEC.model_dump(mode="json")}
    )


@pytest.fixture
def serve(ray_here: None, config: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """``serve(replies)`` makes verl's client of two servers behind our router."""
    file = tmp_path / "router.yaml"
    file.write_text(
        "router_class: rstar2.verl_plugin.plugin.RouterActor\nkv_tokens: 2000\nmax_tokens: 500\n"
    )
    actors: list[Any] = []

    def made(replies: Replies) -> tuple[LLMServerClient, Any, list[Any]]:
        servers = [Server.remote(replies, version=2) for _ in range(2)]
        router = get_router_handle(dict(zip("ab", servers, strict=True)), str(file))
        actors.extend([*servers, router])
        return LLMServerClient(config, router), router, servers

    yield made
    for actor in actors:
        ray.kill(actor)


def loop_of(client: LLMServerClient, config: Any, tokenizer: PreTrainedTokenizerFast) -> RStarLoop:
    """The loop as verl's worker makes it for each sample."""
    loop: RStarLoop = hydra.utils.instantiate(
        config=_agent_loop_registry["rstar2"],
        trainer_config=DictConfigWrap(config=config),
        server_manager=client,
        tokenizer=tokenizer,
        processor=None,
        hf_model_type="qwen3",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )
    return loop


def test_a_conversation_is_the_same_on_both_ways(
    serve: Any, config: Any, tokenizer: PreTrainedTokenizerFast, template: TokenTemplate
) -> None:
    problems = {name: problem(number) for number, name in enumerate(CONVERSATIONS)}

    async def both() -> tuple[list[Rollout], list[AgentLoopOutput], list[Any], Any]:
        ways = [
            await laptop(problems[name], texts, template) for name, texts in CONVERSATIONS.items()
        ]
        replies = {prompt: said for _, told in ways for prompt, said in told.items()}
        client, router, servers = serve(replies)
        outputs = await asyncio.gather(
            *(
                loop_of(client, config, tokenizer).run(dict(SAMPLING), **row_of(one, 5))
                for one in problems.values()
            )
        )
        params = [p for server in servers for p in await server.asked.remote()]
        status = await router.get_status.remote()
        return [rollout for rollout, _ in ways], [out for [out] in outputs], params, status

    rollouts, outputs, params, status = run(closing(both()))
    for rollout, output in zip(rollouts, outputs, strict=True):
        path = rollout.trajectory
        assert output.prompt_ids == list(path.prompt_ids)
        assert output.response_ids == list(path.response_ids)
        assert output.response_mask == list(path.response_mask)
        assert output.response_logprobs == list(path.log_probs)
        assert output.reward_score == rollout.reward
        assert output.extra_fields[FACTS] == condensed(rollout)
        assert output.extra_fields["reward_extra_info"] == {"acc": rollout.reward}
        assert output.extra_fields["max_global_steps"] == 2
    assert [rollout.verdict.correct for rollout in rollouts] == [True] * 3 + [False] * 4
    assert {rollout.trajectory.stop for rollout in rollouts} == {
        StopReason.ANSWERED,
        StopReason.NO_CALL,
        StopReason.MAX_TURNS,
        StopReason.MAX_TOKENS,
    }
    for told in params:
        assert told["stop_token_ids"] == [template.end_id]
        assert {name: told[name] for name in SAMPLING} == SAMPLING
    assert status["residents"] == {"a": 0, "b": 0}


def test_a_prompt_that_is_too_long_is_a_row_without_a_model_token(
    serve: Any, config: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    async def one() -> AgentLoopOutput:
        client, _, _ = serve({})
        long = problem(0, "How much is 6 times 7? " * 100)
        [output] = await loop_of(client, config, tokenizer).run(SAMPLING, **row_of(long, 1))
        return output

    output = run(closing(one()))
    assert (output.response_mask, output.reward_score) == ([0], 0.0)
    assert output.as_dict()["rm_scores"].tolist() == [0.0]
    assert output.extra_fields["max_global_steps"] == 2
    assert json.loads(output.extra_fields[FACTS])["trajectory"]["stop"] == "prompt_too_long"


def test_a_rollout_that_the_sandbox_lost_leaves_no_row(
    serve: Any, config: Any, tokenizer: PreTrainedTokenizerFast, template: TokenTemplate
) -> None:
    """It is closed under the loop's feet; each fresh sample is lost too, and the router told."""

    async def one() -> tuple[Any, Any]:
        _, replies = await laptop(problem(0), CONVERSATIONS["one call, right"], template)
        sandbox = await shared_sandbox("")
        assert isinstance(sandbox, Sandbox)
        await sandbox.__aexit__(None, None, None)
        client, router, _ = serve(replies)
        lost = await loop_of(client, config, tokenizer).run(SAMPLING, **row_of(problem(0), 1))
        return lost, await router.get_status.remote()

    lost, status = run(closing(one()))
    assert lost == []
    assert status["residents"] == {"a": 0, "b": 0}


def test_a_server_that_gives_up_is_no_end_of_a_turn(
    serve: Any, config: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    async def one() -> Any:
        client, router, _ = serve({})
        with pytest.raises(EngineFault, match=r"0 tokens .* ended as 'aborted'"):
            await loop_of(client, config, tokenizer).run(SAMPLING, **row_of(problem(0), 1))
        return await router.get_status.remote()

    assert run(closing(one()))["residents"] == {"a": 0, "b": 0}


def test_loops_of_a_process_share_one_sandbox() -> None:
    async def several() -> int:
        return len({id(s) for s in await asyncio.gather(*(shared_sandbox("") for _ in range(9)))})

    assert run(closing(several())) == 1


def test_programs_run_on_nodes_where_there_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node asks for a token, which the workers have in their environment."""
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")

    async def there() -> ToolResult:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()

        def announce(line: str) -> None:
            if not ready.done():
                ready.set_result(line.split()[1].rstrip(","))

        async with Sandbox() as local:
            how = Listening(port=0, token="secret", drain_seconds=1)
            node = asyncio.create_task(serve_until(stop, local, how, announce))
            url = await ready
            client = await shared_sandbox(f"{url}, {url}")
            assert isinstance(client, SandboxClient)
            async with client:
                result = await client.run("print(6 * 7)")
            stop.set()
            await node
        return result

    assert run(there()).stdout == "42\n"


def test_the_token_has_the_name_that_nodes_know() -> None:
    assert TOKEN_VARIABLE == sandbox_serve.TOKEN_VARIABLE
