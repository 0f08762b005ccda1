"""Chooses problems of a pool by a record of samples: believed labels, or hard problems.

Nothing is rolled out: the record is read, and another threshold is another choice.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstar2.experiments.pool_files import PoolError, read_pool_rows, write_pool
from rstar2.experiments.problem_pool import content_hash
from rstar2.problems.data.rows import Row
from rstar2.records import atomic_write
from rstar2.records.files import make_folder
from rstar2.training.label_check import Choice, SuspectLabel


@dataclass(frozen=True, slots=True)
class ChoiceReport:
    """What a choice did with a pool.

    Attributes:
        rule: What was asked, as ``label matched by at least 2 of 16``.
        rows_in: Problems of the pool.
        kept: Those that the rule keeps.
        dropped: Those that it drops.
        unfinished: Those that lack samples; left out, because nothing is known of them.
        content_hash: SHA-256 of the rows kept.
    """

    rule: str
    rows_in: int
    kept: int
    dropped: int
    unfinished: int
    content_hash: str

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def choose(
    pool: Path, choice: Choice, rule: str, folder: Path, suspects: Sequence[SuspectLabel] = ()
) -> ChoiceReport:
    """Write the problems of a pool that a rule keeps, with the counts of what it dropped.

    Args:
        pool: A build folder or its ``pool.parquet``.
        choice: What the rule says of the problems of the record.
        rule: The rule in words, for the report.
        folder: Gets ``pool.parquet``, ``report.json`` and, if there are any, ``suspects.csv``.
        suspects: Labels that the samples contradict, for a person to look at.

    Raises:
        PoolError: If there is no pool, or no problem of it is kept.
        RecordError: If the folder cannot be written.
    """
    rows = read_pool_rows(pool)
    kept_names = {count.problem_id for count in choice.kept}
    dropped_names = {count.problem_id for count in choice.dropped}
    kept = [row for row in rows if row.name in kept_names]
    dropped = sum(row.name in dropped_names for row in rows)
    if not kept:
        raise PoolError(f"no problem of {pool} is kept: is the record one of its problems?")
    report = ChoiceReport(
        rule, len(rows), len(kept), dropped, len(rows) - len(kept) - dropped, content_hash(kept)
    )
    make_folder(folder)
    write_pool(folder / "pool.parquet", kept)
    if suspects:
        atomic_write(folder / "suspects.csv", _suspects_text(rows, suspects).encode())
    atomic_write(folder / "report.json", json.dumps(report.as_dict(), indent=1).encode() + b"\n")
    return report


def _suspects_text(rows: Sequence[Row], suspects: Sequence[SuspectLabel]) -> str:
    questions = {row.name: row.question for row in rows}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("decision", "name", "label", "said", "votes", "samples", "question"))
    for one in suspects:
        question = questions.get(one.problem_id)
        if question is not None:
            writer.writerow(
                ("", one.problem_id, one.gold, one.said, one.votes, one.samples, question)
            )
    return text.getvalue()
