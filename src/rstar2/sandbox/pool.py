"""The caller's side: slots in order of arrival, retries, and the rung that is in force."""

import asyncio
import os
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.backend import Backend
from rstar2.sandbox.cold import run_cold
from rstar2.sandbox.filter import compile_filter
from rstar2.sandbox.limits import (
    Rung,
    SandboxLimits,
    SandboxUnavailable,
    SandboxUnsupported,
    Tier,
)
from rstar2.sandbox.process import ZygoteLost
from rstar2.sandbox.result import Reply, was_killed
from rstar2.sandbox.session import Attempt, Session
from rstar2.sandbox.state import Isolation, SandboxStats
from rstar2.sandbox.turns import Turns

_RETRIES = 3
_SLOTS_PER_CPU = 2
_CLOSED = "the sandbox is closed: use `async with Sandbox() as sandbox`"


class Sandbox:
    """Runs Python programs, several at once, each in a fresh process behind walls.

    Use it as ``async with Sandbox(limits) as sandbox``; it belongs to the event loop that
    entered it and to that loop's thread. Calls beyond the slots wait in order, at little
    cost: their descriptors are made when their turn comes. Linux only.

    Args:
        limits: What one call may use.
        slots: Calls in flight; by default two per CPU that this process may use.
        isolation: The rung; by default the strongest that this machine allows. ``none``
            must be asked for by name.
        tiers: Which kinds of warm interpreter there may be; each is started when a program
            needs it. A call goes to the smallest that has loaded what it imports.
        scratch: Where programs may write on rung ``portable``: a file system of its own,
            of limited size, for what they write is not limited otherwise. Without one
            they cannot write there. The other rungs have scratch space by themselves.
    """

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        *,
        slots: int | None = None,
        isolation: Rung | str | None = None,
        tiers: Collection[Tier] = tuple(Tier),
        scratch: Path | None = None,
    ) -> None:
        if slots is not None and slots < 1:
            raise ValueError(f"Sandbox: slots is {slots}: it must be at least 1")
        if isolation is not None and isolation not in list(Rung):
            raise ValueError(
                f"Sandbox: isolation is {isolation!r}: it must be {', '.join(Rung)}, or None"
            )
        if not tiers or not all(tier in list(Tier) for tier in tiers):
            raise ValueError(f"Sandbox: tiers is {tiers!r}: name some of {', '.join(Tier)}")
        if scratch is not None and not os.path.ismount(scratch):
            raise ValueError(f"Sandbox: scratch {scratch} is not a file system of its own")
        self.limits = limits or SandboxLimits()
        self.slots = slots or _SLOTS_PER_CPU * _cpus()
        self._wanted = None if isolation is None else Rung(isolation)
        self._tiers = tuple(map(Tier, tiers))
        self._scratch = "" if scratch is None else str(scratch.resolve())
        self._entered = False
        self._backend: Backend | None = None
        self._isolation: Isolation | None = None
        self._turns = Turns(self.slots)
        self._stats = SandboxStats()

    @property
    def isolation(self) -> Isolation:
        """The walls in force; known once the sandbox is entered."""
        if self._isolation is None:
            raise RuntimeError("Sandbox.isolation is known inside `async with Sandbox() as ...`")
        return self._isolation

    @property
    def zygote_pids(self) -> tuple[int, ...]:
        """The warm interpreters that live now."""
        return tuple(zygote.pid for zygote in self._backend.zygotes) if self._backend else ()

    @property
    def stats(self) -> SandboxStats:
        """Counts since it was entered; the object is live."""
        self._stats.submitted = self._turns.asked
        self._stats.queue_seconds = self._turns.seconds
        self._stats.waiting = self._turns.waiting
        self._stats.running = self.slots - self._turns.free
        if self._backend is not None:
            self._stats.zygotes_started = self._backend.started
        return self._stats

    async def __aenter__(self) -> Self:
        """Start the first zygote on the strongest rung that this machine allows.

        Raises:
            SandboxUnsupported: If there is none, or not the one that was asked for.
            SandboxUnavailable: If the zygote does not come up.
            RuntimeError: If it is entered already.
        """
        if self._entered:
            raise RuntimeError("this sandbox is entered already: make another")
        self._stats, self._turns = SandboxStats(), Turns(self.slots)
        if sys.platform != "linux":
            self._isolation = self._without_walls()
        else:
            self._isolation = await self._climb()
        self._entered = True
        return self

    async def _climb(self) -> Isolation:
        program = b"" if self._wanted is Rung.NONE else compile_filter()
        refused: dict[Rung, str] = {}
        for rung in (Rung.STRICT, Rung.PORTABLE) if self._wanted is None else (self._wanted,):
            backend = Backend(rung, self._tiers, self.limits, self.slots, self._scratch, program)
            try:
                layers = await backend.try_out()
            except PermissionError as error:
                await backend.close()
                refused[rung] = str(error)
            except BaseException:
                await backend.close()
                raise
            else:
                self._backend = backend
                return Isolation(rung, layers, refused)
        reasons = "; ".join(f"{rung}: {why}" for rung, why in refused.items())
        raise SandboxUnsupported(f"this machine does not allow the sandbox: {reasons}")

    def _without_walls(self) -> Isolation:
        if self._wanted is not Rung.NONE:
            raise SandboxUnsupported(
                f"this is {sys.platform}, which has no namespaces, Landlock, seccomp or memfd: use "
                'a Linux container, or Sandbox(isolation="none") for programs that you trust'
            )
        return Isolation(Rung.NONE, ("a fresh process per call",))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what still runs and remove what it wrote; calls that wait are told."""
        self._entered = False
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.close()

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ToolResult:
        """Run a program and say how it ended.

        Args:
            code: The program; any text, valid Python or not.
            stdin: Its standard input.
            timeout: Seconds of its own time, running or sleeping; ``limits.timeout`` by
                default.

        Returns:
            One of the four results (paper, section 2.1). It does not depend on how busy
            the machine is: waiting for a CPU does not count, and unseeded randomness repeats.

        Raises:
            SandboxUnavailable: If the sandbox, not the program, failed four times.
            BadCall: If the call itself is wrong.
        """
        code, stdin, seconds = self.limits.check(code, stdin, timeout)
        await self._turns.take()
        return await self._with_turn(lambda: self._run_once(code, stdin, seconds))

    def session(self) -> Session:
        """Programs that share their names; see ``rstar2.sandbox.session``.

        Raises:
            SandboxUnsupported: Not on Linux.
        """
        if sys.platform != "linux":
            raise SandboxUnsupported(f"sessions need Linux, this is {sys.platform}")
        return Session(self.limits, self._in_turn, self._living_backend)

    async def fork_floor(self, tier: Tier, count: int) -> float:
        """Seconds of a fork of that tier's zygote whose child does nothing: the least possible."""
        return await self._living_backend().fork_floor(tier, count)

    def _living_backend(self) -> Backend:
        if self._backend is None:
            raise SandboxUnavailable(_CLOSED)
        return self._backend

    async def _run_once(self, code: str, stdin: str, seconds: float) -> tuple[Reply, ToolResult]:
        if sys.platform != "linux":
            return await run_cold(code, stdin, seconds, self.limits)
        return await self._living_backend().run(code, stdin, seconds)

    async def _in_turn(self, attempt: Attempt) -> ToolResult:
        await self._turns.take()
        return await self._with_turn(attempt)

    async def _with_turn(self, attempt: Attempt) -> ToolResult:
        """Try until the sandbox, not the program, has done its part; then end the turn.

        A child that was killed from outside is tried once more; a second time it is the
        program's use of memory.

        Args:
            attempt: One try; raises ``ZygoteLost`` if it failed for the sandbox's sake.
        """
        try:
            return await self._try(attempt)
        finally:
            self._turns.give_back()

    async def _try(self, attempt: Attempt) -> ToolResult:
        suspected = False
        for number in range(_RETRIES + 1):
            if not self._entered:
                raise SandboxUnavailable(_CLOSED)
            try:
                reply, result = await attempt()
            except ZygoteLost as lost:
                reason = str(lost)
                await asyncio.sleep(0.02 * number)
            else:
                if suspected or not was_killed(reply):
                    self._count(result)
                    return result
                suspected, reason = True, "the program was killed from outside"
            self._stats.retries += 1
        if not self._entered:
            raise SandboxUnavailable(_CLOSED)
        raise SandboxUnavailable(f"the call failed {_RETRIES + 1} times, last: {reason}")

    def _count(self, result: ToolResult) -> None:
        self._stats.finished[result.status] += 1
        self._stats.run_seconds += result.duration
        self._stats.cpu_seconds += result.cpu


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
