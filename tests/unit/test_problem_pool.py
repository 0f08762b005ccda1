"""A pool is built from raw sets: every row is accounted for, and an interruption costs little."""

import csv
import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rstar2.cli import app
from rstar2.errors import UserError
from rstar2.experiments.pool_choice import choose
from rstar2.experiments.pool_files import (
    Decision,
    PoolError,
    read_pool,
    read_pool_rows,
    read_review,
    write_pool,
)
from rstar2.experiments.problem_pool import PoolReport, build_pool, content_hash
from rstar2.grading import Reason
from rstar2.problems.data.card import SourceReport
from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Progress, Row
from rstar2.problems.data.steps import Step, pool_steps
from rstar2.protocol import StopReason
from rstar2.training.label_check import hard_problems, label_check, suspect_labels
from rstar2.training.samples import Sample, SampleRecord

BUILD = "rstar2 data build --source own.jsonl"


def question(number: int) -> str:
    rng = random.Random(number)
    thing = rng.choice(["marbles", "lanterns", "sparrows", "tickets", "envelopes"])
    verb = rng.choice(["arranges", "collects", "repairs", "numbers", "weighs"])
    return f"A clerk {verb} {number} {thing} in {number % 7 + 2} rows. How many remain of {number}?"


ROWS = tuple(Row("own", str(n), question(n), str(n % 50)) for n in range(100, 140))


def source(rows: Sequence[Row], name: str = "own") -> SourceReport:
    return SourceReport(name, "Invented.", "Ours.", len(rows), len(rows), len(rows), "sha256:0")


def build(
    folder: Path, rows: Sequence[Row] = ROWS, steps: Sequence[Step] | None = None
) -> PoolReport:
    chosen = pool_steps({}) if steps is None else steps
    return build_pool(rows, chosen, folder, sources=[source(rows)], command=BUILD)


def test_every_row_is_in_the_pool_or_counted_with_its_reason(tmp_path: Path) -> None:
    extra = [
        replace(ROWS[0], row_id="copy"),
        replace(ROWS[1], row_id="other", gold="49"),
        Row("own", "chinese", "一个盒子里有三个红球和五个白球，共有多少个球？请给出答案。", "8"),
        Row("own", "fraction", "What is the half of one, as a number between zero and one?", "1/2"),
    ]
    report = build(tmp_path, [*ROWS, *extra])
    dropped = {reason: n for step in report.steps for reason, n in step.dropped.items()}
    assert dropped[DropReason.LANGUAGE] == dropped[DropReason.BAD_GOLD] == 1
    assert dropped[DropReason.DUPLICATE] == 1
    assert dropped[DropReason.CONFLICT] == 2
    assert report.rows + sum(dropped.values()) == len(ROWS) + len(extra)
    problems = read_pool(tmp_path)
    assert len(problems) == report.rows == len(ROWS) - 1
    assert problems[0].problem_id == "own/100"
    assert problems[0].answer == 0
    assert problems[0].family == "own"


def test_report_and_card_tell_the_same_and_name_no_problem(tmp_path: Path) -> None:
    report = build(tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())
    assert told == report.as_dict()
    assert told["content_hash"] == content_hash(ROWS)
    card = (tmp_path / "CARD.md").read_text()
    assert report.content_hash in card
    assert BUILD in card
    assert "No benchmark was given" in card
    assert "clerk" not in card + (tmp_path / "report.json").read_text()


def suspect(rows: Sequence[Row], progress: Progress) -> Outcome:
    """Drops the first row and doubts the next two, the second of them twice."""
    progress(0, len(rows))
    gone = Dropped(rows[0], DropReason.FIGURE, "see the figure")
    doubts = tuple(Doubt(row, "odd", "why", 1 / int(row.gold)) for row in rows[1:3])
    return Outcome(tuple(rows[1:]), (gone,), (*doubts, doubts[1]))


SUSPECT = (Step.of("suspect", suspect),)


def decided(folder: Path) -> dict[str, str]:
    with (folder / "review.csv").open(encoding="utf-8", newline="") as file:
        return {line["name"]: line["decision"] for line in csv.DictReader(file)}


def decide(folder: Path, name: str, decision: str) -> None:
    file = folder / "review.csv"
    file.write_text(file.read_text().replace(f"\n,{name},", f"\n{decision},{name},"))


