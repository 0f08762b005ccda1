"""Processes that do one round of work when they are asked, so that sides can take turns.

A worker reads a JSON line and answers with one. This file needs only the standard library: it
is imported in the peer's environment and beside our first code too.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_TAIL = 2000


class WorkerDied(RuntimeError):
    """A worker ended before it answered; the message holds its last words."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where a worker runs.

    Attributes:
        python: Its interpreter.
        source: The folder that ``rstar2`` is imported from.
        folder: Its working folder.
        threads: Threads of torch.
    """

    python: Path = Path(sys.executable)
    source: Path = ROOT / "src"
    folder: Path = ROOT
    threads: int = 1

    def environment(self) -> dict[str, str]:
        """The variables of its process; no library asks the network for anything."""
        return {
            **os.environ,
            "PYTHONPATH": f"{self.source}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": str(self.threads),
            "HF_HUB_OFFLINE": "1",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }


class Worker:
    """A running worker, as its asker sees it."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", log: Path) -> None:
        self._name, self._process, self._log = name, process, log

    def ask(self, work: str, **details: Any) -> dict[str, Any]:
        """Ask for one round of work and wait for the answer.

        Raises:
            WorkerDied: It ended instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # its last words, below, say more
            self._process.stdin.write(json.dumps({"work": work, **details}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            words = self._log.read_text(errors="replace")[-_TAIL:]
            raise WorkerDied(f"the worker {self._name} ended with {code}:\n{words}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def worker(module: str, *arguments: str | Path, runtime: Runtime) -> Iterator[Worker]:
    """Start ``python -m benchmarks.training.<module>``; it ends with the block."""
    command: Sequence[str] = [
        str(runtime.python),
        "-m",
        f"benchmarks.training.{module}",
        *map(str, arguments),
    ]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "stderr")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=runtime.folder,
                env=runtime.environment(),
                text=True,
            ) as process,
        ):
            try:
                yield Worker(module, process, log)
            finally:
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # it has gone already
                    process.stdin.close()  # it reads the end and leaves by itself
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()


class Channel:
    """The asker, as a worker sees it. What else is printed goes to stderr."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next request; None when there will be no more."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def reply(self, answer: Mapping[str, Any]) -> None:
        """Answer the request."""
        self._replies.write(json.dumps(answer) + "\n")
        self._replies.flush()


class Stopwatch:
    """CPU seconds of this process, and wall seconds, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Give both, as they stand in an answer."""
        return {
            "cpu_s": time.process_time() - self._cpu,
            "wall_s": time.perf_counter() - self._wall,
        }
