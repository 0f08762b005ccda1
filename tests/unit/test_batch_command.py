"""``rstar2 batch``: what it refuses before anything starts, what it shows, what it writes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from command_line import Typed

from rstar2.cli import batch as command
from rstar2.experiments import batch, planner, worker
from rstar2.experiments.plans import Plan
from rstar2.experiments.sweeps import Task, load_sweep
from rstar2.experiments.worker import working_on
from rstar2.records import Hardware, Provenance, RunFolder, RunState, Worker, atomic_write

ROOT = Path(__file__).resolve().parents[2]
CLEAN = Provenance("a" * 40, False, Hardware("cpu", 2, 4.0), {"python": "3.11", "torch": "2.0"})


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without runs, in which the commands are typed, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(worker, "provenance", lambda: CLEAN)
    monkeypatch.setattr(command, "_WATCH_SECONDS", 0.02)
    # For speed: fewer sources to hash.
    monkeypatch.setattr(planner, "deciding_sources", lambda entry, _others: [entry])
    return own_checkout


@pytest.fixture
def type_(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capfd, "batch")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What ``run`` hands on to be executed; nothing is."""
    plans: list[Plan] = []
    monkeypatch.setattr(batch, "run_batch", lambda some, **_: plans.extend(some))
    return plans


def tasks() -> Sequence[Task]:
    return load_sweep("test").tasks


def finish(plan: Plan, seconds: float = 90.0) -> None:
    with working_on(plan) as folder:
        folder.metrics.append({"step": 1, "loss": 1.5, "accuracy": 0.5})
        folder.metrics.to_parquet(folder.metrics_parquet)
        folder.update(RunState.DONE, wall_seconds=seconds)


def left(plan: Plan, error: BaseException) -> None:
    with pytest.raises(type(error)), working_on(plan):
        raise error


def every_standing() -> None:
    """Leaves tasks 0 to 4 done, stopped, failed, lost and running elsewhere; the rest waits."""
    finish(tasks()[0].plan)
    left(tasks()[1].plan, KeyboardInterrupt())
    (tasks()[1].plan.folder / "checkpoints" / "step-000007").mkdir()
    left(tasks()[2].plan, ValueError("shape [batch, seq] has [/b] :boom:"))
    for number in (3, 4):
        with working_on(tasks()[number].plan):
            pass
    RunFolder(tasks()[4].plan.folder).beat(Worker("elsewhere", 1, time.time()))
    progress = {"phase": "RL 1/3", "done": 0.5, "left_seconds": 7200.0, "figures": {"loss": 1.0}}
    atomic_write(tasks()[4].plan.folder / "progress.json", json.dumps(progress).encode())


STANDINGS = ["done", "stopped", "failed", "lost", "running", "waiting", "waiting", "waiting"]


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plan", "run", "status", "collect", "slurm", "k8s", "ray"])
def test_a_mistake_is_one_line_before_anything_starts(
    type_: Typed, checkout: Path, name: str
) -> None:
    assert "there is no sweep 'nope'; sweeps/ has: laptop-" in type_.refused(name, "nope")
    assert "--only arm=ppo: no run has it; arm is" in type_.refused(
        name, "test", "--only", "arm=ppo"
    )
    mistake = {"preset": "test", "runs": [{"notebook": "10_run_sft", "with": {"sede": 1}}]}
    (checkout / "sweeps" / "mine.yaml").write_text(yaml.safe_dump(mistake))
    line = type_.refused(name, "mine")
    assert "mine.yaml: 10_run_sft.ipynb" in line
    assert "has no parameter 'sede'; it has: preset, seed, evaluation" in line
    (checkout / "sweeps" / "mine.yaml").write_bytes(b"runs: \xff")
    assert "mine.yaml cannot be read" in type_.refused(name, "mine")
    (checkout / "sweeps" / "mine.yaml").write_text("runs: [\n")
    assert "mine.yaml cannot be read" in type_.refused(name, "mine")
    assert type_.refused(name)
    assert type_.refused(name, "test", "--nope")
    assert not (checkout / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "test", "--task", "8"],
            "--task 8: the sweep has tasks 0 to 7; `rstar2 batch plan",
        ),
        (["run", "test", "--task", "-1"], "--task"),
        (["run", "test", "--task", "0", "--only", "seed=0"], "give --task or --only, not both"),
        (["run", "test", "--workers", "0"], "--workers"),
        (["collect", "test"], "nothing is done yet: `rstar2 batch run SWEEP`"),
        (["slurm", "test", "--at-once", "0"], "--at-once"),
        (["k8s", "mi300x-64"], "takes 8 nodes"),
        (["k8s", "test"], "image"),
    ],
)
def test_what_cannot_be_done_is_refused(
    type_: Typed, checkout: Path, words: list[str], message: str
) -> None:
    assert message in type_.refused(*words)
    assert not (checkout / "runs").exists()