def test_what_is_dropped_can_be_read_and_each_doubt_stands_once(tmp_path: Path) -> None:
    report = build(tmp_path, steps=SUSPECT)
    samples = (tmp_path / "samples.md").read_text()
    assert "## suspect: figure (1, 1 shown)" in samples
    assert ROWS[0].question in samples
    assert decided(tmp_path) == {"own/101": "", "own/102": ""}
    assert report.doubts == 2


def test_a_decision_holds_in_every_later_build_of_the_folder(tmp_path: Path) -> None:
    build(tmp_path, steps=SUSPECT)
    decide(tmp_path, "own/101", "drop")
    decide(tmp_path, "own/102", "keep")
    for _ in range(2):
        decisions = read_review(tmp_path / "review.csv")
        report = build_pool(
            ROWS, SUSPECT, tmp_path, sources=[source(ROWS)], command=BUILD, decisions=decisions
        )
        assert report.steps[-1].dropped == {DropReason.REVIEWED: 1}
        assert decided(tmp_path) == {"own/101": "drop", "own/102": "keep"}
        names = {problem.problem_id for problem in read_pool(tmp_path)}
        assert "own/101" not in names
        assert "own/102" in names


def test_a_decision_on_a_row_without_a_doubt_is_kept_too(tmp_path: Path) -> None:
    decisions = [Decision("own/120", ROWS[20].question, keep=False)]
    build_pool(ROWS, SUSPECT, tmp_path, sources=[source(ROWS)], command=BUILD, decisions=decisions)
    assert decided(tmp_path)["own/120"] == "drop"


@pytest.mark.parametrize(
    "decision",
    [Decision("own/100", ROWS[0].question, False), Decision("own/101", "Another text?", False)],
    ids=["a row that a rule dropped", "a row with another text"],
)
def test_a_stale_decision_is_refused_and_nothing_is_written(
    tmp_path: Path, decision: Decision
) -> None:
    with pytest.raises(PoolError, match=f"decides on {decision.name}"):
        build_pool(
            ROWS, SUSPECT, tmp_path, sources=[source(ROWS)], command=BUILD, decisions=[decision]
        )
    assert not (tmp_path / "pool.parquet").exists()


def test_a_review_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    build(tmp_path, steps=SUSPECT)
    decide(tmp_path, "own/101", "Drop ")
    file = tmp_path / "review.csv"
    file.write_bytes("\ufeff".encode() + file.read_bytes().replace(b"\n", b"\r\n"))
    assert [(one.name, one.keep) for one in read_review(file)] == [("own/101", False)]


def counted(calls: list[str], name: str) -> Callable[[Sequence[Row], Progress], Outcome]:
    def step(rows: Sequence[Row], progress: Progress) -> Outcome:
        progress(0, len(rows))
        calls.append(name)
        kept = tuple(replace(row, gold=row.gold + "0") for row in rows)
        return Outcome(kept, facts={"calls": 1})

    return step


def test_a_build_that_was_interrupted_goes_on_where_it_stopped(tmp_path: Path) -> None:
    calls: list[str] = []

    def dies(rows: Sequence[Row], progress: Progress) -> Outcome:
        raise KeyboardInterrupt

    first, last = Step.of("first", counted(calls, "first")), Step.of("last", counted(calls, "last"))
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cut", steps=[first, Step.of("last", dies)])
    assert not (tmp_path / "cut" / "pool.parquet").exists()
    report = build(tmp_path / "cut", steps=[first, last])
    assert calls == ["first", "last"]
    assert report == build(tmp_path / "whole", steps=[first, last])
    for name in ("pool.parquet", "report.json", "review.csv", "samples.md", "CARD.md"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_step_is_done_again_when_its_rows_or_what_it_was_given_change(tmp_path: Path) -> None:
    calls: list[str] = []
    step = Step.of("step", counted(calls, "step"), given="a")
    build(tmp_path, steps=[step])
    build(tmp_path, steps=[step])
    assert len(calls) == 1
    build(tmp_path, rows=ROWS[1:], steps=[step])
    build(tmp_path, rows=ROWS[1:], steps=[replace(step, given="b")])
    assert len(calls) == 3


def test_a_step_that_loses_a_row_is_a_defect_that_is_found(tmp_path: Path) -> None:
    def forgets(rows: Sequence[Row], progress: Progress) -> Outcome:
        return Outcome(tuple(rows[1:]))

    with pytest.raises(AssertionError, match="step forgets lost a row"):
        build(tmp_path, steps=[Step.of("forgets", forgets)])


def test_no_rows_and_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="no row is left of 0"):
        build(tmp_path, rows=[])
    with pytest.raises(PoolError, match="2 rows are called own/100"):
        build(tmp_path, rows=[ROWS[0], ROWS[0]])


