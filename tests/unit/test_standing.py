"""How a run stands, who works on it, and how it is followed: seen from its folder alone."""

import json
import multiprocessing
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from rstar2.errors import UserError
from rstar2.experiments import follow as following
from rstar2.experiments import planner, worker
from rstar2.experiments.follow import RunFailedError, follow, stop
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.standing import (
    LOCK,
    LOST_SECONDS,
    Standing,
    is_alive,
    is_locked,
    view,
    worker_of,
)
from rstar2.experiments.worker import (
    RunBusyError,
    UnmakeableError,
    make,
    plan_of,
    words,
    working_on,
)
from rstar2.records import (
    Hardware,
    Provenance,
    RecordError,
    RunFolder,
    RunState,
    RunStoppedError,
    Worker,
    deciding_sources,
)

ROOT = Path(__file__).resolve().parents[2]
CLEAN = Provenance("a" * 40, False, Hardware("cpu", 2, 4.0), {"python": "3.11", "torch": "2.0"})
ELSEWHERE = f"{platform.node()}-2"


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, in which the test stands."""
    monkeypatch.setattr(worker, "provenance", lambda: CLEAN)
    # For speed: fewer sources to hash, a shorter wait between two looks.
    monkeypatch.setattr(planner, "deciding_sources", lambda entry, _others: [entry])
    monkeypatch.setattr(following, "_POLL_SECONDS", 0.02)
    return own_checkout


@pytest.fixture
def sft() -> Plan:
    return Planner().sft("test", 0)


@pytest.fixture
def rl() -> Plan:
    """A run that needs ``sft``."""
    return Planner().rl("test", 0, "none", "grpo")


def finish(folder: RunFolder) -> None:
    folder.metrics.append({"step": 0, "loss": 1.0})
    folder.metrics.to_parquet(folder.metrics_parquet)
    folder.update(RunState.DONE, wall_seconds=7.5)


def done(plan: Plan) -> Plan:
    with working_on(plan) as folder:
        finish(folder)
    return plan


def left(plan: Plan, error: BaseException) -> Plan:
    """A run whose work was broken off."""
    with pytest.raises(type(error)), working_on(plan):
        raise error
    return plan


class Holder:
    """A process that works on a run until it is told how to end, or by SIGTERM to stop.

    As a parent it starts another process, which outlives it.
    """

    def __init__(self, plan: Plan, parent: bool) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        self.process = context.Process(target=_hold, args=(plan, other, parent))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        self.child: int | None = self._pipe.recv()

    def end(self, how: str, after: float = 0.0) -> None:
        self._pipe.send((how, after))
        if not after:
            self.process.join()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _hold(plan: Plan, pipe: Connection, parent: bool) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        with working_on(plan) as folder:
            child = subprocess.Popen(["sleep", "60"]) if parent else None
            while folder.worker is None:
                time.sleep(0.01)
            pipe.send(child and child.pid)
            while not pipe.poll(0.02):
                if stopped.is_set():
                    raise RunStoppedError("asked to stop")
            how, after = pipe.recv()
            time.sleep(after)
            if how == "done":
                finish(folder)
            else:
                raise UserError("the disk is full")
    except UserError:
        pass


@contextmanager
def held(plan: Plan, *, parent: bool = False) -> Iterator[Holder]:
    holder = Holder(plan, parent)
    try:
        yield holder
    finally:
        holder.kill()


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with any run."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


# --- how it stands ------------------------------------------------------------------------


def test_a_run_waits_until_what_it_needs_is_done(sft: Plan, rl: Plan) -> None:
    assert view(sft).standing is Standing.TODO
    assert view(rl).standing is Standing.WAITING
    left(sft, RuntimeError("broke"))
    assert view(rl).standing is Standing.WAITING
    done(sft)
    assert view(rl).standing is Standing.TODO


def test_a_folder_that_is_only_prepared_is_still_to_do(sft: Plan) -> None:
    sft.folder.mkdir(parents=True)
    (sft.folder / LOCK).touch()
    assert view(sft).standing is Standing.TODO


def test_a_run_is_running_while_its_process_lives_and_then_lost(sft: Plan) -> None:
    with held(sft) as holder:
        now = view(sft)
        assert now.standing is Standing.RUNNING
        assert now.worker is not None
        assert (now.worker.host, now.worker.pid) == (platform.node(), holder.pid)
        assert abs(time.time() - now.worker.beat) < 30
        assert worker_of(sft) == now.worker
        holder.kill()
        now = view(sft)
    assert now.standing is Standing.LOST
    assert now.worker is not None
    assert now.worker.pid == holder.pid, "who it was is still told"
    assert worker_of(sft) is None


def test_what_a_dead_worker_started_does_not_keep_its_run_alive(sft: Plan) -> None:
    with held(sft, parent=True) as holder:
        holder.kill()
        assert holder.child is not None
        os.kill(holder.child, 0)  # it lives
        assert not is_locked(sft)
        os.kill(holder.child, signal.SIGKILL)


def test_how_it_ended_is_told_with_what_it_took_or_why(sft: Plan) -> None:
    left(sft, KeyboardInterrupt())
    assert view(sft).standing is Standing.STOPPED
    left(sft, RuntimeError("out of luck"))
    assert view(sft).standing is Standing.FAILED
    assert view(sft).error == "RuntimeError: out of luck"
    done(sft)
    now = view(sft)
    assert (now.standing, now.error, now.wall_seconds, now.worker) == ("done", "", 7.5, None)


@pytest.mark.parametrize(
    ("silent", "standing"),
    [
        (0.0, Standing.RUNNING),
        (LOST_SECONDS - 5, Standing.RUNNING),
        (LOST_SECONDS + 5, Standing.LOST),
        (-LOST_SECONDS, Standing.RUNNING),
    ],
)
def test_a_run_of_another_machine_is_lost_when_it_is_silent(
    sft: Plan, silent: float, standing: Standing
) -> None:
    with working_on(sft) as folder:
        record = json.loads((folder.path / "run.json").read_bytes())
    beat = Worker(ELSEWHERE, os.getpid(), time.time() - silent)
    record["worker"] = {"host": beat.host, "pid": beat.pid, "beat": beat.beat}
    (sft.folder / "run.json").write_text(json.dumps(record))
    assert view(sft).standing is standing
    assert worker_of(sft) is None, "no process of this machine"
    assert is_alive(sft, beat) is (standing is Standing.RUNNING)


def test_without_a_lock_file_nobody_of_this_machine_is_at_work(sft: Plan) -> None:
    here = Worker(platform.node(), os.getpid(), time.time())
    assert not is_locked(sft)
    assert not is_alive(sft, here)
    assert not is_alive(sft, None)
    with working_on(sft) as folder:
        folder.update(note="the state stays")
    (sft.folder / LOCK).unlink()
    assert view(sft).standing is Standing.LOST


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"format": 0}',
        b'{"format": 1}',
        b'{"format": 1, "state": "paused"}',
        b'{"format": 1, "state": ["done"]}',
        b'{"format": 1, "state": "running", "worker": {"host": "here"}}',
        b'{"format": 1, "state": "running", "worker": 7}',
    ],
)
def test_a_damaged_run_is_named_and_is_not_done(sft: Plan, content: bytes) -> None:
    sft.folder.mkdir(parents=True)
    (sft.folder / "run.json").write_bytes(content)
    assert not sft.is_done
    with pytest.raises(RecordError) as caught:
        view(sft)
    assert str(sft.folder / "run.json") in str(caught.value)


# --- the one that works on it -------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "state", "told"),
    [
        (RunStoppedError("asked to"), "stopped", None),
        (KeyboardInterrupt(), "stopped", None),
        (SystemExit(143), "stopped", None),
        (UserError("mend it"), "failed", "mend it"),
        (RuntimeError("no luck"), "failed", "RuntimeError: no luck"),
        (RuntimeError(), "failed", "RuntimeError: RuntimeError()"),
        (ValueError("x" * 10_000), "failed", "ValueError: " + "x" * 488),
        (ValueError("\udcff é"), "failed", "ValueError: \\udcff é"),
    ],
)
def test_the_record_says_how_the_work_ended(
    sft: Plan, error: BaseException, state: str, told: str | None
) -> None:
    with pytest.raises(type(error)) as caught, working_on(sft):
        raise error
    assert caught.value is error
    record = RunFolder.open(sft.folder).read()
    assert (record["state"], record.get("error")) == (state, told)
    assert "worker" not in record
    assert "ended" in record
    assert not is_locked(sft)


def test_a_clean_end_leaves_what_the_work_said(sft: Plan) -> None:
    with working_on(sft) as folder:
        assert is_locked(sft)
        record = folder.read()
        assert (record["state"], record["kind"], record["notebook"]) == (
            "running",
            "sft",
            "10_run_sft.ipynb",
        )
        assert (record["preset"], record["arm"], record["seed"]) == ("test", "sft", 0)
        finish(folder)
    record = RunFolder.open(sft.folder).read()
    assert record["state"] == "done"
    assert "worker" not in record
    assert not is_locked(sft)


def test_what_is_done_stays_done(sft: Plan) -> None:
    done(sft)
    before = (sft.folder / "run.json").read_bytes()
    with working_on(sft):
        pass
    left(sft, RuntimeError("came too late"))
    left(sft, KeyboardInterrupt())
    assert (sft.folder / "run.json").read_bytes() == before


def test_a_run_that_was_left_goes_on_and_forgets_why(sft: Plan) -> None:
    left(sft, RuntimeError("broke"))
    with working_on(sft) as folder:
        record = folder.read()
        assert record["state"] == "running"
        assert not {"error", "ended"} & record.keys()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited ten seconds for nothing"
        time.sleep(0.01)


def test_it_beats_also_after_a_beat_could_not_be_written(
    sft: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.01)
    with working_on(sft) as folder:
        wait_for(lambda: folder.worker is not None)
        path = folder.path / "run.json"
        away = path.rename(path.with_name("away"))
        time.sleep(0.2)
        away.rename(path)
        before = folder.worker
        assert before is not None
        wait_for(lambda: folder.worker is not None and folder.worker.beat > before.beat)
        finish(folder)


def test_a_run_has_one_writer(sft: Plan) -> None:
    with held(sft):
        before = (sft.folder / "run.json").read_bytes()
        with (
            pytest.raises(RunBusyError, match="test-seed0-sft is being made by another process"),
            working_on(sft),
        ):
            raise AssertionError("two are at work")
        assert (sft.folder / "run.json").read_bytes() == before
    done(sft)


def test_a_run_of_another_machine_is_not_taken_from_it(sft: Plan) -> None:
    with working_on(sft) as folder:
        pass
    folder.beat(Worker(ELSEWHERE, 1, time.time()))
    before = (sft.folder / "run.json").read_bytes()
    with pytest.raises(RunBusyError, match="on another machine"), working_on(sft):
        raise AssertionError("two are at work")
    assert (sft.folder / "run.json").read_bytes() == before
    folder.beat(Worker(ELSEWHERE, 1, time.time() - LOST_SECONDS - 5))
    done(sft)


def test_who_looks_does_not_hold_off_who_works(sft: Plan) -> None:
    left(sft, KeyboardInterrupt())
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            view(sft)
            is_locked(sft)

    eyes = [threading.Thread(target=look) for _ in range(2)]
    for one in eyes:
        one.start()
    try:
        done(sft)
    finally:
        over.set()
        for one in eyes:
            one.join()
    assert sft.is_done


def test_a_run_does_not_go_on_with_other_versions(
    sft: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(sft, KeyboardInterrupt())
    before = (sft.folder / "run.json").read_bytes()
    other = Provenance(CLEAN.commit, False, CLEAN.hardware, {**CLEAN.versions, "torch": "3.0"})
    monkeypatch.setattr(worker, "provenance", lambda: other)
    with pytest.raises(UnmakeableError) as caught, working_on(sft):
        raise AssertionError("it goes on")
    assert "begun with torch 2.0, here is 3.0: go on with that version, or" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (sft.folder / "run.json").read_bytes() == before
    assert not is_locked(sft)


def test_a_run_for_another_trainer_is_refused_before_anything_is_made(checkout: Path) -> None:
    plan = Planner().sft("mi300x-64", 0)
    with pytest.raises(UnmakeableError, match="trains with verl on 64 accelerators") as caught:
        make(plan, lambda: False)
    assert "\n" not in str(caught.value)
    assert not (checkout / "runs").exists()


def test_who_is_told_to_stop_begins_nothing(sft: Plan, rl: Plan) -> None:
    for plan in (sft, rl):
        with pytest.raises(RunStoppedError):
            make(plan, lambda: True)
        assert not plan.is_done
    assert view(sft).standing in (Standing.TODO, Standing.STOPPED)


# --- a plan as a word ---------------------------------------------------------------------

CHANGES = {"sft.examples": 72, "rl.epsilon": 0.5}


def plans_of_every_kind() -> list[Plan]:
    planner = Planner("my runs/größer")
    return [
        planner.sft("test", 3, "book"),
        planner.sft("test", 3, changes=CHANGES),
        planner.rl("test", 3, "book", "grpo-roc", changes=CHANGES),
        planner.rl("test", 3, "none", "grpo", 2),
        planner.mining("test", 3, "grpo", 3),
        planner.evaluation("test", 3, "book", "sft"),
        planner.evaluation("test", 3, "book", "grpo", 2, CHANGES),
        planner.rl("mi300x-64-32b", 0, "none", "grpo-roc", 1),
    ]


def test_a_plan_is_told_in_one_word_and_made_again() -> None:
    plans = plans_of_every_kind()
    assert {plan.kind for plan in plans} == set(Kind) - {Kind.NOTEBOOK}
    for plan in plans:
        argument = words(plan)
        assert "\0" not in argument
        assert argument.isascii(), "it is an argument in any locale"
        again = plan_of(argument)
        assert (again.kind, again.name, again.params) == (plan.kind, plan.name, plan.params)
        assert [one.folder for one in again.chain] == [one.folder for one in plan.chain]


@pytest.mark.parametrize("place", ["once.ipynb", "my notes/größer.ipynb", "../outside 1.ipynb"])
@pytest.mark.parametrize("out", ["runs", "../runs", "/"])
def test_a_notebook_of_ones_own_is_told_wherever_it_lies(
    checkout: Path, tmp_path: Path, place: str, out: str
) -> None:
    path = (checkout / place).resolve()
    path.parent.mkdir(exist_ok=True)
    source = "seed: int = 0\ntext = ''\nrun_dir = ''"
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": source}
    path.write_text(json.dumps({"cells": [cell]}))
    folder = str(tmp_path / "away") if out == "/" else out
    plan = Planner(folder).notebook(path, {"text": 'é "\n$(x)'})
    assert plan.kind is Kind.NOTEBOOK
    again = plan_of(words(plan))
    assert again.folder.resolve() == plan.folder.resolve()
    assert (again.run_id, again.params, again.notebook) == (plan.run_id, plan.params, path)


# --- following it -------------------------------------------------------------------------


def test_a_follower_attaches_to_who_works_and_gives_what_is_done(
    sft: Plan, capfd: pytest.CaptureFixture[str]
) -> None:
    with held(sft) as holder:
        holder.end("done", after=0.1)
        assert follow(sft).state is RunState.DONE
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1] == "test-seed0-sft: done in 8 s"
    assert len(lines) == 2, "where it was, and how it ended"
    assert not (sft.folder / following.LOG).exists(), "it started no process"


def test_what_is_done_is_given_at_once(sft: Plan) -> None:
    done(sft)
    assert follow(sft).path == sft.folder


def test_a_run_that_fails_is_told_with_its_reason(sft: Plan) -> None:
    with held(sft) as holder:
        holder.end("failed", after=0.1)
        with pytest.raises(RunFailedError, match="test-seed0-sft failed: the disk is full"):
            follow(sft)


def later(act: Callable[[], object]) -> None:
    threading.Timer(0.2, act).start()


def test_a_run_that_is_asked_to_stop_goes_on_when_it_is_made_again(sft: Plan) -> None:
    with held(sft):
        later(lambda: stop(sft))
        with pytest.raises(RunStoppedError, match="was stopped; make it again and it goes on"):
            follow(sft)
    assert view(sft).standing is Standing.STOPPED


def test_a_run_whose_process_is_killed_is_told_as_lost(sft: Plan) -> None:
    with held(sft) as holder:
        later(holder.kill)
        with pytest.raises(RunFailedError, match=r"is lost: its process was ended .*from outside"):
            follow(sft)
    assert view(sft).standing is Standing.LOST


def test_a_run_whose_sources_changed_since_it_was_planned_is_refused(sft: Plan) -> None:
    with pytest.raises(UnmakeableError, match=r"planned as 0000000000, now it would be .* again"):
        plan_of(words(replace(sft, run_id="0000000000")))


def test_an_interrupted_follower_leaves_the_run_at_work(
    sft: Plan, capfd: pytest.CaptureFixture[str]
) -> None:
    with held(sft):
        later(lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            follow(sft)
        assert view(sft).standing is Standing.RUNNING
    assert "goes on without this cell. Execute it again" in capfd.readouterr().err


def test_a_worker_that_refuses_is_told_by_its_last_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "deciding_sources", deciding_sources)  # as the worker reads them
    plan = Planner().sft("mi300x-64", 0)
    with pytest.raises(RunFailedError, match="preset mi300x-64 trains with verl") as caught:
        follow(plan)
    assert "\n" not in str(caught.value)
    assert view(plan).standing is Standing.TODO


# --- stopping it --------------------------------------------------------------------------


def test_stopping_reaches_the_run_that_is_made_first(sft: Plan, rl: Plan) -> None:
    with held(sft) as holder:
        assert stop(rl)
        holder.process.join(10)
        assert holder.process.exitcode == 0
    assert view(sft).standing is Standing.STOPPED
    assert not stop(rl), "nobody is left"


def as_recorded(plan: Plan, pid: int, host: str | None = None) -> None:
    """Writes who is said to work on a run, whoever does."""
    RunFolder(plan.folder).beat(Worker(host or platform.node(), pid, time.time()))


def is_spared(process: "subprocess.Popen[bytes]") -> bool:
    time.sleep(0.1)
    return process.poll() is None


def test_a_process_that_got_the_number_of_a_dead_worker_is_spared(
    sft: Plan, bystander: "subprocess.Popen[bytes]"
) -> None:
    with held(sft) as holder:
        holder.kill()
    as_recorded(sft, bystander.pid)
    assert not stop(sft)
    assert is_spared(bystander)


def test_a_process_that_does_not_hold_the_lock_is_spared(
    sft: Plan, bystander: "subprocess.Popen[bytes]"
) -> None:
    """A new worker holds the lock before its first beat; run.json still tells the dead one."""
    with held(sft):
        as_recorded(sft, bystander.pid)
        stop(sft)
        assert is_spared(bystander)


def test_a_worker_that_is_gone_is_no_error(sft: Plan, bystander: "subprocess.Popen[bytes]") -> None:
    bystander.kill()
    bystander.wait()
    with held(sft):
        as_recorded(sft, bystander.pid)
        stop(sft)


def test_a_worker_of_another_machine_is_not_looked_for_here(
    sft: Plan, bystander: "subprocess.Popen[bytes]"
) -> None:
    with held(sft):
        as_recorded(sft, bystander.pid, host=ELSEWHERE)
        stop(sft)
        assert is_spared(bystander)


def test_what_was_never_begun_or_is_damaged_is_not_stopped(sft: Plan) -> None:
    assert not stop(sft)
    sft.folder.mkdir(parents=True)
    (sft.folder / "run.json").write_text("{")
    assert not stop(sft)
