"""A session: programs that share their names, as cells of a notebook do.

    async with sandbox.session() as session:
        await session.run("x = 6")
        result = await session.run("x * 7")     # value "42"

One jailed child lives as long as the session and is stopped between its cells. When it is
lost (a timeout, a crash, a dead zygote) the next ``run`` starts another and replays the
cells that had ended. They repeat what they did, random numbers included, except for what
they read from a clock. The alternative, to replay every earlier cell at every call, is
quadratic.

A cell's status comes from its own child, unlike that of ``Sandbox.run``: a program that
attacks the harness can pretend a cell of its own session to be over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.backend import Backend
from rstar2.sandbox.calls import CallFiles
from rstar2.sandbox.limits import SandboxLimits, SandboxUnavailable
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.result import Reply
from rstar2.sandbox.wire import Ending, Request

Attempt = Callable[[], Awaitable[tuple[Reply, ToolResult]]]
"""One try to run a program; raises ``ZygoteLost`` if it failed for the sandbox's sake."""


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
    """See the module; made by ``Sandbox.session``, to be used with ``async with``.

    Args:
        limits: Of a cell.
        in_turn: Waits for a slot and makes attempts until one has a result.
        backend: Gives the zygotes; raises ``SandboxUnavailable`` when the sandbox is closed.
    """

    def __init__(
        self,
        limits: SandboxLimits,
        in_turn: Callable[[Attempt], Awaitable[ToolResult]],
        backend: Callable[[], Backend],
    ) -> None:
        self._limits = limits
        self._in_turn = in_turn
        self._backend = backend
        self._cells: list[Cell] = []
        self._files: CallFiles | None = None
        self._zygote: ZygoteProcess | None = None
        self._number = 0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open it; its child is started with the first cell.

        Raises:
            SandboxUnavailable: If the machine has no descriptors left.
        """
        try:
            self._files = CallFiles("", "").__enter__()
        except ZygoteLost as lost:
            raise SandboxUnavailable(str(lost)) from lost
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child; a cell that runs is killed and its caller told."""
        files, self._files = self._files, None
        self._forget()
        async with self._lock:
            if files is not None:
                files.__exit__(kind, error, trace)

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ToolResult:
        """Run a program after the earlier ones; arguments and result as of ``Sandbox.run``.

        A cell that ran to its end, with an error or without, is part of the session from
        then on. One that did not end (timeout, crash) is not: its effects are gone.

        Raises:
            SandboxUnavailable: If the sandbox failed or the session is closed, or if earlier
                cells do not end as before.
            BadCall: If the call itself is wrong.
        """
        cell = Cell(*self._limits.check(code, stdin, timeout))
        async with self._lock:
            return await self._in_turn(lambda: self._run(cell))

    async def _run(self, cell: Cell) -> tuple[Reply, ToolResult]:
        files = self._open_files()
        try:
            zygote = await self._living(files)
            reply = await self._ask(zygote, files, cell)
        except ZygoteLost:
            self._lose()
            raise
        except asyncio.CancelledError:
            self._forget()
            raise
        self._open_files()
        result = self._backend().judge(reply, files, zygote)
        if reply.ending is Ending.CELL_DONE:
            self._cells.append(cell)
        else:
            self._lose()
        return reply, result

    def _open_files(self) -> CallFiles:
        if self._files is None:
            raise SandboxUnavailable(
                "the session is closed: use `async with sandbox.session() as session`"
            )
        return self._files

    async def _living(self, files: CallFiles) -> ZygoteProcess:
        if self._zygote is not None and self._zygote.alive:
            return self._zygote
        zygote = await self._backend().pick_largest()
        self._open_files()
        self._number = self._backend().next_number()
        files.fill("", "")
        zygote.send(Request.SESSION, self._number, 0.0, files.handles)
        zygote.sessions += 1
        self._zygote = zygote
        for number, cell in enumerate(self._cells, 1):
            reply = await self._ask(zygote, files, cell)
            if reply.ending is not Ending.CELL_DONE:
                self._lose()
                raise SandboxUnavailable(
                    f"the session was lost, and its cell {number} does not end as it did before"
                )
        return zygote

    async def _ask(self, zygote: ZygoteProcess, files: CallFiles, cell: Cell) -> Reply:
        files.fill(cell.code, cell.stdin)
        patience = self._backend().patience(cell.seconds)
        reply = await zygote.call(Request.CELL, self._number, cell.seconds, [], patience)
        if reply.ending is Ending.NOT_STARTED:
            raise ZygoteLost(f"the session was not started: {files.fault()}")
        return reply

    def _forget(self) -> None:
        """Have the child killed, if there is one."""
        zygote, number = self._zygote, self._number
        self._lose()
        if zygote is not None and zygote.alive:
            zygote.cancel(number)

    def _lose(self) -> None:
        if self._zygote is not None:
            self._zygote.sessions -= 1
        self._zygote = None
