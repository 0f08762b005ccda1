"""The sandbox of other machines: the same ``run``, over nodes that ``rstar2 sandbox serve`` makes.

    async with SandboxClient(["http://10.0.0.1:8750", "http://10.0.0.2:8750"]) as sandbox:
        result = await sandbox.run("print(6 * 7)", timeout=2.0)

Calls wait in order. Each turn of the event loop gives those that wait to nodes with room,
each to the less busy of two random ones, and sends what a node got as one request; nothing
is delayed for it. A result is delivered when its line arrives.

A call is sent again only when a node failed, never for what a program did; it then travels
alone, in case it is the reason. A node that fails three times in a row rests for a while,
twice as long each time, and then gets a few calls to prove itself.
"""

import asyncio
import io
import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.dispatch import FAILURES, Node, Pending, Request
from rstar2.sandbox.limits import BadCall, SandboxLimits, SandboxUnavailable
from rstar2.sandbox.messages import (
    Answer,
    Call,
    FaultKind,
    MessageError,
    NodeTrouble,
    encode_batch,
    read_answers,
    refusal,
)

_LARGE_BODY = 1 << 20
_TRIES = 4
"""Times that nodes which are well may lose the same call before its caller is told."""
_CONNECT_SECONDS = 5.0
_SILENT_SECONDS = 20.0
"""Without a byte from a node, which sends an empty line every 5 s, before it counts as lost."""
_REFUSAL_BYTES = 4096
_CLOSED = "the client is closed: use `async with SandboxClient(urls) as sandbox`"
_TICK = 0.001  # a timer may come early by the clock's resolution
_LIMITS = SandboxLimits()  # a node looks again at its own


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counts since the client was made.

    Attributes:
        retries: Calls that were taken back from a node to be sent again.
        ejections: Times that a node was sent to rest.
        waiting: Calls that no node has now.
        outstanding: Calls that each node has now, by its address.
    """

    retries: int
    ejections: int
    waiting: int
    outstanding: Mapping[str, int]


class SandboxClient:
    """Runs programs on sandbox nodes, many at once, from the event loop that entered it.

    Args:
        urls: Addresses of the nodes, as ``http://10.0.0.1:8750``.
        token: What the nodes ask for, if they do.
        per_node: Calls that a node has at most; further ones wait here, in order.
        patience: Seconds that a call waits while no node is well.

    Raises:
        ValueError: If an address is none, or a number is not positive.
    """

    def __init__(
        self,
        urls: Iterable[str],
        *,
        token: str | None = None,
        per_node: int = 256,
        patience: float = 60.0,
    ) -> None:
        if isinstance(urls, str):
            raise ValueError(f"SandboxClient: urls is the text {urls!r}: give a list of addresses")
        self._nodes = [Node(_checked(url)) for url in dict.fromkeys(urls)]
        if not self._nodes:
            raise ValueError("SandboxClient: there are no urls: give one at least")
        if per_node < 1 or not patience > 0:
            values = f"per_node is {per_node}, patience {patience}"
            raise ValueError(f"SandboxClient: {values}: both must be positive")
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._per_node = per_node
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None
        self._waiting: deque[Pending] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._next_look = 0.0
        self._out_since: float | None = None
        self._number = 0
        self._retries = 0
        self._ejections = 0

    @property
    def stats(self) -> ClientStats:
        """What happened so far, and what is going on."""
        outstanding = {node.url: node.outstanding for node in self._nodes}
        return ClientStats(self._retries, self._ejections, len(self._waiting), outstanding)

    async def __aenter__(self) -> "SandboxClient":
        """Gets ready; no node is spoken to before the first call."""
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS),
            headers=self._headers,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Gives up what is unfinished, here and on the nodes."""
        session, self._session = self._session, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for call in self._waiting:
            call.fail(SandboxUnavailable(_CLOSED))
        self._waiting.clear()
        if session is not None:
            await session.close()

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ToolResult:
        """Run a program on a node and say how it ended; as ``Sandbox.run``.

        Args:
            code: The program; any text, valid or not.
            stdin: Its standard input.
            timeout: Seconds of the program's own time; the node's default if None.

        Raises:
            BadCall: If the call cannot be run as it stands.
            SandboxUnavailable: If nodes lost it four times, or none was well for
                ``patience`` seconds, or a node does not admit this client.
        """
        code, stdin, seconds = _LIMITS.check(code, stdin, timeout)
        if self._session is None:
            raise SandboxUnavailable(_CLOSED)
        self._number += 1
        message = Call(self._number, code, stdin, None if timeout is None else seconds)
        answer: asyncio.Future[ToolResult] = self._loop.create_future()
        call = Pending(message, len(code) + len(stdin), answer, self._loop.time())
        self._waiting.append(call)
        self._schedule()
        try:
            return await answer
        except asyncio.CancelledError:
            request = call.request
            if request and request.task and all(o.answer.done() for o in request.calls.values()):
                request.task.cancel()  # nobody waits for the rest of it
            raise

    def _schedule(self) -> None:
        if not self._scheduled and self._waiting and self._session is not None:
            self._scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Gives the calls that wait to nodes that have room."""
        self._scheduled = False
        now = self._loop.time()
        room = {node: free for node in self._nodes if (free := node.room(now, self._per_node)) > 0}
        requests = {node: Request(node) for node in room}
        nodes = list(room)
        while self._waiting and nodes:
            call = self._waiting.popleft()
            if call.answer.done():  # its caller went away
                continue
            node = _less_busy(nodes)
            if not requests[node].has_room(call):
                self._send(requests[node])
                requests[node] = Request(node)
            requests[node].add(call)
            room[node] -= 1
            if not room[node]:
                nodes.remove(node)
        for request in requests.values():
            if request.calls:
                self._send(request)
        if self._out_since is not None:
            self._give_up(now, self._out_since)

    def _send(self, request: Request) -> None:
        request.task = task = self._loop.create_task(self._deliver(request))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._end(request, task))

    async def _deliver(self, request: Request) -> None:
        try:
            await self._exchange(request)
            return
        except SandboxUnavailable as error:  # another node, or another time, would not help
            for call in request.take_all():
                call.fail(SandboxUnavailable(f"{request.node.url} refused the calls with {error}"))
            return
        except NodeTrouble as error:
            trouble = error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            trouble = NodeTrouble(str(error), lost=False)
        except (aiohttp.ClientError, TimeoutError, MessageError) as error:
            trouble = NodeTrouble(str(error) or type(error).__name__)
        self._recover(request.node, request.take_all(), trouble)

    def _end(self, request: Request, task: asyncio.Task[None]) -> None:
        """Leaves no caller waiting, whatever ended the request."""
        self._tasks.discard(task)
        defect = None if task.cancelled() else task.exception()
        for call in request.take_all():
            call.fail(defect or SandboxUnavailable(_CLOSED))
        self._schedule()

    async def _exchange(self, request: Request) -> None:
        """Sends a request and delivers its answers as their lines come."""
        if self._session is None:  # closed meanwhile
            return
        body = encode_batch(call.call for call in request.calls.values())
        data = body if len(body) <= _LARGE_BODY else io.BytesIO(body)  # sent in pieces
        url = f"{request.node.url}/run"
        async with self._session.post(url, data=data, allow_redirects=False) as response:
            if response.status != 200:
                said = await response.content.read(_REFUSAL_BYTES)
                raise refusal(response.status, response.headers.get("Retry-After"), said)
            async for answers in read_answers(response.content.iter_any()):
                for answer in answers:
                    self._settle(request, answer)
        if request.calls:
            raise NodeTrouble(f"its answer ended without {len(request.calls)} of the calls")

    def _settle(self, request: Request, answer: Answer) -> None:
        result, fault = answer.result, answer.error
        if answer.id not in request.calls or (result is None) == (fault is None):
            raise NodeTrouble(f"its line for call {answer.id!r} is no answer")
        call = request.take(answer.id)
        if result is not None:
            self._is_well(request.node)
            if not call.answer.done():
                call.answer.set_result(result)
        elif fault is not None and fault.kind is FaultKind.BAD_CALL:
            call.fail(BadCall(fault.message))
        elif fault is not None:
            self._recover(request.node, [call], NodeTrouble(fault.message))
        self._schedule()

    def _is_well(self, node: Node) -> None:
        node.failures = 0
        self._out_since = None

    def _recover(self, node: Node, calls: list[Pending], trouble: NodeTrouble) -> None:
        """After a failure: the node may have to rest, the calls go to the head of the line."""
        now, rest = self._loop.time(), trouble.rest
        if not trouble.ill:
            self._is_well(node)
        elif now >= node.rests_until:  # else it failed in several places at once
            rest = max(rest, node.blame(str(trouble)))
            self._ejections += node.failures >= FAILURES
            if self._out_since is None and all(n.failures >= FAILURES for n in self._nodes):
                self._out_since = now
        if rest:
            node.rests_until = max(node.rests_until, now + rest)
            self._loop.call_at(node.rests_until + _TICK, self._schedule)
        for call in reversed(calls):
            call.tries += trouble.lost and node.failures < FAILURES
            if call.tries == _TRIES:
                reason = f"the call was lost {_TRIES} times, last by {node.url} ({trouble})"
                call.fail(SandboxUnavailable(reason))
            elif not call.answer.done():
                self._retries += 1
                self._waiting.appendleft(call)
        self._schedule()

    def _give_up(self, now: float, out_since: float) -> None:
        """Tells the callers who waited ``patience`` seconds while no node was well."""
        while self._waiting:
            due = max(self._waiting[0].since, out_since) + self._patience
            if due > now:
                if due != self._next_look:
                    self._next_look = due
                    self._loop.call_at(due + _TICK, self._schedule)
                return
            nodes = "; ".join(f"{node.url} ({node.reason})" for node in self._nodes)
            reason = f"no sandbox node was well for {self._patience:g} s: {nodes}"
            self._waiting.popleft().fail(SandboxUnavailable(reason))


def _less_busy(nodes: list[Node]) -> Node:
    """The less busy of two random nodes."""
    if len(nodes) == 1:
        return nodes[0]
    one, other = random.sample(nodes, 2)
    return one if one.outstanding <= other.outstanding else other


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"SandboxClient: {url!r} is no address: write it as http://host:8750")
    return url.rstrip("/")
