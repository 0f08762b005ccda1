"""A sandbox node: HTTP in front of one runner of programs.

    rstar2 sandbox serve --port 8750
    curl -d '{"calls": [{"id": 0, "code": "print(6 * 7)"}]}' http://127.0.0.1:8750/run

``POST /run`` streams the answers of a batch as its calls end (see ``messages``), ``GET
/health`` says whether the node takes calls, ``GET /metrics`` is for Prometheus. A batch that
would make more calls wait than the queue holds is refused with 429 and Retry-After. A client
that goes away cancels its calls. Once it is told to stop, the node refuses new calls with
503, finishes those it has, and ends.

Who may reach ``/run`` may run programs: the command listens on loopback only unless there is
a token, and a request from a web page is refused. ``/health`` needs no token.
"""

import asyncio
import hmac
import logging
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox.limits import BadCall, SandboxUnavailable
from rstar2.sandbox.messages import (
    BODY_BYTES,
    MAX_CALLS,
    Answer,
    Call,
    Fault,
    FaultKind,
    MessageError,
    Refusal,
    decode_batch,
    encode,
)
from rstar2.sandbox.state import Isolation, SandboxStats

BEAT_SECONDS = 5.0
"""Between two empty lines that tell a waiting client that the node is alive."""
_LONGEST_RETRY = 60
_LOG = logging.getLogger(__name__)


class Runner(Protocol):
    """What the node needs of a sandbox."""

    @property
    def slots(self) -> int:
        """Programs that run at once."""
        ...

    @property
    def isolation(self) -> Isolation:
        """The walls in force."""
        ...

    @property
    def stats(self) -> SandboxStats:
        """Its counts."""
        ...

    async def run(self, code: Any, stdin: Any = "", timeout: Any = None) -> ToolResult:
        """Checks and runs one program; raises ``BadCall`` and ``SandboxUnavailable``."""
        ...


