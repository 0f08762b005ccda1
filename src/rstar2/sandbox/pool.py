"""The caller's side: a pool of slots in front of one zygote that is replaced when it dies."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from types import TracebackType

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.limits import SandboxLimits, SandboxUnavailable, SandboxUnsupported
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.result import Scrubber, read_result, read_text
from rstar2.sandbox.wire import Ending, Rung, ZygoteConfig

_LOST_SECONDS = 60.0
_LOST_FACTOR = 10.0
_RETRIES = 3
_SLOTS_PER_CPU = 2
_SPARE_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Isolation:
    """How strongly programs are kept apart from this machine.

    Attributes:
        rung: The rung in force.
        limits_processes: Whether a program that forks without end is stopped by a limit
            of its own; if not, only the time limits stop it.
        refused: Why the stronger rung is not in force; empty if it is.
    """

    rung: Rung
    limits_processes: bool
    refused: str = ""

    def __str__(self) -> str:
        text = "limits: resource limits and no privileges; network and files stay in reach"
        if self.rung is Rung.NAMESPACES:
            text = "namespaces: no network, read-only root, own processes, resource limits"
        if not self.limits_processes:
            text += "; number of processes not limited"
        return f"{text} (namespaces refused: {self.refused})" if self.refused else text


class Sandbox:
    """Runs Python programs, several at once, each in a fresh process with limits.

    Use it as ``async with Sandbox(limits) as sandbox``; it belongs to the event loop that
    entered it and to that loop's thread. Calls beyond the slots wait in order. Linux only.

    Args:
        limits: What one call may use.
        slots: Calls in flight; by default two per CPU that this process may use.
    """

    def __init__(self, limits: SandboxLimits | None = None, *, slots: int | None = None) -> None:
        if slots is not None and slots < 1:
            raise ValueError(f"Sandbox: slots is {slots}: it must be at least 1")
        self.limits = limits or SandboxLimits()
        self._slots_wanted = slots
        self._scrub = Scrubber()
        self._isolation: Isolation | None = None
        self._home = ""
        self._number = 0
        self._zygote: ZygoteProcess | None = None

    @property
    def isolation(self) -> Isolation:
        """The walls in force; known once the sandbox is entered."""
        if self._isolation is None:
            raise RuntimeError("Sandbox.isolation is known inside `async with Sandbox() as ...`")
        return self._isolation

    async def __aenter__(self) -> "Sandbox":
        """Start the zygote on the strongest rung that this machine allows.

        Raises:
            SandboxUnsupported: If there is none.
            SandboxUnavailable: If the zygote does not come up.
        """
        if sys.platform != "linux":
            raise SandboxUnsupported(
                f"the sandbox needs Linux, this is {sys.platform}: use a Linux machine or container"
            )
        self._slots = self._slots_wanted or _SLOTS_PER_CPU * len(os.sched_getaffinity(0))
        self._free = asyncio.Semaphore(self._slots)
        self._respawning = asyncio.Lock()
        self._home = tempfile.mkdtemp(prefix="rstar2-sandbox-")
        try:
            self._isolation = await self._climb()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what still runs and remove what it wrote."""
        await self._leave()

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ToolResult:
        """Run a program and say how it ended.

        Args:
            code: The program; any text, valid or not.
            stdin: Its standard input.
            timeout: CPU seconds; ``limits.cpu_seconds`` by default.

        Returns:
            One of the four results (paper, section 2.1). It does not depend on how busy
            the machine is: only CPU time counts, and unseeded randomness repeats.

        Raises:
            SandboxUnavailable: If the sandbox, not the program, failed four times.
            ValueError: If ``timeout`` is not positive.
        """
        seconds = self.limits.cpu_seconds if timeout is None else timeout
        if not seconds > 0:
            raise ValueError(f"Sandbox.run: timeout is {seconds}: it must be positive")
        if not self._home:
            raise SandboxUnavailable("the sandbox is closed: use `async with Sandbox() as sandbox`")
        async with self._free:
            for attempt in range(_RETRIES + 1):
                try:
                    return await self._run_once(code, stdin, seconds)
                except ZygoteLost as lost:
                    reason = str(lost)
                    await asyncio.sleep(0.02 * attempt)
        raise SandboxUnavailable(f"the call failed {_RETRIES + 1} times, last: {reason}")

    async def _run_once(self, code: str, stdin: str, seconds: float) -> ToolResult:
        zygote = await self._living_zygote()
        self._number += 1
        number = self._number
        patience = _LOST_FACTOR * self.limits.wall_factor * seconds + _LOST_SECONDS
        with contextlib.ExitStack() as stack:
            handles = [
                _memory_file(stack, code.encode("utf-8", "surrogatepass")),
                _memory_file(stack, stdin.encode("utf-8", "surrogatepass")),
                _memory_file(stack, b""),
                _memory_file(stack, b""),
            ]
            reply = await zygote.call(number, seconds, handles, patience)
            _, _, stdout, report = handles
            if reply.ending is Ending.NOT_STARTED:
                raise ZygoteLost(f"the program was not started: {read_text(report)}")
            scratch = f"{zygote.scratch}/{number}"
            return read_result(
                reply, stdout, report, self.limits.output_bytes, self._scrub, scratch
            )

    async def _living_zygote(self) -> ZygoteProcess:
        async with self._respawning:
            if self._zygote is None or not self._zygote.alive:
                if not self._home:
                    raise SandboxUnavailable("the sandbox was closed while a call waited")
                self._zygote = await ZygoteProcess.start(self._config(self.isolation.rung))
            return self._zygote

    async def _climb(self) -> Isolation:
        refused: dict[Rung, str] = {}
        for rung in (Rung.NAMESPACES, Rung.LIMITS):
            try:
                self._zygote = zygote = await ZygoteProcess.start(self._config(rung))
            except PermissionError as error:
                refused[rung] = str(error)
            else:
                return Isolation(rung, zygote.limits_processes, refused.get(Rung.NAMESPACES, ""))
        raise SandboxUnsupported(f"this machine allows no sandbox: {refused[Rung.LIMITS]}")

    def _config(self, rung: Rung) -> ZygoteConfig:
        limits = self.limits
        return ZygoteConfig(
            rung=rung,
            home=self._home,
            scratch_bytes=self._slots * limits.file_mib << 20,
            memory_bytes=limits.memory_mib << 20,
            file_bytes=limits.file_mib << 20,
            open_files=limits.open_files,
            processes=self._slots * limits.processes + _SPARE_PROCESSES,
            wall_factor=limits.wall_factor,
            output_bytes=limits.output_bytes,
        )

    async def _leave(self) -> None:
        home, self._home = self._home, ""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.close()
        shutil.rmtree(home)


def _memory_file(stack: contextlib.ExitStack, content: bytes) -> int:
    handle = os.memfd_create("call")
    stack.callback(os.close, handle)
    if content:
        os.pwrite(handle, content, 0)
    return handle
