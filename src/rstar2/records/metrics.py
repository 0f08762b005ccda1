"""The metrics of a run: one JSON line as a step ends, one parquet file when the run ends.

Whatever stands in a :class:`MetricsLog` repeats bit for bit with the same seed, machine and
versions. Seconds and throughput do not; they belong in ``timing.jsonl``
(:meth:`rstar2.records.RunFolder.append_timing`).
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rstar2.records.files import (
    RecordError,
    append_json_line,
    atomic_write,
    cut_json_lines,
    read_json_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

Metric = float | int | str
"""What a metric may be; a bool or a tensor is refused."""


@dataclass(frozen=True, slots=True)
class MetricsLog:
    """``metrics.jsonl``: rows that each carry the ``step`` they belong to.

    Attributes:
        path: The file; it need not exist yet, its folder must.
    """

    path: Path

    def append(self, row: Mapping[str, Metric]) -> None:
        """Append one row; it is on the disk when the call returns.

        Args:
            row: ``step`` (an int) and any named metrics. NaN says "undefined here".

        Raises:
            RecordError: ``step`` is missing, a value is not a Python number or text, the
                file cannot be written, or it ends in a torn line.
        """
        if type(row.get("step")) is not int:
            raise RecordError(f"a row for {self.path} lacks an int 'step': it has {sorted(row)}")
        for name, value in row.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise RecordError(
                    f"metric {name!r} is a {type(value).__name__}: give a Python float, int or str"
                )
        append_json_line(self.path, row)

    def rows(self) -> list[dict[str, Metric]]:
        """Read all whole rows in the order they were written; empty if there is no file."""
        return read_json_lines(self.path)

    def truncate_after(self, step: int) -> None:
        """Cut back to a checkpoint: drop later rows and a last line torn by a kill.

        Args:
            step: The last step that is kept.
        """
        cut_json_lines(self.path, lambda row: row["step"] <= step)

    def to_parquet(self, path: Path) -> None:
        """Write the rows as parquet; the same rows give the same bytes.

        Columns are ``step``, then the others by name: int64 if every value is an int,
        float64 if every value is a number, string if every value is text. A metric that a
        row lacks is null.

        Raises:
            RecordError: There are no rows, a column mixes numbers and text, or the file
                cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = self.rows()
        if not rows:
            raise RecordError(f"{self.path} has no rows: nothing to write to {path}")
        names = ["step", *sorted({name for row in rows for name in row} - {"step"})]
        table = pa.table(
            {name: self._column(name, [row.get(name) for row in rows]) for name in names}
        )
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        atomic_write(path, buffer.getvalue())

    def _column(self, name: str, values: list[Any]) -> "pa.Array[Any]":
        import pyarrow as pa

        kinds = {type(value) for value in values if value is not None}
        if kinds == {str}:
            return pa.array(values, pa.string())
        if str in kinds:
            raise RecordError(
                f"{self.path}: metric {name!r} is text in one row, a number in another"
            )
        if kinds == {int}:
            return pa.array(values, pa.int64())
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
