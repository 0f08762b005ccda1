"""``rstar2 grade --cases FILE.jsonl``: the reward's grader beside labels that people gave.

The file is read line by line and disagreements are printed as they gather, so that a file of
a million cases needs no more memory than one of a hundred.
"""

import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rstar2.errors import UserError
from rstar2.grading import Verdict
from rstar2.grading.labelled import Tally, judge
from rstar2.records import atomic_write
from rstar2.records.files import make_folder

_BAD_GOLD = "bad_gold"
_KEYS = ("response", "gold", "expected")
_ROWS = 200
"""Disagreements that are printed together."""
_COLUMNS = {"case": 16, "label": 5, "graded": 6, "reason": 15, "gold": 10, "box": 14}
"""Columns of the table and their widths; a terminal of 80 shows all."""


class CasesError(UserError):
    """A file cannot be used; the message names it, or its line, and what to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the file.

    Attributes:
        name: Its ``id``, or the number of its line.
        response: The text, or the conversation, to grade.
        gold: The right answer, as it stands there.
        expected: Whether the response is right, as a person says.
    """

    name: str
    response: Any
    gold: Any
    expected: bool


@dataclass(frozen=True, slots=True)
class Graded:
    """What the grader says of a case.

    Attributes:
        case: The case.
        verdict: Its verdict; None if the gold answer is not an integer.
    """

    case: Case
    verdict: Verdict | None

    @property
    def paid(self) -> bool:
        """Whether the response would earn a reward."""
        return self.verdict is not None and self.verdict.correct


@dataclass(slots=True)
class Report:
    """What the run found so far.

    Attributes:
        tally: How grader and labels agree.
        bad_golds: Cases whose gold answer is not an integer.
    """

    tally: Tally = field(default_factory=Tally)
    bad_golds: int = 0

    def disagreements(self, graded: Iterable[Graded]) -> Iterator[Graded]:
        """Count cases, and give those where grader and label disagree."""
        for each in graded:
            self.bad_golds += each.verdict is None
            if not self.tally.count(paid=each.paid, expected=each.case.expected):
                yield each


def grade(
    cases: Annotated[
        Path, typer.Option("--cases", metavar="FILE.jsonl", help="The cases, one per line.")
    ],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the counts as JSON too.")
    ] = None,
) -> None:
    """Grade labelled responses and show where grader and label disagree.

    A case is `response` (a text, or a list of messages), `gold`, `expected` (true if the
    response is right) and if wanted `id`. A gold answer that is not an integer never earns a
    reward: it counts as graded wrong, with the reason bad_gold.

    The exit code says whether the cases could be graded, not whether all agree: it is 0.
    """
    if json_file is not None:
        _check_target(json_file, cases)  # now, not after minutes of grading
    console = _console()
    report = Report()
    for number, rows in enumerate(_batches(report.disagreements(_graded(cases)))):
        console.print(_table(rows, with_head=number == 0))
    if report.tally.cases == 0:
        raise CasesError(f"{cases} holds no cases: give one JSON object per line")
    console.print(Text(_summary(report)), soft_wrap=True)
    if json_file is not None:
        atomic_write(json_file, json.dumps(asdict(report.tally)).encode() + b"\n")


def _check_target(target: Path, cases: Path) -> None:
    """Refuse a report that cannot be written, or would replace the cases."""
    make_folder(target.parent)
    if target.is_dir():
        raise CasesError(f"--json {target} is a folder: name a file in it")
    if target.exists() and cases.exists() and target.samefile(cases):
        raise CasesError(f"--json {target} is the file of cases: name another file")


def _console() -> Console:
    """The terminal; what its encoding cannot write is shown as a question mark."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)


def _graded(path: Path) -> Iterator[Graded]:
    for number, case in _read(path):
        try:
            verdict = judge(case.response, case.gold)
        except TypeError as error:
            raise CasesError(f"{path}, line {number}: {error}") from error
        yield Graded(case, verdict)


def _read(path: Path) -> Iterator[tuple[int, Case]]:
    """Cases with their line numbers; blank lines are none."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield number, _case(line, path, number)
    except OSError as error:
        raise CasesError(f"cannot read {path}: {error.strerror}") from error


def _case(line: bytes, path: Path, number: int) -> Case:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CasesError(f"{where}: not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise CasesError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise CasesError(f"{where}: not a JSON object")
    missing = [key for key in _KEYS if key not in row]
    if missing:
        raise CasesError(f"{where}: no {missing[0]!r}: a case has {', '.join(_KEYS)}")
    if not isinstance(row["expected"], bool):
        raise CasesError(f"{where}: 'expected' is {_cut(repr(row['expected']), 40)}: true or false")
    return Case(str(row.get("id", f"line {number}")), *(row[key] for key in _KEYS))


def _batches(disagreements: Iterable[Graded]) -> Iterator[list[Graded]]:
    rest = iter(disagreements)
    while rows := list(islice(rest, _ROWS)):
        yield rows


def _table(rows: list[Graded], *, with_head: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=with_head, padding=(0, 2, 0, 0))
    for name, width in _COLUMNS.items():
        table.add_column(name, width=width, no_wrap=True, overflow="ellipsis")
    for row in rows:
        case, verdict = row.case, row.verdict
        reason, box = (verdict.reason.value, verdict.box) if verdict else (_BAD_GOLD, "")
        cells = (case.name, _word(case.expected), _word(row.paid), reason, str(case.gold), box)
        shown = zip(cells, _COLUMNS.values(), strict=True)
        table.add_row(*(Text(_cut(cell, width + 1)) for cell, width in shown))
    return table


def _word(correct: bool) -> str:
    return "right" if correct else "wrong"


def _cut(text: str, length: int) -> str:
    """The start of a text, without what would steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:length])


def _summary(report: Report) -> str:
    tally = report.tally
    summary = (
        f"{tally.agree} of {tally.cases} agree; {tally.false_positive} paid but labelled wrong, "
        f"{tally.false_negative} labelled right but not paid"
    )
    if report.bad_golds:
        summary += f"\n{report.bad_golds} with a gold answer that is not an integer: {_BAD_GOLD}"
    return summary
