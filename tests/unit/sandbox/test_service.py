"""A sandbox node: what goes over the wire, and what its command does."""

import asyncio
import functools
import importlib
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rstar2.cli.sandbox_serve import TOKEN_VARIABLE, Listening, ServeError, read_token, serve_until
from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import Isolation, Rung, SandboxLimits, SandboxStats, SandboxUnavailable
from rstar2.sandbox import messages as m
from rstar2.sandbox.server import retry_after


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


@dataclass
class Obedient:
    """A runner whose programs are orders, so that a test decides how and when each ends."""

    slots: int = 4
    isolation: Isolation = field(default_factory=lambda: Isolation(Rung.NONE, ("obeys",)))
    stats: SandboxStats = field(default_factory=SandboxStats)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def run(self, code: Any, stdin: Any = "", timeout: Any = None) -> ToolResult:
        code, stdin, seconds = SandboxLimits().check(code, stdin, timeout)
        self.started.append(code)
        order = code.split(" ")[0]
        try:
            if order == "hold":
                await self.gate.wait()
            if order == "lose":
                raise SandboxUnavailable("the zygote died four times")
            if order == "defect":
                raise ZeroDivisionError("a mistake in the runner")
        except asyncio.CancelledError:
            self.cancelled.append(code)
            raise
        result = ToolResult(RunStatus.OK, stdout=code + stdin, duration=seconds)
        self.stats.finished[RunStatus.OK] += 1
        self.stats.run_seconds += 0.25
        return result


@dataclass
class Node:
    """A node in this process, and a session to speak to it."""

    url: str
    runner: Obedient
    stop: asyncio.Event
    announced: list[str]
    task: asyncio.Task[None]
    session: aiohttp.ClientSession

    def post(self, *calls: dict[str, Any]) -> Any:
        return self.session.post(f"{self.url}/run", data=json.dumps({"calls": calls}))

    async def answers(self, *calls: dict[str, Any]) -> dict[Any, Any]:
        async with self.post(*calls) as response:
            assert response.status == 200, await response.text()
            lines = [json.loads(line) for line in (await response.read()).splitlines() if line]
        assert len(lines) == len(calls)
        return {line.pop("id"): line for line in lines}

    async def get(self, page: str) -> tuple[int, str]:
        async with self.session.get(self.url + page) as response:
            return response.status, await response.text()


@asynccontextmanager
async def node(runner: Obedient | None = None, **listening: Any) -> AsyncIterator[Node]:
    runner, stop, announced = runner or Obedient(), asyncio.Event(), []
    how = Listening(**{"port": 0, "drain_seconds": 5, **listening})
    task = asyncio.create_task(serve_until(stop, runner, how, announced.append))
    await until(lambda: announced or task.done())
    url = announced[0].split()[1].rstrip(",")
    async with aiohttp.ClientSession() as session:
        try:
            yield Node(url, runner, stop, announced, task, session)
        finally:
            runner.gate.set()
            stop.set()
            await task


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def call(number: int, code: Any = "say", **more: Any) -> dict[str, Any]:
    return {"id": number, "code": code, **more}


# --- a batch ------------------------------------------------------------------------------


@in_loop
async def test_a_line_arrives_when_its_call_ends_not_when_the_batch_does() -> None:
    async with node() as it, it.post(call(0, "hold"), call(1, "say")) as response:
        first = json.loads(await response.content.readline())
        assert (first["id"], first["result"]["stdout"]) == (1, "say")
        it.runner.gate.set()
        assert json.loads(await response.content.readline())["id"] == 0
        assert await response.content.read() == b""


@in_loop
async def test_lines_that_are_ready_together_are_one_write() -> None:
    async with node() as it, it.post(*(call(n) for n in range(64))) as response:
        writes = [data async for data, _ in response.content.iter_chunks() if data]
    assert [write.count(b"\n") for write in writes] == [64]


