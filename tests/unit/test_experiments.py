"""Experiments: plans, batches, progress."""

import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import finished, quick
from rich.console import Console
from rich.progress import Progress

from rstar2.experiments import planner, summaries
from rstar2.experiments.batch import (
    BatchError,
    _reason,
    progress_line,
    run_batch,
)
from rstar2.experiments.checkout import project_root
from rstar2.experiments.execute import execute
from rstar2.experiments.planner import Planner, plan_experiment
from rstar2.experiments.plans import Plan
from rstar2.experiments.presets import PresetError
from rstar2.experiments.progress import ProgressFile, read_progress
from rstar2.experiments.signals import signals_noted, signals_unwind
from rstar2.records import RunFolder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, in which the test stands; its runs come from a clean commit."""
    quick(monkeypatch)
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
    monkeypatch.setattr(planner, "deciding_sources", lambda _entry, _others: [source])
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
        (("test", 0, "book", "ppo"), "no arm 'ppo'; the arms are: grpo, grpo-2g"),
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


# --- finished runs ------------------------------------------------------------------------


def test_a_finished_run_says_so() -> None:
    plan = finished(Planner().sft("test", 0, "book"))
    assert plan.is_done
    assert RunFolder.open(plan.folder).read()["wall_seconds"] > 0
    table = summaries.evaluation_summary(RunFolder.open(plan.folder))
    assert table["accuracy"].tolist() == [0.75] * 4
    assert table["tool errors in correct"].tolist() == pytest.approx([1 / 6] * 4, abs=1e-3)
    assert summaries.loss_summary(RunFolder.open(plan.folder))["last"].tolist() == [1.0]
