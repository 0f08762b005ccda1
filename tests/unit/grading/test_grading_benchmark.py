"""The benchmark's own claims: what is counted, what is made from a seed, and a quick run."""

import importlib
import json
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rstar2.grading import Reason, grade
from rstar2.grading.number import MAX_LENGTH

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def benchmark() -> Any:
    """Give a module of the benchmark by its name."""
    return lambda name: importlib.import_module(f"benchmarks.grading.{name}")


def test_agreement_counts_both_ways_to_be_wrong_by_category(benchmark: Any) -> None:
    agreement = benchmark("agreement")
    labels = [("a", True), ("a", False), ("b", True), ("b", False), ("b", False)]
    cases = [agreement.Case(category, "", "42", label) for category, label in labels]
    found = agreement.compare(cases, [True, True, False, True, False])
    assert found.agree == pytest.approx(2 / 5)
    assert found.false_positive == {"a": 1, "b": 1}
    assert found.false_negative == {"b": 1}


def test_responses_are_of_one_length_and_come_from_their_seed(benchmark: Any) -> None:
    responses = benchmark("responses")
    made = list(responses.make_responses(120))
    assert made == list(responses.make_responses(120))
    assert made[:10] != list(responses.make_responses(10, seed=1))
    ordinary = [one for one in made if one.kind == "ordinary"]
    assert len(ordinary) == 60
    assert all(responses.LENGTH <= len(one.text) < responses.LENGTH * 1.1 for one in ordinary)
    assert all(len(one.text) < responses.LENGTH * 1.4 for one in made)
    assert {one.kind for one in made} == {"ordinary", *responses.HOSTILE}
    assert {one.correct for one in ordinary} == {True, False}


def test_an_ordinary_response_is_what_it_says(benchmark: Any) -> None:
    for one in islice(benchmark("responses").make_responses(80), 0, None, 2):
        verdict = grade(one.text, one.gold)
        assert verdict.reason in (Reason.CORRECT, Reason.MISMATCH)
        assert verdict.correct == one.correct


def test_every_strategy_makes_its_inputs_from_the_seed(benchmark: Any) -> None:
    fuzz = benchmark("fuzz")
    for strategy in fuzz.STRATEGIES:
        first, second = (
            [strategy(random.Random(n), ["a case", r"\boxed{1}"]) for n in range(50)]
            for _ in range(2)
        )
        assert first == second
        assert len(set(first)) > 5


def test_every_gold_answer_of_the_fuzz_is_good_so_that_each_input_is_read(benchmark: Any) -> None:
    for gold in benchmark("fuzz").GOLDS:
        assert grade(rf"<answer>\boxed{{{gold}}}</answer>", gold).correct


def test_a_response_of_six_long_boxes_has_six_that_are_read(benchmark: Any) -> None:
    hostile = benchmark("responses").HOSTILE
    six = [name for name in hostile if name.startswith("six ")]
    assert len(six) == 3
    for name in six:
        boxes = hostile[name](random.Random(0), 42).split(r"\boxed{")[1:]
        assert len(set(boxes)) == 6
        assert all(4_000 < len(box) <= MAX_LENGTH for box in boxes)


def test_an_input_that_raises_is_counted_and_told(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuzz = benchmark("fuzz")

    def broken(text: str, gold: str) -> Any:
        if "7" in text:
            raise ZeroDivisionError("a seven")
        return grade(text, gold)

    monkeypatch.setattr(fuzz, "grade", broken)
    found = fuzz.fuzz(600, ["a case"])
    assert 0 < found.raised < found.inputs == 600
    assert "ZeroDivisionError('a seven')" in found.examples[0]


def test_a_wrong_verdict_ends_the_run(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    latency = benchmark("latency")
    monkeypatch.setattr(latency, "grade", lambda text, _: grade(text, 0))
    with pytest.raises(latency.WrongVerdict):
        latency.ours(40)


def test_the_script_grades_as_verl_does_and_answers_a_bad_gold(benchmark: Any) -> None:
    program = (
        "import sys; from benchmarks.grading.whole_response import load\n"
        "answer = load()\n"
        "print(answer(('42', r'so $\\boxed{42}$')), answer(('42', r'$\\boxed{43}$')),"
        " answer(('', 'x')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "correct wrong wrong\n"


@pytest.mark.thorough
def test_a_quick_run_writes_its_record_and_prints_the_headline(tmp_path: Path) -> None:
    record = tmp_path / "new" / "benchmark.json"
    command = [sys.executable, "-m", "benchmarks.grading", "--quick", "--json", str(record)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    headline = json.loads(done.stdout.splitlines()[-1])
    written = json.loads(record.read_text())
    assert headline.items() <= written.items()
    assert headline["ours_agree"] == 1.0
    assert headline["ours_false_positive"] == headline["fuzz_raised"] == 0
    assert 0.5 < headline["mathverify_agree"] < 1
    assert headline["not_measured"] == []
    beside = done.stdout.splitlines()[-2]
    assert "by the clock, 2 processes at once" in beside
    assert "first 20 of 640 responses" in beside
    assert set(written["libraries"]) == {"math-verify", "latex2sympy2_extended", "sympy"}
    assert written["provenance"]["hardware"]["cores"] >= 1


def test_a_record_that_cannot_be_written_is_one_line_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "benchmarks.grading", "--json", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
