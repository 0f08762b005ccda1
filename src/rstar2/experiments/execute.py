"""Executes planned runs through papermill, each in a process of its own.

    python -m rstar2.experiments.execute laptop 0 book grpo-roc

runs one; ``execute_plans`` runs many with a table of their progress. Ctrl-C ends the
children; every run goes on from where it was when it is executed again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rstar2.errors import UserError
from rstar2.experiments.plans import SFT_ARM, Plan, begin, plan_arm, plan_sft
from rstar2.experiments.progress import read_progress
from rstar2.records import RunState
from rstar2.records.files import make_folder

_UNITS = 1000
_LINE_EVERY_SECONDS = 60.0


class RunFailedError(UserError):
    """A run ended with an error."""


def execute_plans(plans: Sequence[Plan], *, workers: int, console: Console) -> None:
    """Executes what is not done yet, at most ``workers`` at a time.

    Args:
        plans: Runs; each after the one that it needs.
        workers: Processes at a time; each computes with one thread.
        console: Gets the table, or a line a minute where it is no terminal.

    Raises:
        RunFailedError: When a run fails; the others are ended.
    """
    waiting = [plan for plan in plans if not plan.is_done]
    running: dict[int, tuple[Plan, subprocess.Popen[bytes]]] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[phase]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as table:
        tasks = {plan.name: _add_task(table, plan) for plan in waiting}
        spoken = time.monotonic()
        try:
            while waiting or running:
                for plan in _ready(waiting, workers - len(running)):
                    waiting.remove(plan)
                    table.start_task(tasks[plan.name])
                    process = _start(plan)
                    running[process.pid] = (plan, process)
                time.sleep(0.5)
                for pid, (plan, process) in list(running.items()):
                    _show(table, tasks[plan.name], plan)
                    if process.poll() is not None:
                        del running[pid]
                        _check(plan)
                if not console.is_terminal and time.monotonic() - spoken > _LINE_EVERY_SECONDS:
                    spoken = time.monotonic()
                    _say(console, [plan for plan, _ in running.values()], len(waiting))
        finally:
            for _, process in running.values():
                _end(process)


def execute(plan: Plan) -> None:
    """Executes one run in this process: its notebook, with its parameters, in a kernel.

    Raises:
        RunFailedError: If a cell raises; the executed notebook shows it.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    folder = begin(plan)
    if folder.state is RunState.DONE:
        return
    try:
        papermill.execute_notebook(
            str(plan.notebook),
            str(plan.folder / "executed.ipynb"),
            parameters=plan.params,
            kernel_name="python3",
            cwd=str(plan.notebook.parent),
            progress_bar=False,
            start_timeout=300,
        )
    except PapermillExecutionError as error:
        folder.update(RunState.FAILED, error=f"{error.ename}: {error.evalue}"[:300])
        raise RunFailedError(
            f"{plan.name} failed: {error.ename}: {error.evalue}; see {plan.folder}/executed.ipynb"
        ) from error


def _ready(waiting: Sequence[Plan], room: int) -> list[Plan]:
    ready = [plan for plan in waiting if plan.needs is None or plan.needs.is_done]
    return ready[: max(0, room)]


def _add_task(table: Progress, plan: Plan) -> TaskID:
    return table.add_task(plan.name, total=_UNITS, start=False, phase="waiting")


def _start(plan: Plan) -> "subprocess.Popen[bytes]":
    make_folder(plan.folder)
    params = plan.params
    words = [params["preset"], str(params["seed"]), params["evaluation"], plan.arm]
    with (plan.folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rstar2.experiments.execute", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def _show(table: Progress, task: TaskID, plan: Plan) -> None:
    state = read_progress(plan.folder)
    table.update(task, completed=_UNITS * state.done, phase=state.phase)


def _say(console: Console, running: Sequence[Plan], waiting: int) -> None:
    parts = [f"{plan.name}: {read_progress(plan.folder).phase}" for plan in running]
    console.print("; ".join(parts) + (f"; {waiting} waiting" if waiting else ""))


def _check(plan: Plan) -> None:
    if not plan.is_done:
        tail = (plan.folder / "log.txt").read_text(errors="replace").strip().rsplit("\n", 1)[-1]
        raise RunFailedError(f"{plan.name} did not finish: {tail or plan.folder}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _main() -> None:
    preset, seed, evaluation, arm = sys.argv[1:5]
    plan = (
        plan_sft(preset, int(seed), evaluation)
        if arm == SFT_ARM
        else plan_arm(preset, int(seed), evaluation, arm)
    )
    try:
        execute(plan)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
