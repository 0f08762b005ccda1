"""The files of a pool that programs and people read: problems, samples, and the review."""

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rstar2.errors import UserError
from rstar2.problems import Problem
from rstar2.problems.data.rows import Dropped, DropReason, Outcome, Row
from rstar2.records import atomic_write

SAMPLES = 20
"""Dropped rows that are shown of each step and reason."""
_COLUMNS = ("problem_id", "source", "question", "answer")
_REVIEW_COLUMNS = ("decision", "name", "score", "doubt", "detail", "answer", "question")
_DECISIONS = {"": True, "keep": True, "drop": False}


class PoolError(UserError):
    """A build folder, a review or a pool cannot be used; the message says what to do."""


def write_pool(path: Path, rows: Sequence[Row]) -> None:
    """Write the problems; an answer is a decimal string, because it may exceed 64 bits.

    Raises:
        RecordError: If the file cannot be written.
    """
    values = [[row.name, row.source, row.question, row.gold] for row in rows]
    columns = zip(*values, strict=True) if values else ([] for _ in _COLUMNS)
    table = pa.table(
        {
            name: pa.array(column, pa.string())
            for name, column in zip(_COLUMNS, columns, strict=True)
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    atomic_write(path, buffer.getvalue())


def read_pool(path: Path) -> list[Problem]:
    """Read the problems of a build folder, or of its ``pool.parquet``.

    Raises:
        PoolError: If there is no pool, or it is of another kind.
    """
    return [
        Problem(row.name, row.question, int(row.gold), row.source) for row in read_pool_rows(path)
    ]


def read_pool_rows(path: Path) -> list[Row]:
    """Read the rows of a pool, as :func:`read_pool` reads its problems.

    Raises:
        PoolError: If there is no pool, or it is of another kind.
    """
    file = path / "pool.parquet" if path.is_dir() else path
    try:
        rows = pq.read_table(file, columns=list(_COLUMNS)).to_pylist()
        return [
            Row(
                row["source"],
                row["problem_id"].removeprefix(f"{row['source']}/"),
                row["question"],
                str(int(row["answer"])),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PoolError(
            f"{file} is no pool of problems ({error}): rstar2 data build makes one"
        ) from error


def read_review(path: Path) -> dict[str, bool]:
    """Read which rows a person keeps: the file that a build wrote, with decisions filled in.

    Returns:
        Whether to keep, by name of the row; rows without a decision are kept.

    Raises:
        PoolError: If it cannot be read or a decision is neither ``keep`` nor ``drop``.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise PoolError(f"cannot read the review {path}: {error}") from error
    decisions: dict[str, bool] = {}
    for number, line in enumerate(lines, start=1):
        name, decision = line.get("name"), (line.get("decision") or "").strip().lower()
        if not name or decision not in _DECISIONS:
            raise PoolError(
                f"{path}, entry {number}: decision is {decision!r} for {name!r}: "
                "write keep or drop, or leave it empty"
            )
        decisions[name] = _DECISIONS[decision]
    return decisions


def review_text(outcomes: Sequence[tuple[str, Outcome]], kept: Sequence[Row]) -> str:
    """The doubts about rows that are in the pool, the most doubtful first, as CSV."""
    still = {row.name for row in kept}
    found = {
        (d.row.name, d.question, d.detail): d
        for _, outcome in outcomes
        for d in outcome.doubts
        if d.row.name in still
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_REVIEW_COLUMNS)
    for doubt in sorted(found.values(), key=lambda d: (-d.score, d.row.name)):
        row, score = doubt.row, f"{doubt.score:.3f}"
        writer.writerow(("", row.name, score, doubt.question, doubt.detail, row.gold, row.question))
    return text.getvalue()


def samples_text(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """Twenty dropped rows of each step and reason, drawn with a fixed seed, as Markdown."""
    parts = ["# Rows that were taken out"]
    for name, outcome in outcomes:
        for reason in DropReason:
            found = [dropped for dropped in outcome.dropped if dropped.reason is reason]
            if not found:
                continue
            shown = random.Random(f"{name}:{reason}").sample(found, min(SAMPLES, len(found)))
            parts.append(f"\n## {name}: {reason} ({len(found)}, {len(shown)} shown)\n")
            parts += [_sample(dropped) for dropped in shown]
    return "\n".join(parts) + "\n"


def _sample(dropped: Dropped) -> str:
    question = " ".join(dropped.row.question.split())
    detail = f" ({' '.join(dropped.detail.split())})" if dropped.detail else ""
    return f"- `{dropped.row.name}`{detail}\n  {question[:600]}\n  label: `{dropped.row.gold[:80]}`"
