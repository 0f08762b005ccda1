"""The files of a pool that programs and people read: problems, samples, and the review."""

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rstar2.errors import UserError
from rstar2.problems import Problem
from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Row
from rstar2.records import atomic_write

REVIEW = "review.csv"
"""Name of the review in a build folder."""
SAMPLES = 20
"""Dropped rows that are shown of each step and reason."""
_COLUMNS = ("problem_id", "source", "question", "answer")
_REVIEW_COLUMNS = ("decision", "name", "score", "doubt", "detail", "answer", "question")
_DECISIONS = {"keep": True, "drop": False}


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
    return [as_problem(row) for row in read_pool_rows(path)]


def as_problem(row: Row) -> Problem:
    """The problem of a row whose label is a decimal integer; its source is its family."""
    return Problem(row.name, row.question, int(row.gold), row.source)


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


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said of a row in a review.

    Attributes:
        name: Names the row.
        question: Its text when the person read it.
        keep: Whether it stays.
    """

    name: str
    question: str
    keep: bool


def read_review(path: Path) -> list[Decision]:
    """Read the decisions of a review: the file that a build wrote, with ``decision`` filled in.

    Returns:
        One for each row that has a decision; a spreadsheet's byte order mark is no harm.

    Raises:
        PoolError: If it cannot be read, a decision is neither ``keep`` nor ``drop``, or a row
            has both.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"decision", "name", "question"} - set(reader.fieldnames or ())
            lines = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise PoolError(f"cannot read the review {path}: {error}") from error
    if missing:
        raise PoolError(f"{path} is no review: it has no column {', '.join(sorted(missing))}")
    decisions: dict[str, Decision] = {}
    for number, line in enumerate(lines, start=1):
        said = (line["decision"] or "").strip().lower()
        if not said:
            continue
        if said not in _DECISIONS or not line["name"]:
            raise PoolError(
                f"{path}, entry {number}: decision is {said!r} for {line['name']!r}: "
                "write keep or drop, or leave it empty"
            )
        decision = Decision(line["name"], line["question"] or "", _DECISIONS[said])
        if decisions.setdefault(decision.name, decision).keep != decision.keep:
            raise PoolError(f"{path}, entry {number}: {decision.name} is both kept and dropped")
    return list(decisions.values())


def refuse_stale(decisions: Sequence[Decision], rows: Sequence[Row]) -> None:
    """Refuse decisions about rows that are not there, or have another text by now.

    Raises:
        PoolError: If there is one; the message names it.
    """
    texts = {row.name: row.question for row in rows}
    for decision in decisions:
        if decision.name not in texts or _one_line(texts[decision.name]) != _one_line(
            decision.question
        ):
            raise PoolError(
                f"the review decides on {decision.name}, which does not come to it, or with "
                "another text: it is of another build; take that line out"
            )


def review_entries(outcomes: Sequence[tuple[str, Outcome]], rows: Sequence[Row]) -> list[Doubt]:
    """The doubts about rows that come to the review, each once, the most doubtful first."""
    names = {row.name for row in rows}
    found = {
        (doubt.row.name, doubt.question, doubt.detail): doubt
        for _, outcome in outcomes
        for doubt in outcome.doubts
        if doubt.row.name in names
    }
    return sorted(found.values(), key=lambda doubt: (-doubt.score, doubt.row.name))


def review_text(doubts: Sequence[Doubt], rows: Sequence[Row], decisions: Sequence[Decision]) -> str:
    """The review as CSV, with the decisions so far; one on a row without a doubt is kept too."""
    said = {one.name: "keep" if one.keep else "drop" for one in decisions}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_REVIEW_COLUMNS)
    by_name = {row.name: row for row in rows}
    for doubt in doubts:
        row, score = by_name[doubt.row.name], f"{doubt.score:.3f}"
        decision = said.get(row.name, "")
        writer.writerow(
            (decision, row.name, score, doubt.question, doubt.detail, row.gold, row.question)
        )
    for name in sorted(said.keys() - {doubt.row.name for doubt in doubts}):
        row = by_name[name]
        writer.writerow((said[name], name, "", "", "", row.gold, row.question))
    return text.getvalue()


def _one_line(text: str) -> str:
    """A spreadsheet may change line ends: they do not make another text."""
    return " ".join(text.split())


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
