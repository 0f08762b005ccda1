"""Repeats the first steps of committed records with the code as it is: ``rstar2 rerun --canary``.

A record that begins otherwise now is stale: this code would not make it. An SFT run is repeated
from its seed, so its data and its tokenizer are made first; an arm starts from the weights in
the record of its SFT run. The work is that of ``laptop``, in a temporary folder, and it is asked
to stop after the steps: nothing of the training is written a second time here.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rstar2.errors import UserError
from rstar2.experiments import worker
from rstar2.experiments.conditions import satisfying
from rstar2.experiments.notebook_files import NotebookError
from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import Kind, Plan
from rstar2.experiments.presets import PresetError
from rstar2.experiments.report import Record
from rstar2.records import Provenance, RunFolder, RunStoppedError, provenance
from rstar2.records.metrics import Metric

Row = Mapping[str, Metric | None]
"""The metrics of a step; None, as in a parquet file, is one that it lacks."""


class CanaryError(UserError):
    """A record cannot be read, no record was chosen, or there is no space to repeat one."""


class Verdict(StrEnum):
    """What the repeated steps say of a record."""

    SAME = "same"
    """All their metrics are equal to the last bit."""
    DIFFERS = "differs"
    """They are not, on the same processor with the same versions: the record is stale."""
    UNLIKE = "unlike"
    """They are not, as may be expected on another processor or with other versions."""
    NOT_TRIED = "not tried"
    """It has no step to repeat, or none keeps the weights that it starts from."""
    MISSING = "missing"
    """It cannot be repeated: its preset, its notebook or the record of its start is not there."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where repeated steps leave the record.

    Attributes:
        metric: The first metric that differs.
        step: Its step.
        recorded: Its value in the record; None if the record lacks it.
        repeated: Its value now; None if it is not logged now.
        largest: The largest relative difference of any metric in any of the steps, between 0
            and 2; None if no two numbers differ.
    """

    metric: str
    step: int
    recorded: Metric | None
    repeated: Metric | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A record and what became of it.

    Attributes:
        record: Name of its folder.
        run_id: Its id.
        planned_id: The id that the same parameters have now; None without a plan.
        verdict: What the repeated steps say.
        steps: Steps that were compared.
        difference: Where they differ.
        reason: What is missing, or how this machine is unlike that of the record.
        seconds: What the repetition took.
    """

    record: str
    run_id: str
    planned_id: str | None
    verdict: Verdict
    steps: int = 0
    difference: Difference | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def is_stale(self) -> bool:
        """Whether this code does not make the record; a machine that is unlike cannot tell."""
        return self.verdict in (Verdict.DIFFERS, Verdict.MISSING)

    def as_json(self) -> dict[str, Any]:
        """JSON values; null where there is no finite number."""
        told = asdict(self)
        if self.difference is not None:
            told["difference"] = {
                name: _finite(value) for name, value in told["difference"].items()
            }
        return {**told, "stale": self.is_stale}


@dataclass(frozen=True)
class Canary:
    """Repeats records of one checkout.

    Attributes:
        records: All records, those that others start from included.
        steps: Steps that are repeated, at least 1; all of a record that has fewer.
        here: This machine.
    """

    records: Sequence[Record]
    steps: int
    here: Provenance = field(default_factory=provenance)
    _planner: Planner = field(default_factory=Planner)

    def repeat(self, record: Record) -> Finding:
        """Repeats the first steps of a record and compares them.

        Raises:
            CanaryError: If a file of the record cannot be read, or there is no space.
            UserError: What the work itself says, as a sandbox that cannot be started.
        """
        name, identity = record.path.name, str(record.run["id"])
        try:
            plan = self._plan(record)
        except (NotebookError, PresetError) as error:
            return Finding(name, identity, None, Verdict.MISSING, reason=str(error))
        told = Finding(name, identity, plan.run_id, Verdict.SAME)
        bases = [one for one in self.records if one.run["id"] == record.run.get("sft_run")]
        base = max(bases, key=_has_weights, default=None)
        if base is None and plan.needs is not None and plan.needs.kind is Kind.SFT:
            reason = f"it starts from {plan.needs.name}, of which there is no record"
            return replace(told, verdict=Verdict.MISSING, reason=reason)
        if lack := _lack(plan, base):
            return replace(told, verdict=Verdict.NOT_TRIED, reason=lack)
        recorded = _recorded(record, self.steps)
        began = time.monotonic()
        repeated = _repeated(plan, base, len(recorded))
        told = replace(told, steps=len(recorded), seconds=round(time.monotonic() - began, 1))
        difference = first_difference(recorded, repeated)
        if difference is None:
            return told
        unlike = ", ".join(_unlike(record.run, self.here))
        verdict = Verdict.UNLIKE if unlike else Verdict.DIFFERS
        return replace(told, verdict=verdict, difference=difference, reason=unlike)

    def _plan(self, record: Record) -> Plan:
        """The run of the record's notebook and parameters as it is planned now."""
        params = RunFolder(record.path).params
        name = record.run.get("notebook")
        if not isinstance(name, str):
            raise NotebookError("its run.json names no notebook: another version wrote it")
        return self._planner.notebook(self._planner.root / "notebooks" / name, params)


