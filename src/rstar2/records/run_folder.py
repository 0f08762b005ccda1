"""The folder of one run, ``runs/<name>-<id>/``; ``run.json`` in it is the run's only state.

=======================  ====================================================
``params.json``          the final parameters
``run.json``             state, provenance, facts; replaced whole on each update
``metrics.jsonl``        one row as a step ends; ``metrics.parquet`` at the end
``timing.jsonl``         what cannot repeat: seconds, a row as a part of the work ends
``trajectories.jsonl``   some rollouts as they were
``sampled.jsonl``        scores of all rollouts, a line a step; ``sampled.parquet`` at the end
``grades.jsonl``         what the grader said, a line as a step ends; ``grades.parquet`` at the end
``evaluation.jsonl``     the finished chunks of the evaluation; ``evaluation.parquet`` at the end
``mined-3.json``         the hard problems of stage 3, and of which weights
``checkpoints/``         weights, safetensors
=======================  ====================================================
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from rstar2.records.files import RecordError, append_json_line, atomic_write, make_folder
from rstar2.records.metrics import MetricsLog
from rstar2.records.provenance import Provenance

FORMAT = 1
"""Version of ``run.json``; raised when an older reader would misread it."""

_RESERVED = frozenset(
    {"format", "name", "id", "state", "started", "ended", "worker"}
    | {field.name for field in fields(Provenance)}
)


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    """It began and has not said how it ended; a killed run stays here until it is resumed."""
    STOPPED = "stopped"
    """It was asked to end, did so at a checkpoint, and goes on when it is run again."""
    DONE = "done"
    """It ran to its end and ``metrics.parquet`` is written."""
    FAILED = "failed"
    """It raised an error."""


@dataclass(frozen=True, slots=True)
class Worker:
    """The process that works on a run; stands in ``run.json`` only while it does.

    Attributes:
        host: The machine's name.
        pid: The process there.
        beat: When it last said so, in seconds since 1970.
    """

    host: str
    pid: int
    beat: float


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run on disk. Nothing is kept in memory: every reading reads the files.

    Attributes:
        path: The folder. Make one with :meth:`create`, find one with :meth:`open`.
    """

    path: Path

    @classmethod
    def create(
        cls,
        path: Path,
        params: Mapping[str, Any],
        *,
        name: str,
        run_id: str,
        provenance: Provenance,
        **facts: Any,
    ) -> "RunFolder":
        """Begin a run: write its parameters, then ``run.json`` with the state *running*.

        A folder without ``run.json`` was interrupted here and is begun again.

        Args:
            path: The folder, by convention ``runs/<name>-<run_id>``; parents are made.
            params: The final parameters, JSON values only.
            name: What people call the run, as ``laptop-grpo-roc-seed1``.
            run_id: From :func:`rstar2.records.run_id`.
            provenance: From :func:`rstar2.records.provenance`.
            facts: Further JSON values for ``run.json`` (arm, preset, seed, label …).

        Raises:
            RecordError: The folder holds a run already, cannot be written, or a value is
                not JSON.
        """
        folder = cls(path)
        if folder._state_file.exists():
            raise RecordError(f"{path} already holds a run: open it to resume, or remove it")
        _refuse_reserved(facts)
        params_json = _to_json(params, "params.json")
        run_json = _to_json(
            {
                "format": FORMAT,
                "name": name,
                "id": run_id,
                "state": RunState.RUNNING,
                "started": _now(),
                **provenance.as_dict(),
                **facts,
            },
            "run.json",
        )
        make_folder(folder.checkpoints)
        atomic_write(path / "params.json", params_json)
        atomic_write(folder._state_file, run_json)
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Find a run that was begun.

        Raises:
            RecordError: It has no ``run.json``, or one that this version cannot read.
        """
        folder = cls(path)
        folder.read()
        return folder

    def read(self) -> dict[str, Any]:
        """Read ``run.json``: state, provenance and facts.

        Raises:
            RecordError: It is missing, is not JSON, or has another format.
        """
        record = _from_json(self._state_file, "it is not the folder of a run")
        if record.get("format") != FORMAT:
            raise RecordError(
                f"{self._state_file} has format {record.get('format')!r}, this version reads "
                f"{FORMAT}: use the version that wrote it, or remake the run"
            )
        try:
            RunState(record["state"])
            if "worker" in record:
                Worker(**record["worker"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{self._state_file} cannot be read: {error!r}") from error
        return record

    def update(self, state: RunState | None = None, **facts: Any) -> None:
        """Add facts to ``run.json`` and set the state, in one rename.

        Leaving *running* writes the time as ``ended`` and removes the worker; coming back to it
        removes both. *running* and *done* remove the ``error`` of a former attempt.

        Raises:
            RecordError: The state *done* without ``metrics.parquet``, a fact that ``create``
                settled, a value that is not JSON, or a folder that cannot be written.
        """
        _refuse_reserved(facts)
        with self._alone():
            record = self.read()
            if state in (RunState.RUNNING, RunState.DONE):
                record.pop("error", None)
            record.update(facts)
            if state is RunState.DONE and not self.metrics_parquet.exists():
                raise RecordError(
                    f"{self.path} is not done: {self.metrics_parquet.name} is missing"
                )
            if state is not None:
                record["state"] = state
                for name in ("ended", "worker"):
                    record.pop(name, None)
                if state is not RunState.RUNNING:
                    record["ended"] = _now()
            atomic_write(self._state_file, _to_json(record, "run.json"))

    def beat(self, worker: Worker) -> None:
        """Say in ``run.json`` that a process works on the run; nothing if it is not running.

        Raises:
            RecordError: ``run.json`` cannot be read or written.
        """
        with self._alone():
            record = self.read()
            if record["state"] == RunState.RUNNING:
                record["worker"] = asdict(worker)
                atomic_write(self._state_file, _to_json(record, "run.json"))

    def append_timing(self, row: Mapping[str, float | int | str]) -> None:
        """Append one line to ``timing.jsonl``: what would differ if the run were repeated."""
        append_json_line(self.timing, row)

    @property
    def state(self) -> RunState:
        """Where the run stands, read from ``run.json``."""
        return RunState(self.read()["state"])

    @property
    def worker(self) -> Worker | None:
        """The process that works on the run, as it last said; None if none has."""
        entry = self.read().get("worker")
        return None if entry is None else Worker(**entry)

    @property
    def params(self) -> dict[str, Any]:
        """The final parameters, read from ``params.json``."""
        return _from_json(self.path / "params.json", "the run was not begun")

    @property
    def metrics(self) -> MetricsLog:
        """The log in ``metrics.jsonl``."""
        return MetricsLog(self.path / "metrics.jsonl")

    @property
    def metrics_parquet(self) -> Path:
        """The metrics of a finished run."""
        return self.path / "metrics.parquet"

    @property
    def timing(self) -> Path:
        """Seconds and throughput, one JSON line each."""
        return self.path / "timing.jsonl"

    @property
    def trajectories(self) -> Path:
        """Some rollouts as they were, one JSON line each."""
        return self.path / "trajectories.jsonl"

    @property
    def sampled(self) -> Path:
        """Scores of all rollouts of the training, one JSON line a step."""
        return self.path / "sampled.jsonl"

    @property
    def sampled_parquet(self) -> Path:
        """The same of a finished run, a row a rollout."""
        return self.path / "sampled.parquet"

    @property
    def grades(self) -> Path:
        """What the grader said, one JSON line a step of training."""
        return self.path / "grades.jsonl"

    @property
    def grades_parquet(self) -> Path:
        """The grades of a finished run, its evaluation included."""
        return self.path / "grades.parquet"

    @property
    def checkpoints(self) -> Path:
        """The folder of the weights."""
        return self.path / "checkpoints"

    @property
    def _state_file(self) -> Path:
        return self.path / "run.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds off every other writer of ``run.json``: its thread or process waits."""
        try:
            file = (self.path / ".run.json.lock").open("ab")
        except OSError as error:
            raise RecordError(f"{self._state_file} cannot be changed: {error}") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _refuse_reserved(facts: Mapping[str, Any]) -> None:
    if settled := sorted(_RESERVED & facts.keys()):
        raise RecordError(f"{', '.join(settled)} in run.json cannot be set as a fact")


def _to_json(value: Mapping[str, Any], file: str) -> bytes:
    try:
        return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise RecordError(f"a value for {file} is not JSON: {error}") from error


def _from_json(path: Path, if_missing: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise RecordError(f"there is no {path}: {if_missing}") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path} cannot be read: expected a JSON object")
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
