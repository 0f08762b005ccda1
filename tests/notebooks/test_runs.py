"""The run notebooks, executed as people and batches execute them.

Their work is done by a worker, a process of its own: what becomes of it when a kernel dies, a
cell is interrupted, or two notebooks want the same run.
"""

import json
import os
import queue
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from live import (
    end_processes_in,
    executed,
    executor,
    is_alive,
    kernels,
    papermill,
    sessions,
    signal_worker,
    steps,
    succeeds,
    training_cell,
    until,
)
from rich.console import Console

from benchmarks.resume.checkout import PRESET, ROOT, make_checkout
from rstar2.experiments.batch import run_batch
from rstar2.experiments.execute import execute
from rstar2.experiments.follow import RunFailedError, follow
from rstar2.experiments.notebook_files import NotebookFile
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Plan
from rstar2.experiments.report import laptop_report, records_of_this_machine
from rstar2.experiments.standing import Standing, is_locked, view, worker_of
from rstar2.experiments.worker import make
from rstar2.records import RunFolder, RunState
from rstar2.rollout.serialise import rollout_from_json

pytestmark = pytest.mark.notebook

STEPS = 14
LONG = {"stages.0.steps": 2000}
"""Minutes of RL: it cannot end by itself while a test looks."""

MADE = {
    "10_run_sft": {"sft"},
    "11_run_rl": {"sft", "rl"},
    "12_run_mining": {"sft", "rl", "mining"},
    "13_run_evaluation": {"sft", "rl", "evaluation"},
    "14_report": set(),
}
"""Kinds of runs that each notebook makes where there is none."""

RUN_NOTEBOOKS = sorted((ROOT / "notebooks").glob("1[0-9]_*.ipynb"))


# --- from a fresh checkout, by plain papermill --------------------------------------------


@pytest.mark.parametrize("path", RUN_NOTEBOOKS, ids=lambda path: path.stem)
def test_plain_papermill_executes_a_notebook_with_nothing_made_before(
    path: Path, tmp_path: Path
) -> None:
    root = make_checkout(tmp_path / "checkout")
    shutil.copytree(ROOT / "sweeps", root / "sweeps")
    before = {entry.name for entry in root.iterdir()}
    succeeds(papermill(root, f"notebooks/{path.name}", "out.ipynb"))
    notebook = nbformat.read(root / "out.ipynb", as_version=4)
    assert not notebook.metadata.papermill.exception
    made = [RunFolder.open(folder) for folder in root.glob("runs/*")]
    assert {run.state for run in made} <= {RunState.DONE}
    assert {run.read()["preset"] for run in made} <= {"test"}
    assert {run.read()["kind"] for run in made} == MADE[path.stem], "what it needs is made first"
    after = {entry.name for entry in root.iterdir()}
    assert after - before == {"out.ipynb", *(["runs"] if made else [])}
    if made:
        assert notebook.cells[-1].outputs[0].output_type == "execute_result"


@pytest.mark.parametrize(
    ("where", "words", "out"),
    [
        ("notebooks", ("10_run_sft.ipynb", "../out.ipynb", "-p", "out", "elsewhere"), "elsewhere"),
        (".", ("notebooks/10_run_sft.ipynb", "out.ipynb", "--cwd", "notebooks"), "runs"),
    ],
    ids=["from-within-to-another-folder", "told-where"],
)
def test_the_runs_land_in_one_folder_wherever_papermill_stands(
    where: str, words: tuple[str, ...], out: str, tmp_path: Path
) -> None:
    root = make_checkout(tmp_path / "checkout")
    succeeds(papermill(root / where, *words, "-p", "evaluation", "none"))
    (folder,) = root.rglob("test-seed0-sft-*")
    assert folder.parent == root / out
    assert RunFolder.open(folder).state is RunState.DONE
    assert (root / "out.ipynb").is_file()


# --- in one checkout, from the same SFT policy --------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, where the runs land; its RL can be met at work."""
    root = tmp_path_factory.mktemp("runs") / "checkout"
    stages = [{"steps": STEPS - 1}, {"steps": 1, "data": "mined", "mine_problems": 4}]
    short = {"max_response_tokens": 40, "max_turns": 2}
    return make_checkout(root, stages=[{**stage, **short} for stage in stages])


@pytest.fixture(autouse=True)
def here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(checkout)
    yield
    end_processes_in(checkout)


