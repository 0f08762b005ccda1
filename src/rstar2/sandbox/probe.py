"""A table of probes: programs, and what the sandbox must make of each.

    probes = load_probes(Path("probes.jsonl"))
    async with Sandbox() as sandbox:
        outcomes = await run_probes(probes, sandbox)
    fell_short = [outcome for outcome in outcomes if outcome.shortfall]

A table is JSON lines. A line has ``name``, ``code`` and ``expect``: a status (``ok``,
``error``, ``timeout``) or a list of those allowed. It may have ``stdin``, ``timeout``
(seconds), and ``stdout_contains``, ``stdout_not_contains``, ``stderr_contains`` and
``value_contains``: a text, or a list of texts that must all hold. ``on`` says what is
expected instead on a rung: ``"on": {"portable": {"expect": "error"}}``. Other keys are
ignored, and so are empty lines.

A call that the sandbox refuses (``BadCall``: too much code, a negative timeout) counts as
status ``error`` with the refusal as its stderr. A call that the sandbox loses
(``SandboxUnavailable``) has no status: its probe fell short whatever was expected.
"""

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from rstar2.errors import UserError
from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox.limits import BadCall, Rung, SandboxUnavailable
from rstar2.sandbox.pool import Sandbox

HEAD = 400
"""Characters of an output that a report shows."""

_QUOTED = 80


class ProbeFileError(UserError):
    """A table of probes cannot be read; the message names the file and each bad line."""


class _BadProbe(ValueError):
    """A line is no probe; the text says why."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must become of a program.

    Attributes:
        statuses: The statuses allowed.
        stdout_contains: Texts that stdout must all contain.
        stdout_not_contains: Texts of which stdout may contain none.
        stderr_contains: Texts that stderr must all contain.
        value_contains: Texts that the value must all contain.
    """

    statuses: tuple[RunStatus, ...]
    stdout_contains: tuple[str, ...] = ()
    stdout_not_contains: tuple[str, ...] = ()
    stderr_contains: tuple[str, ...] = ()
    value_contains: tuple[str, ...] = ()

    def shortfall(self, result: ToolResult) -> str:
        """What ``result`` lacks, as one sentence; empty if it is as expected."""
        wrong = []
        if result.status not in self.statuses:
            wrong.append(f"expected {' or '.join(self.statuses)}, got {result.status}")
        for where, texts, output in (
            ("stdout", self.stdout_contains, result.stdout),
            ("stderr", self.stderr_contains, result.stderr),
            ("value", self.value_contains, result.value),
        ):
            wrong += [
                f"expected {text!r} in {where}, got {_quoted(output)}"
                for text in texts
                if text not in output
            ]
        wrong += [
            f"expected no {text!r} in stdout, got {_quoted(result.stdout)}"
            for text in self.stdout_not_contains
            if text in result.stdout
        ]
        return "; ".join(wrong)


