"""Batches as people type them: killed, stopped, gone on with, collected; notebooks of one's own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from live import (
    end_processes_in,
    executed,
    executor,
    is_alive,
    rstar2,
    sessions,
    signal_worker,
    steps,
    succeeds,
    until,
)

from benchmarks.resume.checkout import PRESET, differences, make_checkout
from rstar2.experiments.execute import execute
from rstar2.experiments.follow import RunFailedError
from rstar2.experiments.notebook_files import NotebookFile
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Plan
from rstar2.records import RunFolder, RunState, read_json_lines

pytestmark = pytest.mark.notebook

SWEEP = """
preset: resume
seeds: [0, 1]
arms: [grpo-roc]
runs:
  - notebook: 10_run_sft
    with: {evaluation: book}
  - notebook: 11_run_rl
    with: {evaluation: book}
"""

LONGER: dict[str, Any] = {
    "pretrain": {"examples": 240, "checkpoint_every": 5},
    "stages": [{"steps": 16}, {"steps": 2, "data": "mined", "mine_problems": 4}],
    "rl": {"checkpoint_every": 3},
}
"""So that a run can be met at work."""

UNBROKEN = """
from rstar2.experiments.planner import Planner
from rstar2.experiments.worker import make
for seed in (0, 1):
    make(Planner().rl("resume", seed, "book", "grpo-roc"), lambda: False)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of its own with the sweep ``four``, in which the test stands."""
    root = checkout_of_four(tmp_path / "checkout")
    monkeypatch.chdir(root)
    yield root
    end_processes_in(tmp_path)


def checkout_of_four(root: Path) -> Path:
    make_checkout(root, **LONGER)
    (root / "sweeps").mkdir()
    (root / "sweeps" / "four.yaml").write_text(SWEEP)
    return root


def four() -> tuple[Plan, Plan, Plan, Plan]:
    planner = Planner()
    sft = [planner.sft(PRESET, seed, "book") for seed in (0, 1)]
    arms = [planner.rl(PRESET, seed, "book", "grpo-roc") for seed in (0, 1)]
    return sft[0], arms[0], sft[1], arms[1]


def states(root: Path) -> list[str]:
    """What ``rstar2 batch status`` says, by task."""
    succeeds(rstar2(root, "batch", "status", "four", "--json", "status.json"))
    return [row["state"] for row in json.loads((root / "status.json").read_bytes())]


def test_four_runs_on_two_workers_outlive_a_kill_and_a_stop(checkout: Path, tmp_path: Path) -> None:
    whole = checkout_of_four(tmp_path / "unbroken")
    unbroken = subprocess.Popen([sys.executable, "-c", UNBROKEN], cwd=whole)
    sft, arm, other_sft, other_arm = four()

    first = rstar2(checkout, "batch", "run", "four", "--workers", "2")
    until(lambda: bool(steps(other_sft)), "a checkpoint of the second SFT")
    signal_worker(other_sft, signal.SIGTERM)
    until(lambda: bool(steps(arm)), "a checkpoint of the first RL")
    signal_worker(arm, signal.SIGKILL)
    _, told = first.communicate()
    assert first.returncode == 2
    assert f"{sft.name}: done" in told
    assert f"{other_sft.name}: stopped; run it again and it goes on" in told
    assert f"{arm.name}: is lost: its process was ended by signal 9 from outside" in told
    assert "2 failed: " in told
    assert "; 1 not begun" in told
    assert states(checkout) == ["done", "lost", "stopped", "waiting"]
    stopped = RunFolder.open(other_sft.folder).metrics.rows()
    assert steps(other_sft)[-1].name == f"step-{len(stopped):06}", "no step is lost"

    began = time.monotonic()
    succeeds(rstar2(checkout, "batch", "run", "four", "--workers", "2"))
    second = time.monotonic() - began
    assert states(checkout) == ["done"] * 4
    assert [sessions(one) for one in (sft, arm, other_sft, other_arm)] == [{1}, {1, 2}, {1, 2}, {1}]
    rows = [row["step"] for row in read_json_lines(arm.folder / "timing.jsonl") if "step" in row]
    assert rows.count(1) == 1, "it went on, it did not begin again"

    began = time.monotonic()
    process = rstar2(checkout, "batch", "run", "four", "--workers", "2")
    _, told = process.communicate()
    third = time.monotonic() - began
    assert process.returncode == 0
    assert "4 done, 0 to run" in told
    assert third < 5, f"the second call took {second:.1f} s, the third {third:.1f} s"

    assert unbroken.wait() == 0
    for plan in (sft, arm, other_sft, other_arm):
        assert differences(plan.folder, whole / "runs" / plan.folder.name) == []
    succeeds(rstar2(checkout, "batch", "collect", "four", "--out", "all.parquet"))
    table = pd.read_parquet(checkout / "all.parquet")
    assert set(table["run_id"]) == {plan.run_id for plan in (sft, arm, other_sft, other_arm)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_batch_that_is_ended_stops_its_runs_at_a_checkpoint(
    number: signal.Signals, checkout: Path
) -> None:
    sft, *_ = four()
    process = rstar2(checkout, "batch", "run", "four", "--only", "kind=sft", "--only", "seed=0")
    until(lambda: bool(steps(sft)), "a checkpoint of the SFT")
    pid = signal_worker(sft, signal.SIGSTOP)  # so that it is not over before it is asked
    process.send_signal(number)
    until(lambda: is_asked_to_stop(pid), "the worker is asked to stop")
    os.kill(pid, signal.SIGCONT)
    _, told = process.communicate()
    assert process.returncode == 128 + number, told
    assert not is_alive(pid)
    folder = RunFolder.open(sft.folder)
    assert folder.state is RunState.STOPPED
    assert steps(sft)[-1].name == f"step-{len(folder.metrics.rows()):06}", "no step is lost"


def is_asked_to_stop(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is held."""
    status = Path(f"/proc/{pid}/status").read_text()
    (waiting,) = (line for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(waiting.split()[1], 16) & 1 << (signal.SIGTERM - 1))


