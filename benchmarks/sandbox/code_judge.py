"""code-judge, the code environment of the paper's authors, beside ours.

How to get it (the commit is the one that the committed record was made with)::

    apt-get install redis-server
    git clone https://github.com/0xWJ/code-judge
    cd code-judge
    git checkout fbc5293
    python3.11 -m venv .venv
    .venv/bin/pip install -r requirements.txt sympy==1.14.0

Then ``python -m benchmarks.sandbox --code-judge code-judge``. The benchmark starts what the
README there starts, and stops it again: redis on a free port and without a file, one uvicorn,
and ``run_workers.py`` with one worker per processor. Settings are its own defaults. A worker runs
each program cold, as ``python source.py``, with the Python of ``.venv`` (or that which
``CODE_JUDGE_PYTHON`` names).
"""

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.sandbox.kernel import descendants
from benchmarks.sandbox.programs import Program, print_line, solve
from benchmarks.sandbox.throughput import rate_in
from rstar2.errors import UserError
from rstar2.sandbox import Sandbox

WORKERS = len(os.sched_getaffinity(0))
IN_FLIGHT = 2 * WORKERS
"""Calls in flight at ``/run`` and in our sandbox: no worker waits for the next one."""

Running = subprocess.Popen[bytes]

_START_SECONDS = 60.0
_HTTP_SECONDS = 300.0


class CodeJudgeError(UserError):
    """code-judge does not start or does not answer; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What is needed to start it.

    Attributes:
        checkout: Its folder.
        python: Interpreter that has its requirements and sympy.
        redis: The redis server.

    Raises:
        CodeJudgeError: One of them is missing.
    """

    checkout: Path
    python: Path
    redis: Path

    def __post_init__(self) -> None:
        for needed in (self.checkout / "run_workers.py", self.python, self.redis):
            if not needed.exists():
                where = "the top of benchmarks/sandbox/code_judge.py says how to get it"
                raise CodeJudgeError(f"--code-judge: {needed} is missing: {where}")


def find(checkout: Path, python: Path | None = None) -> Installation:
    """Look for what is needed to start code-judge.

    Args:
        checkout: Its folder.
        python: Its interpreter; by default the one of its ``.venv``.

    Raises:
        CodeJudgeError: Something is missing.
    """
    redis = Path(shutil.which("redis-server") or "redis-server")
    return Installation(checkout, python or checkout / ".venv/bin/python", redis)


async def against_code_judge(
    sandbox: Sandbox, installation: Installation, rounds: int
) -> dict[str, float]:
    """Compare rates with code-judge's faster way, the arms taking turns: ratios of the medians.

    Theirs is reached over its HTTP, ours in this process; what HTTP takes of ours is a figure of
    its own, ``http_cpu_ms_batch32``.

    Args:
        sandbox: One with all tiers: each program goes where the sandbox sends it.
        installation: What to start.
        rounds: Turns of each arm.

    Raises:
        CodeJudgeError: It does not start, or answers nothing.
    """
    figures: dict[str, float] = {"codejudge_failures": 0}
    arms = {"print": (print_line, 200, 60), "sympy": (solve, 60, 10)}
    ways = {"run": _run_singly, "batch": _run_batch}
    with _running(installation) as port:
        for name, (program, our_calls, their_calls) in arms.items():
            ours: list[float] = []
            theirs: dict[str, list[float]] = {way: [] for way in ways}
            for n in range(rounds):
                ours.append(await rate_in(sandbox, program, our_calls, IN_FLIGHT))
                programs = [program(n * their_calls + i) for i in range(their_calls)]
                for way, send in ways.items():
                    start = time.perf_counter()
                    right = await asyncio.to_thread(send, port, programs)
                    theirs[way].append(right / (time.perf_counter() - start))
                    figures["codejudge_failures"] += their_calls - right
            rates = {way: median(values) for way, values in theirs.items()}
            if max(rates.values()) == 0:
                raise CodeJudgeError(f"code-judge gave no right answer to {programs[0].code!r}")
            figures |= {f"codejudge_{way}_{name}_per_s": rate for way, rate in rates.items()}
            figures[f"{name}_per_s_beside_codejudge"] = median(ours)
            figures[f"{name}_rate_over_codejudge"] = median(ours) / max(rates.values())
    return figures


@contextlib.contextmanager
def _running(installation: Installation) -> Iterator[int]:
    """Start redis, the API and the workers, give the API's port, stop them, whatever happens."""
    interpreter = str(installation.python.absolute())  # not resolved: the link names its venv
    store, port = _free_ports(2)
    api = ["-m", "uvicorn", "app.main:app", "--host", "127.0.0.1", "--port", str(port)]
    commands = {
        "redis": [
            str(installation.redis),
            "--bind",
            "127.0.0.1",
            "--port",
            str(store),
            "--save",
            "",
        ],
        "api": [interpreter, *api, "--no-access-log"],
        "workers": [interpreter, "run_workers.py"],
    }
    environment = {
        **os.environ,
        "REDIS_URI": f"redis://127.0.0.1:{store}",
        "MAX_WORKERS": str(WORKERS),
        "PYTHON_EXECUTOR_PATH": interpreter,
    }
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = {}
        for name, command in commands.items():
            log = stack.enter_context((logs / name).open("wb"))
            processes[name] = subprocess.Popen(
                command, cwd=installation.checkout, env=environment, stdout=log, stderr=log
            )
            stack.callback(_stop, processes[name])
        _wait_until_up(port, processes, logs)
        yield port


def _wait_until_up(port: int, processes: Mapping[str, Running], logs: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while _registered_workers(port) < WORKERS:
        ended = [name for name, process in processes.items() if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            name = ended[0] if ended else "api"
            said = (logs / name).read_text(errors="replace")[-500:]
            raise CodeJudgeError(f"code-judge does not come up; its {name} said: {said}")
        time.sleep(0.2)


def _stop(process: Running) -> None:
    """Kill a process and all below it: its workers do not end with it."""
    for pid in (*(child.pid for child in descendants(process.pid)), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _run_singly(port: int, programs: Sequence[Program]) -> int:
    """Send them to ``/run``, several in flight; count the right answers."""

    def send(share: Sequence[Program]) -> int:
        with _connection(port) as connection:
            return sum(
                _is_right(program, _ask(connection, "/run", _submission(program)))
                for program in share
            )

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        return sum(pool.map(send, [programs[n::IN_FLIGHT] for n in range(IN_FLIGHT)]))


def _run_batch(port: int, programs: Sequence[Program]) -> int:
    """Send them to ``/run/long-batch``, all in one request; count the right answers."""
    with _connection(port) as connection:
        batch = {"submissions": [_submission(program) for program in programs]}
        return sum(map(_is_right, programs, _ask(connection, "/run/long-batch", batch)["results"]))


def _registered_workers(port: int) -> int:
    """Ask for the number of workers; 0 while the API does not listen."""
    with _connection(port) as connection, contextlib.suppress(OSError):
        return int(_ask(connection, "/status")["num_workers"])
    return 0


def _connection(port: int) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_HTTP_SECONDS))


def _ask(connection: http.client.HTTPConnection, path: str, body: object = None) -> Any:
    method = "GET" if body is None else "POST"
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())


def _submission(program: Program) -> dict[str, str]:
    return {"type": "python", "solution": program.code}


def _is_right(program: Program, answer: Mapping[str, Any]) -> bool:
    return bool(answer["run_success"]) and str(answer["stdout"]).strip() == program.output
