"""The zygotes of a sandbox on one rung, and what its calls and sessions need of them."""

import os
from collections.abc import Collection

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.calls import CallFiles
from rstar2.sandbox.fleet import Fleet
from rstar2.sandbox.limits import Rung, SandboxLimits, Tier
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.result import Reply, Scrubber
from rstar2.sandbox.tiers import tier_for
from rstar2.sandbox.wire import Ending, Request, ZygoteConfig

_LOST_SECONDS = 60.0
_LOST_FACTOR = 20.0
_TRIAL_SECONDS = 30.0


class Backend:
    """One fleet of zygotes a tier.

    Args:
        rung: The isolation of all of them.
        tiers: Which fleets there are.
        limits: Of a program.
        slots: Calls in flight at most.
        scratch: Where programs may write on rung ``portable``; empty for nowhere.
        filter_program: The system calls allowed, BPF.
    """

    def __init__(
        self,
        rung: Rung,
        tiers: Collection[Tier],
        limits: SandboxLimits,
        slots: int,
        scratch: str,
        filter_program: bytes,
    ) -> None:
        self._tiers = tuple(sorted(tiers, key=list(Tier).index))
        self._limits = limits
        self._scrub = Scrubber()
        self._number = 0
        configs = {
            tier: ZygoteConfig(
                rung=rung,
                tier=tier,
                home="",
                scratch=scratch if rung is Rung.PORTABLE else "",
                scratch_bytes=limits.scratch_mib << 20,
                memory_bytes=limits.memory_mib << 20,
                file_bytes=limits.file_mib << 20,
                open_files=limits.open_files,
                threads=limits.threads,
                output_bytes=limits.output_bytes,
                filter=filter_program.hex() if rung is not Rung.NONE else "",
            )
            for tier in self._tiers
        }
        most = min(slots, len(os.sched_getaffinity(0)))
        self._fleets = {tier: Fleet(config, most) for tier, config in configs.items()}

    @property
    def zygotes(self) -> list[ZygoteProcess]:
        """Those that live now."""
        return [zygote for fleet in self._fleets.values() for zygote in fleet.members]

    @property
    def started(self) -> int:
        """Zygotes started so far."""
        return sum(fleet.started for fleet in self._fleets.values())

    async def try_out(self) -> tuple[str, ...]:
        """Start a zygote and run a program in it; gives the walls that it stands behind.

        Raises:
            PermissionError: If the machine refuses the zygote its walls, or the program its own.
            SandboxUnavailable: If the zygote does not come up.
        """
        zygote = await self._fleets[self._tiers[0]].pick()
        try:
            await self.run("", "", _TRIAL_SECONDS)
        except ZygoteLost as lost:
            raise PermissionError(str(lost)) from lost
        return zygote.layers

    async def run(self, code: str, stdin: str, seconds: float) -> tuple[Reply, ToolResult]:
        """Run a program, once.

        Raises:
            ZygoteLost: If it was not the program that failed.
        """
        zygote = await self._fleets[tier_for(code, self._tiers)].pick()
        with CallFiles(code, stdin) as files:
            number = self.next_number()
            patience = self.patience(seconds)
            reply = await zygote.call(Request.RUN, number, seconds, files.handles, patience)
            if reply.ending is Ending.NOT_STARTED:
                raise ZygoteLost(f"the program was not started: {files.fault()}")
            return reply, self.judge(reply, files, zygote)

    def judge(self, reply: Reply, files: CallFiles, zygote: ZygoteProcess) -> ToolResult:
        """The result of a program that has ended."""
        return files.result(reply, self._limits.output_bytes, self._scrub, zygote.home)

    def patience(self, seconds: float) -> float:
        """After how many seconds a silent zygote is taken for lost."""
        return _LOST_FACTOR * seconds + _LOST_SECONDS

    async def pick_largest(self) -> ZygoteProcess:
        """A zygote that has loaded all there is."""
        return await self._fleets[self._tiers[-1]].pick()

    async def fork_floor(self, tier: Tier, count: int) -> float:
        """Seconds of a fork whose child does nothing; see ``Sandbox.fork_floor``."""
        zygote = await self._fleets[tier].pick()
        number = self.next_number()
        reply = await zygote.call(Request.FORK_FLOOR, number, count, [], 60.0 + count)
        return reply.wall_seconds

    def next_number(self) -> int:
        """A number that no call or session has had."""
        self._number += 1
        return self._number

    async def close(self) -> None:
        """End all zygotes."""
        for fleet in self._fleets.values():
            await fleet.close()
