"""Which server the next request of a trajectory goes to, and when: the ledger and its events.

A server holds the tokens of its trajectories while they generate *and* while their tools run, so
what has to be shared out is room, not requests. The ledger knows who holds what; an admission
rule of ``rstar2.rollout.admission`` decides (paper, section 3).

Pure and deterministic: no clock, no input or output, no random numbers. The same events give the
same placements, so a recorded run can be replayed. The caller tells the time, in seconds, and
asks for placements after every event.

    arrive    a trajectory wants to generate; its first request, or a tool has answered
    place     the placements that can be made now
    finish    its request is answered; its tokens stay where they are
    end       the trajectory is over, or has been given up; its tokens go
"""

from collections.abc import Mapping

from rstar2.rollout.schedule_types import (
    Admission,
    Placement,
    Request,
    Resident,
    ScheduleError,
    Server,
)


class Scheduler:
    """The ledger.

    Attributes:
        admission: The rule.
        servers: In the order in which they were added.
        lengths: Tokens with which the trajectories of this step have ended.
    """

    def __init__(
        self, capacities: Mapping[str, int], admission: Admission, *, pace: float = 60.0
    ) -> None:
        """A ledger without trajectories.

        Args:
            capacities: KV tokens of each server.
            admission: The rule.
            pace: Tokens a second of one sequence, until it has been measured.

        Raises:
            ScheduleError: If a capacity is not above 0.
        """
        self.admission = admission
        self.servers: list[Server] = []
        self.lengths: list[int] = []
        self._pace = pace
        self._arrivals = 0
        self._numbers: dict[str, int] = {}
        self._homes: dict[str, Server] = {}
        self._continuing: dict[str, Request] = {}
        self._displaced: dict[str, Request] = {}
        self._new: dict[str, Request] = {}
        self._may_fit = True
        for name, capacity in capacities.items():
            self.add_server(name, capacity)

    @property
    def waiting(self) -> int:
        """Trajectories that wait for a server: new ones, and those that have lost theirs."""
        return len(self._displaced) + len(self._new)

    @property
    def residents(self) -> int:
        """Trajectories that have a server."""
        return len(self._homes)

    def arrive(self, trajectory: str, tokens: int, now: float) -> None:
        """A trajectory wants to generate.

        Raises:
            ScheduleError: If a request of it is waiting or under way.
        """
        home = self._homes.get(trajectory)
        queues = (self._continuing, self._displaced, self._new)
        if any(trajectory in queue for queue in queues) or (
            home is not None and home.residents[trajectory].generates
        ):
            raise ScheduleError(f"trajectory {trajectory!r} has a request already: finish it first")
        queue = self._displaced if trajectory in self._numbers else self._new
        if home is not None:
            queue = self._continuing
        elif queue is self._new:
            self._numbers[trajectory] = self._arrivals
            self._arrivals += 1
        number = self._numbers[trajectory]
        queue[trajectory] = Request(trajectory, number, tokens, now)
        self._may_fit |= next(iter(self._displaced or self._new), None) == trajectory

    def place(self, now: float) -> list[Placement]:
        """All placements that can be made; later requests first, then first ones in their order."""
        placed = []
        while self.servers and self._continuing:
            request = self._continuing.pop(next(iter(self._continuing)))
            home = self._homes[request.trajectory]
            server = self.admission.move(request, home, self.servers, self.waiting, now)
            self._leave(request.trajectory)
            placed.append(self._enter(request, server, now))
        while self.servers and self._may_fit and self.waiting:
            queue = self._displaced or self._new
            request = next(iter(queue.values()))
            chosen = self.admission.admit(request, self.servers, self.waiting, now)
            self._may_fit = chosen is not None
            if chosen is not None:
                del queue[request.trajectory]
                placed.append(self._enter(request, chosen, now))
        return placed

    def finish(self, trajectory: str, now: float, tokens: int | None = None) -> bool:
        """A request is answered.

        Args:
            trajectory: Whose.
            now: s.
            tokens: Of its context now; if unknown, the next arrival will tell.

        Returns:
            False if no request of it was under way, as when it was given up before.
        """
        home = self._homes.get(trajectory)
        if home is None or not home.residents[trajectory].generates:
            return False
        resident = home.residents[trajectory]
        resident.generates = False
        home.in_flight -= 1
        if tokens is not None:
            _measure_pace(home, tokens - resident.tokens, now - resident.since)
            resident.tokens = tokens
        resident.since = now
        return True

    def end(self, trajectory: str, tokens: int | None = None) -> bool:
        """A trajectory is over, answered, failed or given up, wherever it is.

        Args:
            trajectory: Which.
            tokens: Those it ended with, if it is to count for the prediction of the next step.

        Returns:
            False if there is no such trajectory, as when it has ended before.
        """
        if self._numbers.pop(trajectory, None) is None:
            return False
        for queue in (self._continuing, self._displaced, self._new):
            queue.pop(trajectory, None)
        if trajectory in self._homes:
            self._leave(trajectory)
        if tokens is not None:
            self.lengths.append(tokens)
        self._may_fit = True
        return True

    def end_idle(self, since: float) -> None:
        """Gives up the trajectories that have held tokens without a request since then, s."""
        idle = [
            trajectory
            for server in self.servers
            for trajectory, resident in server.residents.items()
            if not resident.generates
            and resident.since < since
            and trajectory not in self._continuing
        ]
        for trajectory in idle:
            self.end(trajectory)

    def next_step(self) -> None:
        """Hands the lengths of this step to the rule, and begins to collect those of the next."""
        self.admission = self.admission.after(self.lengths)
        self.lengths = []

    def add_server(self, name: str, capacity: int) -> None:
        """A server has come.

        Raises:
            ScheduleError: If it is there already, or can hold no token.
        """
        if any(server.name == name for server in self.servers):
            raise ScheduleError(f"server {name!r} is there already")
        if capacity <= 0:
            raise ScheduleError(f"server {name!r} has a capacity of {capacity}: give KV tokens")
        self.servers.append(Server(name, capacity, self._pace))
        self._may_fit = True

    def remove_server(self, name: str) -> None:
        """A server has gone, with all that it held; its trajectories come before all new ones.

        Raises:
            ScheduleError: If it is not there.
        """
        gone = next((server for server in self.servers if server.name == name), None)
        if gone is None:
            raise ScheduleError(f"there is no server {name!r}")
        self.servers.remove(gone)
        for trajectory in gone.residents:
            del self._homes[trajectory]
            if (request := self._continuing.pop(trajectory, None)) is not None:
                self._displaced[trajectory] = request
        self._may_fit = True

    def _enter(self, request: Request, server: Server, now: float) -> Placement:
        final = self.admission.predict(request)
        server.residents[request.trajectory] = Resident(request.tokens, now, True, final)
        server.final_tokens += final
        server.in_flight += 1
        self._homes[request.trajectory] = server
        return Placement(request.trajectory, server.name, now - request.arrived)

    def _leave(self, trajectory: str) -> None:
        home = self._homes.pop(trajectory)
        resident = home.residents.pop(trajectory)
        home.final_tokens -= resident.final_tokens
        home.in_flight -= resident.generates


def _measure_pace(server: Server, tokens: int, seconds: float) -> None:
    """Follows the pace of a server slowly; a request of a few tokens tells nothing."""
    if seconds > 0 and tokens > 16:
        server.pace += 0.1 * (tokens / seconds - server.pace)
