"""A session: programs that share their names, as cells of a notebook do.

    async with sandbox.session() as session:
        await session.run("x = 6")
        result = await session.run("x * 7")     # value "42"

One jailed child lives as long as the session and is stopped between its cells. When it is
lost (a timeout, a crash, a dead zygote) the next ``run`` starts another and replays the
cells that had ended, which repeat what they did because nothing in a child is random. The
alternative, to replay every earlier cell at every call, is quadratic.

A cell's status comes from its own child, unlike that of ``Sandbox.run``: a program that
attacks the harness can pretend a cell of its own session to be over.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.calls import CallFiles
from rstar2.sandbox.limits import SandboxUnavailable
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.result import Reply
from rstar2.sandbox.wire import Ending, Request

if TYPE_CHECKING:
    from rstar2.sandbox.pool import Sandbox


@dataclass(frozen=True, slots=True)
class Cell:
    """A program that a session has run.

    Attributes:
        code: Its text.
        stdin: Its standard input.
        seconds: Its time limit.
    """

    code: str
    stdin: str
    seconds: float


class Session:
    """See the module; made by ``Sandbox.session``, to be used with ``async with``."""

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox
        self._cells: list[Cell] = []
        self._files = CallFiles("", "")
        self._zygote: ZygoteProcess | None = None
        self._number = 0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._files.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self._forget()
        self._files.__exit__(kind, error, trace)

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ToolResult:
        """Run a program after the earlier ones; arguments and result as of ``Sandbox.run``.

        A cell that ran to its end, with an error or without, is part of the session from
        then on. One that did not end (timeout, crash) is not: its effects are gone.

        Raises:
            SandboxUnavailable: If the sandbox failed, or earlier cells do not end as before.
            BadCall: If the call itself is wrong.
        """
        cell = Cell(*self._sandbox.limits.check(code, stdin, timeout))
        async with self._lock:
            await self._sandbox.turns.take()
            return await self._sandbox.with_turn(lambda: self._run(cell))

    async def _run(self, cell: Cell) -> tuple[Reply, ToolResult]:
        try:
            zygote = await self._living()
            reply = await self._ask(zygote, cell)
        except ZygoteLost:
            self._zygote = None
            raise
        except asyncio.CancelledError:
            self._forget()
            raise
        result = self._sandbox.judge(reply, self._files, zygote.home)
        if reply.ending is Ending.CELL_DONE:
            self._cells.append(cell)
        else:
            self._zygote = None
        return reply, result

    async def _living(self) -> ZygoteProcess:
        if self._zygote is not None and self._zygote.alive:
            return self._zygote
        zygote, self._number = await self._sandbox.lease_session()
        self._files.fill("", "")
        zygote.send(Request.SESSION, self._number, 0.0, self._files.handles)
        self._zygote = zygote
        for number, cell in enumerate(self._cells, 1):
            reply = await self._ask(zygote, cell)
            if reply.ending is not Ending.CELL_DONE:
                self._forget()
                raise SandboxUnavailable(
                    f"the session was lost, and its cell {number} does not end as it did before"
                )
        return zygote

    async def _ask(self, zygote: ZygoteProcess, cell: Cell) -> Reply:
        self._files.fill(cell.code, cell.stdin)
        patience = self._sandbox.patience(cell.seconds)
        reply = await zygote.call(Request.CELL, self._number, cell.seconds, [], patience)
        if reply.ending is Ending.NOT_STARTED:
            raise ZygoteLost(f"the session was not started: {self._files.fault()}")
        return reply

    def _forget(self) -> None:
        if self._zygote is not None and self._zygote.alive:
            self._zygote.send(Request.CANCEL, self._number)
        self._zygote = None
