"""What the grader said over a run: distinct boxes, each with its verdict and its number.

A step of training appends one line to ``grades.jsonl``; the finished run folds the lines, the
mining and the evaluation into ``grades.parquet``, from which the reward can be examined later
without rolling anything out again.
"""

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

from rstar2.grading.verdict import Reason, Verdict
from rstar2.records.files import RecordError, append_json_line, atomic_write, read_json_lines


class Phase(StrEnum):
    """What a rollout was made for."""

    RL = "rl"
    """An RL step: every rollout sampled, before selection."""
    MINING = "mining"
    """The choice of hard problems before a stage."""
    EVALUATION = "evaluation"
    """The evaluation of held-out problems."""


@dataclass(frozen=True, slots=True, order=True)
class Grade:
    """One verdict on one box; rollouts that share it are counted together.

    Attributes:
        phase: What the rollouts were made for.
        gold: The right answer, in decimal.
        box: The content of the box that decided; empty if there was none. What is no UTF-8
            text, a lone surrogate, stands there as an escape.
        reason: Why it was paid or not.
        value: The integer that was read, in decimal; empty if there was none, or one of
            more than 14,000 bits.
    """

    phase: Phase
    gold: str
    box: str
    reason: Reason
    value: str


def decimal(value: int) -> str:
    """An integer of any size in decimal, also beyond the 4,300 digits that ``str`` prints."""
    return format(Decimal(value), "f")


def count_grades(phase: Phase, graded: Iterable[tuple[int, Verdict]]) -> Counter[Grade]:
    """Counts verdicts.

    Args:
        phase: What the rollouts were made for.
        graded: The gold answer and the verdict of each rollout.
    """
    return Counter(
        Grade(
            phase=phase,
            gold=decimal(gold),
            box=verdict.box.encode("utf-8", "backslashreplace").decode(),
            reason=verdict.reason,
            value="" if verdict.value is None else decimal(verdict.value),
        )
        for gold, verdict in graded
    )


def append_grades(path: Path, step: int, grades: Counter[Grade]) -> None:
    """Appends the grades of a step as one line; it is on the disk when the call returns.

    Raises:
        RecordError: As :func:`rstar2.records.append_json_line`.
    """
    append_json_line(path, {"step": step, "grades": grades_to_json(grades)})


def grades_to_json(grades: Counter[Grade]) -> list[dict[str, Any]]:
    """Grades as plain values, sorted."""
    return [{**asdict(grade), "rollouts": count} for grade, count in sorted(grades.items())]


def grades_from_json(rows: object, path: Path) -> Counter[Grade]:
    """The grades that :func:`grades_to_json` gave.

    Args:
        rows: What was read.
        path: Where, for the message.

    Raises:
        RecordError: They are something else.
    """
    total: Counter[Grade] = Counter()
    if not isinstance(rows, list):
        raise RecordError(f"{path}: {rows!r:.200} is no list of grades")
    for row in rows:
        try:
            grade = Grade(
                phase=Phase(row["phase"]),
                gold=_text(row["gold"]),
                box=_text(row["box"]),
                reason=Reason(row["reason"]),
                value=_text(row["value"]),
            )
            if not isinstance(row["rollouts"], int) or row["rollouts"] < 1:
                raise ValueError("rollouts is no positive number")
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}: {row!r:.200} is no row of grades: {error!r}") from error
        total[grade] += row["rollouts"]
    return total


def read_grades(path: Path) -> Counter[Grade]:
    """The grades of all steps; empty if there is no file.

    Raises:
        RecordError: The file cannot be read, or holds something else.
    """
    total: Counter[Grade] = Counter()
    for line in read_json_lines(path):
        if "grades" not in line:
            raise RecordError(f"{path}: a line holds no grades: {line!r:.200}")
        total.update(grades_from_json(line["grades"], path))
    return total


def write_grades(path: Path, grades: Counter[Grade]) -> None:
    """Writes a parquet file with the columns of :class:`Grade` and ``rollouts``.

    The same grades give the same bytes.

    Raises:
        RecordError: The file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = [pa.field(name, pa.string()) for name in Grade.__dataclass_fields__]
    table = pa.Table.from_pylist(
        grades_to_json(grades), pa.schema([*text, pa.field("rollouts", pa.int64())])
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    atomic_write(path, buffer.getvalue())


def load_grades(path: Path) -> Counter[Grade]:
    """The grades that :func:`write_grades` wrote.

    Raises:
        RecordError: There is no such file, or it holds something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except FileNotFoundError as error:
        raise RecordError(
            f"there is no {path}: the run is not finished, or older than the record of grades"
        ) from error
    except (OSError, pa.ArrowInvalid) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    return grades_from_json(rows, path)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.50} is no text")
    return value
