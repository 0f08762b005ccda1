"""What the book draws from records: curves over seeds, arms compared, one example."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.experiments.curves import (
    Finding,
    by_seed,
    compare,
    curve,
    examples,
    most_telling,
    overlap,
    recovers,
    show_estimate,
    stage_starts,
)
from rstar2.experiments.report import Record, over_seeds
from rstar2.grading import Reason, Verdict
from rstar2.problems import Problem, ProblemSet
from rstar2.protocol import CallStatus, StopReason, ToolCall, Trajectory, Turn
from rstar2.rollout.groups import Rollout
from rstar2.rollout.serialise import rollout_to_json


def record(
    folder: Path, seed: int, stages: tuple[int, ...] = (1, 1, 2), **metrics: list[float]
) -> Record:
    """A run on disk with these metrics."""
    path = folder / f"seed{seed}"
    path.mkdir(parents=True, exist_ok=True)
    steps = range(1, len(stages) + 1)
    table = pd.DataFrame({"step": steps, "stage": stages, **metrics})
    table.to_parquet(path / "metrics.parquet", index=False)
    return Record(path, {"arm": "grpo", "seed": seed})


# --- curves ------------------------------------------------------------------------------


def test_a_curve_keeps_each_seed_and_their_mean(tmp_path: Path) -> None:
    runs = [record(tmp_path, 0, accuracy=[0.1, 0.2, 0.3]), record(tmp_path, 4, accuracy=[0.3] * 3)]
    found = curve(runs, "accuracy")
    assert found.steps.tolist() == [1, 2, 3]
    assert {seed: values.tolist() for seed, values in found.seeds.items()} == {
        0: [0.1, 0.2, 0.3],
        4: [0.3, 0.3, 0.3],
    }
    assert found.mean.tolist() == pytest.approx([0.2, 0.25, 0.3])


def test_a_moving_mean_is_centred_and_shorter_at_the_ends(tmp_path: Path) -> None:
    runs = [record(tmp_path, 0, stages=(1,) * 5, accuracy=[0.0, 3.0, 6.0, 0.0, 3.0])]
    assert curve(runs, "accuracy", window=3).mean.tolist() == [1.5, 3.0, 3.0, 3.0, 1.5]


def test_an_undefined_step_is_left_out_and_not_taken_for_zero(tmp_path: Path) -> None:
    runs = [
        record(tmp_path, 0, accuracy=[math.nan, 0.2, 0.4]),
        record(tmp_path, 1, accuracy=[0.6, math.nan, math.nan]),
    ]
    found = curve(runs, "accuracy")
    assert found.mean.tolist() == pytest.approx([0.6, 0.2, 0.4])
    assert found.first(2) == pytest.approx({0: 0.2, 1: 0.6})
    assert found.last(2)[0] == pytest.approx(0.3)
    assert math.isnan(found.last(2)[1])


def test_a_curve_of_nothing_or_of_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path, 0, accuracy=[0.1] * 3)
    with pytest.raises(ValueError, match="at least one run"):
        curve([], "accuracy")
    with pytest.raises(ValueError, match=r"seed0 has no metric 'acuracy'"):
        curve([run], "acuracy")
    with pytest.raises(ValueError, match="a second run with seed 0"):
        curve([run, run], "accuracy")


def test_stages_start_where_all_runs_say(tmp_path: Path) -> None:
    runs = [record(tmp_path, seed, stages=(1, 1, 2, 3, 3)) for seed in range(3)]
    assert stage_starts(runs) == (1, 3, 4)
    other = record(tmp_path, 9, stages=(1, 2, 2, 3, 3))
    with pytest.raises(ValueError, match="different steps"):
        stage_starts([*runs, other])


# --- arms compared -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reference", "finding"),
    [
        ([0.1, 0.2, 0.3], [0.4, 0.5, 0.61], Finding.LOWER),
        ([0.4, 0.5, 0.61], [0.1, 0.2, 0.3], Finding.HIGHER),
        ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], Finding.UNDECIDED),
        ([0.1], [0.9], Finding.NO_INTERVAL),
        ([], [], Finding.NO_INTERVAL),
    ],
)
def test_a_comparison_says_what_its_interval_says(
    values: list[float], reference: list[float], finding: Finding
) -> None:
    first, second = dict(enumerate(values)), dict(enumerate(reference))
    assert compare(first, second).finding is finding


def test_seeds_are_paired_and_those_without_both_values_left_out() -> None:
    found = compare({0: 0.5, 1: 0.7, 2: math.nan, 3: 0.9}, {1: 0.4, 0: 0.1, 2: 0.2})
    assert found.differences == pytest.approx({0: 0.4, 1: 0.3})
    assert found.estimate[0] == pytest.approx(0.35)


def test_what_arms_share_cancels() -> None:
    ground = {0: 0.2, 1: 0.5, 2: 0.8}
    better = {seed: value + 0.01 * (1 + seed / 10) for seed, value in ground.items()}
    assert compare(better, ground).finding is Finding.HIGHER


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(-1, 1))
def test_a_comparison_turned_round_says_the_opposite(values: list[float], shift: float) -> None:
    first = dict(enumerate(values))
    second = {seed: value * 0.5 + shift for seed, value in first.items()}
    one, other = compare(first, second), compare(second, first)
    opposite = {Finding.LOWER: Finding.HIGHER, Finding.HIGHER: Finding.LOWER}
    assert other.finding is opposite.get(one.finding, one.finding)
    assert other.interval.mean == pytest.approx(-one.interval.mean)


def test_intervals_overlap_if_they_share_a_point() -> None:
    assert overlap([0.5, 0.4, 0.6], [0.7, 0.6, 0.8]) is True
    assert overlap([0.5, 0.4, 0.6], [0.8, 0.7, 0.9]) is False
    assert overlap([0.8, 0.7, 0.9], [0.5, 0.4, 0.6]) is False
    assert overlap([0.5, None, None], [0.8, 0.7, 0.9]) is None


def test_an_estimate_is_shown_with_what_it_has() -> None:
    assert show_estimate([0.534, 0.48, 0.589]) == "0.53 [0.48,\u00a00.59]"
    assert show_estimate([0.5, None, None], 3) == "0.500"
    assert show_estimate([None, None, None]) == "–"
    assert show_estimate([0.1, -0.05, 0.25], signed=True) == "+0.10 [-0.05,\u00a0+0.25]"


def test_a_rate_by_seed_is_what_the_report_averages(tmp_path: Path) -> None:
    runs = [record(tmp_path, seed, accuracy=[0.0] * 3) for seed in (0, 1)]
    for run, right in zip(runs, (3, 5), strict=True):
        row = {
            "problem_set": "families",
            "samples": 8,
            "correct": right,
            "calls_in_correct": 0,
            "errors_in_correct": 0,
            "tokens": 80,
            "tokens_in_correct": 30,
            "truncated": 0,
        }
        pd.DataFrame([row]).to_parquet(run.path / "evaluation.parquet")
    found = by_seed(runs, ProblemSet.FAMILIES, "accuracy")
    assert found == {0: 3 / 8, 1: 5 / 8}
    assert over_seeds(runs, ProblemSet.FAMILIES, "accuracy")[0] == np.mean(list(found.values()))
    undefined = by_seed(runs, ProblemSet.FAMILIES, "tool_error_in_correct")
    assert all(map(math.isnan, undefined.values()))


# --- examples ----------------------------------------------------------------------------


def rollout(calls: str, *, right: bool, name: str = "p") -> Rollout:
    """One turn a call, ``e`` for one that fails and ``k`` for one that works, then an answer."""
    kinds = {"e": CallStatus.ERROR, "k": CallStatus.OK}
    turns = [Turn("call", 1, (ToolCall("{}", kinds[call]),)) for call in calls]
    turns.append(Turn("answer", 1, (), 1))
    ids = tuple(range(len(turns)))
    path = Trajectory(
        name, (0,), ids, (1,) * len(ids), (0.0,) * len(ids), tuple(turns), StopReason.ANSWERED
    )
    verdict = Verdict(right, 1, Reason.CORRECT if right else Reason.MISMATCH)
    return Rollout(Problem(name, "?", 1, "sums"), 0, path, verdict)


@pytest.mark.parametrize(
    ("calls", "recovered"),
    [("", False), ("k", False), ("e", False), ("ke", False), ("ek", True), ("kek", True)],
)
def test_a_recovery_is_a_call_that_works_after_one_that_failed(calls: str, recovered: bool) -> None:
    assert recovers(rollout(calls, right=True)) is recovered


def test_an_error_with_a_recovery_and_a_right_answer_tells_most() -> None:
    ranked = [
        rollout("ek", right=True),
        rollout("ek", right=False),
        rollout("e", right=True),
        rollout("e", right=False),
        rollout("k", right=True),
        rollout("", right=True),
        rollout("k", right=False),
        rollout("", right=False),
    ]
    for number, best in enumerate(ranked):
        assert most_telling([*reversed(ranked[number:])]) is best


def test_of_equals_the_first_is_chosen_and_of_none_nothing() -> None:
    first, second = rollout("k", right=True, name="a"), rollout("k", right=True, name="b")
    assert most_telling([first, second]) is first
    with pytest.raises(ValueError, match="no rollout"):
        most_telling([])


def test_examples_come_back_as_they_were_written(tmp_path: Path) -> None:
    run = record(tmp_path, 0, accuracy=[0.0] * 3)
    kept = [rollout("ek", right=True), rollout("", right=False)]
    lines = [json.dumps(rollout_to_json(one)) + "\n" for one in kept]
    (run.path / "examples.jsonl").write_text("".join(lines), encoding="utf-8")
    assert examples(run) == kept
