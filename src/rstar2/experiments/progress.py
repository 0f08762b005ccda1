"""Progress of a run, in a file that anybody may watch: the batch's table, a notebook, a person.

A run prints nothing per step; it keeps ``progress.json`` in its folder.
"""

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rstar2.records import atomic_write

if TYPE_CHECKING:
    from rstar2.sandbox import SandboxStats

_EVERY_SECONDS = 0.5
_PACE_SECONDS = 300.0
"""How far back the pace is taken from."""


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Where a run is.

    Attributes:
        phase: What it does now and how far it is in it, as ``RL 12/80``.
        done: Units of the whole run done, between 0 and 1.
        left_seconds: Seconds to its end at the present pace; None before there is a pace.
        tokens_per_second: Model tokens sampled a second; None where none are counted.
        figures: What the phase says of itself: loss, accuracy, tool errors, the sandbox.
    """

    phase: str
    done: float
    left_seconds: float | None = None
    tokens_per_second: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


class ProgressFile:
    """Writes the progress of phases that each take a known share of the run.

    Args:
        folder: The run's folder.
        shares: Expected share of the run's time for each phase, by its name.
    """

    def __init__(self, folder: Path, shares: dict[str, float]) -> None:
        whole = sum(shares.values())
        self._path = folder / "progress.json"
        self._shares = {phase: share / whole for phase, share in shares.items()}
        self._written = 0.0
        self._phase = ""
        self._done = 0.0
        self._tokens = 0.0
        self._seen: deque[tuple[float, float, float]] = deque()

    def report(
        self, phase: str, done: int, total: int, *, tokens: float = 0.0, **figures: float
    ) -> None:
        """Says that ``done`` of ``total`` units of a phase are done.

        Written at most twice a second, but at once when the phase is new or over. A phase
        without a share leaves the progress of the run where it is.

        Args:
            phase: Its name.
            done: Units done.
            total: All units.
            tokens: Model tokens sampled since the last report.
            figures: What is worth watching; a NaN is left out.
        """
        now = time.monotonic()
        if phase in self._shares:
            names = list(self._shares)
            before = sum(self._shares[name] for name in names[: names.index(phase)])
            self._done = before + self._shares[phase] * done / max(total, 1)
        self._tokens += tokens
        new = phase != self._phase
        if now - self._written < _EVERY_SECONDS and done < total and not new:
            return
        self._written, self._phase = now, phase
        left, rate = self._pace(now)
        state = {
            "phase": f"{phase} {done}/{total}",
            "done": self._done,
            "left_seconds": left,
            "tokens_per_second": rate,
            "figures": {name: value for name, value in figures.items() if math.isfinite(value)},
        }
        atomic_write(self._path, json.dumps(state).encode())

    def _pace(self, now: float) -> tuple[float | None, float | None]:
        """Seconds left and tokens a second, over the last minutes of this session."""
        self._seen.append((now, self._done, self._tokens))
        while now - self._seen[0][0] > _PACE_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        since, done, tokens = self._seen[0]
        seconds, gained = now - since, self._done - done
        if seconds <= 0:
            return None, None
        left = (1.0 - self._done) * seconds / gained if gained > 0 else None
        return left, (self._tokens - tokens) / seconds or None


def sandbox_figures(stats: "SandboxStats") -> dict[str, float]:
    """What a sandbox says of itself: calls, those it made again, and their mean time."""
    finished = sum(stats.finished.values())
    return {
        "tool_calls": float(stats.submitted),
        "tool_retries": float(stats.retries),
        "tool_seconds": stats.run_seconds / finished if finished else math.nan,
    }


def read_progress(folder: Path) -> ProgressState:
    """The last state that a run wrote; the beginning if it has not written any."""
    try:
        value = json.loads((folder / "progress.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ProgressState("starting", 0.0)
    return ProgressState(**value)
