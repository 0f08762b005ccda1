"""How a planned run stands, as anybody may see it from its folder, on this machine or another.

A run has one writer, a process that holds a lock on its folder and writes a beat into
``run.json``. On its own machine the lock tells whether it lives; from another machine, where a
lock may not be seen, its beat does.
"""

import fcntl
import platform
import time
from dataclasses import dataclass
from enum import StrEnum

from rstar2.experiments.plans import Plan
from rstar2.records import RecordError, RunFolder, RunState, Worker

BEAT_SECONDS = 10.0
"""Time between two beats."""

LOST_SECONDS = 120.0
"""Silence after which a run of another machine is lost; clocks may differ by less than that."""

LOCK = ".lock"


class Standing(StrEnum):
    """What people are told of a run."""

    TODO = "todo"
    """It can begin."""
    WAITING = "waiting"
    """The run that it needs is not done."""
    RUNNING = "running"
    """A process works on it."""
    LOST = "lost"
    """It was running, and its process is gone or silent; it goes on when it is run again."""
    STOPPED = "stopped"
    """It was stopped at a checkpoint; it goes on when it is run again."""
    FAILED = "failed"
    """It raised an error."""
    DONE = "done"
    """It has ended well."""


@dataclass(frozen=True, slots=True)
class View:
    """A run as it is seen.

    Attributes:
        standing: How it stands.
        worker: The process that works on it, or did when it was lost.
        error: Why it failed; else empty.
        wall_seconds: What it took; None before it is done.
    """

    standing: Standing
    worker: Worker | None = None
    error: str = ""
    wall_seconds: float | None = None


def view(plan: Plan) -> View:
    """Looks at a run.

    Raises:
        RecordError: Its ``run.json`` cannot be read.
    """
    if not (plan.folder / "run.json").exists():
        waits = plan.needs is not None and not plan.needs.is_done
        return View(Standing.WAITING if waits else Standing.TODO)
    now = _recorded(plan)
    if now.standing is not Standing.RUNNING or is_alive(plan, now.worker):
        return now
    ended = _recorded(plan)  # it may have said how it ended after it was read
    if ended.standing is not Standing.RUNNING:
        return ended
    return View(Standing.LOST, ended.worker)


def _recorded(plan: Plan) -> View:
    """What ``run.json`` says."""
    record = RunFolder(plan.folder).read()
    return View(
        Standing(RunState(record["state"])),
        Worker(**record["worker"]) if "worker" in record else None,
        record.get("error", ""),
        record.get("wall_seconds"),
    )


def is_alive(plan: Plan, worker: Worker | None) -> bool:
    """Whether a process works on a run that is *running*, as far as can be told from here.

    Args:
        plan: The run.
        worker: Who last said so.
    """
    return is_locked(plan) or beats_elsewhere(worker)


def beats_elsewhere(worker: Worker | None) -> bool:
    """Whether a worker of another machine has said lately that it works."""
    if worker is None or worker.host == platform.node():
        return False
    return time.time() - worker.beat < LOST_SECONDS


def is_locked(plan: Plan) -> bool:
    """Whether a process of this machine holds the lock of a run."""
    try:
        with (plan.folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def worker_of(plan: Plan) -> Worker | None:
    """The process of this machine that works on a run; None if there is none."""
    try:
        worker = RunFolder.open(plan.folder).worker
    except RecordError:
        return None
    if worker is None or worker.host != platform.node():
        return None
    return worker if is_locked(plan) and _holder(plan) == worker.pid else None


def _holder(plan: Plan) -> int | None:
    """Who took the lock last."""
    said = (plan.folder / LOCK).read_text(errors="replace")
    return int(said) if said.isdecimal() else None
