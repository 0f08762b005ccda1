"""Executes the notebook of one planned run through papermill, in a kernel of its own.

    python -m rstar2.experiments.execute '{"notebook": "…", "params": {}, "out": "runs", "id": "…"}'

The work of a run notebook is a worker's, which the notebook starts and follows: when this
process or the kernel dies, the run goes on, and executing again attaches to it. Any other
notebook is its own work, and this process is its worker. Asked to end by SIGTERM, it stops the
run at its next checkpoint. The executed notebook keeps no secret and no path of this machine.
"""

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.clean_notebook import clean_notebook
from rstar2.experiments.copy_out import copy_run
from rstar2.experiments.follow import RunFailedError, stop
from rstar2.experiments.notebook_files import NotebookFile
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.signals import signals_noted, signals_unwind
from rstar2.experiments.standing import Standing, view
from rstar2.experiments.worker import STOPPED, plan_of, working_on
from rstar2.records import RunFolder, RunState, RunStoppedError
from rstar2.records.files import make_folder

EXECUTED = "executed.ipynb"

_ENDED = (Standing.DONE, Standing.FAILED, Standing.STOPPED)

_LOOK_SECONDS = 0.2
_START_SECONDS = 300
"""Time for a kernel to answer on a busy machine."""


def execute(plan: Plan, copy_to: str | None = None) -> None:
    """Executes one run; nothing if it is done.

    Args:
        plan: The run.
        copy_to: Folder or URL that its record is copied to, however it ends; not while a worker
            goes on with it.

    Raises:
        RunFailedError: If a cell raises (the executed notebook shows it) or the kernel dies.
        RunStoppedError: If it was asked to stop.
        RunBusyError: If another process executes a notebook that is its own work.
    """
    try:
        if not plan.is_done:
            _execute(plan)
    finally:
        if copy_to is not None and view(plan).standing in _ENDED:
            copy_run(plan.folder, copy_to)


def _execute(plan: Plan) -> None:
    if plan.kind is Kind.NOTEBOOK:
        with working_on(plan) as folder:
            if folder.state is RunState.DONE:
                return
            began = time.monotonic()
            folder.metrics.truncate_after(-1)
            _run_notebook(plan)
            _finish(folder, time.monotonic() - began)
        return
    with _only_executor(plan):
        if not plan.is_done:
            _run_notebook(plan)


def _finish(folder: RunFolder, seconds: float) -> None:
    """Ends a notebook that is its own work; it must have left metrics."""
    if folder.metrics.path.exists():
        folder.metrics.to_parquet(folder.metrics_parquet)
    if not folder.metrics_parquet.exists():
        raise RunFailedError(
            f"{folder.path.name} left no metrics: its notebook declares the parameter run_dir, "
            "and appends rows with RunFolder(Path(run_dir)).metrics.append"
        )
    folder.update(RunState.DONE, wall_seconds=round(seconds, 1))


def _run_notebook(plan: Plan) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    executed, partial = plan.folder / EXECUTED, plan.folder / f"partial-{EXECUTED}"
    make_folder(plan.folder)
    try:
        with _sigterm_stops(plan):
            papermill.execute_notebook(
                _input(plan),
                str(partial),
                parameters=plan.notebook_params,
                kernel_name="python3",
                language="python",
                cwd=str(plan.notebook.parent),
                progress_bar=False,
                start_timeout=_START_SECONDS,
            )
    except PapermillExecutionError as error:
        if error.ename == RunStoppedError.__name__:
            raise RunStoppedError(error.evalue) from error
        reason = error.evalue if error.ename == RunFailedError.__name__ else ""
        reason = reason or f"{plan.name} failed: {error.ename}: {error.evalue}"
        raise RunFailedError(f"{reason[:500]}; see {executed}") from error
    except DeadKernelError as error:
        raise RunFailedError(
            f"{plan.name}: its kernel died: ended from outside, or for want of memory; "
            "execute it again to go on"
        ) from error
    finally:
        if partial.exists():
            clean_notebook(partial, project_root())
            partial.replace(executed)


def _input(plan: Plan) -> Any:
    """What papermill reads: the file, or what jupytext made of one."""
    if plan.notebook.suffix == ".ipynb":
        return str(plan.notebook)
    import nbformat

    node = nbformat.from_dict(NotebookFile(plan.notebook).content)
    for cell in node.cells:
        cell.metadata.setdefault("tags", [])
    return node


@contextmanager
def _only_executor(plan: Plan) -> Iterator[None]:
    """Waits until no other process executes the notebook of this run."""
    make_folder(plan.folder)
    with (plan.folder / ".executed.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _sigterm_stops(plan: Plan) -> Iterator[None]:
    """Hands SIGTERM on to the worker, whose end ends the notebook, as soon as there is one."""
    if plan.kind is Kind.NOTEBOOK:
        with signals_unwind((signal.SIGTERM,)):
            yield
        return
    over = threading.Event()
    with signals_noted((signal.SIGTERM,)) as noted:

        def stop_the_worker() -> None:
            while not over.wait(_LOOK_SECONDS):
                if noted and stop(plan):  # else the kernel has not started it yet
                    return

        threading.Thread(target=stop_the_worker, daemon=True).start()
        try:
            yield
        finally:
            over.set()


def _main() -> None:
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    try:
        execute(plan_of(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    except RunStoppedError as error:
        print(error, file=sys.stderr)
        sys.exit(STOPPED)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    _main()
