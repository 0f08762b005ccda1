"""The committed records are what they say they are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rstar2.experiments.claims import claims_met
from rstar2.experiments.planner import plan_experiment
from rstar2.experiments.plans import RECORD_SEEDS, SFT_ARM
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.report import Record, committed_records, laptop_report
from rstar2.grading import Reason
from rstar2.records.grades import Phase, load_grades
from rstar2.training.spec import Arm

ROOT = Path(__file__).parents[2]
CLAIMS = yaml.safe_load((ROOT / "sweeps" / "claims.yaml").read_text(encoding="utf-8"))["laptop"]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return committed_records()


@pytest.fixture(scope="module")
def report(records: list[Record]) -> dict[str, Any]:
    return laptop_report(records)


def test_every_seed_of_the_claims_has_its_sft_and_both_arms(records: list[Record]) -> None:
    assert tuple(CLAIMS["seeds"]) == RECORD_SEEDS
    expected = {(seed, arm) for seed in RECORD_SEEDS for arm in (SFT_ARM, *Arm)}
    assert {(record.seed, record.arm) for record in records} == expected


def test_the_records_are_those_that_these_sources_make(records: list[Record]) -> None:
    planned = {
        plan.name: plan.run_id for plan in plan_experiment("laptop", RECORD_SEEDS, "results")
    }
    assert {record.run["name"]: record.run["id"] for record in records} == planned, "make results"
    settings = load_torch_preset("laptop").model_dump(mode="json")
    for record in records:
        assert record.run["settings"] == settings, record.path


@pytest.mark.parametrize("claim", CLAIMS["claims"], ids=lambda claim: claim["name"])
def test_what_was_claimed_before_it_was_measured_holds(
    claim: dict[str, Any], report: dict[str, Any]
) -> None:
    (outcome,) = claims_met(report, [claim])
    assert outcome.met, outcome


def test_a_record_was_made_by_a_known_and_clean_commit(records: list[Record]) -> None:
    for record in records:
        assert re.fullmatch(r"[0-9a-f]{40}", record.run["commit"]), record.path
        assert record.run["dirty"] is False, record.path
        assert record.run["state"] == "done", record.path
        assert record.run["label"] == "laptop run", record.path


def test_both_arms_of_a_seed_start_from_the_same_sft_run(records: list[Record]) -> None:
    base = {record.seed: record.run["id"] for record in records if record.arm == SFT_ARM}
    for record in records:
        assert record.run["sft_run"] == base[record.seed], record.path


def test_an_arm_has_a_row_for_every_step_of_its_preset(records: list[Record]) -> None:
    steps = sum(stage.steps for stage in load_torch_preset("laptop").stages)
    assert steps >= 40
    for record in records:
        if record.arm != SFT_ARM:
            assert record.metrics["step"].tolist() == list(range(1, steps + 1)), record.path


def test_an_evaluation_has_the_size_of_its_preset(records: list[Record]) -> None:
    size = load_torch_preset("laptop").evaluation["results"]
    for record in records:
        counts = record.evaluation.groupby("problem_set").size()
        assert counts.tolist() == [size.problems] * 4, record.path
        assert set(record.evaluation["samples"]) == {size.samples}, record.path


def test_final_weights_are_small_safetensors(records: list[Record]) -> None:
    for record in records:
        files = {file.name for file in (record.path / "checkpoint").glob("*")}
        assert "model.safetensors" in files, record.path
        assert not {name for name in files if name.endswith((".bin", ".pt", ".pkl"))}
        assert (record.path / "checkpoint" / "model.safetensors").stat().st_size < 5_000_000


def test_records_hold_no_path_of_the_machine_that_made_them(records: list[Record]) -> None:
    for record in records:
        for name in ("run.json", "params.json", "examples.jsonl", "timing.jsonl"):
            text = (record.path / name).read_text(encoding="utf-8")
            assert not re.search(r"/(home|root|work|tmp|Users)/", text), record.path / name


def test_the_report_is_plain_json_with_a_row_for_every_set(report: dict[str, Any]) -> None:
    told = json.loads(json.dumps(report, allow_nan=False))
    for arm in Arm:
        numbers = told["arms"][arm.value]
        assert numbers["seeds"] == len(RECORD_SEEDS)
        assert len(numbers["by_set"]) == 4
        assert numbers["final_accuracy"] == numbers["by_set"]["families"]["final_accuracy"]


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


def test_the_grading_record_is_of_the_committed_runs_and_says_that_the_graders_agree(
    records: list[Record],
) -> None:
    told = json.loads((ROOT / "results" / "grading" / "laptop.json").read_text("utf-8"))
    assert told["provenance"]["dirty"] is False
    assert {run["run"]: run["run_id"] for run in told["runs"]} == {
        record.run["name"]: record.run["id"] for record in records
    }, "rstar2 report grading --json results/grading/laptop.json"
    assert not any(run["alarm"] for run in told["runs"])


def test_the_grading_benchmark_is_a_full_run_that_meets_its_bars() -> None:
    record = json.loads((ROOT / "results" / "grading" / "benchmark.json").read_text("utf-8"))
    assert record["quick"] is False
    assert record["provenance"]["dirty"] is False
    assert record["missed"] == record["not_measured"] == []
    assert record["fuzz_inputs"] == 1_000_000


def test_the_grades_of_a_run_count_every_rollout_that_was_evaluated(records: list[Record]) -> None:
    for record in records:
        grades = load_grades(record.path / "grades.parquet")
        evaluated = {grade: n for grade, n in grades.items() if grade.phase is Phase.EVALUATION}
        assert sum(evaluated.values()) == record.evaluation["samples"].sum(), record.path
        paid = sum(n for grade, n in evaluated.items() if grade.reason is Reason.CORRECT)
        assert paid == record.evaluation["correct"].sum(), record.path
