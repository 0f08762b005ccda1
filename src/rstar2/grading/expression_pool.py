"""Warm processes that answer one question at a time, and are killed when they are late.

A process is a fresh interpreter that runs a script which calls
:func:`rstar2.grading.expression_worker.serve`. Of its parent it has one socket, to it, and
nothing else. Whatever a question does to its process, the others go on, and a fresh one takes
its place.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from rstar2.errors import UserError

_FLAGS = ("-s", "-P", "-X", "utf8")
_KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_WARM_SECONDS = 60.0
_GRACE_SECONDS = 1.0
"""How much later than the parent the kernel ends a process that is late."""


class PoolUnavailable(UserError):
    """No process that grades expressions can be started here; the message says why."""


class Lost(StrEnum):
    """Why there is no answer."""

    TIMEOUT = "timeout"
    """The process was late and has been killed."""
    CRASHED = "crashed"
    """The process died: out of memory, or of a fault in what it ran."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one question.

    Attributes:
        word: The answer, or why there is none.
        seconds: How long the process took or was given; waiting for a process is not counted.
    """

    word: str | Lost
    seconds: float


class ProcessPool:
    """Asks a script's processes, several at once.

    Use it as ``async with ProcessPool(script) as pool``; it belongs to the event loop that
    entered it. Questions beyond the processes wait in order of arrival.

    Args:
        script: What a process runs; see :func:`rstar2.grading.expression_worker.serve`.
        workers: Processes.
        deadline: Seconds for one question, from when a warm process gets it.
        memory: Bytes that a process may use beyond what it holds when it is warm (Linux).
    """

    def __init__(self, script: Path, *, workers: int, deadline: float, memory: int) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}: it must be at least 1")
        if not 0 < deadline < float("inf"):
            raise ValueError(f"deadline is {deadline}: give seconds above 0")
        if memory < 1:
            raise ValueError(f"memory is {memory}: give bytes above 0")
        self.workers = workers
        self.deadline = deadline
        seconds = deadline + _GRACE_SECONDS
        self._arguments = (str(script), str(os.getpid()), str(memory), str(seconds))
        self._idle: asyncio.Queue[_Worker | PoolUnavailable] = asyncio.Queue()
        self._workers: set[_Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._open = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that live now."""
        return tuple(worker.pid for worker in self._workers)

    async def __aenter__(self) -> Self:
        """Start the processes and wait until they are warm.

        Raises:
            PoolUnavailable: One does not come up.
        """
        if self._open:
            raise RuntimeError("this pool is entered already: make another")
        self._idle = asyncio.Queue()
        self._open = True
        starts = (self._start() for _ in range(self.workers))
        try:
            outcomes = await asyncio.gather(*starts, return_exceptions=True)
        except asyncio.CancelledError:
            await self._close()
            raise
        for failure in filter(None, outcomes):
            await self._close()
            raise failure
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes, also those that are at work."""
        await self._close()

    async def ask(self, question: Sequence[str]) -> Reply:
        """Ask one question.

        Args:
            question: Texts, of any content.

        Raises:
            PoolUnavailable: The processes died and no other can be started.
            RuntimeError: The pool is not open.
        """
        worker = await self._turn()
        asking = asyncio.create_task(worker.answer(question))
        started = time.perf_counter()
        word: str | Lost = Lost.TIMEOUT
        grown = True
        try:
            # Unlike asyncio.timeout, this takes an answer that came while the loop was busy.
            await asyncio.wait({asking}, timeout=self.deadline)
            if asking.done():
                word, grown = asking.result()
        except (EOFError, ConnectionError) as error:
            if not self._open:
                raise _closed() from error
            word = await worker.cause()
        finally:  # cancelled too: its answer would be taken for the next one's
            seconds = time.perf_counter() - started
            asking.cancel()
            if grown:
                self._replace(worker)
            else:
                self._idle.put_nowait(worker)
        return Reply(word, seconds)

    async def _turn(self) -> "_Worker":
        """Wait for a warm process."""
        while self._open:
            worker = await self._idle.get()
            if isinstance(worker, PoolUnavailable):
                self._idle.put_nowait(worker)  # for whoever else waits
                raise worker
            if worker.alive:
                return worker
            self._replace(worker)
        raise RuntimeError("the pool is not open: use `async with`")

    def _replace(self, worker: "_Worker") -> None:
        """Kill a process and start another, beside the questions that go on."""
        self._workers.discard(worker)
        _keep(asyncio.create_task(worker.end()), self._ending)
        if self._open:
            _keep(asyncio.create_task(self._renew()), self._starting)

    async def _renew(self) -> None:
        try:
            await self._start()
        except PoolUnavailable as error:
            self._idle.put_nowait(error)

    async def _start(self) -> None:
        worker = await _Worker.start(self._arguments)
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def _close(self) -> None:
        self._open = False
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*self._ending, *(worker.end() for worker in self._workers))
        self._workers.clear()
        self._idle.put_nowait(_closed())


def _keep(task: "asyncio.Task[None]", tasks: "set[asyncio.Task[None]]") -> None:
    """Hold a task until it is done: the loop alone does not."""
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _closed() -> PoolUnavailable:
    return PoolUnavailable("the pool was closed before the question was answered")


class _Worker:
    """One process, and the socket to it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        answers: asyncio.StreamReader,
        questions: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._answers = answers
        self._questions = questions
        self.pid = process.pid

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> "_Worker":
        """Start one and wait until it is warm.

        Raises:
            PoolUnavailable: It does not start, dies, or hangs on the way.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answers, questions = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                process = _spawn(arguments, theirs)
            except OSError as error:
                questions.close()
                raise PoolUnavailable(
                    f"no process for expressions can be started: {error}"
                ) from error
        worker = cls(process, answers, questions)
        try:
            async with asyncio.timeout(_WARM_SECONDS):
                if await worker._line() != b"ready\n":
                    raise EOFError
        except (TimeoutError, EOFError) as error:
            await worker.end()
            raise PoolUnavailable(
                f"the process for expressions is not warm in {_WARM_SECONDS:.0f} s: see what "
                "`python -c 'import math_verify'` says"
            ) from error
        except BaseException:
            await worker.end()
            raise
        return worker

    async def answer(self, question: Sequence[str]) -> tuple[str, bool]:
        """The answer, and whether the process has grown too large.

        Raises:
            EOFError: It died.
            ConnectionError: It died before it took the question.
        """
        self._questions.write(json.dumps(list(question)).encode() + b"\n")
        await self._questions.drain()
        word, grown = json.loads(await self._line())
        return word, grown

    async def _line(self) -> bytes:
        line = await self._answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the process ended")
        return line

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    async def cause(self) -> Lost:
        """Why it died: the kernel ended it if it was late and its parent too busy to see."""
        code = await asyncio.to_thread(self._process.wait)
        return Lost.TIMEOUT if code == -signal.SIGALRM else Lost.CRASHED

    async def end(self) -> None:
        """Kill it and wait until the kernel has let it go."""
        self._process.kill()
        self._questions.close()
        await asyncio.to_thread(self._process.wait)
        with suppress(ConnectionError):  # what was not sent is lost, as it should be
            await self._questions.wait_closed()


def _spawn(arguments: Sequence[str], channel: socket.socket) -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *_FLAGS, *arguments],
        stdin=channel.fileno(),
        stdout=channel.fileno(),
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