def test_a_damaged_run_is_named(type_: Typed) -> None:
    folder = tasks()[0].plan.folder
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    for name in ("plan", "status"):
        assert f"{folder / 'run.json'} cannot be read" in type_.refused(name, "test")


# --- run ----------------------------------------------------------------------------------


def test_run_takes_what_is_left_with_what_it_needs(type_: Typed, started: list[Plan]) -> None:
    code, out, err = type_("run", "test", "--only", "stage=2")
    assert (code, out, err) == (0, "", "0 done, 4 to run\n")
    assert started == [tasks()[number].plan for number in (0, 1, 2, 6)]
    started.clear()
    finish(tasks()[0].plan)
    assert type_("run", "test")[2] == "1 done, 7 to run\n"
    assert started == [task.plan for task in tasks()[1:]]


def test_a_task_is_run_alone(type_: Typed, started: list[Plan]) -> None:
    type_("run", "test", "--task", "2")
    assert started == [tasks()[2].plan]


def test_a_task_whose_base_is_not_done_is_refused(type_: Typed, checkout: Path) -> None:
    code, out, err = type_("run", "test", "--task", "1")
    assert (code, out) == (2, "")
    assert "needs test-seed0-sft" in err
    assert not (checkout / "runs").exists()


def test_what_is_done_is_skipped_in_no_time(type_: Typed) -> None:
    for task in tasks():
        finish(task.plan)
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    assert type_("run", "test") == (0, "", "8 done, 0 to run\n")
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == before


def test_force_makes_the_chosen_runs_from_nothing(type_: Typed, started: list[Plan]) -> None:
    for task in tasks()[:2]:
        finish(task.plan)
    type_("run", "test", "--force", "--only", "stage=1", "--only", "kind=rl")
    assert started == [tasks()[1].plan]
    assert not tasks()[1].plan.folder.exists()
    assert tasks()[0].plan.is_done, "what it needs is kept"


def test_force_does_not_take_a_run_from_its_process(type_: Typed, started: list[Plan]) -> None:
    finish(tasks()[1].plan)
    with working_on(tasks()[0].plan):
        line = type_.refused("run", "test", "--force")
    assert "--force: test-seed0-sft is at work: end it first" in line
    assert tasks()[1].plan.is_done, "nothing is removed"
    assert started == []


def test_force_removes_a_damaged_run(type_: Typed, started: list[Plan]) -> None:
    folder = tasks()[0].plan.folder
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    assert type_("run", "test", "--force")[0] == 0
    assert not folder.exists()


# --- plan ---------------------------------------------------------------------------------


def test_plan_tells_of_each_run_what_would_be_done_and_why(type_: Typed, tmp_path: Path) -> None:
    every_standing()
    file = tmp_path / "plan.json"
    out = type_.shown("plan", "test", "--json", str(file))
    rows = json.loads(file.read_bytes())
    assert [row["state"] for row in rows] == STANDINGS
    assert [row["task"] for row in rows] == list(range(8))
    assert [row["why"] for row in rows] == [
        "done: skipped",
        "has step 7: goes on",
        "failed: ValueError: shape [batch, seq] has [/b] :boom:: tried again",
        "has no step yet: goes on",
        "at work: attached to",
        "after task 1",
        "after task 2",
        "after task 4",
    ]
    assert rows[0]["minutes"] == pytest.approx(1.5)
    assert [row["minutes_from"] for row in rows[:2]] == ["measured", "the preset's guess"]
    assert "8 runs, 1 done, 7 to run: " in out


