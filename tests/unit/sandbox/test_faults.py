"""What goes wrong around a program: closing, cancelling, crowding, and a machine that is full."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench, descendants, is_running, zygote_of

import rstar2
from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import (
    BadCall,
    Sandbox,
    SandboxLimits,
    SandboxUnavailable,
    Tier,
)
from rstar2.sandbox.result import report_bytes
from rstar2.sandbox.tiers import tier_for

BARE = (Tier.BARE,)


def children_of_this() -> set[int]:
    return descendants(os.getpid())


class TestSessionsThatEnd:
    def test_a_closed_session_touches_no_descriptor(self, run: Bench, tmp_path: Path) -> None:
        async def late() -> None:
            async with run.sandbox.session() as session:
                await session.run("1")
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context((tmp_path / str(n)).open("w+")) for n in range(8)]
                for file in files:
                    file.write("precious")
                    file.flush()
                with pytest.raises(SandboxUnavailable, match="the session is closed"):
                    await session.run("print('x')")
                assert [(tmp_path / str(n)).read_text() for n in range(8)] == ["precious"] * 8

        run.runner.run(late())

    def test_leaving_while_a_cell_runs_tells_its_caller_and_nobody_else(self, run: Bench) -> None:
        async def leave() -> tuple[object, list[str]]:
            async with run.sandbox.session() as session:
                await session.run("print('own')")
                cell = asyncio.create_task(session.run("while True: pass", timeout=60))
                await asyncio.sleep(0.2)
            others = await asyncio.gather(*(run.sandbox.run(f"print({n})") for n in range(8)))
            (told,) = await asyncio.gather(cell, return_exceptions=True)
            return told, [other.stdout for other in others]

        told, others = run.runner.run(leave())
        assert isinstance(told, SandboxUnavailable)
        assert "the session is closed" in str(told)
        assert others == [f"{n}\n" for n in range(8)]

    def test_leaving_after_the_zygote_has_died_closes_the_files(self) -> None:
        async def leave() -> int:
            async with Sandbox(tiers=BARE) as sandbox:
                before = len(os.listdir("/proc/self/fd"))
                async with sandbox.session() as session:
                    await session.run("1")
                    os.kill(zygote_of(sandbox), 9)
                    time.sleep(0.1)
                return len(os.listdir("/proc/self/fd")) - before

        assert asyncio.run(leave()) <= 0

    def test_idle_sessions_do_not_stand_in_the_way_of_calls(self) -> None:
        async def crowd() -> str:
            async with Sandbox(slots=2, tiers=BARE) as sandbox, contextlib.AsyncExitStack() as all_:
                for n in range(70):
                    session = await all_.enter_async_context(sandbox.session())
                    await session.run(f"x = {n}")
                return (await sandbox.run("print(1)")).stdout

        assert asyncio.run(crowd()) == "1\n"


class TestOpeningAndClosing:
    def test_a_call_in_a_tier_that_is_starting_is_told_of_the_closing(self) -> None:
        async def close() -> object:
            async with Sandbox() as sandbox:
                call = asyncio.create_task(sandbox.run("import sympy"))
                await asyncio.sleep(0.05)
            (told,) = await asyncio.gather(call, return_exceptions=True)
            return told

        told = asyncio.run(close())
        assert isinstance(told, SandboxUnavailable)
        assert "closed" in str(told)

    def test_an_entering_that_is_cancelled_leaves_nothing(self) -> None:
        async def cancel() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(Sandbox(tiers=[Tier.FULL]).__aenter__(), 0.1)

        before = children_of_this()
        asyncio.run(cancel())
        assert not any(map(is_running, children_of_this() - before))

    def test_entering_twice_is_refused(self) -> None:
        async def twice() -> None:
            async with Sandbox(tiers=BARE) as sandbox:
                with pytest.raises(RuntimeError, match="entered already"):
                    await sandbox.__aenter__()
                assert (await sandbox.run("1")).value == "1"

        asyncio.run(twice())

    def test_a_rung_is_in_force_only_if_a_program_runs_on_it(self) -> None:
        script = """
            import ctypes, os, sys
            uid, gid = os.getuid(), os.getgid()
            if ctypes.CDLL(None).unshare(0x10000000) == 0:
                open("/proc/self/setgroups", "w").write("deny")
                open("/proc/self/uid_map", "w").write(f"1000 {uid} 1")
                open("/proc/self/gid_map", "w").write(f"1000 {gid} 1")
                open("/proc/sys/user/max_user_namespaces", "w").write("1")
                os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
            print("no namespace")
        """
        body = """
            import asyncio
            from rstar2.sandbox import Sandbox
            async def main():
                async with Sandbox(slots=1) as box:
                    print(box.isolation.rung, (await box.run("1")).value, box.isolation)
            asyncio.run(main())
        """
        command = [sys.executable, "-c", textwrap.dedent(script), textwrap.dedent(body)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        if told.stdout == "no namespace\n":
            pytest.skip("this machine allows no user namespace to limit them in")
        assert told.stdout.startswith("portable 1 ")
        assert "strict refused: the program was not started" in told.stdout


class TestCrowds:
    def test_hundreds_of_calls_at_once(self) -> None:
        async def crowd() -> tuple[list[str], int]:
            async with Sandbox(slots=150, tiers=BARE) as sandbox:
                code = "import time\ntime.sleep(0.3)\nprint({})"
                calls = [sandbox.run(code.format(n)) for n in range(300)]
                results = await asyncio.gather(*calls)
                return [result.stdout for result in results], sandbox.stats.retries

        assert asyncio.run(crowd()) == ([f"{n}\n" for n in range(300)], 0)

    def test_a_long_timeout_hurts_nobody(self, run: Bench) -> None:
        async def mixed() -> list[ToolResult]:
            calls = [run.sandbox.run("print(1)", timeout=seconds) for seconds in (86_400, 1, 1)]
            return list(await asyncio.gather(*calls))

        assert [result.stdout for result in run.runner.run(mixed())] == ["1\n"] * 3

    @pytest.mark.parametrize("timeout", [86_401, 1e300, 10**400])
    def test_a_timeout_beyond_a_day_is_refused(self, run: Bench, timeout: float) -> None:
        with pytest.raises(BadCall, match="at most 86400 s"):
            run("1", timeout=timeout)

    def test_the_choice_of_the_tier_takes_no_time(self) -> None:
        start = time.process_time()
        assert tier_for("import " * 149_000 + "\nimport numpy", tuple(Tier)) is Tier.SYMPY
        assert time.process_time() - start < 0.5


class TestAFullMachine:
    @staticmethod
    @contextlib.contextmanager
    def no_descriptor_left(spare: int = 0) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir("/proc/self/fd"))) + 2 + spare
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        taken = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            for _ in range(spare):
                os.close(taken.pop())
            yield
        finally:
            for handle in taken:
                os.close(handle)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_without_descriptors_the_sandbox_is_unavailable_and_comes_back(self) -> None:
        async def exhaust() -> str:
            async with Sandbox(tiers=BARE) as sandbox:
                with (
                    self.no_descriptor_left(),
                    pytest.raises(SandboxUnavailable, match="Too many open files"),
                ):
                    await sandbox.run("1")
                return (await sandbox.run("1")).value

        assert asyncio.run(exhaust()) == "1"

    def test_a_start_that_fails_leaves_no_folder(self, tmp_path: Path) -> None:
        async def exhaust() -> None:
            for spare in range(5):
                with (
                    self.no_descriptor_left(spare),
                    pytest.raises(SandboxUnavailable, match="Too many open files"),
                ):
                    await Sandbox(tiers=BARE, isolation="none").__aenter__()

        tempfile.tempdir = str(tmp_path)
        try:
            asyncio.run(exhaust())
        finally:
            tempfile.tempdir = None
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {"memory_mib": 0.5},
            {"memory_mib": 1 << 50},
            {"output_bytes": 1 << 20, "file_mib": 1},
            {"timeout": 100_000},
        ],
    )
    def test_limits_that_cannot_hold_are_refused(self, wrong: dict[str, int]) -> None:
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            SandboxLimits(**wrong)

    def test_the_longest_report_fits_into_a_file(self) -> None:
        longest = next(n for n in range(90_000, 0, -1) if report_bytes(n) <= 1 << 20)
        SandboxLimits(output_bytes=longest, file_mib=1)
        with pytest.raises(ValueError, match="file_mib is 1: too little"):
            SandboxLimits(output_bytes=longest + 1, file_mib=1)

    def test_a_long_value_is_kept_where_the_limit_allows(self) -> None:
        async def long() -> ToolResult:
            limits = SandboxLimits(output_bytes=1_000_000)
            async with Sandbox(limits, tiers=BARE) as sandbox:
                return await sandbox.run("'😀' * 900_000")

        result = asyncio.run(long())
        assert (len(result.value), result.truncated) == (900_002, False)


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a file system to spare")
def test_folders_in_the_way_of_the_cleaning_hurt_neither_zygote_nor_neighbour() -> None:
    attack = """
        import os
        os.makedirs("a/b")
        for n in range(1, 5):
            for name in (f".removed-{os.getppid()}-{n}", f".removed-{n}"):
                os.makedirs(f"{name}/x")
    """

    async def both() -> list[ToolResult]:
        async with Sandbox(isolation="portable", scratch=Path("/dev/shm"), tiers=BARE) as sandbox:
            neighbour = asyncio.create_task(sandbox.run("import time\ntime.sleep(0.5)\nprint(1)"))
            attacker = await sandbox.run(textwrap.dedent(attack))
            return [attacker, await neighbour, await sandbox.run("import os\nprint(os.listdir())")]

    attacker, neighbour, after = asyncio.run(both())
    assert attacker.status is RunStatus.OK, attacker.stderr
    assert (neighbour.stdout, after.stdout) == ("1\n", "[]\n")


def test_the_callers_library_path_is_neither_shown_nor_readable(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    body = f"""
        import asyncio
        from rstar2.sandbox import Sandbox
        async def main():
            async with Sandbox() as box:
                show = "import os, sys\\nprint(dict(os.environ), sys.orig_argv)"
                print((await box.run(show)).stdout)
                print((await box.run("open('{tmp_path}/secret').read()")).error_type)
        asyncio.run(main())
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "LD_LIBRARY_PATH" not in told
    assert str(tmp_path) not in told
    assert told.rstrip().endswith(("FileNotFoundError", "PermissionError"))


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a file system to spare")
@pytest.mark.parametrize("signals", [0, 500])
def test_a_caller_that_is_killed_leaves_no_file_of_its_programs(signals: int) -> None:
    """However often the zygote is told to go while it cleans up."""
    body = """
        import asyncio, os
        from pathlib import Path
        from rstar2.sandbox import Sandbox, Tier
        async def main():
            scratch = Path("/dev/shm")
            async with Sandbox(isolation="portable", scratch=scratch, tiers=[Tier.BARE]) as box:
                name = f"secret-{os.getpid()}"
                code = f"open('{name}', 'w').write('hush')\\nimport time\\ntime.sleep(60)"
                call = asyncio.create_task(box.run(code, timeout=60))
                while not (found := list(scratch.glob(f"rstar2-sandbox-*/000/{name}"))):
                    await asyncio.sleep(0.01)
                print(box.zygote_pids[0], found[0].parents[1], flush=True)
                await call
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(body)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        pid, home = caller.stdout.readline().split()
        assert os.listdir(home) == ["000"]
        caller.kill()
        for _ in range(signals):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
    assert not is_running(int(pid))
    assert not os.path.exists(home)


def test_packages_beside_the_environment_are_seen_and_missing_ones_are_named(
    tmp_path: Path,
) -> None:
    """An environment that reaches numpy through a path file, and one that has none."""
    import numpy

    packages = Path(numpy.__file__).parents[1]
    body = """
        import asyncio, sys
        from rstar2.sandbox import Sandbox, SandboxUnavailable, Tier
        async def main():
            async with Sandbox(tiers=[Tier.SYMPY]) as box:
                print((await box.run("import numpy; print(numpy.arange(3).sum())")).stdout)
        try:
            asyncio.run(main())
        except SandboxUnavailable as error:
            print(error)
    """
    venv.create(tmp_path / "v", symlinks=True)
    python = tmp_path / "v" / "bin" / "python"
    paths = next((tmp_path / "v").glob("lib/python3*/site-packages")) / "near.pth"

    def told(**environment: str) -> str:
        command = [python, "-c", textwrap.dedent(body)]
        return subprocess.check_output(command, env={**os.environ, **environment}, text=True)

    source = Path(rstar2.__file__).parents[1]
    missing = told(PYTHONPATH=f"{packages}:{source}")
    assert "No module named 'numpy': install it into" in missing
    paths.write_text(f"{packages}\n{source}\n")
    assert told() == "3\n\n"
