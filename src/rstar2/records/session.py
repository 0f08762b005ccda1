"""Where the time of a run goes: ``timing.jsonl``, over every session that worked on the run.

A session is one process that makes a run or goes on with it. Its rows are laps: each holds the
seconds since the row before, so that the rows of a phase, or of the run, add up. A step that
was cut back and made again stands there twice, under two sessions.
"""

import time

from rstar2.records.files import cut_json_lines, read_json_lines
from rstar2.records.run_folder import RunFolder


class Session:
    """The clock of one session.

    Args:
        folder: The run; a last line that a kill tore is taken out of its ``timing.jsonl``.

    Attributes:
        number: Which session of the run this is, from 1.

    Raises:
        RecordError: ``timing.jsonl`` cannot be read or written.
    """

    def __init__(self, folder: RunFolder) -> None:
        cut_json_lines(folder.timing, lambda _: True)
        former = [int(row.get("session", 0)) for row in read_json_lines(folder.timing)]
        self.number = 1 + max(former, default=0)
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

    def total_seconds(self) -> float:
        """Seconds of all laps of all sessions; a killed one counts up to its last lap."""
        return sum(float(row.get("seconds", 0.0)) for row in read_json_lines(self._folder.timing))