def choose(records: Sequence[Record], only: Sequence[str]) -> list[Record]:
    """The records that satisfy every condition.

    Args:
        records: The records.
        only: Conditions ``name=value``: the arm, the seed, or any parameter.

    Raises:
        ConditionError: As ``satisfying``.
    """
    facts = [(one, {**RunFolder(one.path).params, "arm": one.arm}) for one in records]
    return satisfying(facts, only, "record")


def first_difference(recorded: Sequence[Row], repeated: Sequence[Row]) -> Difference | None:
    """Compares metrics bit by bit; None if all are equal.

    Args:
        recorded: Rows of a record.
        repeated: The same steps again.
    """
    first: tuple[str, int, Metric | None, Metric | None] | None = None
    largest: float | None = None
    for row, now in zip(recorded, repeated, strict=True):
        for name in dict.fromkeys([*row, *now]):
            one, other = row.get(name), now.get(name)
            if _bits(one) == _bits(other):
                continue
            if first is None:
                first = (name, int(row["step"] or 0), one, other)
            if (relative := _relative(one, other)) is not None:
                largest = relative if largest is None else max(largest, relative)
    return None if first is None else Difference(*first, largest)


def _repeated(plan: Plan, base: Record | None, steps: int) -> list[dict[str, Metric]]:
    """Makes the first steps of a run, and leaves nothing behind."""
    with _elsewhere(plan, base) as moved:
        metrics = RunFolder(moved.folder).metrics
        with suppress(RunStoppedError):  # as it is asked to, after its last step at the latest
            worker.make(moved, lambda: len(metrics.rows()) >= steps)
        return metrics.rows()


@contextmanager
def _elsewhere(plan: Plan, base: Record | None) -> Iterator[Plan]:
    """The plan with its folder, and that of the SFT run that it needs, in a temporary one.

    Raises:
        CanaryError: If there is no space for it.
    """
    with ExitStack() as stack:
        try:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rstar2-canary-")))
            needs = plan.needs
            if needs is not None and base is not None:
                needs = replace(needs, folder=place / needs.name)
                shutil.copytree(base.path / "checkpoint", needs.folder / "checkpoints" / "final")
                shutil.copyfile(base.path / "run.json", needs.folder / "run.json")
        except OSError as error:
            raise CanaryError(
                f"cannot repeat {plan.name}: {error}; TMPDIR names another temporary folder"
            ) from error
        yield replace(plan, folder=place / plan.name, needs=needs)


def _has_weights(record: Record) -> bool:
    return (record.path / "checkpoint" / "model.safetensors").is_file()


def _lack(plan: Plan, base: Record | None) -> str:
    """Why a run is not repeated; empty if it is."""
    if plan.kind not in (Kind.SFT, Kind.RL):
        return f"a run of kind {plan.kind} trains nothing, so it has no steps to repeat"
    if plan.needs is None:
        return ""
    if plan.needs.kind is not Kind.SFT:
        return f"it starts from {plan.needs.name}, whose optimizer no record holds"
    if base is None or not _has_weights(base):
        return f"it starts from {plan.needs.name}, whose record holds no checkpoint"
    return ""


def _recorded(record: Record, steps: int) -> list[dict[str, Metric | None]]:
    path = RunFolder(record.path).metrics_parquet
    try:
        rows: list[dict[str, Metric | None]] = pq.read_table(path).slice(0, steps).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise CanaryError(
            f"{path} cannot be read: {error}; `git restore` brings it back"
        ) from error
    return rows


def _unlike(run: Mapping[str, Any], here: Provenance) -> list[str]:
    """How this machine is unlike that of a record; cores and memory decide no number."""
    pairs = {"processor": (run["hardware"]["cpu"], here.hardware.cpu)}
    for name, version in here.versions.items():
        pairs[name] = (run["versions"].get(name), version)
    return [f"{name} {was}, here {now}" for name, (was, now) in pairs.items() if was != now]


def _bits(value: Metric | None) -> str | None:
    return value if value is None or isinstance(value, str) else float(value).hex()


def _relative(one: Metric | None, other: Metric | None) -> float | None:
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return None
    if not (math.isfinite(one) and math.isfinite(other)):
        return None
    size = max(abs(one), abs(other))
    return abs(one - other) / size if size else 0.0


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
