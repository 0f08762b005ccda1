"""The tables of probes on every rung that this machine gives, and what they leave behind.

``probes_behaviour.jsonl`` says what a program may expect and where its limits are,
``probes_isolation.jsonl`` what is refused. ``rstar2 sandbox probe`` runs such tables.
"""

import asyncio
import contextlib
import json
import os
import pty
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import descendants, until_running
from hypothesis import example, given
from hypothesis import strategies as st

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import Rung, Sandbox, SandboxUnsupported
from rstar2.sandbox.probe import (
    Expectation,
    Outcome,
    Probe,
    ProbeFileError,
    load_probes,
    report,
    run_probes,
)

HERE = Path(__file__).parent
TABLES = [HERE / "probes_behaviour.jsonl", HERE / "probes_isolation.jsonl"]
PROBES = [probe for path in TABLES if path.exists() for probe in load_probes(path)]
RUNGS = [Rung.STRICT, Rung.PORTABLE]
OK = Expectation((RunStatus.OK,))


# --- the tables ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aftermath:
    """What a run of the tables gave, and what was there after it.

    Attributes:
        outcomes: Of the probes.
        retries: Attempts that the sandbox lost.
        zygotes_started: During the run.
        zygotes: Those that lived at its end.
        strays: What else lived then below this process, but for the sibling.
        survivors: Processes of the zygotes and their children after the sandbox was left.
        litter: What was new then in places for temporary files.
        secret: What the sibling held, a call in flight all the time.
        hunts: A hunter after the table, and one that was given the secret.
    """

    outcomes: list[Outcome]
    retries: int
    zygotes_started: int
    zygotes: tuple[int, ...]
    strays: set[int]
    survivors: set[int]
    litter: set[Path]
    secret: str
    hunts: list[ToolResult]


MARK = "sibling-secret-"
SIBLING = """
import time
secret = input()
try:
    open(secret, "w").write(secret)
except OSError:
    pass
print(secret, flush=True)
time.sleep(3600)
"""
HUNTER = """
import gc, os, sys
own = sys.stdin.read()
mark = "sibling-" + "secret-"
texts = [*os.environ.values()]
for handle in range(64):
    try: texts.append(os.pread(handle, 1 << 16, 0).decode())
    except OSError: pass
for top in ("..", "/scratch", "/tmp", "/dev/shm", "/proc/1"):
    for place, _, names in os.walk(top):
        for name in names:
            texts.append(name)
            try: texts.append(open(os.path.join(place, name)).read(1 << 16))
            except (OSError, ValueError): pass
gc.unfreeze()
texts += [str(text) for text in gc.get_referents(*gc.get_objects()) if type(text) in (str, bytes)]
assert len(texts) > 10_000
print({text[text.index(mark):][:31] for text in texts if mark in text} - {mark})
"""
"""Prints every text with the mark that it can reach; its own input is one of them."""


DAILY, *OTHERS = RUNGS
"""All tables on a rung take a third of a minute; `make check` tries one rung, `make test` all."""


@pytest.fixture(
    scope="module",
    params=[DAILY, *(pytest.param(rung, marks=pytest.mark.thorough) for rung in OTHERS)],
)
def aftermath(request: pytest.FixtureRequest) -> Aftermath:
    try:
        with own_temporary_directory() as place:
            return asyncio.run(run_tables(request.param, place))
    except SandboxUnsupported as refusal:
        pytest.skip(f"not on this machine: {refusal}")


@contextlib.contextmanager
def own_temporary_directory() -> Iterator[Path]:
    """A temporary directory where nobody else writes, and that an ordinary user can enter."""
    with tempfile.TemporaryDirectory(prefix="probes-") as name, pytest.MonkeyPatch.context() as m:
        os.chmod(name, 0o755)
        m.setattr(tempfile, "tempdir", name)
        yield Path(name)