@in_loop
async def test_a_call_passes_its_stdin_and_timeout_and_may_have_a_name_for_id() -> None:
    async with node() as it:
        answers = await it.answers(call(0, stdin=" 42", timeout=3), {"id": "b", "code": "say"})
    assert answers[0]["result"]["stdout"] == "say 42"
    assert answers[0]["result"]["duration"] == 3
    assert answers["b"]["result"]["duration"] == SandboxLimits().timeout


BAD_CALLS = {
    "no code": ({}, "code is NoneType"),
    "code that is no string": ({"code": 7}, "code is int"),
    "ten megabytes": ({"code": "x" * 10_000_000}, "10000000 characters"),
    "stdin that is no string": ({"code": "say", "stdin": ["1"]}, "stdin is list"),
    "a negative timeout": ({"code": "say", "timeout": -1}, "timeout is -1"),
    "a timeout that is no number": ({"code": "say", "timeout": float("nan")}, "timeout is nan"),
    "no end": ({"code": "say", "timeout": float("inf")}, "timeout is inf"),
    "a timeout that is a text": ({"code": "say", "timeout": "5"}, "timeout is '5'"),
    "a timeout that is a truth": ({"code": "say", "timeout": True}, "timeout is True"),
}


@in_loop
async def test_a_bad_call_is_told_and_hurts_no_neighbour() -> None:
    names = list(BAD_CALLS)
    bad = [{"id": name, **BAD_CALLS[name][0]} for name in names]
    async with node() as it:
        answers = await it.answers(call(0), *bad, call(1, "lose"), call(2, "defect"), call(3))
    assert answers[0]["result"]["stdout"] == answers[3]["result"]["stdout"] == "say"
    for name in names:
        assert answers[name]["error"]["kind"] == "bad_call", name
        assert BAD_CALLS[name][1] in answers[name]["error"]["message"]
    for lost, reason in ((1, "the zygote died four times"), (2, "a mistake in the runner")):
        assert answers[lost]["error"]["kind"] == "unavailable"
        assert reason in answers[lost]["error"]["message"]


@pytest.mark.parametrize(
    "code", ["say '\ud800'", "say \udfff", "say a\0b", "say é漢🂡", "say\r\n\ufeff"]
)
@in_loop
async def test_any_text_travels_both_ways(code: str) -> None:
    async with node() as it:
        answers = await it.answers(call(0, code), call(1))
    assert answers[0]["result"]["stdout"] == code
    assert answers[1]["result"]["stdout"] == "say"


REFUSED_BODIES = {
    "nothing": (b"", "not JSON"),
    "half a batch": (b'{"calls": [{"id": 0', "not JSON"),
    "no UTF-8": (b"\xff\xfe\xff", "not JSON"),
    "a hundred thousand brackets": (b"[" * 100_000, "not JSON"),
    "no calls": (b'{"calls": []}', "length >= 1"),
    "an object without calls": (b"{}", "missing required field `calls`"),
    "a call that is a number": (b'{"calls": [1]}', "$.calls[0]"),
    "a call without id": (b'{"calls": [{"code": "say"}]}', "missing required field `id`"),
    "a misspelt field": (b'{"calls": [{"id": 0, "timeuot": 1}]}', "unknown field `timeuot`"),
    "the same id twice": (json.dumps({"calls": [call(0), call(0)]}).encode(), "the same id"),
    "65 calls": (json.dumps({"calls": [call(n) for n in range(65)]}).encode(), "length <= 64"),
}


@pytest.mark.parametrize("name", REFUSED_BODIES)
@in_loop
async def test_what_is_no_batch_is_refused_and_told_how_to_write_one(name: str) -> None:
    body, reason = REFUSED_BODIES[name]
    async with node() as it, it.session.post(f"{it.url}/run", data=body) as response:
        assert (response.status, response.content_type) == (400, "application/json")
        error = (await response.json())["error"]
    assert reason in error
    assert '{"calls": [{"id": 0, "code": "print(1)"}]} with 1 to 64 calls' in error
    assert it.runner.started == []


@in_loop
async def test_a_body_that_is_too_long_is_refused() -> None:
    body = io.BytesIO(b" " * (m.BODY_BYTES + 1))
    async with node() as it, it.session.post(f"{it.url}/run", data=body) as response:
        assert response.status == 413
        assert "send fewer calls" in (await response.json())["error"]


