"""Runs at work: their processes, and waiting for what they do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat

from rstar2.experiments.plans import Plan
from rstar2.experiments.standing import worker_of
from rstar2.experiments.worker import words

BIN = Path(sys.executable).parent


def until(holds: Callable[[], bool], what: str, seconds: float = 180) -> None:
    """Waits; a busy machine is given its time."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def program(root: Path, words: Sequence[str | Path]) -> "subprocess.Popen[str]":
    """Starts a program as somebody types it in a checkout."""
    return subprocess.Popen(
        [str(word) for word in words],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rstar2(root: Path, *words: str) -> "subprocess.Popen[str]":
    """Starts ``rstar2 …`` in a checkout."""
    return program(root, [BIN / "rstar2", *words])


def executor(root: Path, plan: Plan) -> "subprocess.Popen[str]":
    """Starts the process in which a batch executes one notebook."""
    return program(root, [sys.executable, "-m", "rstar2.experiments.execute", words(plan)])


def papermill(root: Path, *words: str) -> "subprocess.Popen[str]":
    """Starts ``papermill …`` in a checkout."""
    return program(root, [BIN / "papermill", *words])


def succeeds(process: "subprocess.Popen[str]") -> str:
    """Waits for a program that must end well; gives what it printed."""
    out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    return out


def steps(plan: Plan) -> list[Path]:
    """The checkpoints from which a run would go on, but for that of step 0."""
    found = plan.folder.glob("checkpoints/step-??????")
    return sorted(path for path in found if path.name != "step-000000")


def signal_worker(plan: Plan, number: signal.Signals) -> int:
    """Sends a signal to the process that works on a run; gives its id."""
    worker = worker_of(plan)
    assert worker is not None, f"nobody works on {plan.name}"
    os.kill(worker.pid, number)
    return worker.pid


def kernels(process: "subprocess.Popen[str]") -> list[int]:
    """The kernels that a process has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"ipykernel_launcher" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that nobody has waited for is dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def sessions(plan: Plan) -> set[int]:
    """The processes that worked on a run, by their number."""
    lines = (plan.folder / "timing.jsonl").read_text().splitlines()
    return {json.loads(line)["session"] for line in lines}


def end_processes_in(root: Path) -> None:
    """Kills what a test that failed has left at work in its checkout."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cwd = Path(os.readlink(process / "cwd"))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it has just ended, or is another user's
        if cwd.is_relative_to(root) and int(process.name) != os.getpid():
            os.kill(int(process.name), signal.SIGKILL)


def executed(plan: Plan) -> nbformat.NotebookNode:
    """The executed notebook of a run."""
    return nbformat.read(plan.folder / "executed.ipynb", as_version=4)


def training_cell(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The cell that follows the run."""
    (found,) = (cell for cell in notebook.cells if cell.source == "folder = follow(plan)")
    return found
