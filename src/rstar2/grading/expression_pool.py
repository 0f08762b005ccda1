"""Warm processes that answer one question at a time, and are killed when they are late.

A process runs a script which calls :func:`rstar2.grading.expression_worker.serve`. Whatever a
question does to its process, the others go on, and a fresh one takes its place.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rstar2.grading.expression_process import Lost, PoolUnavailable, Worker

_RETRY_SECONDS = 1.0
"""How long after a start that failed the next is tried."""
_GRACE_SECONDS = 1.0
"""How much later than the parent the kernel ends a process that is late."""


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
    entered it. Questions beyond the processes wait in order of arrival. A process that is lost is
    replaced; if its start fails it is tried again, for as long as the pool is open.

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
        self._idle: asyncio.Queue[Worker | PoolUnavailable] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._resting = 0
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
            PoolUnavailable: No process lives, and the last start failed. The next question may
                find one again.
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

    async def _turn(self) -> Worker:
        """Wait for a warm process."""
        while self._open:
            worker = await self._idle.get()
            if isinstance(worker, PoolUnavailable):
                if self._open and not self._hopeless:
                    continue  # of a failure that is over
                self._idle.put_nowait(worker)  # for whoever else waits
                raise worker
            if worker.alive:
                return worker
            self._replace(worker)
        raise RuntimeError("the pool is not open: use `async with`")

    def _replace(self, worker: Worker) -> None:
        """Kill a process and start another, beside the questions that go on."""
        self._workers.discard(worker)
        _keep(asyncio.create_task(worker.end()), self._ending)
        if self._open:
            _keep(asyncio.create_task(self._renew()), self._starting)

    async def _renew(self) -> None:
        """Start a process, and try again until one comes up."""
        while True:
            try:
                return await self._start()
            except PoolUnavailable as error:
                failure = error
            self._resting += 1
            try:
                if self._hopeless and self._idle.empty():
                    self._idle.put_nowait(failure)
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                self._resting -= 1

    @property
    def _hopeless(self) -> bool:
        """Whether nobody could answer now: none lives, and none is on its way up."""
        on_the_way = len(self._starting) > self._resting
        return not on_the_way and not any(worker.alive for worker in self._workers)

    async def _start(self) -> None:
        worker = await Worker.start(self._arguments)
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
