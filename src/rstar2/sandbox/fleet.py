"""The zygotes of one tier: started when needed, chosen by load, replaced when they die.

A zygote forks one child at a time, which takes it as long as the child's own work for a small
program; so there is one for every CPU, once there is work for it.
"""

import asyncio

from rstar2.sandbox.limits import SandboxUnavailable
from rstar2.sandbox.process import ZygoteLost, ZygoteProcess
from rstar2.sandbox.wire import ZygoteConfig

_CROWD = 64
"""Calls at one zygote, above which a call waits for the one that is being started."""


class Fleet:
    """One to ``most`` zygotes of the same kind.

    Args:
        config: What each is started with.
        most: How many there may be.
    """

    def __init__(self, config: ZygoteConfig, most: int) -> None:
        self._config = config
        self._most = most
        self._members: list[ZygoteProcess] = []
        self._starting: asyncio.Task[ZygoteProcess] | None = None
        self._closed = False
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
            SandboxUnavailable: If the first does not come up.
            ZygoteLost: If a later one does not, or the fleet is closed.
        """
        while True:
            if self._closed:
                raise ZygoteLost("the sandbox was closed")
            members = self.members
            least = min(members, key=lambda zygote: zygote.load, default=None)
            busy = least is None or least.load > 0
            if busy and len(members) < self._most and self._starting is None:
                self._starting = asyncio.create_task(self._start())
                self._starting.add_done_callback(_look_at)
            if least is not None and (least.load < _CROWD or self._starting is None):
                return least
            assert self._starting is not None
            start = self._starting
            await asyncio.wait([start])
            if least is None and not start.cancelled():
                return start.result()

    async def _start(self) -> ZygoteProcess:
        try:
            zygote = await ZygoteProcess.start(self._config)
        except (PermissionError, SandboxUnavailable) as error:
            if self.started:
                raise ZygoteLost(f"no new interpreter: {error}") from error
            raise
        else:
            self._members.append(zygote)
            self.started += 1
            return zygote
        finally:
            self._starting = None

    async def close(self) -> None:
        """End all of them; whoever waits for one is told."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        for zygote in self.members:
            await zygote.close()


def _look_at(start: asyncio.Task[ZygoteProcess]) -> None:
    """Whoever waits for the start is told of its error; a second one is tried again later."""
    if not start.cancelled():
        start.exception()