@in_loop
async def test_another_page_or_method_is_told_which_there_are() -> None:
    async with node() as it:
        assert await it.get("/") == (
            404,
            '{"error":"no GET / here: there are POST /run, GET /health and GET /metrics"}',
        )
        assert (await it.get("/run"))[0] == 405


@in_loop
async def test_a_web_page_may_not_run_programs() -> None:
    headers = {"Origin": "http://example.org"}
    async with node() as it, it.session.post(f"{it.url}/run", headers=headers) as response:
        assert response.status == 403
        assert "web page" in (await response.json())["error"]


# --- the queue, and clients that go away --------------------------------------------------


@in_loop
async def test_a_batch_that_the_queue_cannot_hold_is_sent_back_and_one_that_fits_is_not() -> None:
    async with node(queue=64) as it:
        async with it.post(*(call(n, "hold") for n in range(60))) as held:
            async with it.post(*(call(n) for n in range(9))) as response:
                assert response.status == 429
                assert int(response.headers["Retry-After"]) >= 1
                assert "queue of 64 calls is full" in (await response.json())["error"]
            assert len(await it.answers(*(call(n) for n in range(8)))) == 8
            it.runner.gate.set()
            assert (await held.read()).count(b"\n") == 60
        assert len(await it.answers(*(call(n) for n in range(64)))) == 64
        assert "rstar2_sandbox_refused_calls_total 9.0" in (await it.get("/metrics"))[1]


@given(excess=st.integers(1, 10_000), rate=st.floats(0, 1e6))
def test_the_time_to_come_back_is_whole_and_what_the_rate_needs(excess: int, rate: float) -> None:
    seconds = retry_after(excess, rate)
    assert 1 <= seconds <= 60
    assert seconds == 60 or rate == 0 or seconds * rate >= excess * 0.999


def test_the_time_to_come_back_follows_the_rate() -> None:
    assert [retry_after(100, rate) for rate in (0.0, 1000.0, 50.0, 7.0, 0.5)] == [1, 1, 2, 15, 60]


@in_loop
async def test_a_client_that_goes_away_cancels_its_calls_and_no_others() -> None:
    async with node(queue=64) as it:
        async with it.post(call(0, "hold mine")) as mine:
            gone = [call(n, "hold gone") for n in range(10)]
            async with it.post(*gone, call(10)) as response:
                await response.content.readline()
            await until(lambda: len(it.runner.cancelled) == 10)
            assert it.runner.cancelled == ["hold gone"] * 10
            it.runner.gate.set()
            assert b"hold mine" in await mine.read()
        # The calls of a client that is gone are not counted as waiting for ever.
        assert len(await it.answers(*(call(n) for n in range(64)))) == 64


@in_loop
async def test_a_batch_that_waits_shows_that_the_node_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rstar2.sandbox.server.BEAT_SECONDS", 0.05)
    async with node() as it, it.post(call(0, "hold")) as response:
        assert await response.content.readline() == b"\n"
        it.runner.gate.set()
        assert m.decode_answers(await response.content.read())[0].result is not None


# --- health, metrics, the end -------------------------------------------------------------


@in_loop
async def test_health_names_the_rung_and_the_counts() -> None:
    async with node(queue=99) as it:
        status, page = await it.get("/health")
    assert status == 200
    assert json.loads(page) == {
        "status": "ok",
        "rung": "none",
        "slots": 4,
        "running": 0,
        "waiting": 0,
        "queue": 99,
    }


