"""The walls where a machine lacks a part of them, and the way of a child to its program."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from bench import descendants, zygote_of

from rstar2.protocol.types import RunStatus, ToolResult
from rstar2.sandbox import Sandbox, SandboxLimits, Tier
from rstar2.sandbox.tiers import tier_for

LAUNCH = """
    import errno, os, sys
    import pyseccomp as seccomp
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in sys.argv[1].split():
        rules.add_rule(seccomp.ERRNO(errno.ENOSYS), name)
    rules.load()
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
"""
LANDLOCK = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"


def without(calls: str, body: str) -> object:
    """What ``body`` prints, as JSON, where the kernel does not know these system calls."""
    command = [sys.executable, "-c", textwrap.dedent(LAUNCH), calls, textwrap.dedent(body)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_landlock_the_namespaces_keep_calls_apart() -> None:
    met, outputs = without(  # type: ignore[misc]
        LANDLOCK,
        """
        import asyncio, json
        from rstar2.sandbox import Sandbox
        WRITER = "import os, time; open('secret', 'w').write('1'); time.sleep(0.5); print(1)"
        LOOKER = "import os, time; time.sleep(0.2); print(sorted(os.walk('/scratch')), os.getcwd())"
        async def main():
            async with Sandbox(slots=2) as box:
                results = await asyncio.gather(box.run(WRITER), box.run(LOOKER))
                results += [await box.run("import os; print(os.listdir('.'))")]
                print(json.dumps([str(box.isolation), [r.stdout or r.stderr for r in results]]))
        asyncio.run(main())
        """,
    )
    assert met.startswith("strict: namespaces, seccomp")
    assert outputs == ["1\n", "[('/scratch', [], [])] /scratch\n", "[]\n"]


def test_without_landlock_and_namespaces_nothing_runs_and_the_reasons_are_named() -> None:
    told = without(
        f"{LANDLOCK} unshare",
        """
        import asyncio, json
        from rstar2.sandbox import Sandbox, SandboxUnsupported
        async def main():
            async with Sandbox():
                pass
        try:
            asyncio.run(main())
        except SandboxUnsupported as error:
            print(json.dumps(str(error)))
        """,
    )
    assert "strict: unshare" in str(told)
    assert "portable: Landlock 3 (Linux 6.2) is needed, this kernel has 0" in str(told)


def test_a_rung_that_was_asked_for_is_not_lowered() -> None:
    told = without(
        "unshare",
        """
        import asyncio, json
        from rstar2.sandbox import Sandbox, SandboxUnsupported
        async def main():
            async with Sandbox(isolation="strict"):
                pass
        try:
            asyncio.run(main())
        except SandboxUnsupported as error:
            print(json.dumps(str(error)))
        """,
    )
    assert "portable" not in str(told)


@pytest.mark.parametrize("tier", list(Tier))
def test_a_child_imports_and_opens_nothing_before_its_program(tier: Tier) -> None:
    script = """
        import io, os, sys
        os.register_at_fork = lambda **handlers: None
        from rstar2.sandbox import program, tiers, zygote
        from rstar2.sandbox.limits import Tier
        program.repeat_randomness()
        tiers.load(Tier(sys.argv[1]))
        sys.stdout = io.StringIO()
        for source in zygote.REHEARSALS:
            program.execute(source, program.new_main()).to_bytes(1000)
        stage = program.set_stage()
        events = []
        sys.addaudithook(lambda name, args: name in ("import", "open") and events.append(args[0]))
        report = os.memfd_create("report")
        for source in (b"print(1)", b"1 + 1", b"1 / 0"):
            program.run_as_main(stage, source, report, 1000)
        sys.__stdout__.write(repr(events))
        sys.__stdout__.flush()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), tier],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "1\n[]", done.stderr


@pytest.mark.parametrize(
    ("code", "tier"),
    [
        ("print(1)", Tier.BARE),
        ("import math, random", Tier.BARE),
        ("import numpy as np", Tier.SYMPY),
        ("import math, sympy as sp", Tier.SYMPY),
        ("def f():\n    from sympy import *", Tier.SYMPY),
        ("import sympy; from scipy.optimize import brentq", Tier.FULL),
        ("import math" * 1000 + "\nimport numpy", Tier.SYMPY),
        ("", Tier.BARE),
    ],
)
def test_the_tier_follows_the_imports(code: str, tier: Tier) -> None:
    assert tier_for(code, tuple(Tier)) is tier


