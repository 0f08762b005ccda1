"""One process of :mod:`rstar2.grading.expression_pool`, and the socket to it.

It is a fresh interpreter. Of its parent it has that one socket, and nothing else.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from rstar2.errors import UserError

_FLAGS = ("-s", "-P", "-X", "utf8")
_KEPT = ("PATH", "LD_LIBRARY_PATH")
_WARM_SECONDS = 60.0


class PoolUnavailable(UserError):
    """No process that grades expressions lives or can be started; the message says why."""


class Lost(StrEnum):
    """Why there is no answer."""

    TIMEOUT = "timeout"
    """The process was late and has been killed."""
    CRASHED = "crashed"
    """The process died: out of memory, or of a fault in what it ran."""


class Worker:
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
    async def start(cls, arguments: Sequence[str]) -> "Worker":
        """Start one and wait until it is warm.

        Raises:
            PoolUnavailable: It does not start, dies, or hangs on the way.
        """
        try:
            worker = await cls._open(arguments)
        except OSError as error:
            raise PoolUnavailable(f"no process for expressions can be started: {error}") from error
        try:
            async with asyncio.timeout(_WARM_SECONDS):
                said = await worker._answers.readline()
        except TimeoutError as error:
            await worker.end()
            raise _not_warm(f"is not warm in {_WARM_SECONDS:.0f} s") from error
        except BaseException:
            await worker.end()
            raise
        if said != b"ready\n":
            await worker.end()
            code = worker._process.returncode
            what = f"said {said[:60]!r}" if said else f"ended with exit code {code}"
            raise _not_warm(f"{what} before it was warm")
        return worker

    @classmethod
    async def _open(cls, arguments: Sequence[str]) -> "Worker":
        """Start the process.

        Raises:
            OSError: The system has no process or no socket left.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answers, questions = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                return cls(_spawn(arguments, theirs), answers, questions)
            except OSError:
                questions.close()
                raise

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


def _not_warm(what: str) -> PoolUnavailable:
    return PoolUnavailable(
        f"the process for expressions {what}: see what `python -c 'import math_verify'` says"
    )


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
