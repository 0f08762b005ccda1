"""The sandbox, with real processes: what a call may do, and what is told of it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from bench import LIMITS, Bench, descendants, is_running, until_running, zygote_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import (
    BadCall,
    Sandbox,
    SandboxLimits,
    SandboxUnavailable,
    SandboxUnsupported,
)


class TestFourResults:
    def test_output(self, run: Bench) -> None:
        result = run("print(6 * 7)")
        assert (result.status, result.stdout) == (RunStatus.OK, "42\n")
        assert (result.value, result.stderr, result.error_type) == ("", "", "")
        assert result.cpu > 0
        assert result.duration > 0

    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("x = 20\nx + 1", "21"),
            ("'a\\n'", "'a\\n'"),
            ("None", ""),
            ("x = 1\nx;", ""),
            ("x = 'ä'; (x)  ;  # quiet", ""),
            ("(\n1,\n2)", "(1, 2)"),
            ("'a;'", "'a;'"),
            ("1  # not quiet;", "1"),
            ("x = 1", ""),
            ("[].append(1)", ""),
            ("", ""),
            ("# nothing", ""),
            ("from __future__ import annotations\n1", "1"),
        ],
    )
    def test_without_output_the_last_value(self, run: Bench, code: str, value: str) -> None:
        result = run(code)
        assert (result.status, result.stdout, result.value) == (RunStatus.OK, "", value)

    def test_the_last_expression_runs_once(self, run: Bench) -> None:
        assert run("calls = []\ncalls.append(1) or print(len(calls)) or len(calls)").value == "1"

    def test_error_tells_the_programs_own_frames_and_keeps_the_output(self, run: Bench) -> None:
        result = run("import json\nprint('before')\ndef f(x):\n    return json.loads(x)\nf('{')\n")
        assert result.status is RunStatus.ERROR
        assert result.error_type == "JSONDecodeError"
        assert result.stdout == "before\n"
        assert 'File "main.py", line 4, in f\n    return json.loads(x)' in result.stderr
        assert result.stderr.count("File ") == 2
        assert "json.decoder.JSONDecodeError: Expecting property name" in result.stderr

    def test_chained_errors_are_told_without_foreign_frames(self, run: Bench) -> None:
        result = run(
            "import json\ntry:\n    json.loads('{')\n"
            "except ValueError as error:\n    raise KeyError(1) from error"
        )
        assert "direct cause" in result.stderr
        assert result.stderr.count("File ") == result.stderr.count('File "main.py"') == 2

    def test_timeout(self, run: Bench) -> None:
        result = run("print('x', flush=True)\nwhile True: pass", timeout=0.3)
        assert (result.status, result.stdout, result.stderr) == (RunStatus.TIMEOUT, "", "")
        assert result.duration >= 0.3
        assert 0 < result.cpu < 3

    def test_timeout_in_c_code(self, run: Bench) -> None:
        code = "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"
        assert run(code, timeout=0.2).status is RunStatus.TIMEOUT


class TestTimeLimits:
    def test_sleeping_is_the_programs_time(self, run: Bench) -> None:
        result = run("import time\ntime.sleep(100)", timeout=0.2)
        assert result.status is RunStatus.TIMEOUT
        assert result.cpu < 0.2 <= result.duration

    def test_waiting_for_a_cpu_is_not_the_programs_time(self) -> None:
        busy = "import time\nwhile time.process_time() < 0.2: pass\nprint('done')"

        async def crowd() -> list[ToolResult]:
            async with Sandbox(SandboxLimits(timeout=0.5), slots=8) as sandbox:
                return list(await asyncio.gather(*[sandbox.run(busy) for _ in range(8)]))

        assert {result.stdout for result in asyncio.run(crowd())} == {"done\n"}

    def test_exit_handlers_and_repr_count_too(self, run: Bench) -> None:
        spin = "def spin(*_):\n    while True: pass\n"
        for trap in ("import atexit\natexit.register(spin)", "type('T', (), {'__repr__': spin})()"):
            assert run(spin + trap, timeout=0.1).status is RunStatus.TIMEOUT


class TestExits:
    @pytest.mark.parametrize("code", ["raise SystemExit", "import sys; sys.exit(0)", "exit()"])
    def test_exit_without_a_code_is_ok(self, run: Bench, code: str) -> None:
        assert run(f"print(1)\n{code}").status is RunStatus.OK

    @pytest.mark.parametrize(("argument", "text"), [("3", "3"), ("'no luck'", "no luck")])
    def test_exit_with_a_code_is_an_error(self, run: Bench, argument: str, text: str) -> None:
        result = run(f"import sys\nprint(1)\nsys.exit({argument})")
        assert (result.status, result.error_type) == (RunStatus.ERROR, "SystemExit")
        assert result.stdout == "1\n"
        assert result.stderr.endswith(f"SystemExit: {text}\n")

    def test_a_crash_is_an_error_with_the_signals_name(self, run: Bench) -> None:
        result = run("import ctypes\nctypes.string_at(0)")
        assert (result.status, result.error_type) == (RunStatus.ERROR, "SIGSEGV")

    def test_threads_and_exit_handlers_finish(self, run: Bench) -> None:
        result = run("""
            import atexit, threading, time
            atexit.register(print, "bye")
            threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
            print("main")
        """)
        assert result.stdout == "main\nthread\nbye\n"

    @pytest.mark.parametrize(
        "code",
        [
            "x = []\nwhile True: x.append(bytearray(10**7))",
            "x = 'a' * 10**10",
            "import numpy\nnumpy.ones((120_000, 120_000))",
        ],
    )
    def test_too_much_memory(self, run: Bench, code: str) -> None:
        result = run(code)
        assert (result.status, result.error_type) == (RunStatus.ERROR, "MemoryError")
        assert 'File "main.py", line 2' in result.stderr or "line 1" in result.stderr


class TestOddText:
    @pytest.mark.parametrize(
        ("code", "text"),
        [
            ("print(1)\nx = = 2", 'File "main.py", line 2\n    x = = 2\n        ^\nSyntaxError'),
            ("if True:\nx", "IndentationError"),
            ("print(1)\0", "null bytes"),
            ("print('\udc80')", "UnicodeEncodeError"),
            ("return 1", "'return' outside function"),
        ],
    )
    def test_bad_source_is_the_programs_error(self, run: Bench, code: str, text: str) -> None:
        result = run(code)
        assert (result.status, result.stdout) == (RunStatus.ERROR, "")
        assert text in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("code", ["\ufeffprint('ä😀')", "if 1:\r\n  print('ä😀')\r\n"])
    def test_odd_but_good_source(self, run: Bench, code: str) -> None:
        assert run(code).stdout == "ä😀\n"

    def test_odd_output(self, run: Bench) -> None:
        assert run("print('\\udc80\\0ä')").stdout == "\\udc80\0ä\n"
        assert run("import os\nos.write(1, b'a\\xff')").stdout == "a\ufffd"
        assert run("class E(Exception): pass\nraise E('\\ud800')").error_type == "E"

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.text(st.characters(exclude_categories=())), min_size=5, max_size=20))
    def test_any_text_has_a_result(self, run: Bench, codes: list[str]) -> None:
        for code, result in zip(codes, run.all(*codes), strict=True):
            assert result.status in RunStatus, code
            result.stderr.encode()

    def test_input_is_read_and_closed(self, run: Bench) -> None:
        code = "print(input()[::-1])\nimport sys\nprint(sys.stdin.read(), end='')"
        assert run(code, stdin="äb\nrest\nof it").stdout == "bä\nrest\nof it"
        assert run("input()").error_type == "EOFError"
        assert run("input()\ninput()", stdin="one\n").error_type == "EOFError"


class TestOutputLimits:
    def test_what_is_over_the_limit_is_cut(self, run: Bench) -> None:
        result = run("print('ä' * 20_000)\nprint('end')")
        assert (result.status, result.truncated) == (RunStatus.OK, True)
        assert result.stdout == "ä" * 5000

    def test_a_flood_is_stopped(self, run: Bench) -> None:
        result = run("while True: print('x' * 1000)")
        assert (result.status, result.error_type) == (RunStatus.ERROR, "OSError")
        assert (result.truncated, len(result.stdout)) == (True, 10_000)

    def test_values_and_tracebacks_are_cut_in_the_middle(self, run: Bench) -> None:
        result = run("'x' * 10**6")
        assert (len(result.value), result.truncated) == (10_003, True)
        assert len(run("'😀' * 9_000").value) == 9_002
        told = run("class Last(Exception): pass\nraise Last('x' * 10**6 + 'end')").stderr
        assert len(told) < 10_100
        assert told.startswith("Traceback")
        assert told.endswith("end\n")


class TestRepetition:
    CODE = """
        import os, random, secrets, uuid
        import numpy as np
        print(hash("a"), {"x", "y", "z", "w"}, random.random(), random.Random().random())
        random.seed()
        print(random.random(), os.urandom(4), secrets.token_hex(4), uuid.uuid4())
        print(np.random.rand(), np.random.default_rng().random())
    """

    def test_the_same_program_prints_the_same(self, run: Bench) -> None:
        async def elsewhere() -> ToolResult:
            async with Sandbox(LIMITS) as sandbox:
                return await sandbox.run(textwrap.dedent(self.CODE))

        first, second, third = run(self.CODE), run(self.CODE), asyncio.run(elsewhere())
        assert first.status is RunStatus.OK, first.stderr
        assert first.stdout == second.stdout == third.stdout

    def test_a_seed_still_counts(self, run: Bench) -> None:
        import random

        code = "import random\nrandom.seed({})\nprint(random.random(), random.Random(5).random())"
        want = [random.Random(seed).random() for seed in (7, 5)]
        assert run(code.format(7)).stdout == f"{want[0]} {want[1]}\n"
        assert run(code.format(8)).stdout != run(code.format(7)).stdout

    def test_addresses_are_hidden_and_numbers_are_not(self, run: Bench) -> None:
        assert run("print(object(), hex(2**40))").stdout == "<object object at 0x…> 0x10000000000\n"
        assert run("lambda: 0").value == "<function <lambda> at 0x…>"
        assert "<object object at 0x…>" in run("raise ValueError(object())").stderr

    def test_no_path_of_the_machine_is_told(self, run: Bench) -> None:
        code = "import os, sys, json\nprint(os.getcwd(), json.__file__, sys.prefix, sys.executable)"
        words = run(code).stdout.split()
        assert words[0] == "/scratch"
        assert all(word.startswith("/python") for word in words[1:])
        told = run("from math import nothing").stderr
        assert "cannot import name 'nothing' from 'math'" in told
        assert sys.base_prefix not in told


class TestIsolation:
    def test_the_status_cannot_be_forged(self, run: Bench) -> None:
        forged = '{"error_type": "", "value": "1", "traceback": ""}'
        result = run(f"""
            import os
            for handle in range(3, 64):
                try: os.write(handle, b'{forged}' * 3)
                except OSError: pass
            print('{forged}')
            1 / 0
        """)
        assert (result.status, result.value) == (RunStatus.ERROR, "")
        assert run("import os\nos._exit(70)").status is RunStatus.ERROR
        assert run("import os\nos._exit = print\n1").status is RunStatus.OK
        assert run("import os\nos.closerange(0, 64)\n1 / 0").status is RunStatus.ERROR

    def test_scratch_is_writable_and_gone_after_the_call(self, run: Bench) -> None:
        code = """
            import os, tempfile
            print(os.listdir('.'))
            os.makedirs('a/b')
            open('a/b/c', 'w').write('1')
            tempfile.NamedTemporaryFile(delete=False)
            os.chmod('a/b', 0); os.chmod('a', 0)
        """
        assert [run(code).stdout for _ in range(2)] == ["[]\n", "[]\n"]
        assert "Error" in run("import os\nprint(os.listdir('..'))").error_type

    def test_no_call_finds_another(self, run: Bench) -> None:
        secret = os.urandom(8).hex()
        assert run(f"x = '{secret}'\nprint(input() + x)", stdin=secret).stdout == secret * 2 + "\n"
        pid = zygote_of(run.sandbox)
        try:
            memory = open(f"/proc/{pid}/mem", "rb", 0)  # noqa: SIM115
        except PermissionError:
            pytest.skip("only root may look into the zygote")
        with memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                span, modes, *_ = line.split()
                if "rw" in modes and "[v" not in line:
                    start, end = (int(number, 16) for number in span.split("-"))
                    memory.seek(start)
                    assert secret.encode() not in memory.read(end - start)

    def test_no_process_can_be_made_and_no_limit_raised(self, run: Bench) -> None:
        for code in (
            "import os\nos.fork()",
            "import subprocess\nsubprocess.run(['true'])",
            "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))",
        ):
            assert run(code).error_type in ("PermissionError", "ValueError")
        assert descendants(zygote_of(run.sandbox)) == set()

    def test_threads_are_limited(self, run: Bench) -> None:
        result = run("""
            import threading, time
            threading.stack_size(32768)
            for n in range(500):
                threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
        """)
        assert (result.status, result.error_type) == (RunStatus.ERROR, "RuntimeError")

    def test_no_network_no_foreign_files_no_foreign_process(self, run: Bench) -> None:
        here = os.getpid()
        for code, error in [
            ("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)", "PermissionError"),
            (f"open({str(Path(__file__))!r})", "FileNotFoundError PermissionError"),
            ("open('/usr/x', 'w')", "PermissionError OSError"),
            (f"import os\nos.kill({here}, 9)", "PermissionError"),
            (f"import os\nos.kill({zygote_of(run.sandbox)}, 9)", "PermissionError"),
            ("import os\nos.setuid(0)", "PermissionError"),
        ]:
            result = run(code)
            assert result.status is RunStatus.ERROR, code
            assert result.error_type in error.split(), result.stderr


class TestLife:
    def test_calls_run_side_by_side_and_answers_are_not_mixed(self, run: Bench) -> None:
        results = run.all(*(f"print({n})" for n in range(40)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]

    def test_one_slot_serves_in_order(self) -> None:
        async def order() -> list[int]:
            done: list[int] = []
            async with Sandbox(LIMITS, slots=1) as sandbox:

                async def one(number: int) -> None:
                    await sandbox.run(f"import time\ntime.sleep({0.05 if number == 0 else 0})")
                    done.append(number)

                await asyncio.gather(*map(one, range(6)))
            return done

        assert asyncio.run(order()) == list(range(6))

    def test_a_dead_zygote_is_replaced_and_its_calls_run_again(self) -> None:
        async def chaos() -> list[ToolResult]:
            async with Sandbox(LIMITS, slots=4) as sandbox:
                calls = [
                    asyncio.create_task(sandbox.run(f"import time\ntime.sleep(0.6)\nprint({n})"))
                    for n in range(4)
                ]
                first = zygote_of(sandbox)
                orphans = await until_running(4, first)
                os.kill(first, signal.SIGKILL)
                results = await asyncio.gather(*calls)
                assert zygote_of(sandbox) != first
                assert not any(is_running(pid) for pid in orphans)
                return results

        assert [result.stdout for result in asyncio.run(chaos())] == ["0\n", "1\n", "2\n", "3\n"]

    def test_a_zygote_that_always_dies_is_an_exception(self) -> None:
        async def hopeless() -> None:
            async with Sandbox(LIMITS) as sandbox:
                call = asyncio.create_task(sandbox.run("import time\ntime.sleep(100)", timeout=9))
                while not call.done():
                    await asyncio.sleep(0.05)
                    with contextlib.suppress(FileNotFoundError, IndexError):
                        if descendants(zygote_of(sandbox)):
                            os.kill(zygote_of(sandbox), signal.SIGKILL)
                await call

        with pytest.raises(SandboxUnavailable, match="failed 4 times"):
            asyncio.run(hopeless())

    def test_a_cancelled_call_is_killed_and_the_sandbox_serves_on(self, run: Bench) -> None:
        async def cancel() -> str:
            call = asyncio.create_task(run.sandbox.run("while True: pass", timeout=60))
            await until_running(1, zygote_of(run.sandbox))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            after = await run.sandbox.run("print(1)")
            while descendants(zygote_of(run.sandbox)):
                await asyncio.sleep(0.01)
            return after.stdout

        assert run.runner.run(cancel()) == "1\n"

    def test_leaving_kills_what_runs_and_removes_what_was_written(self, tmp_path: Path) -> None:
        async def leave() -> tuple[set[int], list[object]]:
            async with Sandbox(LIMITS, slots=2) as one, Sandbox(LIMITS, slots=2) as other:
                code = "open('x', 'w').write('1')\nwhile True: pass"
                calls = [asyncio.create_task(box.run(code, timeout=60)) for box in (one, other)]
                zygotes = {zygote_of(one), zygote_of(other)}
                started = zygotes | await until_running(2, *zygotes)
            return started, await asyncio.gather(*calls, return_exceptions=True)

        import tempfile

        tempfile.tempdir = str(tmp_path)
        try:
            started, results = asyncio.run(leave())
        finally:
            tempfile.tempdir = None
        assert not any(is_running(pid) for pid in started)
        assert all(isinstance(result, SandboxUnavailable) for result in results)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_outlives_a_caller_that_is_killed(self, tmp_path: Path) -> None:
        script = """
            import asyncio
            from rstar2.sandbox import Sandbox
            async def main():
                async with Sandbox() as sandbox:
                    call = asyncio.create_task(sandbox.run("while True: pass", timeout=60))
                    print(sandbox.zygote_pids[0], flush=True)
                    await call
            asyncio.run(main())
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as caller:
            assert caller.stdout is not None
            zygote = int(caller.stdout.readline())
            started = {zygote} | asyncio.run(until_running(1, zygote))
            caller.kill()
        assert not any(is_running(pid) for pid in started)

    def test_a_closed_sandbox_says_so_and_can_be_entered_again(self) -> None:
        async def twice() -> list[str]:
            sandbox = Sandbox(LIMITS, slots=1)
            outputs = []
            for _ in range(2):
                async with sandbox:
                    outputs.append((await sandbox.run("print(1)")).stdout)
                with pytest.raises(SandboxUnavailable, match="closed"):
                    await sandbox.run("print(1)")
            return outputs

        assert asyncio.run(twice()) == ["1\n", "1\n"]

    def test_nothing_of_the_callers_environment_gets_in(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hush")

        async def look() -> str:
            async with Sandbox(LIMITS) as sandbox:
                return (await sandbox.run("import os\nprint(sorted(os.environ))")).stdout

        assert "SECRET_TOKEN" not in asyncio.run(look())


class TestPlaces:
    """The same answers for root, for an ordinary user, and where namespaces are refused."""

    SCRIPT = """
        import ctypes, os, sys
        refuse = sys.argv[1] == "refuse"
        uid, gid = os.getuid(), os.getgid()
        if ctypes.CDLL(None).unshare(0x10000000) == 0:
            open("/proc/self/setgroups", "w").write("deny")
            open("/proc/self/uid_map", "w").write(f"1000 {uid} 1")
            open("/proc/self/gid_map", "w").write(f"1000 {gid} 1")
            if refuse:
                open("/proc/sys/user/max_user_namespaces", "w").write("0")
            os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
        print("null")
    """
    BODY = """
        import asyncio, json, os, sys
        from rstar2.sandbox import Sandbox, SandboxLimits
        PROGRAMS = [
            "print(1)",
            "1 + 1",
            "1 / 0",
            "while True: pass",
            "x = bytearray(10**9)",
            "import os\\nos.fork()",
        ]
        async def main():
            rung = sys.argv[1] if sys.argv[1:] else None
            async with Sandbox(SandboxLimits(memory_mib=256), slots=2, isolation=rung) as box:
                told = [await box.run(code, timeout=0.3) for code in PROGRAMS]
                zygote = box.zygote_pids[0]
                left = open(f"/proc/{zygote}/task/{zygote}/children").read().split()
                said = [(r.status, r.stdout, r.value, r.error_type) for r in told]
                print(json.dumps([os.getuid(), str(box.isolation), said, left]))
        asyncio.run(main())
    """
    EXPECTED = (
        ("ok", "1\n", "", ""),
        ("ok", "", "2", ""),
        ("error", "", "", "ZeroDivisionError"),
        ("timeout", "", "", ""),
        ("error", "", "", "MemoryError"),
        ("error", "", "", "PermissionError"),
    )

    @pytest.mark.parametrize(("mode", "rung"), [("allow", "strict"), ("refuse", "portable")])
    def test_ordinary_user(self, mode: str, rung: str) -> None:
        uid, met, results, left = self.as_ordinary_user(mode)
        assert (uid, left) == (1000, [])
        assert met.startswith(rung), met
        assert "strict refused: unshare: user namespaces" in met or mode == "allow"
        assert [tuple(result) for result in results] == list(self.EXPECTED)

    def test_none_must_be_asked_for_and_has_limits_all_the_same(self) -> None:
        _, met, results, left = self.as_ordinary_user("refuse", "none")
        assert (met, left) == ("none: resource limits", [])
        assert [tuple(result) for result in results[:-1]] == list(self.EXPECTED[:-1])

    def as_ordinary_user(self, mode: str, *arguments: str) -> tuple[int, str, list[object], object]:
        script, body = textwrap.dedent(self.SCRIPT), textwrap.dedent(self.BODY)
        done = subprocess.run(
            [sys.executable, "-c", script, mode, body, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        if told is None:
            pytest.skip("this machine allows no user namespace to play an ordinary user in")
        return tuple(told)

    @pytest.fixture
    def elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This system without what macOS has not."""
        sysconfig.get_paths()
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.delattr(os, "sched_getaffinity")

    @pytest.mark.usefixtures("elsewhere")
    def test_another_system_is_refused_with_what_it_lacks(self) -> None:
        async def enter() -> None:
            async with Sandbox():
                pass

        with pytest.raises(SandboxUnsupported, match="this is darwin, which has no namespaces"):
            asyncio.run(enter())

    @pytest.mark.usefixtures("elsewhere")
    def test_on_another_system_none_runs_each_program_in_a_fresh_process(self) -> None:
        codes = ["print(1)", "1 + 1", "print(input())\n1 / 0", "while True: pass"]

        async def run() -> list[ToolResult]:
            async with Sandbox(isolation="none") as sandbox:
                with pytest.raises(SandboxUnsupported, match="sessions need Linux"):
                    sandbox.session()
                return [await sandbox.run(code, "in", timeout=0.5) for code in codes]

        told = [(r.status, r.stdout, r.value, r.error_type) for r in asyncio.run(run())]
        assert told == [
            ("ok", "1\n", "", ""),
            ("ok", "", "2", ""),
            ("error", "in\n", "", "ZeroDivisionError"),
            ("timeout", "", "", ""),
        ]


class TestArguments:
    def test_isolation_is_described_for_the_doctor(self, run: Bench) -> None:
        assert str(run.sandbox.isolation).startswith(run.sandbox.isolation.rung)

    @pytest.mark.parametrize(
        "wrong", [{"memory_mib": 0}, {"threads": -1}, {"timeout": float("inf")}]
    )
    def test_limits_must_make_sense(self, wrong: dict[str, int]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SandboxLimits(**wrong)

    @pytest.mark.parametrize(
        ("code", "stdin", "timeout", "text"),
        [
            (7, "", 1.0, "code is int: it must be a string"),
            ("1", b"x", 1.0, "stdin is bytes: it must be a string"),
            ("#" * 10_000_000, "", 1.0, "code has 10000000 characters: at most 1048576"),
            ("1", "", 0, "timeout is 0: it must be positive"),
            ("1", "", -1.0, "timeout is -1.0: it must be positive"),
            ("1", "", float("nan"), "timeout is nan: it must be positive"),
            ("1", "", "1", "timeout is '1': it must be a number of seconds"),
        ],
    )
    def test_a_call_that_cannot_be_run_is_the_callers_mistake(
        self, run: Bench, code: str, stdin: str, timeout: float, text: str
    ) -> None:
        with pytest.raises(BadCall, match=re.escape(text)):
            run.runner.run(run.sandbox.run(code, stdin, timeout))

    def test_a_scratch_must_be_a_file_system_of_its_own(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="not a file system of its own"):
            Sandbox(scratch=tmp_path)

    def test_none_is_a_name_and_others_are_refused(self) -> None:
        with pytest.raises(ValueError, match="'weak': it must be strict, portable, none"):
            Sandbox(isolation="weak")
        with pytest.raises(ValueError, match="tiers is \\['x'\\]: name some of bare, sympy, full"):
            Sandbox(tiers=["x"])