async def run_tables(rung: Rung, place: Path) -> Aftermath:
    secret = MARK + secrets.token_hex(8)
    processes, files = descendants(os.getpid()), set(files_of_programs(place))
    async with Sandbox(isolation=rung) as sandbox:
        sibling = asyncio.create_task(sandbox.run(SIBLING, secret, timeout=3600))
        in_flight = await until_running(1, *sandbox.zygote_pids)
        outcomes = await run_probes(PROBES, sandbox)
        hunts = [await sandbox.run(HUNTER, stdin) for stdin in ("", secret)]
        assert not sibling.done()
        retries, started = sandbox.stats.retries, sandbox.stats.zygotes_started
        zygotes = sandbox.zygote_pids
        strays = descendants(os.getpid()) - processes - in_flight - set(zygotes)
        signs = {command_line(pid) for pid in zygotes}
        sibling.cancel()
        await asyncio.wait([sibling])
    survivors = {pid for pid in all_processes() if command_line(pid) in signs}
    litter = set(files_of_programs(place)) - files
    return Aftermath(outcomes, retries, started, zygotes, strays, survivors, litter, secret, hunts)


def all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def command_line(pid: int) -> bytes:
    """That of a zygote names a directory of its own, and its children have the same."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b"gone"


def files_of_programs(place: Path) -> Iterator[Path]:
    """What is in ``place``, and in places of all users what has a name that a probe has."""
    yield from place.iterdir()
    for common in ("/tmp", "/var/tmp", "/dev/shm", str(Path.home())):
        for path in Path(common).iterdir():
            if any(path.name in probe.code for probe in PROBES):
                yield path


def test_no_probe_falls_short(aftermath: Aftermath) -> None:
    short = [f"{o.probe.name}: {o.shortfall}" for o in aftermath.outcomes if o.shortfall]
    assert not short, "\n".join(short)


def test_no_zygote_dies_and_no_call_is_lost(aftermath: Aftermath) -> None:
    assert aftermath.zygotes_started == len(aftermath.zygotes) > 0
    assert aftermath.retries == 0


def test_no_process_and_no_file_is_left(aftermath: Aftermath) -> None:
    assert (aftermath.strays, aftermath.survivors, aftermath.litter) == (set(), set(), set())


def test_no_program_finds_what_a_call_in_flight_holds(aftermath: Aftermath) -> None:
    blind, given_it = aftermath.hunts
    assert (blind.status, blind.stdout) == (RunStatus.OK, "set()\n"), blind.stderr
    assert given_it.stdout == f"{{'{aftermath.secret}'}}\n", given_it.stderr
    results = [outcome.result for outcome in aftermath.outcomes if outcome.result]
    shown = "".join(result.stdout + result.stderr + result.value for result in results)
    assert aftermath.secret not in shown


MANY_THREADS = """
import threading, time
threading.stack_size(1 << 16)
try:
    for _ in range(400):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError:
    pass
time.sleep(1)
"""
ONE_AFTER_THE_OTHER = """
import threading, time
for _ in range(50):
    thread = threading.Thread(target=time.sleep, args=(0.02,))
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("rung", RUNGS)
def test_a_call_with_many_threads_takes_none_from_its_neighbours(rung: Rung) -> None:
    async def side_by_side() -> list[ToolResult]:
        async with Sandbox(isolation=rung, slots=3) as sandbox:
            codes = [MANY_THREADS, ONE_AFTER_THE_OTHER, ONE_AFTER_THE_OTHER]
            return await asyncio.gather(*map(sandbox.run, codes))

    try:
        results = asyncio.run(side_by_side())
    except SandboxUnsupported as refusal:
        pytest.skip(f"not on this machine: {refusal}")
    assert [result.status for result in results] == [RunStatus.OK] * 3, results[1].stderr


@pytest.mark.parametrize("rung", RUNGS)
def test_filling_the_scratch_leaves_the_disk_alone(rung: Rung) -> None:
    """Others write to the disk too: of three tries the smallest loss counts."""
    fills = [probe for probe in PROBES if probe.name.startswith("scratch fill:")]
    assert fills
    try:
        lost = [asyncio.run(most_disk_lost(rung, fills)) for _ in range(3)]
    except SandboxUnsupported as refusal:
        pytest.skip(f"not on this machine: {refusal}")
    assert min(lost) < 32 << 20


