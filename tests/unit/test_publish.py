"""What may be published, under which name, and what a second call leaves alone."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_runs import CLEAN, all_finished, finished, quick

from rstar2.experiments import publish, worker
from rstar2.experiments.plans import Kind
from rstar2.experiments.publish import (
    PublishError,
    Standing,
    record_plans,
    record_sweeps,
    refuse_unpublishable,
    results_folder,
    unplanned,
)
from rstar2.experiments.report import committed_records, records_in
from rstar2.experiments.sweeps import Sweep, load_sweep
from rstar2.records import Provenance, RecordError, RunFolder, RunStoppedError

SFT = {"notebook": "10_run_sft", "with": {"evaluation": "results"}}
RL = {"notebook": "11_run_rl", "with": {"evaluation": "results"}}


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without sweeps, in which the test stands; its runs come from a clean commit."""
    quick(monkeypatch)
    shutil.rmtree("sweeps")
    Path("sweeps").mkdir()
    return own_checkout


def sweep(*runs: dict[str, Any], name: str = "laptop-x", **settings: Any) -> Sweep:
    """A sweep of the preset test, written and loaded."""
    content = {"preset": "test", "seeds": [0], **settings, "runs": list(runs)}
    Path("sweeps", f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return load_sweep(name)


def published(one: Sweep) -> list[str]:
    """Publishes what is done; the names of the records that are new."""
    return [path.name for path in publish.publish(one, results_folder(one))]


def names(one: Sweep) -> list[str]:
    return [record.name for record in record_plans(one)]


def standings(one: Sweep) -> list[Standing]:
    return [record.standing(results_folder(one)) for record in record_plans(one)]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- names --------------------------------------------------------------------------------


def test_a_record_is_named_by_its_arm_in_the_sweep_and_its_seed() -> None:
    arms = {"plain": {"arm": "grpo"}, "soft": {"arm": "grpo", "changes": {"rl.epsilon": 0.5}}}
    assert names(sweep(SFT, RL, arms=arms, seeds=[3, 1])) == [
        "sft-seed3",
        "plain-seed3",
        "soft-seed3",
        "sft-seed1",
        "plain-seed1",
        "soft-seed1",
    ]


def test_an_sft_policy_that_keeps_a_change_is_named_by_its_arm() -> None:
    arms = {"grpo": {"arm": "grpo"}, "few": {"arm": "grpo", "changes": {"sft.batch_size": 4}}}
    assert names(sweep(SFT, RL, arms=arms)) == [
        "sft-seed0",
        "grpo-seed0",
        "few-sft-seed0",
        "few-seed0",
    ]


def test_stages_minings_and_evaluations_say_so() -> None:
    unevaluated = {"evaluation": "none"}
    found = sweep(
        {"notebook": "10_run_sft", "with": unevaluated},
        {"notebook": "11_run_rl", "with": {**unevaluated, "stage": [1, 2]}},
        {"notebook": "12_run_mining", "with": {"stage": 3}},
        {"notebook": "13_run_evaluation", "with": {"evaluation": "book", "stage": 2}},
        {"notebook": "13_run_evaluation", "with": {"evaluation": "results", "arm": "sft"}},
        arms=["grpo"],
    )
    assert names(found) == [
        "sft-seed0",
        "grpo-stage1-seed0",
        "grpo-stage2-seed0",
        "grpo-mining3-seed0",
        "grpo-stage2-book-seed0",
        "sft-results-seed0",
    ]


def test_two_runs_of_one_name_are_refused() -> None:
    twice = {"notebook": "10_run_sft", "with": {"evaluation": ["book", "results"]}}
    with pytest.raises(PublishError, match=r"test-seed0-sft .* both be the record sft-seed0"):
        names(sweep(twice))


def test_a_notebook_that_is_its_own_work_has_no_record() -> None:
    notebook = {"notebook": "14_report", "with": {"sweep": "laptop-x"}}
    with pytest.raises(PublishError, match="14_report-test is the work of its own notebook"):
        names(sweep(notebook))


@pytest.mark.parametrize("kept", ["grpo-roc", "sft-results", ""])
def test_weights_of_what_nothing_trains_cannot_be_kept(kept: str) -> None:
    message = f"keep_weights: nothing trains '{kept}'; its arms are: grpo, sft"
    with pytest.raises(PublishError, match=message):
        names(sweep(SFT, RL, arms=["grpo"], keep_weights=[kept]))


# --- what a record holds ------------------------------------------------------------------


def test_a_record_holds_the_files_of_its_run_and_says_what_it_is() -> None:
    arms = {"plain": {"arm": "grpo"}, "few": {"arm": "grpo", "changes": {"sft.batch_size": 4}}}
    one = sweep(SFT, RL, arms=arms)
    all_finished(one.plans)
    assert published(one) == ["sft-seed0", "plain-seed0", "few-sft-seed0", "few-seed0"]
    for record, plan in zip(record_plans(one), one.plans, strict=True):
        folder = results_folder(one) / record.name
        run = RunFolder.open(folder).read()
        assert run["label"] == "laptop run"
        assert run["sweep"] == "laptop-x"
        assert run["commit"] == CLEAN.commit
        assert plan.preset is not None
        assert run["settings"] == plan.preset.model_dump(mode="json")
        assert "worker" not in run
        assert RunFolder(folder).params == plan.params
        names = ("metrics.parquet", "rollouts.parquet")
        names += ("sampled.parquet",) if plan.kind is Kind.RL else ()
        for name in names:
            assert (folder / name).read_bytes() == (plan.folder / name).read_bytes()
    assert [r.arm for r in committed_records("laptop-x")] == ["few", "few-sft", "plain", "sft"]


def test_only_an_evaluated_run_has_the_files_of_an_evaluation() -> None:
    one = sweep(
        {"notebook": "10_run_sft", "with": {"evaluation": "none"}},
        {"notebook": "13_run_evaluation", "with": {"evaluation": "book", "arm": "sft"}},
        keep_weights=["sft"],
    )
    all_finished(one.plans)
    assert published(one) == ["sft-seed0", "sft-book-seed0"]
    common = {"run.json", "params.json", "metrics.parquet", "timing.jsonl", "grades.parquet"}
    scores = {"evaluation.parquet", "rollouts.parquet", "examples.jsonl"}
    policy, evaluation = (results_folder(one) / record.name for record in record_plans(one))
    weights = {name for name in files(policy) if name.startswith("checkpoint/")}
    assert "checkpoint/model.safetensors" in weights
    assert files(policy) == common | weights
    assert files(evaluation) == common | scores


def test_the_weights_of_the_first_seed_alone_are_kept() -> None:
    one = sweep(SFT, RL, arms=["grpo", "grpo-roc"], seeds=[2, 1], keep_weights=["sft", "grpo-roc"])
    all_finished(one.plans)
    published(one)
    kept = {path.parent.name for path in results_folder(one).glob("*/checkpoint")}
    assert kept == {"sft-seed2", "grpo-roc-seed2"}


# --- as runs finish -----------------------------------------------------------------------


def test_runs_are_published_as_they_finish_and_left_alone_after() -> None:
    one = sweep(SFT, RL, arms=["grpo", "grpo-roc"])
    finished(one.plans[0])
    assert published(one) == ["sft-seed0"]
    assert standings(one) == [Standing.PUBLISHED, Standing.MISSING, Standing.MISSING]
    before = {path: path.stat().st_mtime_ns for path in results_folder(one).rglob("*")}
    assert published(one) == []
    assert {path: path.stat().st_mtime_ns for path in results_folder(one).rglob("*")} == before
    finished(one.plans[2])
    assert standings(one) == [Standing.PUBLISHED, Standing.MISSING, Standing.READY]
    assert published(one) == ["grpo-roc-seed0"]


def test_a_record_stays_published_where_its_run_folder_is_not() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    published(one)
    shutil.rmtree("runs")
    assert standings(one) == [Standing.PUBLISHED]
    assert published(one) == []


def test_a_record_of_another_run_is_stale_until_its_run_is_done() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    published(one)
    preset = Path("presets", "test.yaml")
    preset.write_text(preset.read_text().replace("max_positions: 512", "max_positions: 1024"))
    changed = load_sweep("laptop-x")
    assert standings(changed) == [Standing.STALE]
    assert published(changed) == []
    (stale,) = records_in("laptop-x")
    assert stale.run["id"] == one.plans[0].run_id, "what was published is not taken away"
    all_finished(changed.plans)
    assert published(changed) == ["sft-seed0"]
    (record,) = records_in("laptop-x")
    assert record.run["id"] == changed.plans[0].run_id


def test_a_file_that_a_record_lacks_is_added() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    published(one)
    (results_folder(one) / "sft-seed0" / "rollouts.parquet").unlink()
    assert standings(one) == [Standing.READY]
    assert published(one) == ["sft-seed0"]
    assert standings(one) == [Standing.PUBLISHED]


def test_weights_that_are_to_be_kept_later_are_added() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    published(one)
    keeping = sweep(SFT, keep_weights=["sft"])
    assert standings(keeping) == [Standing.READY]
    assert published(keeping) == ["sft-seed0"]
    assert standings(keeping) == [Standing.PUBLISHED]


def test_what_an_interrupted_copy_left_is_no_record_and_goes() -> None:
    one = sweep(SFT, RL, arms=["grpo"])
    finished(one.plans[0])
    published(one)
    folder = results_folder(one)
    shutil.copytree(folder / "sft-seed0", folder / ".grpo-seed0.partial")
    assert [record.arm for record in records_in("laptop-x")] == ["sft"]
    finished(one.plans[1])
    assert published(one) == ["grpo-seed0"]
    assert sorted(path.name for path in folder.iterdir()) == ["grpo-seed0", "sft-seed0"]


def test_a_record_of_no_run_of_the_sweep_is_told_and_stays() -> None:
    both = sweep(SFT, RL, arms=["grpo"])
    all_finished(both.plans)
    published(both)
    one = sweep(SFT)
    folder = results_folder(one)
    assert unplanned(record_plans(one), folder) == ["grpo-seed0"]
    assert published(one) == []
    assert (folder / "grpo-seed0" / "run.json").exists()


# --- what may not go there ----------------------------------------------------------------


def test_a_run_that_was_stopped_is_missing() -> None:
    one = sweep(SFT)
    with pytest.raises(RunStoppedError), worker.working_on(one.plans[0]):
        raise RunStoppedError("asked")
    assert standings(one) == [Standing.MISSING]
    assert published(one) == []
    assert not results_folder(one).exists()


@pytest.mark.parametrize(("commit", "dirty"), [(None, None), ("a" * 40, True), ("a" * 40, None)])
def test_a_dirty_or_unknown_commit_is_not_published(
    commit: str | None, dirty: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sweep(SFT, RL, arms=["grpo"])
    finished(one.plans[0])
    here = Provenance(commit, dirty, CLEAN.hardware, {})
    monkeypatch.setattr(worker, "provenance", lambda: here)
    finished(one.plans[1])
    with pytest.raises(PublishError, match="unknown or dirty commit; nothing was published"):
        published(one)
    assert not results_folder(one).exists()
    monkeypatch.setattr(publish, "provenance", lambda: here)
    with pytest.raises(PublishError, match="commit, then run again"):
        refuse_unpublishable()


def test_a_place_that_cannot_be_written_is_one_clear_error(checkout: Path) -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    (checkout / "results").write_text("a file")
    with pytest.raises(PublishError, match=r"cannot publish to .*laptop-x"):
        published(one)


def test_a_run_that_lost_a_file_is_one_clear_error() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    (one.plans[0].folder / "rollouts.parquet").unlink()
    with pytest.raises(PublishError, match=r"cannot publish to .*rollouts\.parquet"):
        published(one)
    assert records_in("laptop-x") == []


def test_a_damaged_record_is_named() -> None:
    one = sweep(SFT)
    all_finished(one.plans)
    published(one)
    (results_folder(one) / "sft-seed0" / "run.json").write_bytes(b"\xff")
    with pytest.raises(RecordError, match=r"sft-seed0/run\.json cannot be read"):
        published(one)


def test_the_record_sweeps_are_those_of_the_laptop() -> None:
    for name in ("laptop-b", "laptop-a", "other"):
        sweep(SFT, name=name)
    Path("sweeps", "claims.yaml").write_text("[]")
    assert [one.name for one in record_sweeps()] == ["laptop-a", "laptop-b"]
    assert {plan.kind for one in record_sweeps() for plan in one.plans} == {Kind.SFT}
