"""Starts the work of a run as a process of its own, or attaches to it, and follows it.

    folder = follow(plan)

is the training cell of a run notebook. The process lives on when the kernel dies; the cell,
executed again, finds it. An interrupted cell only stops looking: ``stop(plan)`` ends the run.
"""

import html
import os
import signal
import subprocess
import sys
import time
from typing import Any

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.plans import Plan
from rstar2.experiments.progress import read_progress
from rstar2.experiments.progress_view import duration, figures, place
from rstar2.experiments.standing import Standing, View, is_locked, view, worker_of
from rstar2.experiments.watch import warning
from rstar2.experiments.worker import STOPPED, USER_ERROR, words
from rstar2.records import RunFolder, RunStoppedError
from rstar2.records.files import make_folder

LOG = "log.txt"
"""What a worker and its libraries print."""

_POLL_SECONDS = 0.5
_LINE_SECONDS = 60.0


class RunFailedError(UserError):
    """A run ended with an error, or its process died."""


def follow(plan: Plan) -> RunFolder:
    """Makes a run in a process of its own, or attaches to the one that does, until it is done.

    Raises:
        RunFailedError: If the run, or one that it needs, ends with an error, or its process is
            gone without a word.
        RunStoppedError: If it was asked to stop; made again, it goes on.
        KeyboardInterrupt: If the cell is interrupted; the run goes on.
    """
    screen, process, seen = _Screen(), None, False
    try:
        while True:
            # In this order: a worker that ends between the two has said how by then.
            works = is_locked(plan) or (process is not None and process.poll() is None)
            now = view(plan)
            if works or now.standing is Standing.RUNNING:
                seen = True
                screen.show(_progress(plan))
                time.sleep(_POLL_SECONDS)
            elif now.standing is Standing.DONE:
                screen.show(_ending(plan, now), at_once=True)
                return RunFolder.open(plan.folder)
            elif not seen:
                process, seen = _start(plan), True
            else:
                screen.show(f"{plan.name}: {now.standing}", at_once=True)
                raise _unfinished(plan, now, process)
    except KeyboardInterrupt:
        screen.show(
            f"{plan.name} goes on without this cell. Execute it again to follow the run; "
            "`rstar2.experiments.follow.stop(plan)` ends it at its next checkpoint.",
            at_once=True,
        )
        raise


def stop(plan: Plan) -> bool:
    """Asks the process of this machine that works on a run to end at its next checkpoint.

    Returns:
        Whether there is one.
    """
    for one in plan.chain:
        worker = worker_of(one)
        if worker is not None:
            try:
                os.kill(worker.pid, signal.SIGTERM)
            except ProcessLookupError:  # it has just ended
                return False
            return True
    return False


def _start(plan: Plan) -> "subprocess.Popen[bytes]":
    make_folder(plan.folder)
    with (plan.folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rstar2.experiments.worker", words(plan)],
            cwd=project_root(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def _progress(plan: Plan) -> str:
    """Where the run is, or the one that is made before it."""
    one = next((one for one in plan.chain if not one.is_done), plan)
    state = read_progress(one.folder)
    first = "" if one is plan else f"{plan.name} needs it: "
    lines = [f"{first}{one.name}: {place(state)}", figures(state), warning(one)]
    return "\n".join(filter(None, lines))


def _ending(plan: Plan, now: View) -> str:
    took = "" if now.wall_seconds is None else f" in {duration(now.wall_seconds)}"
    lines = [f"{plan.name}: done{took}", figures(read_progress(plan.folder)), warning(plan)]
    return "\n".join(filter(None, lines))


def _unfinished(
    plan: Plan, now: View, process: "subprocess.Popen[bytes] | None"
) -> RunFailedError | RunStoppedError:
    log = plan.folder / LOG
    tail = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1] if log.exists() else ""
    code = None if process is None else process.returncode
    for one in plan.chain[:-1]:
        base = view(one)
        if base.standing is Standing.FAILED:
            return RunFailedError(f"{plan.name} needs {one.name}, which failed: {base.error}")
    if code == USER_ERROR:
        return RunFailedError(f"{plan.name} failed: {tail}; the log: {log}")
    match now.standing:
        case Standing.STOPPED:
            return RunStoppedError(f"{plan.name} was stopped; make it again and it goes on")
        case Standing.FAILED:
            return RunFailedError(f"{plan.name} failed: {now.error}; the log: {log}")
        case Standing.LOST:
            how = f" by signal {-code}" if code is not None and code < 0 else ""
            return RunFailedError(
                f"{plan.name} is lost: its process was ended{how} from outside, perhaps for want "
                "of memory; make it again and it goes on from its last checkpoint"
            )
    if code == STOPPED:
        return RunStoppedError(f"{plan.name} was stopped before it began; make it again")
    return RunFailedError(f"{plan.name} could not begin: {tail or 'its process died'}")


class _Screen:
    """Shows one text in place of the last: an output that changes in a notebook, else lines."""

    def __init__(self) -> None:
        self._shown = ""
        self._spoken = float("-inf")
        self._handle: Any = None

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Shows a text; outside a notebook at most one a minute, but for the last."""
        if text == self._shown:
            return
        if _in_notebook():
            from IPython.display import display

            self._shown = text
            bundle = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
            if self._handle is None:
                self._handle = display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)
        elif at_once or time.monotonic() - self._spoken > _LINE_SECONDS:
            self._shown, self._spoken = text, time.monotonic()
            print(text.replace("\n", " · "), file=sys.stderr, flush=True)


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
