"""What a client knows of its nodes, its calls, and which call travels with which."""

import asyncio
from dataclasses import dataclass, field

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.messages import MAX_CALLS, Call

_BATCH_TEXT = 1 << 18
"""Characters of code and stdin in one request, unless a single call has more."""
FAILURES = 3
"""In a row, before a node rests."""
_FIRST_REST, _LONGEST_REST = 0.5, 15.0


@dataclass(slots=True, eq=False)
class Node:
    """An address, how much it has to do, and how it has behaved."""

    url: str
    outstanding: int = 0
    failures: int = 0
    reason: str = ""
    rests_until: float = 0.0

    def room(self, now: float, per_node: int) -> int:
        """Calls that it may get now; after a rest for its failures, one batch."""
        if now < self.rests_until:
            return 0
        if self.failures >= FAILURES:
            return 0 if self.outstanding else min(MAX_CALLS, per_node)
        return per_node - self.outstanding

    def blame(self, reason: str) -> float:
        """Counts a failure; returns the seconds that it must rest for it."""
        self.failures += 1
        self.reason = reason
        beyond = self.failures - FAILURES
        return 0.0 if beyond < 0 else min(_LONGEST_REST, _FIRST_REST * 2.0 ** min(beyond, 9))


@dataclass(slots=True, eq=False)
class Pending:
    """A call of so many characters, whose caller waits since then."""

    call: Call
    text: int
    answer: asyncio.Future[ToolResult]
    since: float
    tries: int = 0
    request: "Request | None" = None

    def fail(self, error: BaseException) -> None:
        """Tells the caller, if there still is one."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class Request:
    """Calls that go to a node together, by id; an answered one is taken out."""

    node: Node
    calls: dict[int | str, Pending] = field(default_factory=dict)
    text: int = 0
    alone: bool = False
    task: asyncio.Task[None] | None = None

    def has_room(self, call: Pending) -> bool:
        """Whether the call may join those that are here; one that was lost travels alone."""
        if not self.calls:
            return True
        if call.tries or self.alone or len(self.calls) == MAX_CALLS:
            return False
        return self.text + call.text <= _BATCH_TEXT

    def add(self, call: Pending) -> None:
        """Puts a call in."""
        self.calls[call.call.id] = call
        self.text += call.text
        self.alone = call.tries > 0
        self.node.outstanding += 1
        call.request = self

    def take(self, name: int | str) -> Pending:
        """Takes a call out."""
        call = self.calls.pop(name)
        self.node.outstanding -= 1
        call.request = None
        return call

    def take_all(self) -> list[Pending]:
        """Takes all calls out."""
        return [self.take(name) for name in list(self.calls)]