# --- a notebook that is its own work ------------------------------------------------------

HEAD = """
import os, signal, time
from pathlib import Path
from rstar2.records import RunFolder
folder = RunFolder(Path(run_dir))
"""
METRICS = "folder.metrics.append({'step': 1, 'value': 2.0 * seed})\n"


def own(code: str) -> Plan:
    """The run of a notebook of one's own, seed 3."""
    cells = [
        nbformat.v4.new_code_cell('seed: int = 0\nrun_dir: str = ""'),
        nbformat.v4.new_code_cell(HEAD + code),
    ]
    cells[0].metadata.tags = ["parameters"]
    path = Path.cwd() / "notebooks" / "own.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert NotebookFile(path).parameters == {"seed": 0, "run_dir": ""}
    return Planner().notebook(path, {"seed": 3})


def test_a_notebook_that_is_its_own_work_leaves_a_run(checkout: Path) -> None:
    plan = own(METRICS)
    execute(plan)
    folder = RunFolder.open(plan.folder)
    assert folder.state is RunState.DONE
    assert folder.params == {"seed": 3}
    assert pd.read_parquet(folder.metrics_parquet).to_dict("records") == [{"step": 1, "value": 6.0}]
    text = (plan.folder / "executed.ipynb").read_text()
    assert [path for path in (str(checkout), str(Path.home())) if path in text] == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (METRICS + "raise ValueError('no such thing')", "ValueError: no such thing"),
        (METRICS + "os.kill(os.getpid(), signal.SIGKILL)", "its kernel died: ended from outside"),
        ("pass", "left no metrics: its notebook declares the parameter run_dir"),
    ],
    ids=["raises", "dies", "no-metrics"],
)
def test_a_notebook_that_is_its_own_work_and_fails_says_why(
    code: str, message: str, checkout: Path
) -> None:
    plan = own(code)
    with pytest.raises(RunFailedError, match=message):
        execute(plan)
    folder = RunFolder.open(plan.folder)
    assert folder.state is RunState.FAILED
    assert message in folder.read()["error"]


def test_a_notebook_that_is_its_own_work_is_stopped_with_its_kernel(checkout: Path) -> None:
    plan = own(METRICS + "(folder.path / 'pid').write_text(str(os.getpid()))\ntime.sleep(600)")
    process = executor(checkout, plan)
    pid = plan.folder / "pid"
    until(lambda: pid.exists() and pid.read_text() != "", "the kernel is at work")
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    until(lambda: not is_alive(int(pid.read_text())), "the end of the kernel", seconds=20)
    assert RunFolder.open(plan.folder).state is RunState.STOPPED
    assert executed(plan).cells