async def most_disk_lost(rung: Rung, probes: list[Probe]) -> int:
    """The bytes by which the free space of the temporary directory shrank at worst."""

    def free() -> int:
        return shutil.disk_usage(tempfile.gettempdir()).free

    async def watch() -> None:
        while True:
            lowest.append(min(lowest.pop(), free()))
            await asyncio.sleep(0.005)

    async with Sandbox(isolation=rung) as sandbox:
        before = free()
        lowest = [before]
        watching = asyncio.create_task(watch())
        await run_probes(probes, sandbox)
        watching.cancel()
    return before - lowest[0]


@pytest.mark.thorough
def test_the_tables_hold_in_a_restricted_container(tmp_path: Path) -> None:
    table, answer = tmp_path / "probes.jsonl", tmp_path / "report.json"
    table.write_bytes(b"".join(path.read_bytes() for path in TABLES))
    launcher = [sys.executable, str(HERE / "restricted.py")]
    done = rstar2_probe(table, "--json", answer, launcher=launcher)
    assert "portable: " in done.stdout, done.stderr
    assert "strict refused: " in done.stdout
    told = json.loads(answer.read_text())
    assert told == {"probes": len(PROBES), "failed": 0, "failures": []}, done.stdout
    assert done.returncode == 0


def test_the_tables_have_at_least_100_probes_and_no_name_twice() -> None:
    names = [probe.name for probe in PROBES]
    assert len(names) >= 100
    assert sorted(names) == sorted(set(names))


# --- running a table -------------------------------------------------------------------------


def test_probes_run_at_once_and_are_told_in_the_order_of_the_table() -> None:
    slow, quick = "import time\ntime.sleep(0.5)", "1"
    probes = [Probe(str(n), code, OK) for n, code in enumerate([slow, slow, slow, quick])]
    ended = []

    async def together() -> list[Outcome]:
        async with Sandbox(slots=4) as sandbox:
            return await run_probes(
                probes, sandbox, lambda o: ended.append((o.probe.name, sandbox.stats.running))
            )

    outcomes = asyncio.run(together())
    assert ended[0] == ("3", 3)
    assert [outcome.probe for outcome in outcomes] == probes


def test_a_refused_call_is_an_error_and_hurts_no_neighbour() -> None:
    refused = Expectation((RunStatus.ERROR,), stderr_contains=("10000000 characters",))
    probes = [
        Probe("10 MB", "#" * 10_000_000, refused),
        Probe("10 MB of input", "1", refused, stdin="1" * 10_000_000),
        Probe("no time", "1", Expectation((RunStatus.ERROR,)), timeout=-1.0),
        Probe("neighbour", "1 + 1", Expectation((RunStatus.OK,), value_contains=("2",))),
    ]

    async def together() -> list[Outcome]:
        async with Sandbox() as sandbox:
            return await run_probes(probes, sandbox)

    assert [outcome.shortfall for outcome in asyncio.run(together())] == [""] * 4


def test_a_lost_call_falls_short_whatever_was_expected() -> None:
    anything = Expectation(tuple(RunStatus))

    async def after_the_end() -> list[Outcome]:
        async with Sandbox() as sandbox:
            pass
        return await run_probes([Probe("lost", "1", anything)], sandbox)

    (outcome,) = asyncio.run(after_the_end())
    assert outcome.result is None
    assert outcome.shortfall.startswith("expected ok or error or timeout, got no result: ")
    (failure,) = report([outcome])["failures"]  # type: ignore[misc]
    assert failure["status"] == "unavailable"


