"""The caller's side: slots in order of arrival, in front of zygotes that are replaced."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.calls import CallFiles
from rstar2.sandbox.cold import run_cold
from rstar2.sandbox.filter import compile_filter
from rstar2.sandbox.fleet import Fleet
from rstar2.sandbox.limits import (
    Rung,
    SandboxLimits,
    SandboxUnavailable,
    SandboxUnsupported,
    Tier,
)
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.result import Reply, Scrubber, was_killed
from rstar2.sandbox.session import Session
from rstar2.sandbox.state import Isolation, SandboxStats
from rstar2.sandbox.tiers import tier_for
from rstar2.sandbox.turns import Turns
from rstar2.sandbox.wire import Ending, Request, ZygoteConfig

_LOST_SECONDS = 60.0
_LOST_FACTOR = 20.0
_RETRIES = 3
_SLOTS_PER_CPU = 2


Attempt = Callable[[], Awaitable[tuple[Reply, ToolResult]]]


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
        if not tiers:
            raise ValueError("Sandbox: tiers is empty: name at least one")
        if scratch is not None and not os.path.ismount(scratch):
            raise ValueError(f"Sandbox: scratch {scratch} is not a file system of its own")
        self.limits = limits or SandboxLimits()
        self.slots = slots or _SLOTS_PER_CPU * _cpus()
        self._wanted = None if isolation is None else Rung(isolation)
        self._tiers = tuple(tiers)
        self._scratch = "" if scratch is None else str(scratch.resolve())
        self._scrub = Scrubber()
        self._isolation: Isolation | None = None
        self._fleets: dict[Tier, Fleet] = {}
        self.turns = Turns(self.slots)
        """Public for sessions."""
        self._number = 0
        self._open = False
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
        return tuple(z.pid for fleet in self._fleets.values() for z in fleet.members)

    @property
    def stats(self) -> SandboxStats:
        """Counts since it was entered; the object is live."""
        self._stats.submitted = self.turns.asked
        self._stats.queue_seconds = self.turns.seconds
        self._stats.waiting = self.turns.waiting
        self._stats.running = self.slots - self.turns.free
        self._stats.zygotes_started = sum(fleet.started for fleet in self._fleets.values())
        return self._stats

    async def __aenter__(self) -> Self:
        """Start the first zygote on the strongest rung that this machine allows.

        Raises:
            SandboxUnsupported: If there is none, or not the one that was asked for.
            SandboxUnavailable: If the zygote does not come up.
        """
        if sys.platform != "linux":
            return self._enter_cold()
        self._stats = SandboxStats()
        self.turns = Turns(self.slots)
        filter_program = b"" if self._wanted is Rung.NONE else compile_filter()
        rungs = (Rung.STRICT, Rung.PORTABLE) if self._wanted is None else (self._wanted,)
        refused: dict[Rung, str] = {}
        for rung in rungs:
            self._fleets = {tier: self._fleet(rung, tier, filter_program) for tier in self._tiers}
            try:
                zygote = await self._fleets[tier_for("", self._tiers)].pick()
            except PermissionError as error:
                refused[rung] = str(error)
            else:
                self._isolation = Isolation(rung, zygote.layers, refused)
                self._open = True
                return self
        self._fleets = {}
        reasons = "; ".join(f"{rung}: {why}" for rung, why in refused.items())
        raise SandboxUnsupported(f"this machine does not allow the sandbox: {reasons}")

    def _enter_cold(self) -> Self:
        if self._wanted is not Rung.NONE:
            raise SandboxUnsupported(
                f"this is {sys.platform}, which has no namespaces, Landlock, seccomp or memfd: use "
                'a Linux container, or Sandbox(isolation="none") for programs that you trust'
            )
        self._stats = SandboxStats()
        self.turns = Turns(self.slots)
        self._isolation = Isolation(Rung.NONE, ("a fresh process per call",))
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what still runs and remove what it wrote; calls that wait are told."""
        self._open = False
        fleets, self._fleets = self._fleets, {}
        for fleet in fleets.values():
            await fleet.close()

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
        await self.turns.take()
        return await self.with_turn(lambda: self._run_once(code, stdin, seconds))

    def session(self) -> Session:
        """Programs that share their names; see ``rstar2.sandbox.session``.

        Raises:
            SandboxUnsupported: Not on Linux.
        """
        if sys.platform != "linux":
            raise SandboxUnsupported(f"sessions need Linux, this is {sys.platform}")
        return Session(self)

    async def with_turn(self, attempt: Attempt) -> ToolResult:
        """Try until the sandbox, not the program, has done its part; then end the turn.

        A child that was killed from outside is tried once more; a second time it is the
        program's use of memory.

        Args:
            attempt: One try; raises ``ZygoteLost`` if it failed for the sandbox's sake.
        """
        try:
            return await self._try(attempt)
        finally:
            self.turns.give_back()

    async def _try(self, attempt: Attempt) -> ToolResult:
        suspected = False
        for number in range(_RETRIES + 1):
            if not self._open:
                raise SandboxUnavailable("the sandbox is closed: use `async with Sandbox() as ...`")
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
        raise SandboxUnavailable(f"the call failed {_RETRIES + 1} times, last: {reason}")

    def _count(self, result: ToolResult) -> None:
        self._stats.finished[result.status] += 1
        self._stats.run_seconds += result.duration
        self._stats.cpu_seconds += result.cpu

    async def _run_once(self, code: str, stdin: str, seconds: float) -> tuple[Reply, ToolResult]:
        if sys.platform != "linux":
            with CallFiles(code, stdin) as files:
                reply = await run_cold(files.handles, seconds, self.limits)
                return reply, self.judge(reply, files, "/nowhere")
        zygote = await self._fleets[tier_for(code, self._tiers)].pick()
        with CallFiles(code, stdin) as files:
            patience = self.patience(seconds)
            reply = await zygote.call(
                Request.RUN, self._next_number(), seconds, files.handles, patience
            )
            if reply.ending is Ending.NOT_STARTED:
                raise ZygoteLost(f"the program was not started: {files.fault()}")
            return reply, self.judge(reply, files, zygote.home)

    def judge(self, reply: Reply, files: CallFiles, scratch: str) -> ToolResult:
        """The result of a program that has ended."""
        return files.result(reply, self.limits.output_bytes, self._scrub, scratch)

    def patience(self, seconds: float) -> float:
        """After how long a silent zygote is taken for lost."""
        return _LOST_FACTOR * seconds + _LOST_SECONDS

    async def lease_session(self) -> tuple[ZygoteProcess, int]:
        """A zygote with everything loaded, and a number for a session there."""
        largest = max(self._tiers, key=list(Tier).index)
        return await self._fleets[largest].pick(), self._next_number()

    async def fork_floor(self, tier: Tier, count: int) -> float:
        """Seconds of a fork of that tier's zygote whose child does nothing: the least possible."""
        zygote = await self._fleets[tier].pick()
        reply = await zygote.call(Request.FORK_FLOOR, self._next_number(), count, [], 60.0 + count)
        return reply.wall_seconds

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _fleet(self, rung: Rung, tier: Tier, filter_program: bytes) -> Fleet:
        limits = self.limits
        config = ZygoteConfig(
            rung=rung,
            tier=tier,
            home="",
            scratch=self._scratch if rung is Rung.PORTABLE else "",
            scratch_bytes=limits.scratch_mib << 20,
            memory_bytes=limits.memory_mib << 20,
            file_bytes=limits.file_mib << 20,
            open_files=limits.open_files,
            threads=limits.threads,
            output_bytes=limits.output_bytes,
            filter=filter_program.hex() if rung is not Rung.NONE else "",
        )
        return Fleet(config, most=min(self.slots, _cpus()))


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
