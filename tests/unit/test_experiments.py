"""Experiments: presets, plans, progress, what may be published, what a report says."""

import json
import math
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from rich.progress import Progress

import rstar2.problems.laptop
from rstar2.experiments import laptop, planner, publish, summaries, worker
from rstar2.experiments.batch import (
    BatchError,
    _reason,
    progress_line,
    run_batch,
)
from rstar2.experiments.checkout import project_root
from rstar2.experiments.claims import claims_met
from rstar2.experiments.execute import execute
from rstar2.experiments.planner import Planner, plan_experiment
from rstar2.experiments.plans import Plan
from rstar2.experiments.presets import PresetError, load_torch_preset
from rstar2.experiments.progress import ProgressFile, read_progress
from rstar2.experiments.publish import PublishError, refuse_unpublishable
from rstar2.experiments.report import (
    NoRecordsError,
    committed_records,
    laptop_report,
    of_arm,
    records_of_this_machine,
)
from rstar2.experiments.signals import signals_noted, signals_unwind
from rstar2.problems import ProblemSet
from rstar2.protocol import LAPTOP, TokenTemplate
from rstar2.records import Hardware, Provenance, RecordError, RunFolder, RunStoppedError, Session
from rstar2.training.checkpoint import Policy, save_policy
from rstar2.training.evaluate import Evaluation, ProblemScore
from rstar2.training.model import new_model
from rstar2.training.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
CLEAN = Provenance("a" * 40, False, Hardware("cpu", 2, 4.0), {"python": "3.11"})


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, in which the test stands; its runs come from a clean commit."""
    monkeypatch.setattr(worker, "provenance", lambda: CLEAN)
    # For speed: fewer sources to hash, fewer problems to learn guessing from.
    monkeypatch.setattr(planner, "deciding_sources", lambda entry: [entry])
    monkeypatch.setattr(rstar2.problems.laptop, "BASELINE_DRAWS", 50)
    return own_checkout


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_checkout_is_found_from_within_and_from_elsewhere(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout / "notebooks")
    assert project_root() == checkout
    monkeypatch.chdir(tmp_path)
    assert project_root() == ROOT


# --- plans --------------------------------------------------------------------------------


def ids() -> dict[str, str]:
    return {plan.arm: plan.run_id for plan in plan_experiment("test", [0], "book")}


def test_an_experiment_is_an_sft_run_and_then_both_arms(checkout: Path) -> None:
    found = plan_experiment("test", [0, 1], "book")
    names = [f"test-seed{seed}-{arm}" for seed in (0, 1) for arm in ("sft", "grpo", "grpo-roc")]
    assert [plan.name for plan in found] == names
    assert len({plan.run_id for plan in found}) == 6
    for plan in found:
        assert plan.folder == checkout / "runs" / f"{plan.name}-{plan.run_id}"
        assert plan.notebook.is_file()
        assert not plan.is_done
    assert [plan.needs and plan.needs.name for plan in found[:3]] == [None, names[0], names[0]]


def test_the_same_plan_has_the_same_id(checkout: Path) -> None:
    before = ids()
    edit(checkout / "presets" / "test.yaml", "name: test", "# A comment.\nname:   test")
    notebook = checkout / "notebooks" / "11_run_rl.ipynb"
    edit(notebook, "# Run: RL, all stages", "# Another title")
    edit(notebook, "grpo or grpo-roc", "another comment")
    assert ids() == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("presets/test.yaml", "max_positions: 512", "max_positions: 1024"),
        ("notebooks/10_run_sft.ipynb", "print(plan.name", "print(1, plan.name"),
    ],
)
def test_an_id_changes_with_what_decides_the_numbers(
    file: str, old: str, new: str, checkout: Path
) -> None:
    before = ids()
    edit(checkout / file, old, new)
    assert not set(before.values()) & set(ids().values()), "arms start from another SFT run too"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("notebooks/11_run_rl.ipynb", "print(plan.name", "print(1, plan.name"),
        ("presets/test.yaml", "epsilon: 0.05", "epsilon: 0.06"),
    ],
)
def test_an_arm_alone_gets_a_new_id_when_what_it_alone_reads_changes(
    file: str, old: str, new: str, checkout: Path
) -> None:
    before = ids()
    edit(checkout / file, old, new)
    after = ids()
    assert after["sft"] == before["sft"]
    assert after["grpo"] != before["grpo"]


def test_an_id_changes_with_parameters_and_sources_but_not_with_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.py"
    source.write_text("x = 1\n")
    monkeypatch.setattr(planner, "deciding_sources", lambda _: [source])
    first = Planner().sft("test", 0, "book").run_id
    assert Planner().sft("test", 1, "book").run_id != first
    assert Planner().sft("test", 0, "results").run_id != first
    source.write_text("# A comment.\nx = 1\n")
    assert Planner().sft("test", 0, "book").run_id == first
    source.write_text("x = 2\n")
    assert Planner().sft("test", 0, "book").run_id != first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("test", 0, "big", "grpo"), "evaluation is 'big': give one of none, book, results"),
        (("test", -1, "book", "grpo"), "seed is -1: give a number from 0"),
        (("test", 0, "book", "ppo"), "no arm 'ppo'; the arms are: grpo, grpo-roc"),
        (("test", True, "book", "grpo"), "seed is True: give a number from 0"),
        (("nope", 0, "book", "grpo"), "no preset 'nope'"),
        (("test", 0, "none", "grpo", 4), r"stage is 4: preset test has stages 1 to 3 \(0 is all"),
        (("test", 0, "book", "grpo", 2), "stage 2 alone is not evaluated by its own run: give"),
    ],
)
def test_an_impossible_plan_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PresetError, match=message):
        Planner().rl(*arguments)


def test_a_change_of_what_decides_no_number_changes_no_id(checkout: Path) -> None:
    before = ids()
    edit(checkout / "presets" / "test.yaml", "nodes: 1", "nodes: 2")
    assert ids() == before


def test_an_sft_run_takes_only_the_changes_that_touch_it() -> None:
    plan = Planner().sft("test", 0, changes={"rl.epsilon": 0.5, "sft.batch_size": 4})
    assert plan.params["changes"] == {"sft.batch_size": 4}
    arm = Planner().rl("test", 0, "none", "grpo-roc", changes={"rl.epsilon": 0.5})
    assert arm.needs is not None
    assert arm.needs.folder == Planner().sft("test", 0).folder
    assert arm.params["changes"] == {"rl.epsilon": 0.5}
    assert arm.run_id != Planner().rl("test", 0, "none", "grpo-roc").run_id


def test_an_evaluated_run_has_another_id_than_one_that_is_not() -> None:
    sizes = ("none", "book", "results")
    assert len({Planner().sft("test", 0, size).run_id for size in sizes}) == 3
    changes = {"evaluation.book.samples": 3}
    for size, same in (("none", True), ("book", False)):
        folders = {Planner().sft("test", 0, size, one).folder for one in (changes, None)}
        assert (len(folders) == 1) is same


def test_stages_are_a_chain_with_the_mining_before_the_stage_that_needs_it() -> None:
    plan = Planner().evaluation("test", 0, "book", "grpo", 3)
    assert [one.name.removeprefix("test-seed0-") for one in plan.chain] == [
        "sft",
        "grpo-stage1",
        "grpo-stage2",
        "grpo-mining3",
        "grpo-stage3",
        "grpo-stage3-evaluation",
    ]
    assert [one.wave for one in plan.chain] == list(range(6))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda p: p.mining("test", 0, "grpo", 2), "stage 2 has no mined problems"),
        (lambda p: p.mining("test", 0, "grpo", 0), "stage is 0: preset test has stages 1 to 3$"),
        (lambda p: p.evaluation("test", 0, "none", "grpo"), "give one of book, results"),
        (lambda p: p.evaluation("test", 0, "book", "sft", 1), "the SFT policy has no stage 1"),
        (lambda p: p.sft("mi300x-64-32b", 0), "mi300x-64-32b has no SFT: its RL starts from"),
    ],
)
def test_what_no_preset_has_cannot_be_planned(
    plan: Callable[[Planner], Plan], message: str
) -> None:
    with pytest.raises(PresetError, match=message):
        plan(Planner())


def test_rl_without_an_sft_needs_nothing() -> None:
    assert Planner().rl("mi300x-64-32b", 0, "none", "grpo-roc", 1).needs is None


# --- making them --------------------------------------------------------------------------


def test_what_is_done_is_not_executed_again() -> None:
    plan = finished(Planner().sft("test", 0, "book"))
    before = {path: path.stat().st_mtime_ns for path in plan.folder.rglob("*")}
    execute(plan)
    assert {path: path.stat().st_mtime_ns for path in plan.folder.rglob("*")} == before


@pytest.fixture
def handlers() -> Iterator[None]:
    """SIGHUP as it is outside ``nohup``, which may have begun these tests."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds_the_stack_and_handlers_are_restored(number: signal.Signals) -> None:
    def wait_for_it() -> None:
        with signals_unwind((number,)):
            os.kill(os.getpid(), number)
            signal.pause()

    with pytest.raises(SystemExit) as ended:
        wait_for_it()
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.usefixtures("handlers")
def test_signals_are_noted_in_their_order_and_handlers_are_restored() -> None:
    with signals_noted() as noted:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        while len(noted) < 3:
            time.sleep(0.01)
    assert noted == [signal.SIGHUP, signal.SIGTERM, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("handlers")
def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_unwind((signal.SIGHUP,)):
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("code", "log", "message"),
    [
        (2, "first\nthe reason\n", r"the reason \(the log: .*/papermill.txt\)$"),
        (1, "", r"exit code 1 \(the log: "),
        (143, "", "stopped; run it again and it goes on$"),
        (-9, "", "its papermill ended with signal 9, perhaps for want of memory; run it again"),
        (-15, "", "its papermill ended with signal 15; run it again to attach to the run$"),
    ],
)
def test_a_run_that_did_not_finish_says_how_it_ended(code: int, log: str, message: str) -> None:
    plan = Planner().sft("test", 0, "book")
    plan.folder.mkdir(parents=True)
    (plan.folder / "papermill.txt").write_text(log)
    assert re.match(message, _reason(plan, code))


