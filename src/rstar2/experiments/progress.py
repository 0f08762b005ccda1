"""Progress of a run, in a file that anybody may watch: the job table, a notebook, a person.

A run in a notebook prints nothing per step; it keeps ``progress.json`` in its folder.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from rstar2.records import atomic_write

_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Where a run is.

    Attributes:
        phase: What it does now, in a few words.
        done: Units of the whole run done, between 0 and 1.
    """

    phase: str
    done: float


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

    def report(self, phase: str, done: int, total: int, detail: str = "") -> None:
        """Says that ``done`` of ``total`` units of a phase are done.

        Written at most twice a second, but at once when the phase is new or over. A phase
        without a share leaves the progress of the run where it is.
        """
        now = time.monotonic()
        new = phase != self._phase
        if now - self._written < _EVERY_SECONDS and done < total and not new:
            return
        self._written, self._phase = now, phase
        if phase in self._shares:
            names = list(self._shares)
            before = sum(self._shares[name] for name in names[: names.index(phase)])
            self._done = before + self._shares[phase] * done / max(total, 1)
        text = f"{phase} {done}/{total}{' ' + detail if detail else ''}"
        atomic_write(self._path, json.dumps({"phase": text, "done": self._done}).encode())


def read_progress(folder: Path) -> ProgressState:
    """The last state that a run wrote; the beginning if it has not written any."""
    try:
        value = json.loads((folder / "progress.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ProgressState("starting", 0.0)
    return ProgressState(value["phase"], value["done"])
