"""Where the time of a run goes: ``timing.jsonl``, over every session that worked on the run.

A session is one process that makes a run or goes on with it. Its rows are laps: each holds the
seconds since the row before, so that the rows of a phase, or of the run, add up. A step that
was cut back and made again stands there twice, under two sessions.
"""

import time
from collections.abc import Callable

from rstar2.errors import UserError
from rstar2.records.files import cut_json_lines, read_json_lines
from rstar2.records.run_folder import RunFolder


class RunStoppedError(UserError):
    """A session was asked to end and did; the run goes on when it is run again."""


class Session:
    """The clock of one session, and whether it is asked to end.

    Args:
        folder: The run; a last line that a kill tore is taken out of its ``timing.jsonl``.
        asked_to_stop: Whether somebody wants the session to end at the next safe place.

    Attributes:
        number: Which session of the run this is, from 1.

    Raises:
        RecordError: ``timing.jsonl`` cannot be read or written.
    """

    def __init__(
        self, folder: RunFolder, asked_to_stop: Callable[[], bool] = lambda: False
    ) -> None:
        cut_json_lines(folder.timing, lambda _: True)
        former = [int(row.get("session", 0)) for row in read_json_lines(folder.timing)]
        self.number = 1 + max(former, default=0)
        self.asked_to_stop = asked_to_stop
        self._folder = folder
        self._last = time.perf_counter(), time.process_time()

    def lap(self, phase: str, **facts: float) -> None:
        """Appends the seconds since the last lap.

        Args:
            phase: What they were spent on.
            facts: Which part of it, as ``step``, and further seconds.

        Raises:
            RecordError: As :func:`rstar2.records.append_json_line`.
        """
        now = time.perf_counter(), time.process_time()
        wall, cpu = (after - before for after, before in zip(now, self._last, strict=True))
        self._last = now
        self._folder.append_timing(
            {"session": self.number, "phase": phase, **facts, "seconds": wall, "cpu_seconds": cpu}
        )

    def stop_if_asked(self) -> None:
        """Ends the session where all that is worth keeping is on the disk.

        Raises:
            RunStoppedError: If it is asked to end.
        """
        if self.asked_to_stop():
            raise RunStoppedError("the run was asked to stop; run it again and it goes on")

    def total_seconds(self) -> float:
        """Seconds of all laps of all sessions; a killed one counts up to its last lap."""
        return sum(float(row.get("seconds", 0.0)) for row in read_json_lines(self._folder.timing))