def test_a_batch_refuses_what_can_never_start(checkout: Path) -> None:
    arm = Planner().rl("test", 3, "book", "grpo")
    message = r"test-seed3-grpo needs test-seed3-sft \(.*\), which is neither done nor planned"
    with pytest.raises(BatchError, match=message):
        run_batch([arm], workers=1, console=Console())
    assert not (checkout / "runs").exists()


# --- progress -----------------------------------------------------------------------------


def test_progress_counts_each_phase_by_its_share(tmp_path: Path) -> None:
    assert (read_progress(tmp_path).phase, read_progress(tmp_path).done) == ("starting", 0.0)
    shares = {"one": 3.0, "two": 1.0}
    ProgressFile(tmp_path, shares).report("one", 5, 10, loss=1.0, accuracy=math.nan)
    assert read_progress(tmp_path).phase == "one 5/10"
    assert read_progress(tmp_path).figures == {"loss": 1.0}, "what is undefined is left out"
    assert read_progress(tmp_path).done == pytest.approx(0.375)
    progress = ProgressFile(tmp_path, shares)
    progress.report("two", 10, 10)
    assert read_progress(tmp_path).done == pytest.approx(1.0)
    progress.report("one", 1, 10)
    assert read_progress(tmp_path).phase == "one 1/10", "a new phase is told at once"
    progress.report("one", 2, 10)
    assert read_progress(tmp_path).phase == "one 1/10", "written at most twice a second"
    progress.report("between", 0, 5)
    assert read_progress(tmp_path).phase == "between 0/5"
    assert read_progress(tmp_path).done == pytest.approx(0.15), "it has no share"