@pytest.mark.parametrize(
    ("expectation", "result", "why"),
    [
        (OK, ToolResult(RunStatus.OK), ""),
        (OK, ToolResult(RunStatus.ERROR), "expected ok, got error"),
        (
            Expectation((RunStatus.OK, RunStatus.ERROR)),
            ToolResult(RunStatus.TIMEOUT),
            "expected ok or error, got timeout",
        ),
        (
            Expectation((RunStatus.OK,), stdout_contains=("a", "b")),
            ToolResult(RunStatus.OK, stdout="b"),
            "expected 'a' in stdout, got 'b'",
        ),
        (
            Expectation((RunStatus.OK,), stdout_not_contains=("a", "b")),
            ToolResult(RunStatus.OK, stdout="b"),
            "expected no 'b' in stdout, got 'b'",
        ),
        (
            Expectation((RunStatus.ERROR,), stderr_contains=("KeyError",), value_contains=("1",)),
            ToolResult(RunStatus.OK, stderr="x" * 100, value="2"),
            "expected error, got ok; "
            f"expected 'KeyError' in stderr, got …'{'x' * 80}'; expected '1' in value, got '2'",
        ),
    ],
)
def test_a_shortfall_says_what_was_expected_and_what_came(
    expectation: Expectation, result: ToolResult, why: str
) -> None:
    assert expectation.shortfall(result) == why


# --- reading a table -------------------------------------------------------------------------


def test_a_line_says_what_must_happen_and_what_else_on_a_rung(tmp_path: Path) -> None:
    line = {
        "name": "write",
        "code": "open('a', 'w')",
        "expect": "ok",
        "value_contains": "a",
        "stderr_contains": ["b", "c"],
        "timeout": 1,
        "on": {"portable": {"expect": ["error", "timeout"], "value_contains": []}},
        "layer": "landlock",
    }
    (probe,) = load_probes(table_of(tmp_path, json.dumps(line), "", " \r"))
    assert (probe.name, probe.code, probe.stdin, probe.timeout) == ("write", line["code"], "", 1.0)
    assert probe.expect == Expectation(
        (RunStatus.OK,), stderr_contains=("b", "c"), value_contains=("a",)
    )
    assert probe.on == {
        Rung.PORTABLE: Expectation((RunStatus.ERROR, RunStatus.TIMEOUT), stderr_contains=("b", "c"))
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON in UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a JSON object"),
        ('{"code": "1", "expect": "ok"}', "name is missing"),
        ('{"name": "a", "code": 1, "expect": "ok"}', "code is 1: it must be a string"),
        ('{"name": "a", "code": "1"}', "expect is missing: give ok, error, timeout"),
        ('{"name": "a", "code": "1", "expect": "fine"}', 'expect is "fine": it must be ok, error'),
        ('{"name": "a", "code": "1", "expect": []}', "expect is []: it must be ok, error"),
        ('{"name": "a", "code": "1", "expect": "ok", "timeout": "1"}', 'timeout is "1"'),
        ('{"name": "a", "code": "1", "expect": "ok", "timeout": NaN}', "timeout is NaN"),
        ('{"name": "a", "code": "1", "expect": "ok", "stdin": null}', "stdin is null"),
        ('{"name": "a", "code": "1", "expect": "ok", "stdout_contains": [1]}', "stdout_contains"),
        ('{"name": "a", "code": "1", "expect": "ok", "on": {"strong": {}}}', "on is"),
        ('{"name": "a", "code": "1", "expect": "ok", "on": {"strict": 1}}', "on.strict is 1"),
        (
            '{"name": "a", "code": "1", "expect": "ok", "on": {"strict": {"expect": "fine"}}}',
            'on.strict: expect is "fine"',
        ),
    ],
)
def test_a_bad_line_is_named_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"name": "good", "code": "1", "expect": "ok"}'
    with pytest.raises(ProbeFileError) as caught:
        load_probes(table_of(tmp_path, good, line, good))
    assert f"line 2: {reason}" in str(caught.value)