def test_plan_starts_nothing(type_: Typed, checkout: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkout.rglob("*")}
    out = type_.shown("plan", "mi300x-64")
    assert "GPU hours (the preset's guess; whole runs, also of what has begun)" in out
    assert {path: path.stat().st_mtime_ns for path in checkout.rglob("*")} == before


def test_plan_says_why_a_run_of_the_same_name_does_not_count(type_: Typed, checkout: Path) -> None:
    plan = tasks()[0].plan
    finish(plan)
    preset = checkout / "presets" / "test.yaml"
    preset.write_text(preset.read_text().replace("max_positions: 512", "max_positions: 1024"))
    assert tasks()[0].plan.folder != plan.folder
    out = " ".join(type_.shown("plan", "test").split())
    assert "begins: the one of" in out


def test_plan_expects_what_runs_of_other_seeds_took(type_: Typed, tmp_path: Path) -> None:
    settings = {"preset": "test", "seeds": [1, 2, 3], "runs": [{"notebook": "10_run_sft"}]}
    Path("sweeps/mine.yaml").write_text(yaml.safe_dump(settings))
    plans = load_sweep("mine").plans
    finish(plans[0], 60.0)
    finish(plans[1], 120.0)
    file = tmp_path / "plan.json"
    type_.shown("plan", "mine", "--json", str(file))
    last = json.loads(file.read_bytes())[-1]
    assert (last["minutes"], last["minutes_from"]) == (1.5, "mean of 2 runs")


def test_plan_passes_over_records_of_other_versions(type_: Typed) -> None:
    for number, content in enumerate(
        ("{", '{"format": 0}', '{"format": 1, "state": "done", "wall_seconds": 7.0}')
    ):
        folder = Path("runs", f"old-{number}")
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(content)
        (folder / "params.json").write_text("{}")
    assert "8 runs, 0 done, 8 to run" in type_.shown("plan", "test")


# --- status -------------------------------------------------------------------------------


def test_status_tells_how_every_run_stands(type_: Typed, tmp_path: Path) -> None:
    every_standing()
    file = tmp_path / "status.json"
    out = type_.shown("status", "test", "--json", str(file))
    rows = json.loads(file.read_bytes())
    assert [row["state"] for row in rows] == STANDINGS
    assert rows[0]["wall_seconds"] == 90.0
    assert rows[2]["error"] == "ValueError: shape [batch, seq] has [/b] :boom:"
    assert rows[4]["progress"]["phase"] == "RL 1/3"
    assert rows[4]["beat"] == pytest.approx(time.time(), abs=60)
    text = " ".join(out.split())
    assert "90 s" in text or "2 min" in text
    assert "RL 1/3" in text
    assert "loss 1.00" in text


def test_errors_are_shown_as_they_are_written(type_: Typed) -> None:
    every_standing()
    for name in ("plan", "status"):
        cells = "".join(
            "".join(line[40:].split()) for line in type_.shown(name, "test").splitlines()
        )
        for part in ("[batch", "[/b]", ":boom:"):
            assert part in cells, "no markup of ours"


@pytest.mark.parametrize("name", ["plan", "status"])
def test_tables_are_read_at_eighty_columns(type_: Typed, name: str) -> None:
    every_standing()
    lines = type_.shown(name, "test").splitlines()
    rows = [line for line in lines if line[:1].isdigit() and line[1:3] == "  "]
    assert len(rows) == 8
    for row, task, standing in zip(rows, tasks(), STANDINGS, strict=True):
        assert len(row) <= 80
        assert task.plan.run_id in row, "an id is copied whole"
        assert standing in row.split()


def test_watching_ends_when_all_is_done(type_: Typed) -> None:
    plans = [task.plan for task in tasks()]
    for plan in plans[1:]:
        finish(plan)
    finishing = threading.Timer(0.3, finish, [plans[0]])
    finishing.start()
    out = type_.shown("status", "test", "--watch")
    finishing.join()
    assert out.count("done") == 8
    assert type_.shown("status", "test", "--watch").count("done") == 8, "at once, a second time"