@in_loop
async def test_metrics_are_those_of_this_node_alone() -> None:
    async with node(queue=99) as it, node() as other:
        await it.answers(call(0), call(1), call(2, 5), call(3, "lose"))
        pages = [await which.get("/metrics") for which in (it, other)]
    found = [
        {
            (sample.name.removeprefix("rstar2_sandbox_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        for _, page in pages
    ]
    assert found[0] == {
        ("calls_total", "ok"): 2,
        ("calls_total", "error"): 0,
        ("calls_total", "timeout"): 0,
        ("faults_total", "bad_call"): 1,
        ("faults_total", "unavailable"): 1,
        ("queue_seconds_total",): 0,
        ("run_seconds_total",): 0.5,
        ("cpu_seconds_total",): 0,
        ("retries_total",): 0,
        ("zygotes_started_total",): 0,
        ("refused_calls_total",): 0,
        ("waiting",): 0,
        ("running",): 0,
        ("slots",): 4,
        ("queue",): 99,
    }
    assert found[1]["calls_total", "ok"] == 0


@in_loop
async def test_a_node_that_stops_refuses_calls_and_finishes_those_it_has() -> None:
    async with node() as it, it.post(call(0, "hold")) as held:
        it.stop.set()
        await until(lambda: len(it.announced) == 2)
        assert it.announced[1] == "draining: 1 calls left, at most 5 s"
        status, page = await it.get("/health")
        assert (status, json.loads(page)["status"]) == (503, "draining")
        async with it.post(call(1)) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "use another" in (await response.json())["error"]
        it.runner.gate.set()
        assert b"hold" in await held.read()
        await it.task


@in_loop
async def test_a_node_that_stops_waits_no_longer_than_it_was_told() -> None:
    async with node(drain_seconds=0.1) as it, it.post(call(0, "hold")) as held:
        it.stop.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await held.read()
        await it.task
        assert it.runner.cancelled == ["hold"]


# --- who may reach it ---------------------------------------------------------------------


@in_loop
async def test_with_a_token_only_health_is_open() -> None:
    async with node(token="secret") as it:
        for shown in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer sécret"}):
            async with it.session.post(f"{it.url}/run", data="{}", headers=shown) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert "Authorization: Bearer TOKEN" in (await response.json())["error"]
        assert (await it.get("/metrics"))[0] == 401
        assert (await it.get("/health"))[0] == 200
        it.session.headers["Authorization"] = "Bearer secret"
        assert (await it.answers(call(0)))[0]["result"]["stdout"] == "say"
        assert (await it.get("/metrics"))[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "node.example.org", "127.1"])
def test_only_loopback_is_listened_on_without_a_token(host: str) -> None:
    with pytest.raises(ServeError, match=r"--token-file .* or listen on 127\.0\.0\.1"):
        Listening(host=host)
    Listening(host=host, token="secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    Listening(host=host)


@pytest.mark.parametrize("token", ["", "two words", "two\nlines", "sécret", "\x7f"])
def test_a_token_is_one_word(token: str) -> None:
    with pytest.raises(ServeError, match="not one word"):
        Listening(token=token)


def test_the_token_comes_from_the_file_else_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-environment")
    assert read_token(None) == "of-the-environment"
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    assert read_token(file) == "of-the-file"


# --- the wire -----------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=()))


def as_json_has_it(text: str) -> str:
    """A high surrogate before a low one is the character that the two stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@given(codes=st.lists(ANY_TEXT, min_size=1, max_size=5), timeout=st.none() | st.floats(1e-3, 1e6))
def test_calls_arrive_as_they_were_sent(codes: list[str], timeout: float | None) -> None:
    body = m.encode_batch(m.Call(n, c, c, timeout) for n, c in enumerate(codes))
    expected = [
        m.Call(n, as_json_has_it(c), as_json_has_it(c), timeout) for n, c in enumerate(codes)
    ]
    assert m.decode_batch(body) == expected


RESULTS = st.builds(
    ToolResult,
    status=st.sampled_from(RunStatus),
    stdout=ANY_TEXT,
    stderr=ANY_TEXT,
    value=ANY_TEXT,
    error_type=ANY_TEXT,
    duration=st.floats(0, 1e9),
    cpu=st.floats(0, 1e9),
    truncated=st.booleans(),
)


@given(results=st.lists(RESULTS, max_size=4), cuts=st.lists(st.integers(0, 2000), max_size=5))
def test_results_arrive_as_they_were_sent_wherever_the_stream_is_cut(
    results: list[ToolResult], cuts: list[int]
) -> None:
    stream = b"\n".join([*(m.encode(m.Answer(n, r)) for n, r in enumerate(results)), b"", b""])
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    async def chunks() -> AsyncIterator[bytes]:
        for start, end in itertools.pairwise(places):
            yield stream[start:end]

    async def read() -> list[m.Answer]:
        return [answer async for some in m.read_answers(chunks()) for answer in some]

    for answer, result in zip(asyncio.run(read()), results, strict=True):
        assert answer.result is not None
        assert answer.result.stdout == as_json_has_it(result.stdout)
        assert answer.result.duration == result.duration
        assert answer.result.status is result.status


@in_loop
async def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 20
            yield b"x" * (1 << 20)

    with pytest.raises(m.MessageError, match="longer than 8388608 bytes"):
        async for _ in m.read_answers(endless()):
            pass
    assert sent <= m.LINE_BYTES + (1 << 20)


# --- the command --------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from rstar2.cli import main; main()", "sandbox", "serve"]


def refused(*options: str) -> str:
    """What the command says when it cannot serve."""
    environment = {k: v for k, v in os.environ.items() if k != TOKEN_VARIABLE}
    command = [*COMMAND, "--tiers", "bare", *options]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("rstar2: ")
    assert answer.stderr.count("\n") == 1
    return answer.stderr


def test_what_keeps_the_command_from_serving_is_one_line(tmp_path: Path) -> None:
    assert "give --token-file" in refused("--host", "0.0.0.0")
    assert "cannot read the token file" in refused("--token-file", str(tmp_path / "none"))
    assert "is not a file system of its own" in refused("--scratch", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        in_use = f"cannot listen on 127.0.0.1 port {port} (Address already in use)"
        assert in_use in refused("--port", str(port))


@contextmanager
def served(*options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The real command in front of the real sandbox; its address."""
    command = [*COMMAND, "--port", "0", "--tiers", "bare", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            assert ready.startswith("rstar2 sandbox ready: http://127.0.0.1:"), ready
            yield process, ready.split()[3].rstrip(",")
        finally:
            process.kill()


def ask(url: str, token: str, *calls: dict[str, Any]) -> Any:
    body = json.dumps({"calls": calls}).encode()
    headers = {"Authorization": f"Bearer {token}"}
    return urllib.request.urlopen(urllib.request.Request(f"{url}/run", body, headers), timeout=20)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
def test_the_command_runs_programs_and_ends_in_good_order(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with served("--slots", "2", "--token-file", str(token)) as (process, url):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(url, "wrong", call(0))
        programs = ("print(6 * 7)", "print('\ud800')", "a\0b", "1/0", 5)
        with ask(url, "secret", *(call(n, code) for n, code in enumerate(programs))) as response:
            lines = {line["id"]: line for line in map(json.loads, response)}
        assert lines[0]["result"]["stdout"] == "42\n"
        assert [lines[n]["result"]["status"] for n in range(4)] == ["ok", "error", "error", "error"]
        assert lines[3]["result"]["error_type"] == "ZeroDivisionError"
        assert lines[4]["error"]["kind"] == "bad_call"

        waits = call(0, "print('begun', flush=True)\nimport time; time.sleep(1); print('done')")
        with ask(url, "secret", waits) as response:  # the headers are here: it was taken
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            assert process.stdout.readline().startswith("rstar2 sandbox draining: 1 calls left")
            assert json.loads(response.readline())["result"]["stdout"] == "begun\ndone\n"
        assert process.wait(20) == 0


# --- what it costs ------------------------------------------------------------------------


def test_the_benchmark_measures_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    http = importlib.import_module("benchmarks.sandbox.http")
    monkeypatch.setattr(http, "REQUESTS_A_ROUND", 10)
    figures = asyncio.run(http.transport(rounds=1))
    ends = [figures.pop(f"http_{end}_cpu_ms_batch32") for end in ("client", "server")]
    assert figures.pop("http_cpu_ms_batch32") == max(ends)
    assert sorted(figures) == [
        f"http_{end}_cpu_ms_batch{n}" for end in ("client", "server") for n in (1, 8)
    ]
    assert min(*figures.values(), *ends) > 0
