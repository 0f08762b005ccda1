"""Problems of benchmarks do not reach the pool, boilerplate notwithstanding."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.problems.data.contamination import decontaminate
from rstar2.problems.data.rows import DropReason, Outcome, Row
from rstar2.problems.data.rules import RULES
from rstar2.problems.data.text import problem_words

BENCHMARKS = {
    "contest": [
        "The probability that a marble drawn from the {n} red and 9 blue marbles in an urn is red "
        "can be written as $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive "
        "integers. Find $m+n$.".replace("{n}", "12"),
        "Determine the number of ways to arrange the letters of the word ELLIPSE.",
    ],
    "short": ["Compute $2+2$.", "Evaluate $\\log 8$"],
}


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


def run(*questions: str) -> Outcome:
    rows = [Row("set", str(number), text, "7") for number, text in enumerate(questions)]
    return decontaminate(BENCHMARKS)(rows, quiet)


def caught(question: str) -> str | None:
    """The problem that a row is a copy of, or None if it stays."""
    outcome = run(question)
    for gone in outcome.dropped:
        assert gone.reason is DropReason.CONTAMINATED
        return gone.detail.split(":")[0]
    return None


def test_a_copy_is_dropped_with_the_name_of_the_problem_and_the_similarity() -> None:
    outcome = run(BENCHMARKS["contest"][0].upper())
    assert outcome.dropped[0].detail == "contest/0: similarity 1.00, contains 1.00"


def test_a_copy_in_a_wrapper_is_a_copy() -> None:
    wrapped = BENCHMARKS["contest"][1] + " Please reason step by step."
    assert caught(wrapped) == "contest/1"


def test_a_copy_with_changed_numbers_or_letters_is_a_copy() -> None:
    assert caught(BENCHMARKS["contest"][0].replace("12", "15")) == "contest/0"
    assert caught(BENCHMARKS["contest"][1].replace("ELLIPSE", "GAMMAS")) == "contest/1"


def test_a_long_text_that_contains_a_problem_is_a_copy() -> None:
    story = "Ann and Bob play a game with cards, and they take turns until one of them wins. " * 3
    assert caught(f"{story} {BENCHMARKS['contest'][0]} Then {story}") == "contest/0"


def test_boilerplate_in_common_is_not_contamination() -> None:
    other = (
        "A fly walks from one corner of a cube to the opposite one along the shortest path. The "
        "ratio of its way to the diagonal can be written as $\\frac{m}{n}$, where $m$ and $n$ are "
        "relatively prime positive integers. Find $m+n$."
    )
    outcome = run(other)
    assert not outcome.dropped
    assert not outcome.doubts


def test_a_short_problem_is_compared_as_a_whole() -> None:
    assert caught("compute $2 + 2$") == "short/0"
    assert caught(r"Evaluate $\log 8$.") == "short/1"
    assert caught("Compute $2+2+x$ for the root $x$ of $x^3=5$.") is None


def test_a_row_that_resembles_a_problem_is_a_doubt() -> None:
    outcome = run("Find the number of ways to arrange the letters of some other language.")
    assert not outcome.dropped
    (doubt,) = outcome.doubts
    assert doubt.detail.startswith("contest/1: similarity 0.")
    assert 0.35 <= doubt.score < 0.5


def test_drawing_code_does_not_hide_a_copy() -> None:
    assert caught("[asy]draw((0,0)--(9,9));[/asy] " + BENCHMARKS["contest"][1]) == "contest/1"


@pytest.mark.parametrize(
    "tail",
    [
        "where $m$ and $n$ are relatively prime positive integers. Find $m+n$.",
        "The answer is in the form \\frac{m}{n}, where gcd(m, n) = 1. Please provide the value of"
        " m + n.",
        "If the answer is $x$, what is the value of $10x$?",
        "Please give the value of k + m.",
    ],
)
def test_boilerplate_leaves_the_problem(tail: str) -> None:
    (run_of_words,) = problem_words(f"A coin shows heads twice as often. {tail}")
    assert " ".join(run_of_words) == "a coin shows heads twice as often"


def test_no_benchmarks_and_no_rows_are_fine() -> None:
    assert decontaminate({})([], quiet) == Outcome(())
    row = Row("set", "1", BENCHMARKS["contest"][0], "7")
    assert decontaminate({"empty": []})([row], quiet).kept == (row,)


WORDS = st.sampled_from(["find", "number of", "ways to", "arrange the letters", "ellipse", "2"])


@given(st.lists(st.lists(WORDS, max_size=15).map(" ".join), max_size=6))
def test_every_row_is_kept_or_dropped_and_dropped_alone_as_well(questions: list[str]) -> None:
    outcome = run(*questions)
    assert len(outcome.kept) + len(outcome.dropped) == len(questions)
    assert [row.question for row in outcome.kept] == [q for q in questions if caught(q) is None]


@pytest.mark.skipif("RSTAR2_DATA" not in os.environ, reason="RSTAR2_DATA names no folder of sets")
def test_the_real_benchmarks_in_the_dapo_file() -> None:
    files = {
        "aime24": ("aime24.jsonl", "problem"),
        "aime25": ("aime25.jsonl", "problem"),
        "hmmt25": ("hmmt25.jsonl", "prompt"),
        "math-500": ("math500.jsonl", "problem"),
        "gsm8k": ("gsm8k_test.jsonl", "question"),
    }
    folder = Path(os.environ["RSTAR2_DATA"])
    benchmarks = {
        name: [json.loads(line)[key] for line in (folder / file).read_text().splitlines()]
        for name, (file, key) in files.items()
    }
    records = parquet.read_table(folder / "dapo_math_17k.parquet").to_pylist()
    rows: Sequence[Row] = [
        Row("dapo-17k", str(number), record["prompt"][0]["content"], "0")
        for number, record in enumerate(records)
    ]
    for name in ("clean", "language"):
        rows = dict(RULES)[name](rows, quiet).kept
    outcome = decontaminate(benchmarks)(rows, quiet)
    sets = Counter(gone.detail.split("/")[0] for gone in outcome.dropped)
    problems = {gone.detail.split(":")[0] for gone in outcome.dropped}
    assert sets.keys() == {"math-500"}
    assert 24 <= len(problems) <= 32
    assert sum("similarity 1.00" in gone.detail for gone in outcome.dropped) >= 7
