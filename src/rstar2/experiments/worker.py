"""The process that does the work of a run; it lives on when the notebook that began it dies.

    python -m rstar2.experiments.worker '{"notebook": "…", "params": {}, "out": "runs", "id": "…"}'

A run has one writer: the worker holds a lock on its folder and beats in ``run.json``. Asked to
end by SIGTERM, it does so at the next checkpoint, and the run goes on when it is made again.
"""

import asyncio
import fcntl
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.presets import TorchPreset
from rstar2.experiments.standing import BEAT_SECONDS, LOCK, beats_elsewhere
from rstar2.records import (
    RecordError,
    RunFolder,
    RunState,
    RunStoppedError,
    Worker,
    provenance,
)
from rstar2.records.files import make_folder

STOPPED = 128 + signal.SIGTERM
"""Exit code of a process whose run was stopped and goes on when it is made again."""

USER_ERROR = 2
"""Exit code of a process that was refused, or whose run failed with what a person can mend."""

_POLL_SECONDS = 0.5
_LOCK_TRIES = 20


class RunBusyError(UserError):
    """Another process works on the run."""


class UnmakeableError(UserError):
    """This version, or this folder, cannot make the run."""


def make(plan: Plan, asked_to_stop: Callable[[], bool]) -> None:
    """Does the work of a run in this process, and before it that of the runs that it needs.

    A run that it needs and that another process makes is waited for.

    Raises:
        RunBusyError: If another process makes the run itself.
        RunStoppedError: If it is asked to stop.
        UnmakeableError: As ``working_on``.
        UserError: What the work says is wrong; ``run.json`` says it too.
    """
    for one in plan.chain:
        while not one.is_done:
            if asked_to_stop():
                raise RunStoppedError(f"{plan.name} was stopped before {one.name} was done")
            try:
                with working_on(one) as folder:
                    from rstar2.experiments import laptop

                    asyncio.run(laptop.work(laptop.Job(one, folder, asked_to_stop)))
            except RunBusyError:
                if one is plan:
                    raise
                time.sleep(_POLL_SECONDS)


@contextmanager
def working_on(plan: Plan) -> Iterator[RunFolder]:
    """Makes this process the writer of a run: lock, state *running*, beats; then how it ended.

    Raises:
        RunBusyError: If another process is its writer.
        UnmakeableError: If its preset is for another trainer, or other versions of the
            libraries began it.
        RecordError: If the folder cannot be written, or belongs to another version.
    """
    if plan.preset is not None and not isinstance(plan.preset, TorchPreset):
        raise UnmakeableError(
            f"preset {plan.preset.name} trains with {plan.preset.trainer} on "
            f"{plan.preset.resources.gpus} accelerators, for which this version has no trainer: "
            "the presets with `trainer: torch` run here"
        )
    with _only_writer(plan):
        folder = _begin(plan)
        try:
            with _heartbeat(folder):
                yield folder
        except (RunStoppedError, KeyboardInterrupt, SystemExit):
            _ended(folder, RunState.STOPPED)
            raise
        except BaseException as error:
            text = str(error) or repr(error)
            known = text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
            # A text of a model may be in it, and hold what is no UTF-8.
            told = known[:500].encode(errors="backslashreplace").decode()
            _ended(folder, RunState.FAILED, error=told)
            raise


def _ended(folder: RunFolder, state: RunState, **facts: str) -> None:
    if folder.state is RunState.RUNNING:  # what is done stays done
        folder.update(state, **facts)


def words(plan: Plan) -> str:
    """A plan as one argument of a command, from which ``plan_of`` makes it again."""
    root = project_root()
    path = plan.notebook
    told = path.relative_to(root) if path.is_relative_to(root) else path
    return json.dumps(
        {"notebook": str(told), "params": plan.params, "out": plan.out, "id": plan.run_id}
    )


def plan_of(argument: str) -> Plan:
    """The plan that ``words`` told.

    Raises:
        UnmakeableError: If the code or the preset has changed since.
    """
    told = json.loads(argument)
    plan = Planner(told["out"]).notebook(project_root() / told["notebook"], told["params"])
    if plan.run_id != told["id"]:
        raise UnmakeableError(
            f"{plan.name} was planned as {told['id']}, now it would be {plan.run_id}: the code "
            "or the preset changed since; plan and run it again"
        )
    return plan


def _begin(plan: Plan) -> RunFolder:
    if not (plan.folder / "run.json").exists():
        return RunFolder.create(
            plan.folder,
            plan.params,
            name=plan.name,
            run_id=plan.run_id,
            provenance=provenance(),
            kind=plan.kind.value,
            notebook=plan.notebook.name,
            **_facts(plan),
            label="this machine",
        )
    folder = RunFolder.open(plan.folder)
    if folder.state is RunState.RUNNING and beats_elsewhere(folder.worker):
        raise RunBusyError(f"{plan.name} is being made on another machine: wait for it or end it")
    if folder.state is not RunState.DONE:
        _refuse_other_versions(plan, folder)
        folder.update(RunState.RUNNING)
    return folder


def _facts(plan: Plan) -> dict[str, object]:
    """What is looked for in ``run.json``, beside the parameters."""
    if plan.preset is None:
        return {}
    base = plan.chain[0]
    return {
        "arm": plan.arm,
        "preset": plan.preset.name,
        "seed": plan.params["seed"],
        "evaluation": plan.params.get("evaluation"),
        "sft_run": base.run_id if base.kind is Kind.SFT else None,
    }


def _refuse_other_versions(plan: Plan, folder: RunFolder) -> None:
    """A run goes on with the libraries that began it, or its bits would be of both."""
    began, here = folder.read()["versions"], provenance().versions
    for name, version in here.items():
        if began.get(name) != version:
            raise UnmakeableError(
                f"{plan.name} was begun with {name} {began.get(name)}, here is {version}: "
                f"go on with that version, or remove {plan.folder} and begin again"
            )


@contextmanager
def _only_writer(plan: Plan) -> Iterator[None]:
    """Holds the lock of a run folder; the system frees it however this process ends."""
    make_folder(plan.folder)
    with (plan.folder / LOCK).open("ab") as file:
        for attempt in range(_LOCK_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:  # a writer, or for a moment one that looks
                if attempt == _LOCK_TRIES - 1:
                    raise RunBusyError(
                        f"{plan.name} is being made by another process: wait for it or end it"
                    ) from error
                time.sleep(0.02)
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


@contextmanager
def _heartbeat(folder: RunFolder) -> Iterator[None]:
    """Says at once, and then again and again, that this process works on a run."""
    over = threading.Event()

    def beat() -> None:
        while True:
            try:
                folder.beat(Worker(platform.node(), os.getpid(), round(time.time(), 1)))
            except RecordError as error:  # the next beat may find space again
                print(error, file=sys.stderr)
            if over.wait(BEAT_SECONDS):
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _quiet_libraries() -> None:
    """Keeps the bars of the library that writes checkpoints out of the log."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _main() -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        _quiet_libraries()
        make(plan_of(sys.argv[1]), stop.is_set)
    except RunStoppedError:
        sys.exit(STOPPED)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(USER_ERROR)


if __name__ == "__main__":
    _main()
