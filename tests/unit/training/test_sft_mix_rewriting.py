"""Rewriting over HTTP: a local server stands for the endpoint, and answers as OpenAI's does."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rstar2.training.sft_mix import (
    Conversation,
    Message,
    OpenAIRewriter,
    Rewrite,
    RewriteError,
    RewriteStatus,
    RewriteTask,
    Rewriting,
    Role,
    Usage,
)
from rstar2.training.sft_mix.rewriting import (
    PROMPT_PROMPT,
    RESPONSE_PROMPT,
    rewrite_task,
    rewritten,
)

TASKS = [RewriteTask("Echo.", f"text {number}") for number in range(5)]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def completion(text: str | None, finish: str = "stop") -> web.Response:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    return web.json_response({"choices": [choice], "usage": usage})


def ignore(*_: int) -> None:
    """Nobody watches the progress here."""


async def echo(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    return completion(f"{body['model']}: {body['messages'][1]['content']}")


def rewrite(
    handler: Handler, cache: Path, tasks: Sequence[RewriteTask] = TASKS, **options: Any
) -> tuple[tuple[Rewrite, ...], Usage]:
    """Runs the tasks against a server with the handler."""

    async def run() -> tuple[tuple[Rewrite, ...], Usage]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            options.setdefault("key_variable", None)
            rewriter = OpenAIRewriter(
                f"http://127.0.0.1:{port}/v1/", "m", cache, wait=0.001, **options
            )
            done = await rewriter.rewrite(tasks, ignore)
            return done, rewriter.usage
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_outcomes_come_in_the_order_of_the_tasks_and_are_counted(tmp_path: Path) -> None:
    async def slow_first(request: web.Request) -> web.StreamResponse:
        if (await request.json())["messages"][1]["content"] == "text 0":
            await asyncio.sleep(0.05)
        return await echo(request)

    done, usage = rewrite(slow_first, tmp_path / "cache.jsonl")
    assert [one.text for one in done] == [f"m: text {number}" for number in range(5)]
    assert usage == Usage(requests=5, prompt_tokens=50, completion_tokens=15)


def test_the_instructions_and_the_key_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers.get("Authorization"), await request.json()))
        return completion("x")

    monkeypatch.setenv("MIX_TEST_KEY", "secret")
    rewrite(look, tmp_path / "cache.jsonl", TASKS[:1], key_variable="MIX_TEST_KEY")
    messages = [{"role": "system", "content": "Echo."}, {"role": "user", "content": "text 0"}]
    assert seen == [("Bearer secret", {"model": "m", "messages": messages})]
    assert "secret" not in (tmp_path / "cache.jsonl").read_text()


@pytest.mark.parametrize("value", [None, "", " "])
def test_without_a_key_none_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    sent: list[bool] = []

    async def look(request: web.Request) -> web.StreamResponse:
        sent.append("Authorization" in request.headers)
        return completion("x")

    monkeypatch.delenv("MIX_TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MIX_TEST_KEY", value)
    rewrite(look, tmp_path / "cache.jsonl", TASKS[:1], key_variable="MIX_TEST_KEY")
    assert sent == [False]


def test_an_endpoint_that_wants_a_key_is_told_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=401, text="who are you")

    monkeypatch.delenv("MIX_TEST_KEY", raising=False)
    with pytest.raises(RewriteError, match=r"MIX_TEST_KEY is not set\): HTTP 401: who are you"):
        rewrite(refuse, tmp_path / "cache.jsonl", TASKS[:1], key_variable="MIX_TEST_KEY")


@pytest.mark.parametrize(
    "address",
    [
        "foo",
        "",
        "localhost:8000/v1",
        "ftp://x/v1",
        "http://",
        "http://x:y/v1",
        "http://[",
        "http://x:0/v1",
        "http://x /v1",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(RewriteError, match="is no address of an endpoint: give one as https://"):
        OpenAIRewriter(address, "m", tmp_path / "c.jsonl", key_variable=None)


@pytest.mark.parametrize("host", ["a..b", "a" * 70, r"a\b"])
def test_an_address_that_the_client_cannot_use_is_tried_once(tmp_path: Path, host: str) -> None:
    rewriter = OpenAIRewriter(
        f"http://{host}/v1", "m", tmp_path / "c.jsonl", key_variable=None, tries=2, wait=100.0
    )
    with pytest.raises(RewriteError, match=rf"{re.escape(host)}/v1/chat/completions is no address"):
        asyncio.run(asyncio.wait_for(rewriter.rewrite(TASKS[:1], ignore), 10))


def test_no_more_requests_at_once_than_allowed(tmp_path: Path) -> None:
    now, most = 0, 0

    async def count(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return await echo(request)

    rewrite(count, tmp_path / "cache.jsonl", concurrency=2)
    assert most == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_endpoint_is_asked_again(tmp_path: Path, status: int) -> None:
    asked = 0

    async def busy_twice(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked <= 2:
            return web.Response(status=status, headers={"Retry-After": "0"})
        return await echo(request)

    done, usage = rewrite(busy_twice, tmp_path / "cache.jsonl", TASKS[:1])
    assert done[0].text == "m: text 0"
    assert (usage.requests, usage.retries) == (1, 2)


def test_an_endpoint_that_stays_busy_stops_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    async def then_busy(request: web.Request) -> web.StreamResponse:
        if (await request.json())["messages"][1]["content"] == "text 2":
            return web.Response(status=429, text="slow down")
        return await echo(request)

    cache = tmp_path / "cache.jsonl"
    with pytest.raises(RewriteError, match=r"in 3 tries, last HTTP 429: slow down; what is done"):
        rewrite(then_busy, cache, concurrency=1, tries=3)
    assert len(cache.read_text().splitlines()) == 2
    done, usage = rewrite(echo, cache)
    assert [one.text for one in done] == [f"m: text {number}" for number in range(5)]
    assert (usage.requests, usage.cached) == (3, 2)


def test_a_refusal_of_the_endpoint_is_told_at_once(tmp_path: Path) -> None:
    asked = 0

    async def refuse(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=401, text="no such key")

    with pytest.raises(RewriteError, match="refused a request: HTTP 401: no such key"):
        rewrite(refuse, tmp_path / "cache.jsonl", TASKS[:1])
    assert asked == 1


def test_an_endpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    rewriter = OpenAIRewriter(
        "http://127.0.0.1:9/v1", "m", tmp_path / "c.jsonl", key_variable=None, tries=2, wait=0.001
    )
    with pytest.raises(RewriteError, match=r"127\.0\.0\.1:9/v1/chat/completions did not answer"):
        asyncio.run(rewriter.rewrite(TASKS[:1], ignore))


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        "[]",
        "[" * 100_000,
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"choices": [{"message": {}}]}',
        '{"choices": [{"message": {"content": ["x"]}}]}',
        '{"choices": [{"message": {"content": {"text": "x"}}}]}',
        '{"choices": [{"message": {"content": "x"}}], "usage": [1]}',
        '{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "many"}}',
    ],
)
def test_an_answer_of_another_kind_is_shown(tmp_path: Path, body: str) -> None:
    async def other(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    with pytest.raises(RewriteError, match="gave no chat completion"):
        rewrite(other, tmp_path / "cache.jsonl", TASKS[:1])


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None, "cost": None}]
)
def test_an_endpoint_that_does_not_count_counts_nothing(
    tmp_path: Path, usage: dict[str, None] | None
) -> None:
    async def uncounted(_: web.Request) -> web.StreamResponse:
        return web.json_response({"choices": [{"message": {"content": "x"}}], "usage": usage})

    done, used = rewrite(uncounted, tmp_path / "cache.jsonl", TASKS[:1])
    assert done == (Rewrite(RewriteStatus.OK, "x"),)
    assert used == Usage(requests=1)


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    async def half(_: web.Request) -> web.StreamResponse:
        return completion("a\ud83d")

    done, _ = rewrite(half, tmp_path / "cache.jsonl", TASKS[:1])
    assert done[0].text == "a?"


def test_no_text_and_a_cut_text_are_outcomes(tmp_path: Path) -> None:
    async def poor(request: web.Request) -> web.StreamResponse:
        if (await request.json())["messages"][1]["content"] == "text 0":
            return completion(None)
        return completion("half a", finish="length")

    done, _ = rewrite(poor, tmp_path / "cache.jsonl", TASKS[:2])
    assert done == (Rewrite(RewriteStatus.EMPTY), Rewrite(RewriteStatus.CUT))


def test_equal_tasks_are_sent_once_and_a_torn_cache_is_mended(tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    done, usage = rewrite(echo, cache, [TASKS[0], TASKS[0]])
    assert (len(done), usage.requests) == (2, 1)
    cache.write_bytes(cache.read_bytes() + b'{"key": "ab')
    done, usage = rewrite(echo, cache, TASKS[:2])
    assert (usage.requests, usage.cached) == (1, 1)
    assert all(json.loads(line) for line in cache.read_text().splitlines())


def test_another_model_or_prompt_is_another_task(tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    rewrite(echo, cache, TASKS[:1])
    _, usage = rewrite(echo, cache, [RewriteTask("Say it again.", "text 0")])
    assert (usage.requests, usage.cached) == (1, 0)


# --- what is asked -----------------------------------------------------------------------

TALK = Conversation(
    (
        Message(Role.USER, "Hi?"),
        Message(Role.ASSISTANT, "Hello."),
        Message(Role.USER, "A name?"),
        Message(Role.ASSISTANT, "Ada."),
    )
)


def test_a_task_shows_the_conversation_under_our_instructions() -> None:
    task = rewrite_task(TALK, Rewriting.RESPONSE)
    assert task.prompt == RESPONSE_PROMPT
    assert task.text == "[user]\nHi?\n\n[assistant]\nHello.\n\n[user]\nA name?\n\n[assistant]\nAda."
    assert rewrite_task(TALK, Rewriting.PROMPT).prompt == PROMPT_PROMPT
    with pytest.raises(ValueError, match="nothing"):
        rewrite_task(TALK, Rewriting.NONE)


@pytest.mark.parametrize(("rewriting", "place"), [(Rewriting.RESPONSE, 3), (Rewriting.PROMPT, 2)])
def test_the_last_message_of_its_kind_is_replaced(rewriting: Rewriting, place: int) -> None:
    changed = rewritten(TALK, rewriting, " New. ")
    assert changed.messages[place].text == "New."
    others = [at for at in range(4) if at != place]
    assert all(changed.messages[at] == TALK.messages[at] for at in others)
