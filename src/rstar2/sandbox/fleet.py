"""The zygotes of one tier: started when needed, chosen by load, replaced when they die."""

import asyncio

from rstar2.sandbox.process import ZygoteProcess
from rstar2.sandbox.wire import ZygoteConfig


class Fleet:
    """One to ``most`` zygotes of the same kind.

    Args:
        config: What each is started with.
        most: How many there may be.
        calls_each: Calls in flight at one zygote before another is started.
    """

    def __init__(self, config: ZygoteConfig, most: int, calls_each: int) -> None:
        self._config = config
        self._most = most
        self._calls_each = calls_each
        self._members: list[ZygoteProcess] = []
        self._starting: asyncio.Task[ZygoteProcess] | None = None
        self.started = 0

    @property
    def members(self) -> list[ZygoteProcess]:
        """Those that live."""
        self._members = [zygote for zygote in self._members if zygote.alive]
        return self._members

    async def pick(self) -> ZygoteProcess:
        """The one with the fewest calls; the first call waits until one is warm.

        Raises:
            PermissionError: If the machine refuses the rung.
            SandboxUnavailable: If none comes up.
        """
        members = self.members
        least = min(members, key=lambda zygote: zygote.load, default=None)
        crowded = least is None or least.load >= self._calls_each
        if crowded and len(members) < self._most and self._starting is None:
            self._starting = asyncio.create_task(self._start())
        if least is None:
            assert self._starting is not None
            return await asyncio.shield(self._starting)
        return least

    async def _start(self) -> ZygoteProcess:
        try:
            zygote = await ZygoteProcess.start(self._config)
            self._members.append(zygote)
            self.started += 1
            return zygote
        finally:
            self._starting = None

    async def close(self) -> None:
        """End all of them."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        for zygote in self.members:
            await zygote.close()
