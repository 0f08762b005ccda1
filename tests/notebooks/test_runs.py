"""The run notebooks, executed through papermill as `make book` does it, with the preset test."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml
from rich.console import Console

from rstar2.experiments.execute import execute
from rstar2.experiments.follow import RunFailedError
from rstar2.experiments.plans import Plan
from rstar2.experiments.report import laptop_report, records_of_this_machine
from rstar2.records import RunFolder, RunState, read_json_lines
from rstar2.rollout.serialise import rollout_from_json

pytestmark = pytest.mark.notebook

STEPS = 20
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, where the runs land; its first stage is long enough to be killed."""
    root = tmp_path_factory.mktemp("runs") / "checkout"
    for name in ("presets", "notebooks"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    preset = yaml.safe_load((root / "presets" / "test.yaml").read_text())
    preset["stages"][0]["steps"] = STEPS - 2
    (root / "presets" / "test.yaml").write_text(yaml.safe_dump(preset))
    return root


@pytest.fixture(scope="module")
def sft(checkout: Path) -> Plan:
    """A finished SFT run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(checkout)
        plan = plan_sft("test", 0, "book")
        run(plan)
    return plan


@pytest.fixture(autouse=True)
def here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)


def run(*plans: Plan) -> None:
    execute_plans(plans, workers=1, console=Console(stderr=True))


def written(plan: Plan) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in plan.folder.rglob("*")}


def test_a_run_that_fails_says_why(sft: Plan) -> None:
    weights = sft.folder / "checkpoints" / "final" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:100])
    arm = plan_arm("test", 0, "book", "grpo-roc")
    with pytest.raises(RunFailedError, match=r"test-seed0-grpo-roc failed: CheckpointError: .*see"):
        execute(arm)
    weights.write_bytes(content)
    record = RunFolder.open(arm.folder)
    assert record.state is RunState.FAILED
    assert "CheckpointError" in record.read()["error"]


def test_a_run_leaves_its_whole_record_and_is_not_made_twice(sft: Plan) -> None:
    arm = plan_arm("test", 0, "book", "grpo-roc")
    run(sft, arm)
    for plan in (sft, arm):
        folder = RunFolder.open(plan.folder)
        assert folder.state is RunState.DONE
        assert folder.params == plan.params
        assert folder.read()["id"] == plan.run_id
        assert {"log.txt", "progress.json"} <= {path.name for path in plan.folder.iterdir()}
        assert (folder.checkpoints / "final" / "model.safetensors").is_file()
        assert len(pd.read_parquet(plan.folder / "evaluation.parquet")) == 8
        lines = (plan.folder / "examples.jsonl").read_text().splitlines()
        assert all(rollout_from_json(json.loads(line)).trajectory.turns for line in lines)
        executed = nbformat.read(plan.folder / "executed.ipynb", as_version=4)
        assert not executed.metadata.papermill.exception
        assert executed.cells[-1].outputs[0].output_type == "execute_result"

    metrics = pd.read_parquet(arm.folder / "metrics.parquet")
    assert metrics["step"].tolist() == list(range(1, STEPS + 1))
    assert metrics["stage"].tolist() == [1] * (STEPS - 2) + [2, 3]
    assert RunFolder.open(arm.folder).trajectories.is_file()
    assert list(laptop_report(records_of_this_machine("test", 0))["arms"]) == ["grpo-roc"]

    before = {**written(sft), **written(arm)}
    run(sft, arm)
    assert {**written(sft), **written(arm)} == before


def test_a_run_that_is_killed_goes_on_from_its_checkpoint(sft: Plan) -> None:
    arm = plan_arm("test", 0, "book", "grpo")
    kill_when_it_has_a_checkpoint(arm)
    folder = RunFolder.open(arm.folder)
    assert folder.state is RunState.RUNNING
    assert 0 < len(folder.metrics.rows()) < STEPS
    run(sft, arm)
    laps = read_json_lines(folder.timing)
    made = [row["step"] for row in laps if row["phase"] == "rl"]
    assert made.count(1) == 1, "it went on; it did not begin again"
    assert {row["session"] for row in laps} == {1, 2}
    told = folder.read()["wall_seconds"]
    assert told == pytest.approx(sum(row["seconds"] for row in laps), abs=0.1)
    table = pd.read_parquet(folder.metrics_parquet)
    assert table["step"].tolist() == list(range(1, STEPS + 1))


def test_a_batch_that_is_terminated_ends_its_runs(checkout: Path) -> None:
    preset = yaml.safe_load((checkout / "presets" / "test.yaml").read_text())
    preset["name"] = "longer"
    preset["pretrain"]["examples"] = 100_000  # minutes: it cannot end by itself meanwhile
    (checkout / "presets" / "longer.yaml").write_text(yaml.safe_dump(preset))
    plan = plan_sft("longer", 1, "book")
    program = """
from rich.console import Console
from rstar2.experiments.execute import execute_plans
from rstar2.experiments.plans import plan_sft
execute_plans([plan_sft("longer", 1, "book")], workers=1, console=Console(stderr=True))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    while not (plan.folder / "progress.json").exists():
        assert process.poll() is None, "the batch ended before it could be terminated"
        time.sleep(0.02)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    with (plan.folder / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not plan.is_done


def test_a_kernel_that_dies_is_told(tmp_path: Path) -> None:
    death = nbformat.v4.new_code_cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    notebook = nbformat.v4.new_notebook(cells=[death])
    notebook.metadata.kernelspec = {"name": "python3", "language": "python", "display_name": ""}
    nbformat.write(notebook, tmp_path / "dies.ipynb")
    plan = plan_sft("test", 2, "book")
    plan = replace(plan, notebook=tmp_path / "dies.ipynb", folder=tmp_path / "run")
    with pytest.raises(RunFailedError, match="test-seed2-sft failed: its kernel died"):
        execute(plan)
    assert RunFolder.open(plan.folder).state is RunState.FAILED


def kill_when_it_has_a_checkpoint(plan: Plan) -> None:
    params = plan.params
    words = [params["preset"], str(params["seed"]), params["evaluation"], plan.arm]
    process = subprocess.Popen(
        [sys.executable, "-m", "rstar2.experiments.execute", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    while not list(plan.folder.glob("checkpoints/step-??????")):
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (*map(int, children), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
