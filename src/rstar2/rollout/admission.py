"""Four rules of admission for ``rstar2.rollout.schedule``.

``StaticSplit`` and ``LeastInFlight`` never let anybody wait: what does not fit is evicted by the
engine and computed again. ``KAdmission`` is the paper's: as many trajectories a server as it can
hold at full length. ``KVPeak`` predicts how much a server will hold at most, from the lengths of
the step before, and admits as many as will fit.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from rstar2.rollout.schedule_types import Admission, Request, ScheduleError, Server

_GOLDEN = 0.6180339887498949
"""Its multiples, modulo 1, fill the unit interval evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class StaticSplit(Admission):
    """Trajectory i of N to server ⌊i R / N⌋, once and for all (verl 0.2, the paper's baseline).

    Attributes:
        trajectories: N, those of one step.
    """

    trajectories: int

    def predict(self, request: Request) -> int:
        """Nothing is predicted."""
        return request.tokens

    def admit(
        self, request: Request, servers: Sequence[Server], _waiting: int, _now: float, /
    ) -> Server:
        """By its number in the step."""
        place = request.number % self.trajectories
        return servers[place * len(servers) // self.trajectories]


@dataclass(frozen=True, slots=True)
class LeastInFlight(Admission):
    """To the server with the fewest requests under way, and then always there (verl 0.9)."""

    def predict(self, request: Request) -> int:
        """Nothing is predicted."""
        return request.tokens

    def admit(
        self, _request: Request, servers: Sequence[Server], _waiting: int, _now: float, /
    ) -> Server:
        """The first of those with the fewest."""
        return min(servers, key=lambda server: server.in_flight)


@dataclass(frozen=True, slots=True)
class KAdmission(Admission):
    """At most K = capacity / longest trajectory on a server (paper, section 3).

    The strict mode: whatever the lengths and the pace, a server never holds more than it can.

    Attributes:
        max_tokens: The longest trajectory, prompt included.
    """

    max_tokens: int

    def predict(self, _request: Request, /) -> int:
        """The longest."""
        return self.max_tokens

    def admit(
        self, _request: Request, servers: Sequence[Server], _waiting: int, _now: float, /
    ) -> Server | None:
        """The server with the largest share of its K free.

        Raises:
            ScheduleError: If no server can hold a trajectory.
        """
        slots = {server.name: server.capacity // self.max_tokens for server in servers}
        if not any(slots.values()):
            raise ScheduleError(
                f"no server can hold {self.max_tokens} tokens, the longest trajectory (the largest "
                f"holds {max(server.capacity for server in servers)}): give them more KV memory"
            )
        free = [server for server in servers if len(server.residents) < slots[server.name]]
        if not free:
            return None
        return min(free, key=lambda server: len(server.residents) / slots[server.name])


@dataclass(frozen=True, slots=True)
class KVPeak(Admission):
    """FIFO by predicted peak of the KV memory.

    A first request goes to a server whose predicted peak stays within ``share`` of its capacity,
    or to one that is empty. The last ones, when few wait, may go up to ``last_share``: near the
    end a late start costs more than computing again. A later request never waits; it moves to the
    emptiest server if nobody waits, its own holds far more, and it fits there.

    Attributes:
        max_tokens: The longest trajectory, prompt included.
        lengths: Final tokens of the trajectories of the step before, ascending; with none, all
            lengths up to the longest are taken to be equally frequent.
        share: Of the capacity.
        last_share: Of the capacity, once no more wait than ``last`` of those who are in.
        last: Of the residents.
        imbalance: A later request moves if its home has this many times the residents.
    """

    max_tokens: int
    lengths: tuple[int, ...] = ()
    share: float = 0.8
    last_share: float = 1.0
    last: float = 0.4
    imbalance: float = 1.3

    def predict(self, request: Request) -> int:
        """A quantile of the lengths beyond what it has already.

        Each trajectory has a quantile of its own, spread evenly over all of them, so that the
        residents of a server are as different from each other as real ones.
        """
        quantile = (request.number + 1) * _GOLDEN % 1
        longer = bisect.bisect_right(self.lengths, request.tokens)
        if longer < len(self.lengths):
            final = self.lengths[longer + int(quantile * (len(self.lengths) - longer))]
        elif not self.lengths and request.tokens < self.max_tokens:
            final = request.tokens + 1 + int(quantile * (self.max_tokens - request.tokens))
        else:
            final = self.max_tokens
        return min(final, self.max_tokens)

    def admit(
        self, request: Request, servers: Sequence[Server], waiting: int, now: float
    ) -> Server | None:
        """The one with less predicted of the two that are least predicted to be full."""
        inside = sum(len(server.residents) for server in servers)
        share = self.last_share if waiting <= self.last * inside else self.share
        emptiest = sorted(servers, key=lambda server: server.final_tokens / server.capacity)
        for server in emptiest[:2]:
            if not server.residents or self._fits(request, server, share, now):
                return server
        return None

    def move(
        self, request: Request, home: Server, servers: Sequence[Server], waiting: int, now: float
    ) -> Server:
        """The server with the fewest residents, or its home."""
        if waiting:
            return home
        emptiest = min(servers, key=lambda server: len(server.residents))
        is_worth = len(home.residents) > self.imbalance * len(emptiest.residents) + 1
        if is_worth and self._fits(request, emptiest, self.last_share, now):
            return emptiest
        return home

    def after(self, lengths: Sequence[int]) -> Self:
        """With these lengths, if there are any."""
        return replace(self, lengths=tuple(sorted(lengths))) if lengths else self

    def peak(self, request: Request, server: Server, now: float) -> float:
        """The most that a server will hold with one more trajectory, as far as can be told.

        All residents are taken to grow at one pace, each until its predicted end. One that has
        outlived its prediction is given 5% of what it holds.
        """
        course = [(float(self.predict(request) - request.tokens), float(request.tokens))]
        for resident in server.residents.values():
            grown = (now - resident.since) * server.pace if resident.generates else 0.0
            holds = min(float(self.max_tokens), resident.tokens + grown)
            course.append((max(resident.final_tokens - holds, 0.05 * holds), holds))
        return future_peak(course)

    def _fits(self, request: Request, server: Server, share: float, now: float) -> bool:
        return self.peak(request, server, now) <= share * server.capacity


def future_peak(course: Sequence[tuple[float, float]]) -> float:
    """The most that trajectories hold together if all grow at one pace and leave at their end.

    Args:
        course: (tokens still to come, tokens held) of each.
    """
    held = most = 0.0
    for count, (left, holds) in enumerate(sorted(course, reverse=True), start=1):
        held += holds
        most = max(most, held + count * left)
    return most