class SandboxService:
    """The pages of a node.

    Args:
        runner: Runs the programs; entered already.
        queue: Calls that may wait beyond those that run; at least a whole batch.
        token: What clients must show, if anything.
    """

    def __init__(self, runner: Runner, *, queue: int = 1024, token: str | None = None) -> None:
        self._runner = runner
        self._queue = queue
        self._secret = None if token is None else f"Bearer {token}".encode()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._streams: dict[_Delivery, asyncio.Task[Any] | None] = {}
        self._unfinished = 0
        self._answered = 0
        self._per_second = 0.0
        self._refused = 0
        self._faults = dict.fromkeys(FaultKind, 0)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def application(self) -> web.Application:
        """The pages, for a server whose handlers are cancelled when the client goes away."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[self._guard])
        app.router.add_post("/run", self._run)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.cleanup_ctx.append(self._beating)
        return app

    def drain(self) -> int:
        """Refuse calls from now on; returns how many are unfinished."""
        self._draining = True
        return self._unfinished

    async def finish(self, seconds: float) -> None:
        """Wait until no call is unfinished; hang up on those that are after so many seconds."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            for stream in self._streams.values():
                if stream is not None:
                    stream.cancel()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/health" and not self._admits(request):
            said = "the token is missing or wrong: send `Authorization: Bearer TOKEN`"
            return _refusal(401, said, {"WWW-Authenticate": "Bearer"})
        if "Origin" in request.headers:
            return _refusal(403, "sent by a web page: this node is for programs")
        try:
            return await handler(request)
        except MessageError as error:
            said = f'{error}; send {{"calls": [{{"id": 0, "code": "print(1)"}}]}}'
            return _refusal(400, f"{said} with 1 to {MAX_CALLS} calls")
        except web.RequestPayloadError:
            return _refusal(400, "the body is not what its headers say: send plain JSON")
        except web.HTTPRequestEntityTooLarge:
            return _refusal(413, f"longer than {BODY_BYTES} bytes: send fewer calls at a time")
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
            said = "there are POST /run, GET /health and GET /metrics"
            return _refusal(error.status, f"no {request.method} {request.path} here: {said}")

    def _admits(self, request: web.Request) -> bool:
        if self._secret is None:
            return True
        shown = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        return hmac.compare_digest(shown, self._secret)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        calls = decode_batch(await request.read())
        if self._draining:
            return _refusal(503, "this node is stopping: use another", {"Retry-After": "1"})
        excess = self._unfinished + len(calls) - self._runner.slots - self._queue
        if excess > 0:
            self._refused += len(calls)
            wait = retry_after(excess, self._per_second)
            said = f"the queue of {self._queue} calls is full: come back in {wait} s"
            return _refusal(429, said, {"Retry-After": str(wait)})
        return await self._stream(request, calls)

    async def _stream(self, request: web.Request, calls: list[Call]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        delivery = _Delivery(len(calls))
        self._unfinished += len(calls)
        self._idle.clear()
        self._streams[delivery] = asyncio.current_task()
        tasks = [asyncio.create_task(self._answer(call, delivery)) for call in calls]
        try:
            await response.prepare(request)
            while delivery.left:
                lines = await delivery.take()
                await (response.write(lines) if delivery.left else response.write_eof(lines))
            return response
        finally:  # the client may have gone away
            for task in tasks:
                task.cancel()
            del self._streams[delivery]
            self._settle(delivery.left)

    async def _answer(self, call: Call, delivery: "_Delivery") -> None:
        try:
            result = await self._runner.run(call.code, call.stdin, call.timeout)
            line = encode(Answer(call.id, result=result))
        except BadCall as error:
            line = self._fault(call, FaultKind.BAD_CALL, str(error))
        except SandboxUnavailable as error:
            line = self._fault(call, FaultKind.UNAVAILABLE, str(error))
        except Exception as error:
            _LOG.exception("a call failed by a defect of the node")
            line = self._fault(call, FaultKind.UNAVAILABLE, f"a defect of the node: {error!r}")
        delivery.put(line)
        self._settle(1)

    def _fault(self, call: Call, kind: FaultKind, message: str) -> bytes:
        self._faults[kind] += 1
        return encode(Answer(call.id, error=Fault(kind, message)))

    def _settle(self, count: int) -> None:
        self._unfinished -= count
        self._answered += count
        if not self._unfinished:
            self._idle.set()

    async def _beating(self, _: web.Application) -> AsyncIterator[None]:
        beat = asyncio.create_task(self._beat())
        yield
        beat.cancel()

    async def _beat(self) -> None:
        while True:
            before = self._answered
            await asyncio.sleep(BEAT_SECONDS)
            self._per_second = (self._answered - before) / BEAT_SECONDS
            for delivery in self._streams:
                delivery.beat()

    async def _health(self, _: web.Request) -> web.Response:
        stats = self._runner.stats
        page = {
            "status": "draining" if self._draining else "ok",
            "rung": self._runner.isolation.rung,
            "slots": self._runner.slots,
            "running": stats.running,
            "waiting": stats.waiting,
            "queue": self._queue,
        }
        return web.json_response(page, status=503 if self._draining else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment, for the registry of ``/metrics``."""
        name = "rstar2_sandbox_"
        stats = self._runner.stats
        finished = CounterMetricFamily(
            f"{name}calls", "Programs that ended, by how.", labels=["status"]
        )
        for status in RunStatus:
            finished.add_metric([status], stats.finished.get(status, 0))
        yield finished
        faults = CounterMetricFamily(f"{name}faults", "Calls without a result.", labels=["kind"])
        for kind, count in self._faults.items():
            faults.add_metric([kind], count)
        yield faults
        for key, text, total in (
            ("queue_seconds", "Time that calls waited for a slot.", stats.queue_seconds),
            ("run_seconds", "Time that programs took.", stats.run_seconds),
            ("cpu_seconds", "CPU time of programs.", stats.cpu_seconds),
            ("retries", "Runs that the sandbox, not the program, lost.", stats.retries),
            ("zygotes_started", "Interpreters that were warmed.", stats.zygotes_started),
            ("refused_calls", "Calls sent back because the queue was full.", self._refused),
        ):
            yield CounterMetricFamily(name + key, text, value=total)
        for key, text, now in (
            ("waiting", "Calls that wait for a slot.", stats.waiting),
            ("running", "Programs that run.", stats.running),
            ("slots", "Programs that may run at once.", self._runner.slots),
            ("queue", "Calls that may wait.", self._queue),
        ):
            yield GaugeMetricFamily(name + key, text, value=now)


class _Delivery:
    """The lines of one batch, on their way from its calls to the connection."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self._ready: list[bytes] = []
        self._news = asyncio.Event()

    def put(self, line: bytes) -> None:
        """The answer of one call."""
        self.left -= 1
        self._ready.append(line)
        self._news.set()

    def beat(self) -> None:
        """A sign of life."""
        self._ready.append(b"")
        self._news.set()

    async def take(self) -> bytes:
        """All lines that are ready, one at least."""
        await self._news.wait()
        self._news.clear()
        self._ready.append(b"")  # the last line ends too
        lines = b"\n".join(self._ready)
        self._ready.clear()
        return lines


def retry_after(excess: int, per_second: float) -> int:
    """Seconds until a queue has room for ``excess`` more calls: whole, 1 to 60."""
    seconds = excess / per_second if per_second else 1.0
    return math.ceil(min(max(seconds, 1.0), _LONGEST_RETRY))


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    body = encode(Refusal(message))
    return web.Response(status=status, body=body, headers=headers, content_type="application/json")
