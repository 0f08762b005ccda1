"""What the rollout scheduler and its rules of admission share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from rstar2.errors import UserError


class ScheduleError(UserError):
    """An event that cannot be: a server or a request twice, or a server that is not there."""


@dataclass(frozen=True, slots=True)
class Request:
    """A trajectory that wants to generate.

    Attributes:
        trajectory: Its id.
        number: How many trajectories arrived before it.
        tokens: Of its context.
        arrived: When this request came, s.
    """

    trajectory: str
    number: int
    tokens: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A request that may go.

    Attributes:
        trajectory: Its id.
        server: Where to.
        waited: Since it arrived, s.
    """

    trajectory: str
    server: str
    waited: float


@dataclass(slots=True)
class Resident:
    """A trajectory whose tokens a server holds.

    Attributes:
        tokens: Of its context, at ``since``.
        since: When that was known, s.
        generates: Whether a request of it is under way; else its tool runs.
        final_tokens: What it is predicted to end with.
    """

    tokens: int
    since: float
    generates: bool
    final_tokens: int


@dataclass(slots=True)
class Server:
    """A server and who is on it.

    Attributes:
        name: Its name.
        capacity: KV tokens that it can hold.
        pace: Tokens a second of one sequence on it.
        residents: By trajectory.
        final_tokens: Sum of what its residents are predicted to end with.
        in_flight: Requests under way.
    """

    name: str
    capacity: int
    pace: float
    residents: dict[str, Resident] = field(default_factory=dict)
    final_tokens: int = 0
    in_flight: int = 0


class Admission(Protocol):
    """A rule that decides where requests go, and which first requests have to wait."""

    def predict(self, request: Request) -> int:
        """Tokens that the trajectory is predicted to end with."""

    def admit(
        self, request: Request, servers: Sequence[Server], waiting: int, now: float
    ) -> Server | None:
        """The server of a first request; None if it has to wait.

        Args:
            request: The one that has waited longest.
            servers: All of them, at least one.
            waiting: First requests that wait, this one included.
            now: s.
        """

    def move(
        self, request: Request, home: Server, servers: Sequence[Server], waiting: int, now: float
    ) -> Server:
        """The server of a later request: its home, unless a rule says otherwise.

        A move costs the whole context once more, for the other server has none of it.
        """
        del request, servers, waiting, now
        return home

    def after(self, lengths: Sequence[int]) -> Self:
        """The rule for the next step, once this one's trajectories ended with these tokens."""
        del lengths
        return self
