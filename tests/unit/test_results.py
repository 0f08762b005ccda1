"""The committed records are what they say they are, sweep by sweep."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rstar2.experiments.claims import load_claims, load_reasons
from rstar2.experiments.outcomes import outcomes
from rstar2.experiments.plans import NATURAL_SWEEP, RECORD_SWEEPS, RESULTS_SIZE, SFT_ARM, Kind
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.publish import RecordPlan, record_plans
from rstar2.experiments.report import Record, arm_names, laptop_report, records_in
from rstar2.experiments.sweeps import load_sweep
from rstar2.grading import Reason
from rstar2.records import RunFolder
from rstar2.records.grades import Phase, load_grades

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted(path.name for path in (ROOT / "results").glob(RECORD_SWEEPS))
"""The sweeps of which there are records; each test below is skipped for want of any."""


@pytest.fixture(scope="module", params=PUBLISHED)
def sweep(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def records(sweep: str) -> list[Record]:
    return records_in(sweep)


@pytest.fixture(scope="module")
def planned(sweep: str) -> dict[str, RecordPlan]:
    return {one.name: one for one in record_plans(load_sweep(sweep))}


def test_a_record_is_one_that_these_sources_make(
    records: list[Record], planned: dict[str, RecordPlan]
) -> None:
    assert records
    for record in records:
        plan = planned[record.path.name].plan
        assert record.run["id"] == plan.run_id, f"{record.path}: rstar2 results remake"
        assert plan.preset is not None
        settings = record.run["settings"]
        assert type(plan.preset).model_validate(settings).deciding_values() == (
            plan.preset.deciding_values()
        ), record.path


def test_a_record_was_made_by_a_known_and_clean_commit(records: list[Record], sweep: str) -> None:
    for record in records:
        assert re.fullmatch(r"[0-9a-f]{40}", record.run["commit"]), record.path
        assert record.run["dirty"] is False, record.path
        assert record.run["state"] == "done", record.path
        assert record.run["label"] == "laptop run", record.path
        assert record.run["sweep"] == sweep, record.path
        assert record.path.name.startswith(f"{record.arm}-"), record.path


def test_the_sft_run_that_an_arm_started_from_has_a_record(records: list[Record]) -> None:
    base = {(r.seed, r.run["id"]) for r in records if r.run["kind"] == Kind.SFT}
    for record in records:
        assert (record.seed, record.run["sft_run"]) in base, record.path


def test_an_arm_has_a_row_for_every_step_of_its_settings(records: list[Record]) -> None:
    for record in records:
        if record.run["kind"] == Kind.RL:
            steps = [stage["steps"] for stage in record.run["settings"]["stages"]]
            stage = RunFolder(record.path).params["stage"]
            first, last = sum(steps[: max(0, stage - 1)]), sum(steps[: stage or None])
            assert record.metrics["step"].tolist() == list(range(first + 1, last + 1)), record.path


def test_a_row_for_every_rollout_that_was_sampled_adds_up_to_the_metrics(
    records: list[Record],
) -> None:
    for record in records:
        if record.run["kind"] == Kind.RL:
            steps = record.sampled.groupby("step")
            metrics = record.metrics.set_index("step")
            assert (steps.size() == metrics["rollouts"]).all(), record.path
            found = steps["correct"].mean()
            assert found.tolist() == pytest.approx(metrics["accuracy"].tolist()), record.path


def evaluations(records: list[Record]) -> list[Record]:
    return [record for record in records if record.run["evaluation"] not in (None, "none")]


def test_an_evaluation_has_the_size_of_its_settings(records: list[Record]) -> None:
    for record in evaluations(records):
        size = record.run["settings"]["evaluation"][record.run["evaluation"]]
        counts = record.evaluation.groupby("problem_set").size()
        assert set(counts) == {size["problems"]}, record.path
        assert set(record.evaluation["samples"]) == {size["samples"]}, record.path


@pytest.mark.thorough
def test_the_rollouts_of_an_evaluation_add_up_to_its_problems(records: list[Record]) -> None:
    for record in evaluations(records):
        rollouts = record.rollouts
        rollouts["errors_in_correct"] = rollouts["errors"] * rollouts["correct"]
        found = rollouts.groupby(["problem_set", "problem_id"]).agg(
            samples=("sample", "size"),
            correct=("correct", "sum"),
            calls=("calls", "sum"),
            errors_in_correct=("errors_in_correct", "sum"),
            tokens=("tokens", "sum"),
        )
        problems = record.evaluation.set_index(["problem_set", "problem_id"])
        expected = problems.loc[found.index, found.columns]
        assert (found == expected).all(axis=None), record.path


def test_a_run_that_is_not_evaluated_holds_no_evaluation(records: list[Record]) -> None:
    for record in records:
        if record not in evaluations(records):
            assert not (record.path / "evaluation.parquet").exists(), record.path


def test_weights_are_small_safetensors_and_only_where_the_sweep_keeps_them(
    records: list[Record], planned: dict[str, RecordPlan]
) -> None:
    for record in records:
        folder = record.path / "checkpoint"
        assert folder.exists() is planned[record.path.name].keeps_weights, record.path
        if folder.exists():
            files = {file.name for file in folder.glob("*")}
            assert "model.safetensors" in files, record.path
            assert not {name for name in files if name.endswith((".bin", ".pt", ".pkl"))}
            assert (folder / "model.safetensors").stat().st_size < 5_000_000


def test_records_hold_no_path_of_the_machine_that_made_them(records: list[Record]) -> None:
    for record in records:
        for name in ("run.json", "params.json", "examples.jsonl", "timing.jsonl"):
            if (path := record.path / name).exists():
                text = path.read_text(encoding="utf-8")
                assert not re.search(r"/(home|root|work|tmp|Users)/", text), path


@pytest.mark.thorough
def test_the_grades_of_a_run_count_every_rollout_that_was_evaluated(records: list[Record]) -> None:
    for record in evaluations(records):
        grades = load_grades(record.path / "grades.parquet")
        evaluated = {grade: n for grade, n in grades.items() if grade.phase is Phase.EVALUATION}
        assert sum(evaluated.values()) == record.evaluation["samples"].sum(), record.path
        paid = sum(n for grade, n in evaluated.items() if grade.reason is Reason.CORRECT)
        assert paid == record.evaluation["correct"].sum(), record.path


@pytest.mark.thorough
@pytest.mark.skipif(NATURAL_SWEEP not in PUBLISHED, reason="the natural sweep has no record yet")
def test_the_report_is_plain_json_with_a_row_for_every_set() -> None:
    records = records_in(NATURAL_SWEEP)
    report = laptop_report(records)
    told: dict[str, Any] = json.loads(json.dumps(report, allow_nan=False))
    done = {r.arm for r in records if r.run["arm"] != SFT_ARM}
    assert set(told["arms"]) == done == set(arm_names(records))
    for numbers in told["arms"].values():
        assert len(numbers["by_set"]) == 4
        assert numbers["final_accuracy"] == numbers["by_set"]["families"]["final_accuracy"]


def test_the_records_answer_the_claims_that_are_made_of_them() -> None:
    """A claim of a set, a metric or a step that a record lacks is an error."""
    claims = load_claims(ROOT / "sweeps" / "claims.yaml")
    reasons = load_reasons(ROOT / "sweeps" / "verdicts.yaml", claims)
    found = outcomes(claims, {name: records_in(name) for name in PUBLISHED}, reasons)
    assert [one.claim for one in found] == claims


def test_the_presets_of_the_records_have_the_size_that_they_are_reported_on() -> None:
    for path in sorted((ROOT / "sweeps").glob(f"{RECORD_SWEEPS}.yaml")):
        preset = load_sweep(str(path)).spec.preset
        assert RESULTS_SIZE in load_torch_preset(preset or "").evaluation, path


def test_the_record_of_the_data_build_accounts_for_every_row_and_holds_no_problem() -> None:
    record = json.loads((ROOT / "results" / "data" / "dapo-17k.json").read_text("utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", record["provenance"]["commit"])
    assert record["provenance"]["dirty"] is False
    rows = sum(source["rows"] for source in record["sources"])
    for step in record["steps"]:
        assert step["rows_in"] == rows, step["name"]
        rows = step["rows_kept"]
        assert step["rows_in"] - rows == sum(step["dropped"].values()), step["name"]
    assert rows == record["rows"]
    assert {one["name"] for one in record["against"]} >= {"aime24", "aime25", "hmmt25", "math500"}
    names = {"provenance", "cost", "sources", "against", "steps", "doubts", "rows", "content_hash"}
    assert set(record) == names, "counts and hashes alone: no list of problems"


@pytest.mark.skipif(not PUBLISHED, reason="no record sweep has a record yet")
def test_the_grading_record_is_of_the_committed_runs_and_says_that_the_graders_agree() -> None:
    told = json.loads((ROOT / "results" / "grading" / "laptop.json").read_text("utf-8"))
    assert told["provenance"]["dirty"] is False
    assert {(run["run"], run["run_id"]) for run in told["runs"]} == {
        (record.run["name"], record.run["id"]) for name in PUBLISHED for record in records_in(name)
    }, "rstar2 report grading --json results/grading/laptop.json"
    assert not any(run["alarm"] for run in told["runs"])


def test_the_grading_benchmark_is_a_full_run_that_meets_its_bars() -> None:
    record = json.loads((ROOT / "results" / "grading" / "benchmark.json").read_text("utf-8"))
    assert record["quick"] is False
    assert record["provenance"]["dirty"] is False
    assert record["missed"] == record["not_measured"] == []
    assert record["fuzz_inputs"] == 1_000_000