def test_a_tier_that_is_not_allowed_is_replaced_by_a_larger_or_the_largest() -> None:
    assert tier_for("print(1)", [Tier.FULL]) is Tier.FULL
    assert tier_for("import scipy", [Tier.BARE]) is Tier.BARE


def test_the_answer_does_not_depend_on_the_tier() -> None:
    code = """
        import random, os, uuid
        print(random.random(), random.Random().random(), os.urandom(4), uuid.uuid4())
        import numpy as np, sympy as sp
        from scipy.special import comb
        x = sp.symbols("x")
        print({"a", "b", "c"}, hash("x"), np.linalg.eigvals(np.eye(3) + 1), comb(5, 2, exact=True))
        print(sp.solve(x**3 - 6*x**2 + 11*x - 6, x), sp.integrate(sp.sin(x)**2, x))
    """

    async def everywhere() -> list[ToolResult]:
        results = []
        for tier in Tier:
            async with Sandbox(tiers=[tier]) as sandbox:
                results.append(await sandbox.run(textwrap.dedent(code), timeout=20))
        return results

    results = asyncio.run(everywhere())
    assert results[0].status is RunStatus.OK, results[0].stderr
    assert {result.stdout for result in results} == {results[0].stdout}


@pytest.mark.parametrize(("kills", "status"), [(1, RunStatus.OK), (2, RunStatus.ERROR)])
def test_a_kill_from_outside_is_tried_again_and_then_the_programs_memory(
    kills: int, status: RunStatus
) -> None:
    async def killed() -> tuple[ToolResult, int]:
        async with Sandbox(SandboxLimits(timeout=9), tiers=[Tier.BARE]) as sandbox:
            call = asyncio.create_task(sandbox.run("import time\ntime.sleep(0.5)\nprint(1)"))
            for _ in range(kills):
                while not (children := descendants(zygote_of(sandbox))):
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                for child in children:
                    os.kill(child, signal.SIGKILL)
                while descendants(zygote_of(sandbox)) == children:
                    await asyncio.sleep(0.001)
            return await call, sandbox.stats.retries

    result, retries = asyncio.run(killed())
    assert (result.status, retries) == (status, 1)
    assert result.error_type == ("MemoryError" if status is RunStatus.ERROR else "")


def test_many_files_deep_folders_and_odd_modes_do_not_reach_the_next_call() -> None:
    mess = """
        import os
        for _ in range(600):
            os.mkdir('d'); os.chdir('d')
        os.chmod('.', 0)
        os.chdir('/scratch/' if os.path.isdir('/scratch/') else '/')
        while True: pass
    """

    async def twice(isolation: str) -> list[str]:
        async with Sandbox(slots=1, isolation=isolation, tiers=[Tier.BARE]) as sandbox:
            outputs = []
            for _ in range(3):
                assert (await sandbox.run(textwrap.dedent(mess), timeout=0.3)).status != "ok"
                outputs.append((await sandbox.run("import os\nprint(os.listdir('.'))")).stdout)
            return outputs

    for isolation in ("strict", "none"):
        assert asyncio.run(twice(isolation)) == ["[]\n"] * 3


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a file system to spare")
def test_portable_writes_only_to_a_scratch_that_was_named() -> None:
    code = "import tempfile\nf = tempfile.TemporaryFile()\nf.write(b'x')\nprint('written')"
    place = Path("/dev/shm")
    name = f"mark-{os.getpid()}"
    homes: list[Path] = []

    async def both() -> list[ToolResult]:
        results = []
        for scratch in (None, place):
            async with Sandbox(isolation="portable", scratch=scratch, tiers=[Tier.BARE]) as box:
                results.append(await box.run(code))
                results.append(await box.run("import os\nprint(os.listdir('.'), os.getcwd())"))
                if scratch:
                    marker = f"import time\nopen('{name}', 'w')\ntime.sleep(1)"
                    call = asyncio.create_task(box.run(marker, timeout=5))
                    while not homes and not call.done():
                        homes.extend(found.parents[1] for found in place.glob(f"*/*/{name}"))
                        await asyncio.sleep(0.01)
                    assert (await call).status is RunStatus.OK
        return results

    refused, empty, written, clean = asyncio.run(both())
    assert refused.error_type == "FileNotFoundError"
    assert "No usable temporary directory" in refused.stderr
    assert written.stdout == "written\n", written.stderr
    assert empty.stdout == clean.stdout == "[] /scratch\n"
    assert len(homes) == 1
    assert not homes[0].exists()
