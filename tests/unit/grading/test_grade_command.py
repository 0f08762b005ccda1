"""``rstar2 grade``: counts, what it shows, and files that nobody can grade."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rstar2.cli.grade import CasesError, grade
from rstar2.records import RecordError

OPEN_CASES = Path(__file__).parents[1] / "data" / "grader_cases.jsonl"
RIGHT = r"<answer>\boxed{42}</answer>"


def run(cases: Path, *words: str) -> str:
    """What the command prints; what it raises is raised."""
    app = typer.Typer()
    app.command()(grade)
    runner = CliRunner(env={"COLUMNS": "80"})
    done = runner.invoke(app, ["--cases", str(cases), *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def case(**changes: Any) -> dict[str, Any]:
    return {"response": RIGHT, "gold": "42", "expected": True, **changes}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a file of cases and gives its path."""

    def write(*rows: Any) -> Path:
        path = tmp_path / "cases.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_the_open_cases_all_agree_and_the_report_holds_four_counts(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    said = run(OPEN_CASES, "--json", str(report))
    count = len(OPEN_CASES.read_text(encoding="utf-8").splitlines())
    counts = {"cases": count, "agree": count, "false_positive": 0, "false_negative": 0}
    assert json.loads(report.read_text()) == counts
    assert said.startswith(f"{count} of {count} agree")


def test_each_disagreement_is_shown_with_its_reason(write: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    cases = write(
        case(),
        case(expected=False, id="paid"),
        case(gold="43", id="unpaid"),
        case(response="no tags"),
        case(response="no tags", expected=False, id="agreed"),
    )
    said = run(cases, "--json", str(report))
    rows = [line.split() for line in said.splitlines()]
    assert rows[1] == ["paid", "wrong", "right", "correct", "42", "42"]
    assert rows[2] == ["unpaid", "right", "wrong", "mismatch", "43", "42"]
    assert rows[3] == ["line", "4", "right", "wrong", "no_answer_block", "42"]
    assert rows[4][:4] == ["2", "of", "5", "agree;"]
    assert "agreed" not in said
    counts = {"cases": 5, "agree": 2, "false_positive": 1, "false_negative": 2}
    assert json.loads(report.read_text()) == counts


@pytest.mark.parametrize("gold", ["1/2", "none", "", None, 4.5, True, ["42"]])
def test_a_gold_answer_that_is_no_integer_is_never_paid_and_is_named(
    write: Any, gold: object
) -> None:
    said = run(write(case(gold=gold), case(gold=gold, expected=False)))
    assert said.splitlines()[1].split()[:5] == ["line", "1", "right", "wrong", "bad_gold"]
    assert "2 with a gold answer that is not an integer" in said


def test_a_conversation_is_graded_by_its_last_turn(write: Any) -> None:
    told = {"role": "assistant", "content": RIGHT}
    asked = {"role": "user", "content": RIGHT}
    said = run(write(case(response=[asked, told]), case(response=[told, asked], expected=False)))
    assert said.startswith("2 of 2 agree")


def test_a_row_fits_80_columns_and_steers_no_terminal(write: Any) -> None:
    wild = "\x1b[31m\ud800\u202e" + "9" * 500
    said = run(write(case(response=rf"<answer>\boxed{{{wild}}}</answer>", gold="7" * 99, id=wild)))
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "\x1b" not in said
    assert "…" in said


def test_markup_in_a_case_is_shown_as_it_is(write: Any) -> None:
    assert "[red]a[/red]" in run(write(case(gold="43", id="[red]a[/red]")))


def test_blank_lines_and_a_missing_last_line_end_are_no_cases(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n" + json.dumps(case()) + "\r\n\n" + json.dumps(case()))
    assert run(path).startswith("2 of 2 agree")


def test_disagreements_of_a_long_file_come_under_one_heading(write: Any) -> None:
    said = run(write(*[case(expected=False)] * 450))
    assert said.count("reason") == 1
    assert said.count("correct") == 450


def test_a_long_file_is_not_held_in_memory(write: Any) -> None:
    wrong = [case(response="x" * 5_000 + RIGHT, expected=False)] * 300
    path = write(*wrong, *[case(response="x" * 5_000 + RIGHT)] * 700)
    tracemalloc.start()
    try:
        run(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no cases"),
        (b"\n \n", "holds no cases"),
        (b"{}\n", "line 1: no 'response'"),
        (json.dumps(case()).encode() + b"\n[1]\n", "line 2: not a JSON object"),
        (b"\n" + json.dumps(case()).encode()[:-5], "line 2: not JSON"),
        (b'{"response": "\xff"}', "line 1: not UTF-8"),
        (json.dumps(case()).encode("utf-16"), "line 1: not UTF-8"),
        (b"[" * 100_000, "line 1: not JSON"),
        (json.dumps(case(expected="yes")).encode(), "line 1: 'expected' is 'yes': true or false"),
        (json.dumps(case(expected=1)).encode(), "line 1: 'expected' is 1"),
        (b'{"response": "", "gold": "1"}', "line 1: no 'expected'"),
        (json.dumps(case(response=None)).encode(), "line 1: "),
        (json.dumps(case(response=[{"role": 1}])).encode(), "line 1: message 0"),
    ],
)
def test_a_file_that_cannot_be_graded_is_one_error_and_no_report(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(content)
    with pytest.raises(CasesError) as error:
        run(path, "--json", str(tmp_path / "report.json"))
    assert str(error.value).startswith(("cannot read", str(path)))
    assert message in str(error.value)
    assert not (tmp_path / "report.json").exists()


def test_a_report_never_replaces_the_cases(write: Any, tmp_path: Path) -> None:
    cases = write(case())
    before = cases.read_bytes()
    (tmp_path / "link").symlink_to(cases)
    (tmp_path / "hard").hardlink_to(cases)
    for name in ("cases.jsonl", "link", "hard", "../" + tmp_path.name + "/cases.jsonl"):
        with pytest.raises(CasesError, match="is the file of cases: name another file"):
            run(cases, "--json", str(tmp_path / name))
        assert cases.read_bytes() == before


def test_a_folder_as_report_is_an_error_before_anything_is_graded(
    write: Any, tmp_path: Path
) -> None:
    with pytest.raises(CasesError, match="is a folder: name a file in it"):
        run(write("never read"), "--json", str(tmp_path))


def test_a_byte_order_mark_at_the_start_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case()) + "\n", encoding="utf-8-sig")
    assert run(path).startswith("1 of 1 agree")
    path.write_text("\n" + json.dumps(case()), encoding="utf-8-sig")
    assert run(path).startswith("1 of 1 agree")


def test_a_terminal_that_knows_only_ascii_shows_question_marks(write: Any) -> None:
    wild = "é" + "9" * 500
    cases = write(case(response=rf"<answer>\boxed{{{wild}}}</answer>", gold="7" * 99, id=wild))
    done = subprocess.run(
        [sys.executable, "-c", "from rstar2.cli import main; main()", "grade", "--cases", cases],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith(b"?99")
    assert b"0 of 1 agree" in done.stdout


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CasesError, match="Is a directory"):
        run(tmp_path)
    with pytest.raises(CasesError, match="No such file"):
        run(tmp_path / "absent.jsonl")


def test_a_report_that_cannot_be_written_is_an_error_before_anything_is_graded(
    write: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot make folder"):
        run(write("never read"), "--json", str(tmp_path / "file" / "report.json"))
