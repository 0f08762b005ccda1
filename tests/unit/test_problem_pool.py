"""A pool is built from raw sets: every row is accounted for, and an interruption costs little."""

import csv
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rstar2.cli import app
from rstar2.errors import UserError
from rstar2.experiments.pool_choice import choose
from rstar2.experiments.pool_files import (
    PoolError,
    read_pool,
    read_pool_rows,
    read_review,
    write_pool,
)
from rstar2.experiments.problem_pool import PoolReport, build_pool, content_hash
from rstar2.problems.data.card import SourceReport
from rstar2.problems.data.rows import Doubt, Dropped, DropReason, Outcome, Progress, Row
from rstar2.problems.data.steps import Step, pool_steps, reviewed
from rstar2.training.label_check import Choice, PassCount

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


def test_what_is_dropped_can_be_read_and_what_is_doubtful_decided(tmp_path: Path) -> None:
    def suspect(rows: Sequence[Row], progress: Progress) -> Outcome:
        progress(0, len(rows))
        gone = Dropped(rows[0], DropReason.FIGURE, "see the figure")
        doubts = tuple(Doubt(row, "odd", "why", 1 / int(row.gold)) for row in rows[1:3])
        return Outcome(tuple(rows[1:]), (gone,), doubts)

    build(tmp_path / "first", steps=[Step.of("suspect", suspect)])
    samples = (tmp_path / "first" / "samples.md").read_text()
    assert "## suspect: figure (1, 1 shown)" in samples
    assert ROWS[0].question in samples
    review = tmp_path / "first" / "review.csv"
    with review.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == ["own/101", "own/102"]
    review.write_text(review.read_text().replace(",own/101,", "drop,own/101,"))
    decisions = read_review(review)
    assert decisions == {"own/101": False, "own/102": True}
    steps = [Step.of("suspect", suspect), reviewed(decisions)]
    report = build(tmp_path / "second", steps=steps)
    assert report.steps[-1].dropped == {DropReason.REVIEWED: 1}
    assert "own/101" not in {problem.problem_id for problem in read_pool(tmp_path / "second")}


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
    [("decision,name\nperhaps,own/1\n", "entry 1: decision is 'perhaps'"), ("a,b\n1,2\n", "None")],
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


def count(name: str, correct: int) -> PassCount:
    return PassCount(name, "1", 8, correct, (), ())


def test_a_choice_keeps_what_the_record_speaks_for(tmp_path: Path) -> None:
    build(tmp_path / "pool")
    choice = Choice((count("own/100", 3),), (count("own/101", 8), count("other/1", 8)), ())
    report = choose(tmp_path / "pool", choice, "solved by at most 7 of 8", tmp_path / "hard")
    assert (report.kept, report.dropped, report.unfinished) == (1, 1, 38)
    assert [problem.problem_id for problem in read_pool(tmp_path / "hard")] == ["own/100"]
    with pytest.raises(PoolError, match="is the record one of its problems"):
        choose(tmp_path / "pool", Choice((), (), ()), "rule", tmp_path / "none")
    assert not (tmp_path / "none").exists()


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