def test_a_console_that_is_no_terminal_is_told_shares_and_time_left() -> None:
    now = 0.0
    table = Progress(disable=True, get_time=lambda: now, speed_estimate_period=300)
    one = table.add_task("a-run", total=1000, phase="starting")
    table.add_task("waits", total=1000, start=False, phase="waiting")
    whole = table.add_task("all", total=2000, phase="")
    assert progress_line(table.tasks, [one], 1) == "a-run: 0%, starting; all: 0%, 1 waiting"
    for now in (100.0, 200.0):
        table.update(one, completed=now, phase="RL 2/10")
        table.update(whole, completed=now)
    line = progress_line(table.tasks, [one], 0)
    assert line == "a-run: 20%, RL 2/10; all: 10%, 0:30:00 left"


# --- finished runs, written as the runs write them ----------------------------------------


def finished(plan: Plan, correct: int = 3, calls: int = 6, errors: int = 1) -> Plan:
    """Gives the plan a finished run whose every problem has the same score."""
    with worker.working_on(plan) as folder:
        _finish(plan, folder, correct, calls, errors)
    return plan


def _finish(plan: Plan, folder: RunFolder, correct: int, calls: int, errors: int) -> None:
    folder.metrics.append({"step": 1, "phase": "sft", "loss": 1.0})
    folder.append_timing({"step": 1, "seconds": 0.1})
    scores = [
        ProblemScore(
            problem_set=problem_set.value,
            problem_id=f"{problem_set}-{number}",
            family="divisors",
            composition="",
            samples=4,
            correct=correct,
            calls=8,
            errors=4,
            calls_in_correct=calls,
            errors_in_correct=errors,
            tokens=200,
            tokens_in_correct=100,
            truncated=1,
        )
        for problem_set in ProblemSet
        for number in range(2)
    ]
    laptop._write_evaluation(folder, Evaluation(tuple(scores), ()))
    tokenizer = train_tokenizer(["a b c"], 310)
    template = TokenTemplate(tokenizer, LAPTOP)
    shape = load_torch_preset(plan.params["preset"]).model
    model = new_model(shape, vocab_size=len(tokenizer), end_id=template.end_id, seed=0)
    save_policy(Policy(model, tokenizer, template), folder.checkpoints / "final")
    laptop._finish(laptop.Job(plan, folder), Session(folder), Counter())


