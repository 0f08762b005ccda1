"""Executes planned runs through papermill, each in a process of its own.

    python -m rstar2.experiments.execute laptop 0 book grpo-roc

runs one; ``execute_plans`` runs many with a table of their progress. Ctrl-C, SIGTERM and
SIGHUP end the children; every run goes on from where it was when it is executed again.
A run folder has one writer: the process that executes it holds a lock on it.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rstar2.errors import UserError
from rstar2.experiments.plans import (
    SFT_ARM,
    Plan,
    begin,
    plan_arm,
    plan_sft,
    refuse_without_base,
)
from rstar2.experiments.progress import read_progress
from rstar2.records import RunFolder, RunState
from rstar2.records.files import make_folder

_UNITS = 1000
_LINE_EVERY_SECONDS = 60.0
_SPEED_OVER_SECONDS = 300.0
_LOG = "log.txt"


class RunFailedError(UserError):
    """A run ended with an error, or cannot be executed now."""


def execute_plans(plans: Sequence[Plan], *, workers: int, console: Console) -> None:
    """Executes what is not done yet, at most ``workers`` at a time.

    Args:
        plans: Runs; each after the one that it needs.
        workers: Processes at a time; each computes with one thread.
        console: Gets the table, or a line a minute where it is no terminal.

    Raises:
        RunFailedError: When a run fails (the others are ended), or needs one that is neither
            done nor among the plans.
        SystemExit: On SIGTERM and SIGHUP, with 128 and the signal's number; all are ended.
    """
    waiting = [plan for plan in plans if not plan.is_done]
    if not waiting:
        return
    _refuse_what_can_never_start(waiting)
    running: dict[int, tuple[Plan, subprocess.Popen[bytes]]] = {}
    with _table(console) as table, _signals_end_the_process():
        tasks = {plan.name: _add_task(table, plan) for plan in waiting}
        everything = _add_overall(table)
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
                        _check(plan, process.returncode)
                _show_overall(table, everything)
                if not console.is_terminal and time.monotonic() - spoken > _LINE_EVERY_SECONDS:
                    spoken = time.monotonic()
                    working = [tasks[plan.name] for plan, _ in running.values()]
                    console.print(progress_line(table.tasks, working, len(waiting)))
        finally:
            _end([process for _, process in running.values()])


def execute(plan: Plan) -> None:
    """Executes one run in this process: its notebook, with its parameters, in a kernel.

    Raises:
        RunFailedError: If a cell raises (the executed notebook shows it), the kernel dies, or
            another process is making this run.
        MissingBaseError: If the run that it starts from is not done.
    """
    if plan.is_done:
        return
    refuse_without_base(plan)
    with _only_writer(plan):
        folder = begin(plan)
        if folder.state is not RunState.DONE:
            _execute_notebook(plan, folder)


def progress_line(tasks: Sequence[Task], working: Sequence[TaskID], waiting: int) -> str:
    """What a console that is no terminal is told: each run at work, and the whole.

    Args:
        tasks: Every row of the table, that of the whole last.
        working: Rows of the runs at work.
        waiting: Runs that have not begun.
    """
    parts = [
        f"{task.description}: {task.percentage:.0f}%, {task.fields['phase']}"
        for task in tasks
        if task.id in working
    ]
    left = tasks[-1].time_remaining
    whole = f"all: {tasks[-1].percentage:.0f}%"
    if waiting:
        whole += f", {waiting} waiting"
    if left is not None:
        whole += f", {timedelta(seconds=round(left))} left"
    return "; ".join([*parts, whole])


def _execute_notebook(plan: Plan, folder: RunFolder) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    executed = plan.folder / "executed.ipynb"
    try:
        papermill.execute_notebook(
            str(plan.notebook),
            str(executed),
            parameters=plan.params,
            kernel_name="python3",
            cwd=str(plan.notebook.parent),
            progress_bar=False,
            start_timeout=300,
        )
    except PapermillExecutionError as error:
        reason = f"{error.ename}: {error.evalue}"
        folder.update(RunState.FAILED, error=reason[:300])
        raise RunFailedError(f"{plan.name} failed: {reason}; see {executed}") from error
    except DeadKernelError as error:
        reason = "its kernel died: ended from outside, or out of memory"
        folder.update(RunState.FAILED, error=reason)
        raise RunFailedError(f"{plan.name} failed: {reason}; execute it again to go on") from error


@contextmanager
def _only_writer(plan: Plan) -> Iterator[None]:
    """Holds the lock of a run folder; the system frees it however this process ends."""
    make_folder(plan.folder)
    with (plan.folder / ".lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunFailedError(
                f"{plan.name} is being made by another process: wait for it or end it"
            ) from error
        yield


@contextmanager
def _signals_end_the_process() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP unwind the stack; only the main thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    former = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _refuse_what_can_never_start(waiting: Sequence[Plan]) -> None:
    planned = {plan.run_id for plan in waiting}
    for plan in waiting:
        base = plan.needs
        if base is not None and not base.is_done and base.run_id not in planned:
            raise RunFailedError(
                f"{plan.name} needs {base.name}, which is neither done nor planned: plan it too"
            )


def _ready(waiting: Sequence[Plan], room: int) -> list[Plan]:
    ready = [plan for plan in waiting if plan.needs is None or plan.needs.is_done]
    return ready[: max(0, room)]


def _table(console: Console) -> Progress:
    """A row a run; where there is no terminal it counts and shows nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[phase]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=_SPEED_OVER_SECONDS,
    )


def _add_task(table: Progress, plan: Plan) -> TaskID:
    done = _UNITS * read_progress(plan.folder).done
    return table.add_task(
        plan.name, total=_UNITS, completed=round(done), start=False, phase="waiting"
    )


def _add_overall(table: Progress) -> TaskID:
    done = sum(task.completed for task in table.tasks)
    total = _UNITS * len(table.tasks)
    return table.add_task("all", total=total, completed=round(done), phase="")


def _start(plan: Plan) -> "subprocess.Popen[bytes]":
    make_folder(plan.folder)
    params = plan.params
    words = [params["preset"], str(params["seed"]), params["evaluation"], plan.arm]
    with (plan.folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rstar2.experiments.execute", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PREFER_ENV_PATH": "1"},
        )


def _show(table: Progress, task: TaskID, plan: Plan) -> None:
    state = read_progress(plan.folder)
    table.update(task, completed=_UNITS * state.done, phase=state.phase)


def _show_overall(table: Progress, everything: TaskID) -> None:
    done = sum(task.completed for task in table.tasks if task.id != everything)
    table.update(everything, completed=done)


def _check(plan: Plan, code: int) -> None:
    if plan.is_done:
        return
    log = plan.folder / _LOG
    ending = f"exit code {code}" if code >= 0 else f"ended with signal {-code}"
    if code == -signal.SIGKILL:
        ending += ", perhaps out of memory"
    tail = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
    reason = f"{ending}: {tail}" if tail else ending
    raise RunFailedError(f"{plan.name} did not finish: {reason}; the log: {log}")


def _end(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        os.killpg(process.pid, signal.SIGTERM)
    for process in alive:
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
