"""Chooses problems of a pool by a record of samples: believed labels, or hard problems.

Nothing is rolled out: the record is read, and another threshold is another choice.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstar2.experiments.pool_files import PoolError, as_problem, read_pool_rows, write_pool
from rstar2.experiments.problem_pool import content_hash
from rstar2.problems.data.rows import Row
from rstar2.records import atomic_write
from rstar2.records.files import make_folder
from rstar2.training.label_check import Choice, SuspectLabel
from rstar2.training.samples import SampleRecord

SUSPECTS = "suspects.csv"
"""Name of the list of suspect labels."""


@dataclass(frozen=True, slots=True)
class ChoiceReport:
    """What a choice did with a pool.

    Attributes:
        rule: What was asked, as ``label matched by at least 2 of 16``.
        pool: SHA-256 of the pool's rows.
        made_with: Policy, samples and seed of the record, and what else decided them.
        rows_in: Problems of the pool.
        kept: Those that the rule keeps.
        dropped: Those that it drops.
        unfinished: Those that lack samples; left out, because nothing is known of them.
        suspects: Labels that the samples contradict, listed for a person.
        content_hash: SHA-256 of the rows kept.
    """

    rule: str
    pool: str
    made_with: dict[str, Any]
    rows_in: int
    kept: int
    dropped: int
    unfinished: int
    suspects: int
    content_hash: str

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def choose(
    pool: Path,
    record: SampleRecord,
    choice: Choice,
    rule: str,
    folder: Path,
    suspects: Sequence[SuspectLabel] = (),
) -> ChoiceReport:
    """Write the problems of a pool that a rule keeps, with the counts of what it dropped.

    Args:
        pool: A build folder or its ``pool.parquet``.
        record: Samples of its problems.
        choice: What the rule says of the problems of the record.
        rule: The rule in words, for the report.
        folder: Gets ``pool.parquet``, ``report.json`` and, if there are any, ``suspects.csv``.
        suspects: Labels that the samples contradict, for a person to look at.

    Raises:
        PoolError: If there is no pool, the record is of other problems or of problems with
            other texts or labels, or none is kept.
        RecordError: If the folder cannot be written.
    """
    rows = read_pool_rows(pool)
    _refuse_others(rows, record)
    by_name = {row.name: row for row in rows}
    kept = [by_name[one.problem_id] for one in choice.kept if one.problem_id in by_name]
    dropped = sum(one.problem_id in by_name for one in choice.dropped)
    if not kept:
        raise PoolError(f"{rule}: no problem of {pool} is kept, {dropped} are dropped")
    listed = [one for one in suspects if one.problem_id in by_name]
    report = ChoiceReport(
        rule=rule,
        pool=content_hash(rows),
        made_with={name: value for name, value in record.header.items() if name != "format"},
        rows_in=len(rows),
        kept=len(kept),
        dropped=dropped,
        unfinished=len(rows) - len(kept) - dropped,
        suspects=len(listed),
        content_hash=content_hash(kept),
    )
    make_folder(folder)
    write_pool(folder / "pool.parquet", kept)
    if listed:
        atomic_write(folder / SUSPECTS, _suspects_text(by_name, listed).encode())
    else:
        (folder / SUSPECTS).unlink(missing_ok=True)
    atomic_write(folder / "report.json", json.dumps(report.as_dict(), indent=1).encode() + b"\n")
    return report


def _refuse_others(rows: Sequence[Row], record: SampleRecord) -> None:
    problems = {row.name: as_problem(row) for row in rows}
    asked = [sample for sample in record.samples if sample.problem_id in problems]
    if not asked:
        raise PoolError("the record has no sample of a problem of this pool: name another record")
    for sample in asked:
        if not sample.is_of(problems[sample.problem_id]):
            raise PoolError(
                f"the record has samples of {sample.problem_id} with another text or label: it is "
                "of another pool"
            )


def _suspects_text(rows: Mapping[str, Row], suspects: Sequence[SuspectLabel]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "label", "said", "votes", "samples", "question"))
    for one in suspects:
        question = rows[one.problem_id].question
        writer.writerow((one.problem_id, one.gold, one.said, one.votes, one.samples, question))
    return text.getvalue()