@pytest.fixture(scope="module")
def sft(checkout: Path) -> Plan:
    """A finished SFT run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(checkout)
        plan = Planner().sft(PRESET, 0)
        make(plan, lambda: False)
    return plan


def arm(name: str = "grpo-roc", **changes: Any) -> Plan:
    """A run of its own for every change, all from the same SFT policy."""
    return Planner().rl(PRESET, 0, "none", name, changes=changes)


def run(*plans: Plan) -> None:
    run_batch(plans, workers=1, console=Console(stderr=True))


def written(*plans: Plan) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for plan in plans for path in plan.folder.rglob("*")}


def names_this_machine(text: str) -> list[str]:
    return [path for path in (str(Path.home()), str(Path.cwd())) if path in text]


def test_a_run_leaves_its_whole_record_and_is_not_made_twice(checkout: Path) -> None:
    first = Planner().sft(PRESET, 0, "book")
    second = Planner().rl(PRESET, 0, "book", "grpo-roc")
    run(first, second)
    for plan in (first, second):
        folder = RunFolder.open(plan.folder)
        assert folder.state is RunState.DONE
        assert folder.params == plan.params
        assert folder.read()["id"] == plan.run_id
        assert {"log.txt", "progress.json"} <= {path.name for path in plan.folder.iterdir()}
        assert (folder.checkpoints / "final" / "model.safetensors").is_file()
        assert len(pd.read_parquet(plan.folder / "evaluation.parquet")) == 8
        lines = (plan.folder / "examples.jsonl").read_text().splitlines()
        assert all(rollout_from_json(json.loads(line)).trajectory.turns for line in lines)
        notebook = executed(plan)
        assert not notebook.metadata.papermill.exception
        assert notebook.cells[-1].outputs[0].output_type == "execute_result"
        (progress,) = training_cell(notebook).outputs
        assert re.match(rf"{plan.name}: done in \d+ s", progress.data["text/plain"])
        assert names_this_machine((plan.folder / "executed.ipynb").read_text()) == []

    metrics = pd.read_parquet(second.folder / "metrics.parquet")
    assert metrics["step"].tolist() == list(range(1, STEPS + 1))
    assert metrics["stage"].tolist() == [1] * (STEPS - 1) + [2]
    assert RunFolder.open(second.folder).trajectories.is_file()
    assert list(laptop_report(records_of_this_machine(PRESET, 0), "book")["arms"]) == ["grpo-roc"]

    before = written(first, second)
    run(first, second)
    assert written(first, second) == before


def test_a_run_that_fails_says_why_and_one_that_needs_it_names_it(sft: Plan) -> None:
    weights = sft.folder / "checkpoints" / "final" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:100])
    base = arm("grpo")
    plan = Planner().evaluation(PRESET, 0, "book", "grpo")
    try:
        with pytest.raises(RunFailedError, match=rf"{base.name} failed: the checkpoint at .*; see"):
            execute(base)
        with pytest.raises(RunFailedError, match=rf"needs {base.name}, which failed: the check"):
            follow(plan)
    finally:
        weights.write_bytes(content)
    assert not (plan.folder / "run.json").exists(), "it has not begun"
    assert view(plan).standing is Standing.WAITING
    record = RunFolder.open(base.folder)
    assert record.state is RunState.FAILED
    assert "cannot be read: SafetensorError" in record.read()["error"]
    said = training_cell(executed(base)).outputs[-1]
    assert (said.output_type, said.ename) == ("error", "RunFailedError")
    assert "cannot be read: SafetensorError" in said.evalue
    assert names_this_machine((base.folder / "executed.ipynb").read_text()) == []


def test_a_kernel_that_is_killed_does_not_end_the_run(checkout: Path, sft: Plan) -> None:
    plan = arm(**{"rl.epsilon": 0.06})
    process = executor(checkout, plan)
    until(lambda: bool(steps(plan)), "a checkpoint")
    pid = signal_worker(plan, signal.SIGSTOP)  # so that it is at work when it is looked for
    (kernel,) = kernels(process)
    os.kill(kernel, signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == 2
    assert f"{plan.name}: its kernel died" in told
    assert is_locked(plan)
    assert view(plan).standing is Standing.RUNNING

    process = executor(checkout, plan)
    until(lambda: is_followed(plan, process), "the training cell is executed again")
    assert worker_of(plan) == view(plan).worker
    assert signal_worker(plan, signal.SIGCONT) == pid
    succeeds(process)
    assert plan.is_done
    assert sessions(plan) == {1}, "the same worker to the end"
    (progress,) = training_cell(executed(plan)).outputs
    assert f"{plan.name}: done in" in progress.data["text/plain"]


def is_followed(plan: Plan, process: Any) -> bool:
    assert process.poll() is None, process.communicate()[1]
    try:
        notebook = nbformat.read(plan.folder / "partial-executed.ipynb", as_version=4)
    except (FileNotFoundError, nbformat.reader.NotJSONError):  # papermill is just writing it
        return False
    return bool(training_cell(notebook).metadata.papermill.status == "running")


def test_two_notebooks_that_want_the_same_run_share_one_worker(checkout: Path) -> None:
    """They start at once, and so does the SFT run that both of them need first."""
    words = ["-p", "preset", PRESET, "-p", "evaluation", "none", "-p", "seed", "1"]
    both = [
        papermill(checkout, "notebooks/11_run_rl.ipynb", name, *words)
        for name in ("one.ipynb", "other.ipynb")
    ]
    for process in both:
        succeeds(process)
    plan = Planner().rl(PRESET, 1, "none", "grpo-roc")
    assert [sessions(one) for one in plan.chain] == [{1}, {1}]
    shown = [nbformat.read(checkout / name, as_version=4) for name in ("one.ipynb", "other.ipynb")]
    assert shown[0].cells[-1].outputs == shown[1].cells[-1].outputs
    for notebook in shown:
        (progress,) = training_cell(notebook).outputs
        assert f"{plan.name}: done in" in progress.data["text/plain"]


# --- an interrupted cell ------------------------------------------------------------------


@pytest.fixture
def kernel(checkout: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel as JupyterLab has one."""
    manager, client = start_new_kernel(
        startup_timeout=120, kernel_name="python3", cwd=str(checkout / "notebooks")
    )
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_an_interrupted_cell_leaves_the_run_at_work_and_says_how_to_stop_it(
    sft: Plan, kernel: tuple[KernelManager, BlockingKernelClient]
) -> None:
    manager, client = kernel
    plan = arm(**LONG)
    given = f"preset, evaluation, changes = {PRESET!r}, 'none', {LONG!r}"
    code = [
        "".join(cell["source"])
        for cell in NotebookFile(plan.notebook).content["cells"]
        if cell["cell_type"] == "code"
    ]
    training = code.index("folder = follow(plan)")
    for source in (code[0], given, *code[1:training]):
        assert answer(client, source)["status"] == "ok"

    client.execute(code[training])
    until(lambda: len(steps(plan)) > 0, "a checkpoint")
    worker = worker_of(plan)
    assert worker is not None
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=60)["content"]
    assert reply.get("ename") == "KeyboardInterrupt", reply
    shown = displays(client)
    assert len({content["transient"]["display_id"] for _, content in shown}) == 1
    kinds = [kind for kind, _ in shown]
    assert kinds[0] == "display_data"
    assert set(kinds[1:]) == {"update_display_data"}, "in place, not line after line"
    said = shown[-1][1]["data"]["text/plain"]
    assert said.startswith(f"{plan.name} goes on without this cell")
    assert is_alive(worker.pid)
    assert view(plan).standing is Standing.RUNNING

    (ending,) = re.findall(r"`(rstar2\.\S+)`", said)
    assert answer(client, f"import rstar2.experiments.follow\n{ending}")["status"] == "ok"
    until(lambda: not is_alive(worker.pid), "the end of the worker")
    assert RunFolder.open(plan.folder).state is RunState.STOPPED
    rows = RunFolder.open(plan.folder).metrics.rows()
    assert steps(plan)[-1].name == f"step-{len(rows):06}", "no step is lost"


def answer(client: BlockingKernelClient, code: str) -> dict[str, Any]:
    """Executes code and waits for its end."""
    client.execute(code)
    return dict(client.get_shell_msg(timeout=120)["content"])


def displays(client: BlockingKernelClient) -> list[tuple[str, dict[str, Any]]]:
    """What was displayed so far, in order."""
    found = []
    while True:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            return found
        if message["msg_type"].endswith("display_data"):
            found.append((message["msg_type"], message["content"]))
