"""Builds the pool of training problems: raw sets in, one checked set out, every loss counted.

A build folder holds

==================  =================================================================
``pool.parquet``    the problems: id, source, question, answer as a decimal string
``report.json``     counts of every step, hashes of what went in and of what came out
``samples.md``      twenty rows of every reason, for a person to read
``review.csv``      the doubtful rows; fill in ``decision`` and build again
``CARD.md``         the data card
``steps/``          the rows after every step: a build that was interrupted goes on here
==================  =================================================================
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rstar2.experiments.pool_files import (
    REVIEW,
    Decision,
    PoolError,
    refuse_stale,
    review_entries,
    review_text,
    samples_text,
    write_pool,
)
from rstar2.problems.data.card import Build, SourceReport, StepReport, data_card
from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Row
from rstar2.problems.data.steps import Step
from rstar2.records import RecordError, atomic_write, deciding_sources, run_id
from rstar2.records.files import make_folder

OnStep = Callable[[str, int, int], None]
"""``on_step(name, done, total)``, in rows of the step."""


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What a build did.

    Attributes:
        sources: What went in.
        against: Benchmarks that the rows were compared with.
        steps: Every step in order.
        doubts: Entries of the review: different doubts about rows that came to it.
        rows: Rows in the pool.
        content_hash: SHA-256 of the pool's rows, whatever the file format.
    """

    sources: tuple[SourceReport, ...]
    against: tuple[SourceReport, ...]
    steps: tuple[StepReport, ...]
    doubts: int
    rows: int
    content_hash: str

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON values: counts and hashes, no text of a problem."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values


def build_pool(
    rows: Sequence[Row],
    steps: Sequence[Step],
    folder: Path,
    *,
    sources: Sequence[SourceReport],
    against: Sequence[SourceReport] = (),
    command: str,
    decisions: Sequence[Decision] = (),
    on_step: OnStep = lambda *_: None,
) -> PoolReport:
    """Run the steps and write the build folder; steps done before are read from it.

    A step is done if its code, its rows and what else it was given are the same.

    Args:
        rows: What the sources gave, in order.
        steps: What is done to them, in order.
        folder: The build folder; made if it is missing.
        sources: Where the rows come from, for report and card.
        against: Benchmarks behind the steps, for report and card.
        command: What a person types to make the pool again, for the card.
        decisions: What a person said of doubtful rows; they are dropped last.
        on_step: Told of progress.

    Raises:
        PoolError: If two rows have one name, no row is left, or a decision is about a row that
            does not come to the review.
        RecordError: If the folder cannot be written.
    """
    make_folder(folder / "steps")
    kept = _named_once(rows)
    reports: list[StepReport] = []
    outcomes: list[tuple[str, Outcome]] = []
    code = {path: run_id("", {}, deciding_sources(path)) for path in {s.source for s in steps}}
    for number, step in enumerate(steps, start=1):
        decided = {"code": code[step.source], "rows": content_hash(kept), "given": step.given}
        file = folder / "steps" / f"{number:02d}-{step.name.replace(' ', '-')}.jsonl"
        outcome = _run_step(step, kept, file, run_id(step.name, decided, []), on_step)
        reports.append(_step_report(step.name, kept, outcome))
        outcomes.append((step.name, outcome))
        kept = outcome.kept
    refuse_stale(decisions, kept)
    doubts = review_entries(outcomes, kept)
    review = review_text(doubts, kept, decisions)
    if decisions:
        outcome = _reviewed(kept, decisions)
        reports.append(_step_report("review", kept, outcome))
        outcomes.append(("review", outcome))
        kept = outcome.kept
    if not kept:
        raise PoolError(f"no row is left of {len(rows)}: {folder / 'steps'} tells at which step")
    report = PoolReport(
        tuple(sources), tuple(against), tuple(reports), len(doubts), len(kept), content_hash(kept)
    )
    write_pool(folder / "pool.parquet", kept)
    atomic_write(folder / "samples.md", samples_text(outcomes).encode())
    atomic_write(folder / REVIEW, review.encode())
    atomic_write(folder / "CARD.md", data_card(_as_build(report, command)).encode())
    text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"
    atomic_write(folder / "report.json", text.encode())
    return report


def _reviewed(rows: Sequence[Row], decisions: Sequence[Decision]) -> Outcome:
    gone = {decision.name for decision in decisions if not decision.keep}
    return Outcome(
        kept=tuple(row for row in rows if row.name not in gone),
        dropped=tuple(Dropped(row, DropReason.REVIEWED) for row in rows if row.name in gone),
    )


