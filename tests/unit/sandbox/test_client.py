"""The client of sandbox nodes: where calls go, what is sent again, what callers are told."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from test_service import in_loop, node, until

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import BadCall, SandboxLimits, SandboxUnavailable
from rstar2.sandbox import messages as m
from rstar2.sandbox.client import SandboxClient

Script = Callable[[web.Request, list[m.Call]], Awaitable[web.StreamResponse]]


@dataclass
class Scripted:
    """A node of the test's own, for what the real one never does."""

    script: Script
    url: str = ""
    requests: list[list[str]] = field(default_factory=list)
    """The programs of each request."""

    async def _run(self, request: web.Request) -> web.StreamResponse:
        calls = m.decode_batch(await request.read())
        self.requests.append([call.code for call in calls])
        return await self.script(request, calls)


@asynccontextmanager
async def scripted(script: Script, port: int = 0) -> AsyncIterator[Scripted]:
    it = Scripted(script)
    app = web.Application(client_max_size=m.BODY_BYTES)
    app.router.add_post("/run", it._run)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    it.url = "http://127.0.0.1:{1}".format(*runner.addresses[0])
    try:
        yield it
    finally:
        await runner.cleanup()


def lines(calls: Sequence[m.Call]) -> bytes:
    answers = (m.Answer(c.id, result=ToolResult(RunStatus.OK, stdout=c.code)) for c in calls)
    return b"".join(m.encode(answer) + b"\n" for answer in answers)