# --- collect ------------------------------------------------------------------------------


def test_collect_takes_what_is_done_and_says_what_is_not(type_: Typed, tmp_path: Path) -> None:
    every_standing()
    file = tmp_path / "collected.json"
    out = type_.shown("collect", "test", "--json", str(file))
    assert "1 of 8 runs are done; the others are left out." in out
    assert "collected-test.parquet" in out
    assert pq.read_table("runs/collected-test.parquet").num_rows == 1
    assert json.loads(file.read_bytes())["runs"] == 1
    assert all(len(line) <= 80 for line in out.splitlines() if "parquet" not in line)


def test_collect_writes_where_it_is_told(type_: Typed, tmp_path: Path) -> None:
    finish(tasks()[0].plan)
    type_.shown("collect", "test", "--out", str(tmp_path / "mine.parquet"), "--metric", "loss")
    assert (tmp_path / "mine.parquet").exists()
    assert not Path("runs/collected-test.parquet").exists()


@pytest.mark.parametrize("name", ["plan", "status", "collect"])
def test_json_that_cannot_be_written_is_one_line(type_: Typed, name: str, tmp_path: Path) -> None:
    finish(tasks()[0].plan)
    code, _, err = type_(name, "test", "--json", str(tmp_path / "absent" / "x.json"))
    assert code == 2
    assert err.startswith("rstar2: cannot write ")
    assert err.count("\n") == 1


# --- schedulers ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_script_takes_what_is_left_in_waves(type_: Typed, name: str) -> None:
    finish(tasks()[0].plan)
    out = type_.shown(name, "test")
    assert "rstar2 batch run --task" in out
    for task in tasks():
        finish(task.plan)
    assert "nothing to do, every run is done" in type_.refused(name, "test")


def test_a_script_takes_what_the_chosen_need(type_: Typed) -> None:
    settings: dict[str, Any] = {
        "preset": "test",
        "seeds": [0],
        "arms": ["grpo"],
        "runs": [{"notebook": "10_run_sft"}, {"notebook": "11_run_rl"}],
    }
    Path("sweeps/mine.yaml").write_text(yaml.safe_dump(settings))
    whole = type_.shown("slurm", "mine")
    assert type_.shown("slurm", "mine", "--only", "arm=grpo") == whole


# --- terminals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=lambda setting: " ".join(f"{name}={value}" for name, value in setting.items()),
)
def test_tables_are_shown_on_a_terminal_that_is_not_utf8(
    setting: dict[str, str], checkout: Path
) -> None:
    settings = {"preset": "test", "seeds": [0], "runs": [{"notebook": "10_run_sft"}]}
    described = {"description": "Größe – ≥ 1", **settings}
    Path("sweeps/mine.yaml").write_text(yaml.safe_dump(described, allow_unicode=True))
    left(load_sweep("mine").plans[0], KeyboardInterrupt())
    program = "\n".join(
        [
            "import sys",
            "from rstar2.cli import main",
            "from rstar2.experiments import planner",
            "planner.deciding_sources = lambda entry, _others: [entry]",
            "sys.argv = ['rstar2', 'batch', sys.argv[1], 'mine']",
            "main()",
        ]
    )
    for name in ("plan", "status"):
        ended = subprocess.run(
            [sys.executable, "-c", program, name],
            env={**os.environ, **setting},
            capture_output=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert b"stopped" in ended.stdout


@pytest.mark.parametrize(("sweep", "seconds"), [("mi300x-64", 1426), ("test", 300)])
def test_a_task_is_told_to_stop_longer_before_its_end_than_a_step_takes(
    sweep: str, seconds: int, type_: Typed
) -> None:
    """A step of the paper's run takes 19.8 minutes, and a fifth more may be needed."""
    assert f"#SBATCH --signal=B:TERM@{seconds}\n" in type_.shown("slurm", sweep)
    wait = f'"RAY_JOB_STOP_WAIT_TIME_S": "{seconds}"'
    assert wait in type_.shown("ray", sweep)