def content_hash(rows: Iterable[Row]) -> str:
    """SHA-256 of rows in order, over text that no file format changes."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_line(row))
    return digest.hexdigest()


def _as_build(report: PoolReport, command: str) -> Build:
    return Build(
        title="Problem pool",
        what="Problems with integer answers for reinforcement learning with a 0/1 reward.",
        sources=report.sources,
        steps=report.steps,
        benchmarks=report.against,
        rows=report.rows,
        content_hash=f"sha256:{report.content_hash}",
        command=command,
    )


def _named_once(rows: Sequence[Row]) -> tuple[Row, ...]:
    name, count = Counter(row.name for row in rows).most_common(1)[0] if rows else ("", 1)
    if count > 1:
        raise PoolError(
            f"{count} rows are called {name}: was one source given twice? "
            "NAME=FILE gives a file another name"
        )
    return tuple(rows)


def _run_step(step: Step, rows: tuple[Row, ...], file: Path, key: str, on_step: OnStep) -> Outcome:
    done = _read_outcome(file, key, rows)
    if done is None:
        done = step.run(rows, lambda finished, total: on_step(step.name, finished, total))
        _refuse_lost(step.name, rows, done)
        atomic_write(file, b"".join(map(_json, _outcome_lines(key, rows, done))))
    on_step(step.name, len(rows), len(rows))
    return done


def _refuse_lost(name: str, rows: Sequence[Row], outcome: Outcome) -> None:
    went_in = [row.name for row in rows]
    gone = {dropped.row.name for dropped in outcome.dropped}
    if [row.name for row in outcome.kept] != [row for row in went_in if row not in gone]:
        raise AssertionError(f"step {name} lost a row, or kept and dropped one, or moved one")


def _outcome_lines(key: str, rows: Sequence[Row], outcome: Outcome) -> Iterator[dict[str, Any]]:
    """A head with the key, then what a step changed: rows rewritten, dropped, doubted."""
    yield {"key": key, "facts": dict(outcome.facts)}
    before = {row.name: row for row in rows}
    for row in outcome.kept:
        if row != before[row.name]:
            yield {"kind": "rewritten", "row": _plain(row)}
    for dropped in outcome.dropped:
        reason, detail = dropped.reason, dropped.detail
        yield {"kind": "dropped", "row": _plain(dropped.row), "reason": reason, "detail": detail}
    for doubt in outcome.doubts:
        yield {
            "kind": "doubt",
            "row": _plain(doubt.row),
            "question": doubt.question,
            "detail": doubt.detail,
            "score": doubt.score,
        }


def _read_outcome(file: Path, key: str, rows: Sequence[Row]) -> Outcome | None:
    """What a step did before; None if it was not done, or with other rows or other code."""
    try:
        with file.open("rb") as lines:
            head, *values = map(json.loads, lines)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} cannot be read: remove it and build again: {error}") from error
    if head["key"] != key:
        return None
    found: dict[str, list[Any]] = {"rewritten": [], "dropped": [], "doubt": []}
    for value in values:
        kind, row = value.pop("kind"), Row(**value.pop("row"))
        found[kind].append((row, value))
    rewritten = {row.name: row for row, _ in found["rewritten"]}
    dropped = tuple(
        Dropped(row, DropReason(value["reason"]), value["detail"])
        for row, value in found["dropped"]
    )
    gone = {one.row.name for one in dropped}
    return Outcome(
        kept=tuple(rewritten.get(row.name, row) for row in rows if row.name not in gone),
        dropped=dropped,
        doubts=tuple(Doubt(row, **value) for row, value in found["doubt"]),
        facts=head["facts"],
    )


def _step_report(name: str, rows: Sequence[Row], outcome: Outcome) -> StepReport:
    return StepReport(
        name=name,
        rows_in=len(rows),
        rows_kept=len(outcome.kept),
        dropped=dict(sorted(Counter(dropped.reason for dropped in outcome.dropped).items())),
        doubts=len(outcome.doubts),
        facts=dict(outcome.facts),
    )


def _plain(row: Row) -> dict[str, Any]:
    return {
        "source": row.source,
        "row_id": row.row_id,
        "question": row.question,
        "gold": row.gold,
        "notes": dict(row.notes),
    }


def _line(row: Row) -> bytes:
    return _json(_plain(row))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