def experiment(*seeds: int, **scores: int) -> list[Plan]:
    return [finished(plan, **scores) for plan in plan_experiment("test", seeds, "book")]


def test_a_finished_run_says_so() -> None:
    plan = finished(Planner().sft("test", 0, "book"))
    assert plan.is_done
    assert RunFolder.open(plan.folder).read()["wall_seconds"] > 0
    table = summaries.evaluation_summary(RunFolder.open(plan.folder))
    assert table["accuracy"].tolist() == [0.75] * 4
    assert table["tool errors in correct"].tolist() == pytest.approx([1 / 6] * 4, abs=1e-3)
    assert summaries.loss_summary(RunFolder.open(plan.folder))["last"].tolist() == [1.0]


# --- publishing ---------------------------------------------------------------------------


def test_published_records_replace_their_folders_whole(checkout: Path) -> None:
    results = checkout / "results" / "laptop"
    stale = results / "test-seed0-grpo" / "stale.txt"
    stale.parent.mkdir(parents=True)
    stale.touch()
    for leftover in ("test-seed9-grpo", ".test-seed0-sft.partial"):
        (results / leftover).mkdir()
        (results / leftover / "run.json").touch()
    done = experiment(0)
    folders = publish.publish(done, results)
    assert folders == [results / plan.name for plan in done]
    assert sorted(path.name for path in results.iterdir()) == sorted(plan.name for plan in done)
    assert not stale.exists()
    for plan, folder in zip(done, folders, strict=True):
        record = RunFolder.open(folder)
        assert record.read()["label"] == "laptop run"
        assert record.read()["commit"] == CLEAN.commit
        assert plan.preset is not None
        assert record.read()["settings"] == plan.preset.model_dump(mode="json")
        assert record.params == plan.params
        assert record.metrics_parquet.read_bytes() == (plan.folder / "metrics.parquet").read_bytes()
        assert (folder / "checkpoint" / "model.safetensors").exists()
        assert "worker" not in record.read()
    shutil.copytree(folders[0], results / ".test-seed0-sft.partial")
    assert len(committed_records()) == 3, "an interrupted copy is no record"


def test_an_unfinished_run_is_not_published(checkout: Path) -> None:
    plan = Planner().sft("test", 0, "book")
    with pytest.raises(RunStoppedError), worker.working_on(plan):
        raise RunStoppedError("asked")
    with pytest.raises(PublishError, match="test-seed0-sft is not done; nothing was published"):
        publish.publish([plan], checkout / "results")
    assert not (checkout / "results").exists()