def test_the_hash_is_of_the_content_and_its_order() -> None:
    assert content_hash(ROWS) == content_hash(list(ROWS))
    assert content_hash(ROWS) != content_hash(ROWS[::-1])
    assert content_hash(ROWS) != content_hash([*ROWS[:-1], replace(ROWS[-1], gold="1")])


def test_an_answer_beyond_64_bits_survives(tmp_path: Path) -> None:
    row = replace(ROWS[0], gold="-" + "9" * 39)
    build(tmp_path, rows=[row])
    assert read_pool(tmp_path)[0].answer == -int("9" * 39)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decision,name,question\nperhaps,own/1,?\n", "entry 1: decision is 'perhaps'"),
        ("decision,name,question\ndrop,,?\n", "entry 1: decision is 'drop' for ''"),
        ("name,question\nown/1,?\n", "it has no column decision"),
        ("decision,name,question\ndrop,a/1,?\nkeep,a/1,?\n", "both kept and dropped"),
        ("", "no column decision, name, question"),
    ],
)
def test_a_review_that_says_something_else_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "review.csv"
    file.write_text(text)
    with pytest.raises(PoolError, match=message):
        read_review(file)
    with pytest.raises(PoolError, match="cannot read the review"):
        read_review(tmp_path / "absent.csv")


def test_a_pool_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "pool.parquet").write_text("no parquet")
    for place in (tmp_path, tmp_path / "absent.parquet"):
        with pytest.raises(PoolError, match="no pool of problems"):
            read_pool(place)


def record_of(rows: Sequence[Row], correct: int) -> SampleRecord:
    """Eight samples of each row, so many of them right; the others all say 7."""
    samples = []
    for row in rows:
        digest = sha256(row.question.encode()).hexdigest()[:16]
        for number in range(8):
            right = number < correct
            reason = Reason.CORRECT if right else Reason.MISMATCH
            value, stop = row.gold if right else "7", StopReason.ANSWERED
            samples.append(
                Sample(row.name, digest, row.gold, number, value, reason, stop, 10, value)
            )
    return SampleRecord({"format": 1, "samples": 8, "policy": "invented"}, tuple(samples))


def merged(*records: SampleRecord) -> SampleRecord:
    samples = tuple(sample for record in records for sample in record.samples)
    return SampleRecord(records[0].header, samples)


def test_a_choice_keeps_what_the_record_speaks_for(tmp_path: Path) -> None:
    build(tmp_path / "pool")
    record = merged(record_of(ROWS[:1], 3), record_of(ROWS[1:2], 8))
    hard = hard_problems(record, 7)
    report = choose(tmp_path / "pool", record, hard, "solved by at most 7 of 8", tmp_path / "hard")
    assert (report.kept, report.dropped, report.unfinished) == (1, 1, 38)
    assert report.pool == content_hash(ROWS)
    assert report.made_with["policy"] == "invented"
    assert [problem.problem_id for problem in read_pool(tmp_path / "hard")] == ["own/100"]


def test_suspects_are_listed_and_an_old_list_does_not_stay(tmp_path: Path) -> None:
    build(tmp_path / "pool")
    record = merged(record_of(ROWS[:1], 2), record_of(ROWS[1:2], 8))
    suspects = suspect_labels(record)
    outside = dataclasses.replace(suspects[0], problem_id="other/1")
    checked = label_check(record, 2)
    out = tmp_path / "checked"
    report = choose(tmp_path / "pool", record, checked, "rule", out, [*suspects, outside])
    assert report.suspects == 1
    with (out / "suspects.csv").open(newline="") as file:
        assert [(one["name"], one["said"]) for one in csv.DictReader(file)] == [("own/100", "7")]
    choose(tmp_path / "pool", record, checked, "rule", out)
    assert not (out / "suspects.csv").exists()


