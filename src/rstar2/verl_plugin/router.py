"""verl's router: ``rstar2.rollout.schedule`` behind ``rollout.router_config_path``.

verl asks the router for a server before each request and tells it when the request has ended, but
never when a *trajectory* has. Our agent loop does, by :meth:`Router.end`; whatever was given up
without it goes after ``orphan_seconds``.

verl does not wait for a release, and Ray may run it after the next request of the same trajectory.
So a request says that the one before has ended, and a release counts for its own request alone.

Acquiring waits until there is room. So the actor must run as many calls at once as may wait, or
no release is ever heard: verl is given the class already decorated, with ``CONCURRENCY``.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from rstar2.rollout.admission import KAdmission, KVPeak, LeastInFlight
from rstar2.rollout.schedule import Scheduler
from rstar2.rollout.schedule_types import Admission
from rstar2.training.spec import Spec

CONCURRENCY = 100_000
"""Calls that the actor runs at once; a step of the paper has 16,384 trajectories."""


class RouterSpec(Spec):
    """The router's file, ``router_class`` aside.

    Attributes:
        admission: ``kv-peak``, ``k`` (the strict mode) or ``least-in-flight`` (verl's own rule).
        kv_tokens: KV tokens of one server.
        max_tokens: The longest trajectory, prompt included.
        orphan_seconds: After so long without a request a trajectory counts as given up.
    """

    admission: Literal["kv-peak", "k", "least-in-flight"] = "kv-peak"
    kv_tokens: int = Field(gt=0)
    max_tokens: int = Field(gt=0)
    orphan_seconds: float = Field(default=600.0, gt=0)

    def rule(self) -> Admission:
        """The rule of admission."""
        match self.admission:
            case "k":
                return KAdmission(self.max_tokens)
            case "least-in-flight":
                return LeastInFlight()
            case "kv-peak":
                return KVPeak(self.max_tokens)


def tagged(step: int, trajectory: str, tokens: int) -> str:
    """The request id of a trajectory of a step with so many tokens in its context.

    The router needs their number alone, and verl would send it the whole list.
    """
    return f"{step}:{tokens}:{trajectory}"


def _untagged(request_id: str) -> tuple[int, int, str]:
    step, tokens, trajectory = request_id.split(":", 2)
    return int(step), int(tokens), trajectory


class Router:
    """One for all servers and all agent loops; becomes a Ray actor."""

    def __init__(
        self,
        servers: Mapping[str, Any],
        config: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A router without trajectories.

        Args:
            servers: Their handles, by id.
            config: The router's file.
            clock: Tells seconds.

        Raises:
            ValidationError: If the file says something impossible.
        """
        told = {name: value for name, value in config.items() if name != "router_class"}
        self._spec = RouterSpec.model_validate(told)
        self._clock = clock
        self._handles = dict(servers)
        self._scheduler = Scheduler(dict.fromkeys(servers, self._spec.kv_tokens), self._spec.rule())
        self._waiting: dict[str, asyncio.Future[tuple[str, Any]]] = {}
        self._asked: dict[str, str] = {}
        self._swept = clock()
        self._step = 0

    async def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """Waits until the trajectory's next request may go; returns a server's id and handle."""
        step, tokens, trajectory = _untagged(request_id)
        if step > self._step:  # the lengths of a step are the prediction of the next
            self._step = step
            self._scheduler.next_step()
        if trajectory in self._asked:  # its release has been sent, and is late
            self._scheduler.finish(trajectory, self._clock())
        self._scheduler.arrive(trajectory, tokens, self._clock())
        self._asked[trajectory] = request_id
        future: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[trajectory] = future
        self._place()
        try:
            return await future
        except asyncio.CancelledError:
            await self.end(trajectory)
            raise

    async def release_server(self, server_id: str, request_id: str) -> None:
        """A request has ended; what the trajectory holds stays."""
        del server_id
        _, _, trajectory = _untagged(request_id)
        if self._asked.get(trajectory) == request_id:
            del self._asked[trajectory]
            self._scheduler.finish(trajectory, self._clock())
            self._place()

    async def end(self, trajectory: str, tokens: int | None = None) -> None:
        """A trajectory is over, with so many tokens if it was not given up."""
        self._scheduler.end(trajectory, tokens)
        self._asked.pop(trajectory, None)
        if (future := self._waiting.pop(trajectory, None)) is not None:
            future.cancel()
        self._place()

    def require_acquire_fields(self) -> list[str]:
        """Nothing but the request id."""
        return []

    def require_release_fields(self) -> list[str]:
        """The request id."""
        return ["request_id"]

    async def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Servers have come."""
        for name, handle in servers.items():
            self._handles[name] = handle
            self._scheduler.add_server(name, self._spec.kv_tokens)
        self._place()

    async def remove_servers(self, server_ids: Iterable[str]) -> None:
        """Servers have gone, with what they held."""
        for name in server_ids:
            self._scheduler.remove_server(name)
            del self._handles[name]
        self._place()

    async def get_all_servers(self) -> list[str]:
        """Ids of the servers."""
        return list(self._handles)

    async def get_total_inflight(self) -> int:
        """Requests under way."""
        return sum(server.in_flight for server in self._scheduler.servers)

    async def clear_sticky_cache(self) -> dict[str, Any]:
        """Nothing: a trajectory keeps its server until it ends, whatever weights are sent."""
        return {"cleared_entries": 0, "server_loads": (await self.get_status())["servers"]}

    async def get_status(self) -> dict[str, Any]:
        """Who holds what, for a person."""
        servers = self._scheduler.servers
        return {
            "servers": {server.name: server.in_flight for server in servers},
            "residents": {server.name: len(server.residents) for server in servers},
            "waiting": self._scheduler.waiting,
            "total_inflight": sum(server.in_flight for server in servers),
            "active_servers": len(servers),
        }

    def _place(self) -> None:
        now = self._clock()
        if now - self._swept > self._spec.orphan_seconds / 10:
            self._swept = now
            self._scheduler.end_idle(now - self._spec.orphan_seconds)
        for placement in self._scheduler.place(now):
            future = self._waiting.pop(placement.trajectory)
            if not future.done():  # else its client has gone, and is about to say so
                future.set_result((placement.server, self._handles[placement.server]))
