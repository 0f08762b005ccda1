"""Executes many planned runs, each notebook in a process of its own, with their progress.

Ctrl-C, SIGTERM and SIGHUP stop every run at its next checkpoint. A batch that is killed leaves
its runs at work: the next one attaches to them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

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
from rstar2.experiments.plans import Plan
from rstar2.experiments.progress import read_progress
from rstar2.experiments.progress_view import figures
from rstar2.experiments.signals import signals_noted
from rstar2.experiments.worker import STOPPED, words
from rstar2.records.files import make_folder

_UNITS = 1000
_LINE_EVERY_SECONDS = 60.0
_SPEED_OVER_SECONDS = 300.0
_POLL_SECONDS = 0.5
_LOG = "papermill.txt"


class BatchError(UserError):
    """Runs of a batch ended with an error, or can never start."""


def run_batch(
    plans: Sequence[Plan],
    *,
    workers: int,
    console: Console,
    fail_fast: bool = False,
    copy_to: str | None = None,
) -> None:
    """Executes what is not done yet, at most ``workers`` at a time.

    Args:
        plans: Runs; each after the one that it needs.
        workers: Runs at a time; each computes with one thread.
        console: Gets the table, or a line a minute where it is no terminal.
        fail_fast: Whether the first failure stops the others; else what does not need the
            failed run goes on.
        copy_to: Folder or URL that each record is copied to as its run ends.

    Raises:
        BatchError: When runs failed, or one needs a run that is neither done nor among the
            plans.
        SystemExit: On SIGTERM and SIGHUP, with 128 and the signal's number; all are stopped.
    """
    waiting = [plan for plan in plans if not plan.is_done]
    if not waiting:
        return
    _refuse_what_can_never_start(waiting)
    with _table(console) as table, signals_noted() as noted:
        batch = _Batch(waiting, table, copy_to)
        spoken = time.monotonic()
        try:
            while batch.running or batch.ready():
                for plan in batch.ready()[: max(0, workers - len(batch.running))]:
                    batch.start(plan)
                time.sleep(_POLL_SECONDS)
                if noted:
                    raise SystemExit(128 + noted[0])
                batch.look()
                if batch.failures and fail_fast:
                    break
                if not console.is_terminal and time.monotonic() - spoken > _LINE_EVERY_SECONDS:
                    spoken = time.monotonic()
                    console.print(batch.line(), soft_wrap=True, highlight=False)
        finally:
            batch.stop()
    if batch.failures:
        raise BatchError(batch.outcome())


@dataclass(slots=True)
class _Batch:
    """What waits, what runs, and what failed."""

    waiting: list[Plan]
    table: Progress
    copy_to: str | None
    running: dict[int, tuple[Plan, "subprocess.Popen[bytes]"]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    tasks: dict[str, TaskID] = field(default_factory=dict)
    everything: TaskID = field(init=False)

    def __post_init__(self) -> None:
        for plan in self.waiting:
            done = round(_UNITS * read_progress(plan.folder).done)
            self.tasks[plan.run_id] = self.table.add_task(
                plan.name, total=_UNITS, completed=done, start=False, phase="", visible=False
            )
        self.everything = self.table.add_task(
            "all",
            total=_UNITS * len(self.waiting),
            completed=round(sum(task.completed for task in self.table.tasks)),
            phase="",
        )

    def ready(self) -> list[Plan]:
        """What could start now."""
        return [plan for plan in self.waiting if plan.needs is None or plan.needs.is_done]

    def start(self, plan: Plan) -> None:
        self.waiting.remove(plan)
        task = self.tasks[plan.run_id]
        self.table.start_task(task)
        self.table.update(task, visible=True)
        process = _start(plan, self.copy_to)
        self.running[process.pid] = (plan, process)

    def look(self) -> None:
        """Shows where the runs are, and takes note of those that ended."""
        for pid, (plan, process) in list(self.running.items()):
            state = read_progress(plan.folder)
            phase = " ".join(filter(None, [state.phase, figures(state)]))
            task = self.tasks[plan.run_id]
            code = process.poll()
            self.table.update(task, completed=_UNITS * state.done, phase=phase)
            if code is not None:
                del self.running[pid]
                ended = plan.is_done
                self.table.update(task, visible=False, completed=_UNITS if ended else 0)
                said = "done" if ended else _reason(plan, code)
                self.table.console.print(f"{plan.name}: {said}", soft_wrap=True, highlight=False)
                if not ended:
                    self.failures.append(f"{plan.name}: {said}")
        rows = [task.completed for task in self.table.tasks if task.id != self.everything]
        self.table.update(self.everything, completed=sum(rows))

    def line(self) -> str:
        """What a console that is no terminal is told."""
        working = [self.tasks[plan.run_id] for plan, _ in self.running.values()]
        return progress_line(self.table.tasks, working, len(self.waiting))

    def outcome(self) -> str:
        """Which runs failed, and how many could not begin for that."""
        held = f"; {len(self.waiting)} not begun" if self.waiting else ""
        return f"{len(self.failures)} failed: {'; '.join(self.failures)}{held}"

    def stop(self) -> None:
        """Stops what runs at its next checkpoint, and waits for it."""
        alive = [process for _, process in self.running.values() if process.poll() is None]
        for process in alive:
            process.terminate()
        for process in alive:
            process.wait()


def progress_line(tasks: Sequence[Task], working: Sequence[TaskID], waiting: int) -> str:
    """Each run at work, and the whole, in one line.

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


def _refuse_what_can_never_start(waiting: Sequence[Plan]) -> None:
    planned = {plan.run_id for plan in waiting}
    for plan in waiting:
        base = plan.needs
        if base is not None and not base.is_done and base.run_id not in planned:
            raise BatchError(
                f"{plan.name} needs {base.name} ({base.run_id}), which is neither done nor "
                "planned: run it before, or with it"
            )


def _start(plan: Plan, copy_to: str | None) -> "subprocess.Popen[bytes]":
    make_folder(plan.folder)
    with (plan.folder / _LOG).open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "rstar2.experiments.execute",
                words(plan),
                *filter(None, [copy_to]),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_PREFER_ENV_PATH": "1"},
        )


def _reason(plan: Plan, code: int) -> str:
    """Why a run did not end well."""
    if code == STOPPED:
        return "stopped; run it again and it goes on"
    log = plan.folder / _LOG
    tail = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
    tail = tail.removeprefix(f"{plan.name} ")  # told before it
    if code >= 0:
        return f"{tail or f'exit code {code}'} (the log: {log})"
    memory = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
    return f"its papermill ended with signal {-code}{memory}; run it again to attach to the run"


def _table(console: Console) -> Progress:
    """A row a run at work; where there is no terminal it counts and shows nothing."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[phase]}", markup=False),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=_SPEED_OVER_SECONDS,
    )
