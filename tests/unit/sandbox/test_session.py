"""Sessions: programs that share their names, and come back after a loss."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from bench import Bench, descendants, zygote_of

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import BadCall, Sandbox, SandboxLimits, SandboxUnavailable, Session, Tier


def cells(run: Bench, *codes: str, timeout: float = 2.0) -> list[ToolResult]:
    """Run them in one session."""

    async def together() -> list[ToolResult]:
        async with run.sandbox.session() as session:
            return [await session.run(code, timeout=timeout) for code in codes]

    return run.runner.run(together())


def alone(talk: Callable[[Sandbox, Session], Awaitable[None]]) -> None:
    """Talk in a session of a sandbox of its own, whose zygote may be killed."""

    async def enter() -> None:
        async with Sandbox(tiers=[Tier.BARE]) as sandbox, sandbox.session() as session:
            await talk(sandbox, session)

    asyncio.run(enter())


def test_names_last_and_outputs_do_not(run: Bench) -> None:
    first, second, third = cells(run, "x = 6\nprint('one')", "x * 7", "print(x)\ndel x")
    assert (first.stdout, first.value) == ("one\n", "")
    assert (second.stdout, second.value) == ("", "42")
    assert third.stdout == "6\n"


def test_an_error_ends_its_cell_alone(run: Bench) -> None:
    broken, after = cells(run, "y = 1\nprint('before')\n1 / 0\ny = 2", "y")
    assert (broken.status, broken.error_type) == (RunStatus.ERROR, "ZeroDivisionError")
    assert broken.stdout == "before\n"
    assert 'File "cell-1.py", line 3' in broken.stderr
    assert after.value == "1"


def test_a_traceback_shows_the_cell_where_a_function_was_written(run: Bench) -> None:
    *_, called = cells(run, "def f(x):\n    return 1 // x", "a = 1", "f(0)")
    assert 'File "cell-3.py", line 1' in called.stderr
    assert 'File "cell-1.py", line 2, in f\n    return 1 // x' in called.stderr


def test_each_cell_has_its_own_stdin_and_limits(run: Bench) -> None:
    async def talk() -> tuple[ToolResult, ToolResult, ToolResult]:
        async with run.sandbox.session() as session:
            one = await session.run("a = input()", stdin="first\nleft over\n")
            two = await session.run("(a, input())", stdin="second\n")
            return one, two, await session.run("input()")

    _, two, three = run.runner.run(talk())
    assert two.value == "('first', 'second')"
    assert three.error_type == "EOFError"
    assert [r.truncated for r in cells(run, "print('x' * 20_000)", "1")] == [True, False]


def test_a_timeout_takes_back_its_own_cell_only(run: Bench) -> None:
    kept, spun, after, again = cells(
        run, "n = [1]", "n.append(2)\nwhile True: pass", "n", "n.append(3)\nn", timeout=0.3
    )
    assert (kept.status, spun.status) == (RunStatus.OK, RunStatus.TIMEOUT)
    assert (after.value, again.value) == ("[1]", "[1, 3]")


def test_a_crash_is_an_error_and_the_session_comes_back(run: Bench) -> None:
    crash = "import ctypes\nctypes.string_at(0)"
    _, crashed, left, after = cells(run, "x = 1", crash, "import os\nos._exit(0)", "x")
    assert (crashed.status, crashed.error_type) == (RunStatus.ERROR, "SIGSEGV")
    assert left.status is RunStatus.OK
    assert after.value == "1"


def test_randomness_goes_on_and_repeats_after_a_loss(run: Bench) -> None:
    draw = "import random\nrandom.random()"
    first, second = cells(run, draw, draw)
    assert first.value != second.value
    lost = cells(run, draw, "while True: pass", draw, timeout=0.3)
    assert [lost[0].value, lost[2].value] == [first.value, second.value]


def test_a_dead_zygote_is_not_seen() -> None:
    async def talk(sandbox: Sandbox, session: Session) -> None:
        await session.run("x = 1")
        first = zygote_of(sandbox)
        os.kill(first, signal.SIGKILL)
        assert (await session.run("x + 1")).value == "2"
        assert first not in sandbox.zygote_pids

    alone(talk)


def test_what_a_cell_leaves_running_is_stopped_between_cells() -> None:
    async def talk(sandbox: Sandbox, session: Session) -> None:
        await session.run(
            "import threading\nn = 0\ndef count():\n    global n\n    while True: n += 1\n"
            "threading.Thread(target=count, daemon=True).start()"
        )
        (child,) = descendants(zygote_of(sandbox))
        while " T " not in Path(f"/proc/{child}/stat").read_text():
            await asyncio.sleep(0.01)
        assert (await session.run("n > 0")).value == "True"

    alone(talk)


def test_leaving_ends_the_child() -> None:
    async def enter() -> None:
        async with Sandbox(tiers=[Tier.BARE]) as sandbox:
            async with sandbox.session() as session:
                await session.run("x = 1")
                assert len(descendants(zygote_of(sandbox))) == 1
            while descendants(zygote_of(sandbox)):
                await asyncio.sleep(0.01)
            assert (await sandbox.run("1")).value == "1"

    asyncio.run(enter())


def test_a_cancelled_cell_is_killed_and_taken_back() -> None:
    async def talk(sandbox: Sandbox, session: Session) -> None:
        await session.run("x = 1")
        call = asyncio.create_task(session.run("x = 2\nwhile True: pass", timeout=60))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await session.run("x")).value == "1"

    alone(talk)


def test_a_session_that_cannot_be_restored_says_so() -> None:
    async def talk(sandbox: Sandbox, session: Session) -> None:
        late = time.time() + 0.3
        await session.run(f"import os, time\nif time.time() > {late}: os._exit(1)")
        await asyncio.sleep(0.4)
        os.kill(zygote_of(sandbox), signal.SIGKILL)
        with pytest.raises(SandboxUnavailable, match="its cell 1 does not end as it did before"):
            await session.run("1")

    alone(talk)


def test_files_last_as_names_do() -> None:
    async def talk(sandbox: Sandbox, session: Session) -> None:
        await session.run("open('note', 'w').write('1')")
        assert (await session.run("open('note').read()")).value == "'1'"

    alone(talk)


def test_sessions_are_apart_from_each_other_and_from_calls(run: Bench) -> None:
    async def talk() -> list[str]:
        async with run.sandbox.session() as one, run.sandbox.session() as other:
            await one.run("x = 1\nopen('f', 'w').write('1')")
            results = [await box.run("'x' in dir()") for box in (other, run.sandbox)]
            seen = await other.run("import os\nos.listdir('.')")
            return [*(result.value for result in results), seen.value]

    assert run.runner.run(talk()) == ["False", "False", "[]"]


def test_a_bad_cell_is_refused_and_the_session_lives(run: Bench) -> None:
    async def talk() -> str:
        async with run.sandbox.session() as session:
            await session.run("x = 5")
            with pytest.raises(BadCall, match="timeout is -1"):
                await session.run("x", timeout=-1)
            return (await session.run("x")).value

    assert run.runner.run(talk()) == "5"


def test_more_sessions_than_slots() -> None:
    async def many() -> list[str]:
        async with Sandbox(SandboxLimits(timeout=5), slots=2, tiers=[Tier.BARE]) as sandbox:
            sessions = [sandbox.session() for _ in range(12)]
            for number, session in enumerate(sessions):
                await session.__aenter__()
                await session.run(f"x = {number}")
            results = await asyncio.gather(*(session.run("x") for session in sessions))
            for session in sessions:
                await session.__aexit__(None, None, None)
            return [result.value for result in results]

    assert asyncio.run(many()) == [str(number) for number in range(12)]


def test_after_the_sandbox_is_closed_a_session_says_so() -> None:
    async def late() -> None:
        async with Sandbox(tiers=[Tier.BARE]) as sandbox:
            session = sandbox.session()
            await session.__aenter__()
            await session.run("x = 1")
        with pytest.raises(SandboxUnavailable, match="closed"):
            await session.run("x")
        await session.__aexit__(None, None, None)

    asyncio.run(late())