async def well(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    return web.Response(body=lines(calls))


def failing(status: int, **headers: str) -> Script:
    async def fail(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        return web.Response(status=status, body=b'{"error":"as told"}', headers=headers)

    return fail


def first(script: Script, then: Script) -> Script:
    """One script for the first request, another for those after it."""
    scripts = iter([script])
    return lambda request, calls: next(scripts, then)(request, calls)


def unused_port() -> str:
    """The address of a node that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


async def said(client: SandboxClient, *codes: str) -> list[str]:
    """What programs print that are sent at once."""
    return [result.stdout for result in await asyncio.gather(*map(client.run, codes))]


# --- the same run as a sandbox's ----------------------------------------------------------


@in_loop
async def test_a_result_is_that_of_the_node() -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        result = await client.run("say", " 42", timeout=3)
        assert result == ToolResult(RunStatus.OK, stdout="say 42", duration=3.0)
        assert (await client.run("say")).duration == SandboxLimits().timeout
        assert (await client.run("say '\ud800'")).stdout == "say '\ud800'"


BAD_CALLS = [
    ((5,), "code is int"),
    (("x" * 10_000_000,), "10000000 characters"),
    (("say", None), "stdin is NoneType"),
    (("say", "", -1), "timeout is -1"),
    (("say", "", float("nan")), "timeout is nan"),
]


@pytest.mark.parametrize(("call", "reason"), BAD_CALLS)
@in_loop
async def test_a_bad_call_is_refused_before_it_travels(call: tuple[Any, ...], reason: str) -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        with pytest.raises(BadCall, match=reason):
            await client.run(*call)
        assert it.runner.started == []


@in_loop
async def test_a_call_that_the_node_finds_bad_is_the_callers_mistake_and_no_one_elses() -> None:
    async def picky(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        fault = m.Answer(calls[0].id, error=m.Fault(m.FaultKind.BAD_CALL, "not here"))
        return web.Response(body=m.encode(fault) + b"\n" + lines(calls[1:]))

    async with scripted(picky) as it, SandboxClient([it.url]) as client:
        bad, good = await asyncio.gather(client.run("a"), client.run("b"), return_exceptions=True)
        assert isinstance(bad, BadCall)
        assert str(bad) == "not here"
        assert isinstance(good, ToolResult)
        assert client.stats.retries == 0


@in_loop
async def test_the_longest_calls_travel() -> None:
    async def measure(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        return web.Response(body=lines([m.Call(c.id, str(len(c.code + c.stdin))) for c in calls]))

    longest = "\ud800" * SandboxLimits().code_length  # six bytes each, in JSON
    async with scripted(measure) as it, SandboxClient([it.url]) as client:
        assert (await client.run(longest, longest)).stdout == str(2 * SandboxLimits().code_length)


@pytest.mark.parametrize(
    ("urls", "more", "reason"),
    [
        ([], {}, "give one at least"),
        (["127.0.0.1:8750"], {}, "write it as http://host:8750"),
        (["ftp://host"], {}, "'ftp://host' is no address"),
        ("http://host", {}, "urls is the text 'http://host'"),
        (["http://host"], {"per_node": 0}, "must be positive"),
        (["http://host"], {"patience": 0.0}, "must be positive"),
    ],
)
def test_a_client_that_cannot_work_is_not_made(urls: Any, more: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SandboxClient(urls, **more)


@in_loop
async def test_a_client_that_is_closed_says_so_to_all_who_call_or_wait() -> None:
    async with node() as it:
        client = SandboxClient([it.url], per_node=1)
        with pytest.raises(SandboxUnavailable, match="async with SandboxClient"):
            await client.run("say")
        async with client:
            waiting = [asyncio.create_task(client.run(f"hold {n}")) for n in range(3)]
            await until(lambda: it.runner.started)
        for task in waiting:
            with pytest.raises(SandboxUnavailable, match="client is closed"):
                await task
        await until(lambda: it.runner.cancelled == ["hold 0"])


@in_loop
async def test_a_call_made_just_before_the_client_closes_is_told_too() -> None:
    async with node() as it:
        async with SandboxClient([it.url]) as client:
            held = asyncio.create_task(client.run("hold"))
            await until(lambda: it.runner.started)
            late = asyncio.create_task(client.run("late"))
            await asyncio.sleep(0)
        for task in (held, late):
            with pytest.raises(SandboxUnavailable, match="client is closed"):
                await task


# --- where calls go -----------------------------------------------------------------------


@in_loop
async def test_calls_of_one_turn_travel_together_64_at_most() -> None:
    async with scripted(well) as it, SandboxClient([it.url]) as client:
        codes = [f"{n}" for n in range(100)]
        assert await said(client, *codes) == codes
        assert it.requests == [codes[:64], codes[64:]]


@in_loop
async def test_long_programs_travel_in_requests_of_their_own() -> None:
    async with scripted(well) as it, SandboxClient([it.url]) as client:
        codes = ["a" * 200_000, "b" * 200_000, "c", "d" * 1_000_000]
        assert await said(client, *codes) == codes
        assert [[code[0] for code in request] for request in it.requests] == [
            ["a"],
            ["b", "c"],
            ["d"],
        ]


@in_loop
async def test_a_result_does_not_wait_for_the_rest_of_its_batch() -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        held, said_ = (asyncio.create_task(client.run(code)) for code in ("hold", "say"))
        assert (await said_).stdout == "say"
        assert it.runner.started == ["hold", "say"]
        it.runner.gate.set()
        assert (await held).stdout == "hold"


@in_loop
async def test_a_node_has_no_more_calls_than_it_may_and_the_rest_wait_in_order() -> None:
    async with node() as it, SandboxClient([it.url], per_node=2) as client:
        codes = [f"hold {n}" for n in range(6)]
        tasks = [asyncio.create_task(client.run(code)) for code in codes]
        await until(lambda: len(it.runner.started) == 2)
        await asyncio.sleep(0.05)
        assert it.runner.started == codes[:2]
        assert client.stats.outstanding == {it.url: 2}
        assert client.stats.waiting == 4
        it.runner.gate.set()
        assert [(await task).stdout for task in tasks] == codes
        assert it.runner.started == codes
        assert client.stats.outstanding == {it.url: 0}


@in_loop
async def test_calls_go_to_the_less_busy_node() -> None:
    async with node() as one, node() as other, SandboxClient([one.url, other.url]) as client:
        held = [asyncio.create_task(client.run("hold")) for _ in range(20)]
        await until(lambda: len(one.runner.started) + len(other.runner.started) == 20)
        assert len(one.runner.started) == len(other.runner.started) == 10
        other.runner.gate.set()
        await until(lambda: client.stats.outstanding[other.url] == 0)
        for _ in range(5):
            await client.run("say")
        assert len(other.runner.started) == 15
        one.runner.gate.set()
        await asyncio.gather(*held)


@in_loop
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, unused_port())
    async with node() as it, SandboxClient([it.url]) as client:
        assert await said(client, "say") == ["say"]


# --- calls whose callers go away ----------------------------------------------------------


@in_loop
async def test_a_cancelled_call_does_not_break_its_batch() -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        held, gone = (asyncio.create_task(client.run(f"hold {n}")) for n in range(2))
        await until(lambda: len(it.runner.started) == 2)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        it.runner.gate.set()
        assert (await held).stdout == "hold 0"
        await until(lambda: client.stats.outstanding == {it.url: 0})
        assert client.stats.retries == 0


@in_loop
async def test_when_all_callers_of_a_batch_are_gone_the_node_is_told() -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        tasks = [asyncio.create_task(client.run(f"hold {n}")) for n in range(3)]
        await until(lambda: len(it.runner.started) == 3)
        for task in tasks:
            task.cancel()
        await until(lambda: len(it.runner.cancelled) == 3)
        assert client.stats.outstanding == {it.url: 0}
        assert await said(client, "say") == ["say"]


@in_loop
async def test_a_call_may_be_cancelled_at_any_point_on_its_way() -> None:
    async with node() as it, SandboxClient([it.url]) as client:
        for pauses in range(6):
            task = asyncio.create_task(client.run("hold"))
            for _ in range(pauses):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: client.stats.outstanding == {it.url: 0})
        assert await said(client, "say") == ["say"]
        assert client.stats.waiting == 0


# --- what is sent again -------------------------------------------------------------------


@in_loop
async def test_what_a_program_did_is_final() -> None:
    async def ends(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        result = ToolResult(RunStatus(calls[0].code), stderr="MemoryError")
        return web.Response(body=m.encode(m.Answer(calls[0].id, result=result)) + b"\n")

    async with scripted(ends) as it, SandboxClient([it.url]) as client:
        for status in RunStatus:
            assert (await client.run(status)).status is status
        assert it.requests == [[status] for status in RunStatus]


async def cut(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    """Answers all but the last two calls, then ends."""
    return web.Response(body=lines(calls[:-2]))


async def torn(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    """Answers all but the last two calls, and half of the next line, then hangs up."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(lines(calls[:-1])[:-20])
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize("script", [cut, torn])
@in_loop
async def test_after_a_stream_that_broke_only_the_missing_calls_are_sent_again(
    script: Script,
) -> None:
    async with scripted(first(script, well)) as it, SandboxClient([it.url]) as client:
        assert await said(client, *"abcde") == list("abcde")
        assert it.requests == [list("abcde"), ["d"], ["e"]]  # each alone
        assert client.stats.retries == 2


async def hung_up(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def saying(body: bytes) -> Script:
    async def say(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        return web.Response(body=body)

    return say


async def unavailable(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    faults = (m.Fault(m.FaultKind.UNAVAILABLE, "the zygote died") for _ in calls)
    answers = (m.Answer(c.id, error=fault) for c, fault in zip(calls, faults, strict=True))
    return web.Response(body=b"".join(m.encode(answer) + b"\n" for answer in answers))


async def endless(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
    """A line that does not end."""
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(200):
            await response.write(b"x" * (1 << 20))
    return response


TROUBLES = {
    "a hang-up": (hung_up, "disconnected|reset"),
    "status 500": (failing(500), "500: as told"),
    "status 502": (failing(502), "502: as told"),
    "status 503": (failing(503), "503: as told"),
    "no JSON": (saying(b"<html>\n"), "not JSON"),
    "a line of neither kind": (saying(b'{"id":1}\n'), "call 1 is no answer"),
    "a call that was not sent": (saying(lines([m.Call(77, "x")])), "call 77 is no answer"),
    "its sandbox is lost": (unavailable, "the zygote died"),
    "a line that is too long": (endless, "longer than"),
}


@pytest.mark.parametrize("name", TROUBLES)
@in_loop
async def test_trouble_of_a_node_is_no_trouble_for_a_call_that_another_can_take(name: str) -> None:
    script, _ = TROUBLES[name]
    async with (
        scripted(script) as bad,
        scripted(well) as good,
        SandboxClient([bad.url, good.url]) as client,
    ):
        codes = [f"{n}" for n in range(40)]
        assert await said(client, *codes) == codes
        assert client.stats.retries >= 1
        assert sorted(code for request in good.requests for code in request) == sorted(codes)


@pytest.mark.parametrize("name", TROUBLES)
@in_loop
async def test_trouble_that_lasts_is_told_with_the_node_and_the_reason(name: str) -> None:
    script, reason = TROUBLES[name]
    async with scripted(script) as it, SandboxClient([it.url], patience=0.2) as client:
        with pytest.raises(SandboxUnavailable, match=reason) as raised:
            await client.run("say")
        assert it.url in str(raised.value)


@in_loop
async def test_a_node_that_falls_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    monkeypatch.setattr("rstar2.sandbox.client._SILENT_SECONDS", 0.1)
    async with scripted(first(silent, well)) as it, SandboxClient([it.url]) as client:
        assert await said(client, "a") == ["a"]
        assert it.requests == [["a"], ["a"]]


@in_loop
async def test_a_full_node_is_left_alone_for_as_long_as_it_asks_and_is_not_ill() -> None:
    full = failing(429, **{"Retry-After": "1"})
    async with scripted(first(full, well)) as it, SandboxClient([it.url], patience=0.1) as client:
        begun = time.monotonic()
        assert await said(client, "a", "b") == ["a", "b"]
        assert time.monotonic() - begun >= 1
        assert it.requests == [["a", "b"], ["a", "b"]]
        assert (client.stats.retries, client.stats.ejections) == (2, 0)


@in_loop
async def test_a_call_that_is_lost_again_and_again_is_given_up_and_takes_no_other_along() -> None:
    async def poisoned(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        if any(call.code == "poison" for call in calls):
            return await hung_up(request, calls)
        return await well(request, calls)

    async with scripted(poisoned) as it, SandboxClient([it.url]) as client:
        poison = asyncio.create_task(client.run("poison"))
        others = 0
        while not poison.done():
            assert await said(client, "say") == ["say"]
            others += 1
        with pytest.raises(SandboxUnavailable, match="the call was lost 4 times, last by http://"):
            await poison
        assert sum(request == ["poison"] for request in it.requests) >= 3
        assert others >= 3


@in_loop
async def test_a_client_that_is_not_admitted_is_told_at_once() -> None:
    async with node(token="secret") as it:
        async with SandboxClient([it.url], token="wrong") as client:
            with pytest.raises(SandboxUnavailable, match="refused the calls with 401: the token"):
                await client.run("say")
            assert client.stats.retries == 0
        async with SandboxClient([f"{it.url}/"], token="secret") as client:
            assert await said(client, "say") == ["say"]


@in_loop
async def test_a_token_is_not_taken_to_where_a_node_points() -> None:
    async with scripted(well) as other:
        async with (
            scripted(failing(307, Location=f"{other.url}/run")) as it,
            SandboxClient([it.url], token="secret") as client,
        ):
            with pytest.raises(SandboxUnavailable, match="307"):
                await client.run("say")
        assert other.requests == []


# --- nodes that come and go ---------------------------------------------------------------


@in_loop
async def test_a_node_that_fails_three_times_rests_and_then_may_prove_itself() -> None:
    ill = True

    async def sometimes(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        return await (failing(500) if ill else well)(request, calls)

    async with (
        scripted(sometimes) as it,
        scripted(well) as good,
        SandboxClient([it.url, good.url]) as client,
    ):
        while not client.stats.ejections:
            assert await said(client, "x") == ["x"]
        for _ in range(10):
            assert await said(client, "x") == ["x"]
        assert len(it.requests) == 3
        await asyncio.sleep(0.55)
        codes = [f"{n}" for n in range(300)]
        assert await said(client, *codes) == codes
        assert len(it.requests) == 4  # still ill: it rests twice as long
        assert client.stats.ejections == 2
        ill = False
        await asyncio.sleep(1.05)
        for _ in range(20):
            await said(client, "x")
        assert len(it.requests) > 5


@in_loop
async def test_while_a_node_proves_itself_it_gets_nothing_more() -> None:
    gate = asyncio.Event()

    async def slow(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        await gate.wait()
        return await well(request, calls)

    scripts = iter([failing(500)] * 3)

    async def recovering(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        return await next(scripts, slow)(request, calls)

    async with (
        scripted(recovering) as it,
        scripted(well) as good,
        SandboxClient([it.url, good.url]) as client,
    ):
        while not client.stats.ejections:
            await said(client, "x")
        await asyncio.sleep(0.55)
        proof = asyncio.create_task(said(client, *map(str, range(20))))
        await until(lambda: len(it.requests) == 4)
        assert await said(client, *map(str, range(100))) == [str(n) for n in range(100)]
        assert len(it.requests) == 4
        gate.set()
        assert await proof == [str(n) for n in range(20)]


@in_loop
async def test_when_no_node_is_well_a_call_waits_and_then_names_them_all() -> None:
    urls = [unused_port(), unused_port()]
    async with SandboxClient(urls, patience=0.6) as client:
        for _ in range(2):  # a call that comes later waits as long
            begun = time.monotonic()
            outcomes = await asyncio.gather(
                *(client.run("say") for _ in range(5)), return_exceptions=True
            )
            assert 0.55 <= time.monotonic() - begun <= 1.3
            for outcome in outcomes:
                assert isinstance(outcome, SandboxUnavailable)
                assert "no sandbox node was well for 0.6 s" in str(outcome)
                assert all(url in str(outcome) for url in urls)
                assert "Cannot connect" in str(outcome)
        assert client.stats.waiting == 0


@in_loop
async def test_a_node_that_comes_back_in_time_gets_the_calls_that_waited() -> None:
    url = unused_port()
    async with SandboxClient([url], patience=10) as client:
        waiting = asyncio.gather(*(client.run(f"{n}") for n in range(5)))
        await until(lambda: client.stats.ejections)
        async with scripted(well, port=int(url.rpartition(":")[2])):
            assert [result.stdout for result in await waiting] == list("01234")


@in_loop
async def test_nodes_that_die_at_random_lose_and_mix_up_nothing() -> None:
    dice = random.Random(0)

    async def mortal(request: web.Request, calls: list[m.Call]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for call in calls:
            if dice.random() < 0.05:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(lines([call]))
            await asyncio.sleep(0)
        return response

    async with scripted(mortal) as one, scripted(mortal) as two, scripted(mortal) as three:
        nodes = [one.url, two.url, three.url]
        async with SandboxClient(nodes, per_node=16) as client:
            codes = [f"{n}" for n in range(500)]
            assert await said(client, *codes) == codes
            assert client.stats.retries >= 20
            assert client.stats.outstanding == dict.fromkeys(nodes, 0)
