"""A zygote as its caller sees it: a process, a socket, and calls that wait for replies."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rstar2.sandbox.limits import Rung, SandboxUnavailable
from rstar2.sandbox.result import Reply, read_text
from rstar2.sandbox.scratch import remove_tree
from rstar2.sandbox.wire import REPLY, REQUEST, Ending, Request, ZygoteConfig

_BOOT = """
import os, sys, types
for name in ("rstar2", "rstar2.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1]]
from rstar2.sandbox.kernel import repeat_addresses
repeat_addresses()
register, os.register_at_fork = os.register_at_fork, lambda **handlers: None
from rstar2.sandbox.zygote import main
main(int(sys.argv[2]), sys.argv[3], register)
"""
"""Imports the zygote's own modules without the package around them, which would be weight
in every fork. With ``-I`` Python would ignore PYTHONHASHSEED; ``-s -P`` and an environment
of our own keep out the same things."""

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0


class ZygoteLost(Exception):
    """The zygote died, or did not start a call: try again."""


class ZygoteProcess:
    """One running zygote and the calls that wait for it.

    Attributes:
        alive: False once it has died or was killed.
        pid: Its process.
        home: Directory that holds the scratch directories of its calls, outside ``strict``.
        layers: The walls that it found itself behind.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", control: socket.socket, home: str
    ) -> None:
        self._process = process
        self._control = control
        self.home = home
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._loop = asyncio.get_running_loop()
        self.alive = True
        self.pid = process.pid
        self.layers: tuple[str, ...] = ()

    @property
    def load(self) -> int:
        """Calls that wait for it."""
        return len(self._waiting)

    @classmethod
    async def start(cls, config: ZygoteConfig) -> "ZygoteProcess":
        """Start one and wait until it is warm.

        Raises:
            PermissionError: If the machine refuses ``config.rung``; the text says what.
            SandboxUnavailable: If it dies or hangs on the way.
        """
        home = tempfile.mkdtemp(prefix="rstar2-sandbox-", dir=config.scratch or None)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        log = os.memfd_create("zygote-log")
        try:
            with theirs:
                process = _spawn(replace(config, home=home), theirs.fileno(), log)
            zygote = cls(process, ours, home)
            try:
                await zygote._greet(log)
            except BaseException:
                zygote.kill()
                raise
        finally:
            os.close(log)
        if config.rung is Rung.STRICT:  # it stands on a root of its own now
            os.rmdir(home)
        return zygote

    async def _greet(self, log: int) -> None:
        waiting = self._loop.sock_recv(self._control, 4096)
        try:
            hello = await asyncio.wait_for(waiting, timeout=_START_SECONDS)
        except TimeoutError:
            raise SandboxUnavailable(f"no warm interpreter in {_START_SECONDS:.0f} s") from None
        if not hello:
            last_lines = read_text(log)[-500:].strip()
            raise SandboxUnavailable(f"the sandbox's interpreter died: {last_lines}")
        said = json.loads(hello)
        if "refused" in said:
            raise PermissionError(said["refused"])
        self.layers = tuple(said["layers"])
        self._loop.add_reader(self._control.fileno(), self._read)

    async def call(
        self, kind: Request, number: int, amount: float, handles: list[int], patience: float
    ) -> Reply:
        """Ask and wait for the reply; ``kind`` is one that is replied to.

        Raises:
            ZygoteLost: If the zygote dies, or says nothing for ``patience`` seconds.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[number] = future
        try:
            self.send(kind, number, amount, handles)
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            self.kill()
            raise ZygoteLost(f"no answer within {patience:.0f} s") from None
        except asyncio.CancelledError:
            with contextlib.suppress(ZygoteLost):  # one that is gone has killed its children
                self.send(Request.CANCEL, number)
            raise
        finally:
            self._waiting.pop(number, None)

    def send(
        self, kind: Request, number: int, amount: float = 0.0, handles: list[int] | None = None
    ) -> None:
        """Ask without waiting for a reply.

        Raises:
            ZygoteLost: If the zygote is gone.
        """
        message = REQUEST.pack(kind, number, amount)
        try:
            if handles:
                socket.send_fds(self._control, [message], handles)
            else:
                self._control.send(message)
        except OSError as error:
            self.kill()
            raise ZygoteLost(str(error)) from error

    def _read(self) -> None:
        while self.alive:
            try:
                message = self._control.recv(REPLY.size)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                return self.kill()
            number, ending, *rest = REPLY.unpack(message)
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(Reply(Ending(ending), *rest))

    def kill(self) -> None:
        """End it at once; whoever waits for it is told."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._process.kill()
        self._process.wait()
        _remove(self.home)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ZygoteLost("the sandbox's interpreter died"))

    async def close(self) -> None:
        """Let it kill its children and leave."""
        if self.alive:
            self._control.shutdown(socket.SHUT_WR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            self.kill()


def _remove(home: str) -> None:
    """Remove what a zygote left; its children, just killed, may write for a moment yet."""
    for attempt in range(20):
        try:
            if os.path.exists(home):
                remove_tree(home)
            return
        except OSError:
            if attempt == 19:
                raise
            time.sleep(0.01)


def _spawn(config: ZygoteConfig, control: int, log: int) -> "subprocess.Popen[bytes]":
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "HOME": ".",
        "TMPDIR": ".",
        **dict.fromkeys(threads, "1"),
    }
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    flags = ("-s", "-P", "-B", "-X", "utf8")
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, *flags, "-c", _BOOT, here, str(control), config.to_json()],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=[control],
        start_new_session=True,
    )