@dataclass(frozen=True, slots=True)
class Probe:
    """One line of a table.

    Attributes:
        name: For people.
        code: The program.
        expect: What must become of it.
        stdin: Its standard input.
        timeout: Seconds; None leaves it to the sandbox's limits.
        on: What must become of it instead on the rungs named here.
    """

    name: str
    code: str
    expect: Expectation
    stdin: str = ""
    timeout: float | None = None
    on: Mapping[Rung, Expectation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a probe.

    Attributes:
        probe: The probe.
        result: What the sandbox said; None if it lost the call.
        shortfall: One sentence, expected and got; empty if all was as expected.
    """

    probe: Probe
    result: ToolResult | None
    shortfall: str


def load_probes(path: Path) -> list[Probe]:
    """Read a table of probes, in the order of the file.

    Raises:
        ProbeFileError: It cannot be read, holds no probe, or has lines that are none.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ProbeFileError(f"cannot read {path}: {error.strerror}") from error
    probes = []
    wrong = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            probes.append(_parse(line))
        except _BadProbe as error:
            wrong.append(f"line {number}: {error}")
        except RecursionError:
            wrong.append(f"line {number}: nested too deeply")
    if wrong:
        raise ProbeFileError(f"{path} is no table of probes, nothing was run: {'; '.join(wrong)}")
    if not probes:
        raise ProbeFileError(f"{path} is empty: give one probe per line, as JSON")
    return probes


async def run_probes(
    probes: Iterable[Probe],
    sandbox: Sandbox,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run probes, as many at once as the sandbox has slots.

    Args:
        probes: What to run.
        sandbox: Where; it has been entered.
        on_outcome: Is called as each probe ends.

    Returns:
        The outcomes, in the order of ``probes``.
    """

    async def run(probe: Probe) -> Outcome:
        outcome = await run_probe(probe, sandbox)
        if on_outcome is not None:
            on_outcome(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(probe)) for probe in probes]
    return [task.result() for task in tasks]


async def run_probe(probe: Probe, sandbox: Sandbox) -> Outcome:
    """Run one probe and judge what became of it."""
    expected = probe.on.get(sandbox.isolation.rung, probe.expect)
    try:
        result = await sandbox.run(probe.code, probe.stdin, probe.timeout)
    except BadCall as refusal:
        result = ToolResult(RunStatus.ERROR, stderr=str(refusal), error_type="BadCall")
    except SandboxUnavailable as lost:
        wanted = " or ".join(expected.statuses)
        return Outcome(probe, None, f"expected {wanted}, got no result: {lost}")
    return Outcome(probe, result, expected.shortfall(result))


def report(outcomes: Iterable[Outcome]) -> dict[str, object]:
    """The report that ``rstar2 sandbox probe --json`` writes.

    Returns:
        ``probes`` and ``failed`` (numbers), ``failures``: name, why, status, and the first
        400 characters of stdout and stderr of each. The status of a lost call is
        ``unavailable``.
    """
    all_outcomes = list(outcomes)
    failures = [_failure(outcome) for outcome in all_outcomes if outcome.shortfall]
    return {"probes": len(all_outcomes), "failed": len(failures), "failures": failures}


def _failure(outcome: Outcome) -> dict[str, str]:
    result = outcome.result
    return {
        "name": outcome.probe.name,
        "why": outcome.shortfall,
        "status": result.status.value if result else "unavailable",
        "stdout": result.stdout[:HEAD] if result else "",
        "stderr": result.stderr[:HEAD] if result else "",
    }


def _quoted(text: str) -> str:
    """The end of a text, where a traceback names its error."""
    return repr(text) if len(text) <= _QUOTED else f"…{text[-_QUOTED:]!r}"


def _parse(line: bytes) -> Probe:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _BadProbe(f"not JSON in UTF-8: {error}") from error
    if not isinstance(row, dict):
        raise _BadProbe("not a JSON object")
    _refuse_misspelt(row)
    return Probe(
        name=_text(row, "name"),
        code=_text(row, "code"),
        expect=_expectation(row),
        stdin=_text(row, "stdin", ""),
        timeout=_seconds(row.get("timeout")),
        on=_overrides(row),
    )


def _refuse_misspelt(row: Mapping[str, object]) -> None:
    """A key that looks like an expectation and is none would let its probe pass unseen."""
    known = {"stdin", "expect", *(f.name for f in fields(Expectation))} - {"statuses"}
    for key in row.keys() - known:
        if key.startswith(("expect", "std", "value")):
            raise _BadProbe(f"{key} is no key: did you mean one of {', '.join(sorted(known))}?")


def _text(row: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if value is None and key not in row:
        raise _BadProbe(f"{key} is missing")
    if not isinstance(value, str):
        raise _BadProbe(f"{key} is {_told(value)}: it must be a string")
    return value


def _texts(row: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _BadProbe(f"{key} is {_told(value)}: it must be a string or a list of strings")
    return tuple(texts)


def _seconds(value: object) -> float | None:
    """A number of seconds; whether it is positive, the sandbox judges."""
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
            if math.isfinite(seconds):
                return seconds
    except OverflowError:
        pass
    raise _BadProbe(f"timeout is {_told(value)}: it must be a number of seconds")


def _expectation(row: Mapping[str, object]) -> Expectation:
    allowed = ", ".join(RunStatus)
    if "expect" not in row:
        raise _BadProbe(f"expect is missing: give {allowed}, or a list of them")
    texts = _texts(row, "expect")
    if not texts or not set(texts) <= set(RunStatus):
        told = _told(row["expect"])
        raise _BadProbe(f"expect is {told}: it must be {allowed}, or a list of them")
    return Expectation(
        statuses=tuple(RunStatus(text) for text in texts),
        stdout_contains=_texts(row, "stdout_contains"),
        stdout_not_contains=_texts(row, "stdout_not_contains"),
        stderr_contains=_texts(row, "stderr_contains"),
        value_contains=_texts(row, "value_contains"),
    )


def _overrides(row: Mapping[str, object]) -> dict[Rung, Expectation]:
    """What is expected on a rung: the line's own expectation, and what is changed there."""
    value = row.get("on", {})
    rungs = set(Rung)
    if not isinstance(value, dict) or not value.keys() <= rungs:
        raise _BadProbe(f"on is {_told(value)}: it must name rungs of {', '.join(Rung)}")
    overrides = {}
    for rung, changes in value.items():
        if not isinstance(changes, dict):
            raise _BadProbe(f"on.{rung} is {_told(changes)}: it must be an object")
        try:
            overrides[Rung(rung)] = _expectation({**row, **changes})
        except _BadProbe as error:
            raise _BadProbe(f"on.{rung}: {error}") from error
    return overrides


def _told(value: object) -> str:
    """A JSON value as an error shows it."""
    text = json.dumps(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