KEYS = ("name", "code", "expect", "stdin", "timeout", "stdout_contains", "on", "other")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*KEYS, *Rung]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES).map(lambda row: json.dumps(row).encode()))
@example(b"\xff")
@example(b'{"name": ' + b"9" * 5000 + b"}")
@example(b'{"name": "\\ud800", "code": "\\ud800", "expect": "ok"}')
def test_any_line_is_a_probe_or_is_named(line: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(line)
        file.flush()
        try:
            (probe,) = load_probes(Path(file.name))
        except ProbeFileError as error:
            told = str(error)
        else:
            told = "line 1: " if probe.expect.statuses else "no status"
    assert "line 1: " in told


# --- the command -----------------------------------------------------------------------------


def table_of(folder: Path, *lines: str) -> Path:
    path = folder / "table.jsonl"
    path.write_text("\n".join(lines))
    return path


def rstar2_probe(
    *arguments: str | Path, launcher: list[str] | None = None
) -> "subprocess.CompletedProcess[str]":
    code = "from rstar2.cli import main; main()"
    command = [*(launcher or []), sys.executable, "-c", code, "sandbox", "probe"]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )


HELD = '{"name": "held", "code": "print(6 * 7)", "expect": "ok", "stdout_contains": "42"}'
SHORT = '{"name": "short \\u001b[31m", "code": "1 / 0", "expect": ["ok", "timeout"]}'


def test_a_table_that_holds_is_exit_code_0(tmp_path: Path) -> None:
    done = rstar2_probe(table_of(tmp_path, HELD, HELD), "--json", tmp_path / "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0 of 2 probes fell short; ")
    assert done.stdout.count("\n") == 1
    answer = json.loads((tmp_path / "report.json").read_text())
    assert answer == {"probes": 2, "failed": 0, "failures": []}


def test_what_falls_short_is_shown_and_is_exit_code_1(tmp_path: Path) -> None:
    done = rstar2_probe(table_of(tmp_path, SHORT, HELD), "--json", tmp_path / "report.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 of 2 probes fell short; " in done.stdout
    assert "short \\x1b[31m" in done.stdout
    assert "held" not in done.stdout
    answer = json.loads((tmp_path / "report.json").read_text())
    (failure,) = answer.pop("failures")
    assert answer == {"probes": 2, "failed": 1}
    assert failure.pop("stderr").endswith("ZeroDivisionError: division by zero\n")
    assert failure == {
        "name": "short \x1b[31m",
        "why": "expected ok or timeout, got error",
        "status": "error",
        "stdout": "",
    }


def test_the_rung_can_be_named(tmp_path: Path) -> None:
    done = rstar2_probe(table_of(tmp_path, HELD), "--isolation", "none")
    assert done.stdout.startswith("0 of 1 probes fell short; none: ")
    assert rstar2_probe(table_of(tmp_path, HELD), "--isolation", "some").returncode == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HELD, "{}", HELD, "]"], ["line 2: name is missing", "line 4: not JSON", "nothing was"]),
        ([], ["table.jsonl is empty: give one probe per line"]),
        (["", "  "], ["table.jsonl is empty"]),
    ],
)
def test_a_bad_table_is_one_line_and_exit_code_2_and_nothing_is_run(
    tmp_path: Path, lines: list[str], said: list[str]
) -> None:
    done = rstar2_probe(table_of(tmp_path, *lines), "--json", tmp_path / "report.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert all(text in done.stderr for text in said), done.stderr
    assert not (tmp_path / "report.json").exists()


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    done = rstar2_probe(tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rstar2: cannot read {tmp_path / name}: ")


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from rstar2.cli import main; main()", "sandbox", "probe"]
    subprocess.run(
        [*command, str(table_of(tmp_path, HELD, HELD))],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        check=True,
    )
    os.close(theirs)
    assert b"2/2" in os.read(ours, 1 << 16)
    os.close(ours)


def test_a_key_that_is_nearly_an_expectation_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "probes.jsonl"
    table.write_text('{"name": "a", "code": "1", "expect": "ok", "stdout_contain": "2"}\n')
    with pytest.raises(ProbeFileError, match="line 1: stdout_contain is no key"):
        load_probes(table)
