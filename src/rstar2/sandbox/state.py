"""What a sandbox can tell of itself: its walls, and what it has done."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rstar2.protocol.types import RunStatus
from rstar2.sandbox.limits import Rung


@dataclass(frozen=True, slots=True)
class Isolation:
    """How strongly programs are kept apart from this machine.

    Attributes:
        rung: The rung in force.
        layers: What it consists of here.
        refused: Why the stronger rungs are not in force.
    """

    rung: Rung
    layers: tuple[str, ...]
    refused: Mapping[Rung, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.rung}: {', '.join(self.layers)}"
        refused = "; ".join(f"{rung} refused: {why}" for rung, why in self.refused.items())
        return f"{text} ({refused})" if refused else text


@dataclass(slots=True)
class SandboxStats:
    """What a sandbox has done since it was entered.

    Attributes:
        submitted: Calls accepted.
        finished: Results, by status.
        retries: Attempts that failed for the sandbox's sake and were made again.
        zygotes_started: Interpreters started.
        waiting: Calls that wait for a slot now.
        running: Calls that have one now.
        queue_seconds: Time that calls waited for a slot.
        run_seconds: Time that programs ran.
        cpu_seconds: CPU time that programs used.
    """

    submitted: int = 0
    finished: dict[RunStatus, int] = field(default_factory=lambda: dict.fromkeys(RunStatus, 0))
    retries: int = 0
    zygotes_started: int = 0
    waiting: int = 0
    running: int = 0
    queue_seconds: float = 0.0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