def test_a_record_of_other_problems_or_other_texts_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "pool")
    other = record_of([replace(ROWS[0], source="other")], 3)
    changed = record_of([replace(ROWS[0], question="Another text of the same name?")], 3)
    relabelled = record_of([replace(ROWS[0], gold="41")], 3)
    for record, message in (
        (other, "no sample of a problem of this pool"),
        (changed, "own/100 with another text or label"),
        (relabelled, "own/100 with another text or label"),
        (record_of(ROWS[:1], 8), "no problem of .* is kept, 1 are dropped"),
    ):
        with pytest.raises(PoolError, match=message):
            choose(tmp_path / "pool", record, hard_problems(record, 7), "rule", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_prompt_that_does_not_fit_says_nothing_of_its_problem(tmp_path: Path) -> None:
    record = record_of(ROWS[:1], 0)
    cut = tuple(
        dataclasses.replace(one, stop=StopReason.PROMPT_TOO_LONG, reason=Reason.TRUNCATED)
        for one in record.samples
    )
    choice = hard_problems(SampleRecord(record.header, cut), 7)
    assert (len(choice.kept), len(choice.dropped), len(choice.unfinished)) == (0, 0, 1)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.jsonl"
    lines = (json.dumps({"question": row.question, "answer": row.gold}) for row in ROWS)
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_command_builds_reports_and_compares(tmp_path: Path, own: Path) -> None:
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps({"question": ROWS[3].question, "answer": "1"}) + "\n")
    told = run(
        "data", "build", "--source", own, "--against", exam, "--out", tmp_path / "pool",
        "--json", tmp_path / "report.json",
    )  # fmt: skip
    assert "39 problems" in told
    assert "contaminated 1" in told
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rows"] == 39
    assert report["against"][0]["name"] == "exam"
    assert str(tmp_path) not in (tmp_path / "pool" / "CARD.md").read_text()


def test_the_command_says_when_nothing_was_compared(tmp_path: Path, own: Path) -> None:
    told = run("data", "build", "--source", own, "--out", tmp_path / "pool")
    assert "nothing was compared" in told


def test_a_benchmark_is_no_source(tmp_path: Path) -> None:
    exam = tmp_path / "exam.jsonl"
    exam.write_text('{"prompt": "What is asked?", "instruction_id_list": [], "kwargs": []}\n')
    with pytest.raises(UserError, match="ifeval is a benchmark: give it as --against"):
        run("data", "build", "--subset", "--source", f"ifeval={exam}", "--out", tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


def test_keep_wants_one_threshold(tmp_path: Path) -> None:
    for thresholds in ([], ["--least", "2", "--most", "7"]):
        with pytest.raises(UserError, match="give --least"):
            run("data", "keep", "--pool", tmp_path, "--samples", tmp_path, "--out", tmp_path,
                *thresholds)  # fmt: skip


def test_the_known_sets_are_listed() -> None:
    told = run("data", "sources")
    assert "dapo-17k" in told
    assert "aime25" in told


@pytest.mark.thorough
def test_a_pool_of_the_ladder_is_sampled_and_chosen_from(tmp_path: Path) -> None:
    """With the committed policy; a second run of the same record does nothing."""
    pool, record = tmp_path / "ladder.parquet", tmp_path / "samples.jsonl"
    told = run("data", "ladder", "--out", pool, "--level", "one", "--count", "1")
    assert f"{len(read_pool(pool))} problems" in told
    few = tmp_path / "few.parquet"
    write_pool(few, read_pool_rows(pool)[:3])
    sampling = ("data", "sample", "--pool", few, "--out", record, "--samples", "2")
    told = run(*sampling)
    assert "3 problems, 2 samples each" in told
    lines = record.read_text()
    assert run(*sampling) == told
    assert record.read_text() == lines
    hard = run("data", "keep", "--pool", few, "--samples", record, "--out", tmp_path / "hard",
               "--most", "1")  # fmt: skip
    assert "solved by at most 1 of 2" in hard
    with pytest.raises(UserError, match="samples"):
        run(*sampling[:-1], "3")