@pytest.mark.parametrize(("commit", "dirty"), [(None, None), ("a" * 40, True), ("a" * 40, None)])
def test_a_dirty_or_unknown_commit_is_not_published(
    commit: str | None, dirty: bool | None, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Provenance(commit, dirty, CLEAN.hardware, {})
    monkeypatch.setattr(worker, "provenance", lambda: here)
    plan = finished(Planner().sft("test", 0, "book"))
    with pytest.raises(PublishError, match="unknown or dirty commit; nothing was published"):
        publish.publish([plan], checkout / "results")
    assert not (checkout / "results").exists()
    monkeypatch.setattr(publish, "provenance", lambda: here)
    with pytest.raises(PublishError, match="commit, then run again"):
        refuse_unpublishable()


def test_a_place_that_cannot_be_written_is_one_clear_error(checkout: Path) -> None:
    plan = finished(Planner().sft("test", 0, "book"))
    (checkout / "results").write_text("a file")
    with pytest.raises(PublishError, match=f"cannot publish to {checkout / 'results'}"):
        publish.publish([plan], checkout / "results")
    (checkout / "runs" / "x").mkdir()
    shutil.rmtree(checkout / "runs")
    (checkout / "runs").write_text("a file")
    with pytest.raises(RecordError, match="cannot make folder"), worker.working_on(plan):
        pass


# --- the report ---------------------------------------------------------------------------


def test_without_records_there_is_no_report() -> None:
    with pytest.raises(NoRecordsError, match="`make results` makes them"):
        committed_records()
    assert records_of_this_machine("test", 0) == []


def test_a_single_seed_has_no_interval() -> None:
    experiment(0)
    report = laptop_report(records_of_this_machine("test", 0))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert list(report["arms"]) == ["grpo", "grpo-roc"]
    arm = report["arms"]["grpo-roc"]
    assert arm["seeds"] == 1
    assert arm["final_accuracy"] == arm["sft_accuracy"] == [0.75, None, None]
    assert arm["final_tool_error_in_correct"] == [pytest.approx(1 / 6), None, None]
    assert arm["final_tokens"] == [50.0, None, None]
    assert list(arm["by_set"]) == [problem_set.value for problem_set in ProblemSet]
    assert all(0 <= row["guessing"] <= 1 for row in arm["by_set"].values())


def test_several_seeds_have_a_mean_and_an_interval(checkout: Path) -> None:
    done = experiment(0, correct=2) + experiment(1, correct=4)
    publish.publish(done, checkout / "results" / "laptop")
    records = committed_records()
    assert [record.seed for record in of_arm(records, "grpo")] == [0, 1]
    mean, low, high = laptop_report(records)["arms"]["grpo"]["final_accuracy"]
    assert mean == 0.75
    # Student t of two values: half the distance times t(1, 0.975) = 12.706.
    assert (low, high) == (pytest.approx(0.75 - 3.1766, abs=1e-3), pytest.approx(3.9266, abs=1e-3))


def test_what_never_happened_is_null() -> None:
    experiment(0, correct=0, calls=0, errors=0)
    report = laptop_report(records_of_this_machine("test", 0))
    assert report["arms"]["grpo"]["final_tool_error_in_correct"] == [None, None, None]
    assert json.dumps(report, allow_nan=False)


def test_an_arm_without_records_is_left_out() -> None:
    finished(Planner().sft("test", 0, "book"))
    finished(Planner().rl("test", 0, "book", "grpo"))
    assert list(laptop_report(records_of_this_machine("test", 0))["arms"]) == ["grpo"]
    assert laptop_report([]) == {"arms": {}}


# --- claims -------------------------------------------------------------------------------

CLAIMS = yaml.safe_load((ROOT / "sweeps" / "claims.yaml").read_text())["laptop"]["claims"]


def made(sft: dict[str, int], rl: dict[str, int]) -> dict[str, Any]:
    """The report on one seed with these scores."""
    for plan in plan_experiment("test", [0], "book"):
        finished(plan, **(sft if plan.arm == "sft" else rl))
    return laptop_report(records_of_this_machine("test", 0))


def test_claims_are_held_against_the_report() -> None:
    report = made({"correct": 2, "errors": 3}, {"correct": 4, "errors": 1})
    outcomes = claims_met(report, CLAIMS)
    assert [outcome.name for outcome in outcomes] == [claim["name"] for claim in CLAIMS]
    assert all(outcome.met for outcome in outcomes), outcomes
    assert [outcome.measured for outcome in outcomes[:4]] == [(0.5,), (1.0,), (1.0,), (0.5,)]
    assert outcomes[4].measured == pytest.approx((-1 / 3, -1 / 3))


def test_a_claim_that_is_missed_is_told() -> None:
    report = made({"correct": 3, "errors": 1}, {"correct": 2, "errors": 1})
    assert not any(outcome.met for outcome in claims_met(report, CLAIMS))


def test_a_number_that_is_not_there_meets_no_claim() -> None:
    assert not any(outcome.met for outcome in claims_met({"arms": {}}, CLAIMS))
    report = made({"correct": 2, "calls": 0, "errors": 0}, {"correct": 4})
    assert not claims_met(report, CLAIMS)[4].met


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"name": "other", "what": "", "at_least": 1}, "nothing says which number"),
        ({"name": "roc_gains", "what": ""}, "give between, at_least or falls"),
        ({"name": "roc_gains", "what": "", "falls": False}, "give between, at_least or falls"),
    ],
)
def test_a_claim_that_cannot_be_evaluated_is_refused(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claims_met({"arms": {}}, [claim])
