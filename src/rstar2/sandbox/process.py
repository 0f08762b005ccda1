"""The zygote as its caller sees it: a process, a socket, and calls that wait for replies."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from rstar2.sandbox.limits import SandboxUnavailable
from rstar2.sandbox.result import Reply, read_text
from rstar2.sandbox.wire import REPLY, REQUEST, Ending, ZygoteConfig

_BOOT = """
import sys, types
for name in ("rstar2", "rstar2.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1]]
from rstar2.sandbox.zygote import main
main(int(sys.argv[2]), sys.argv[3])
"""
"""Imports the zygote's four modules without the package around them, which would be
weight in every fork. With ``-I`` Python would ignore PYTHONHASHSEED; ``-s -P`` and an
environment of our own keep out the same things."""

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


class ZygoteLost(Exception):
    """The zygote died, or did not start a call: try again."""


class ZygoteProcess:
    """One running zygote and the calls that wait for it.

    Attributes:
        alive: False once it has died or was killed.
        pid: Its process.
        scratch: Directory that holds the scratch directories of its calls.
        limits_processes: Whether a program's processes are limited in number.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._loop = asyncio.get_running_loop()
        self.alive = True
        self.pid = process.pid
        self.scratch = ""
        self.limits_processes = False

    @classmethod
    async def start(cls, config: ZygoteConfig) -> "ZygoteProcess":
        """Start one and wait until it is warm.

        Raises:
            PermissionError: If the machine refuses ``config.rung``; the text says what.
            SandboxUnavailable: If it dies or hangs on the way.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        log = os.memfd_create("zygote-log")
        try:
            with theirs:
                process = _spawn(config, theirs.fileno(), log)
            zygote = cls(process, ours)
            try:
                hello = await asyncio.wait_for(
                    zygote._loop.sock_recv(ours, 4096), timeout=_START_SECONDS
                )
                if not hello:
                    last_lines = read_text(log)[-500:].strip()
                    raise SandboxUnavailable(f"the sandbox's interpreter died: {last_lines}")
                said = json.loads(hello)
                if "refused" in said:
                    raise PermissionError(said["refused"])
            except BaseException:
                zygote.kill()
                raise
        finally:
            os.close(log)
        zygote.scratch = said["scratch"]
        zygote.limits_processes = said["limits_processes"]
        zygote._loop.add_reader(ours.fileno(), zygote._read)
        return zygote

    async def call(self, number: int, seconds: float, handles: list[int], patience: float) -> Reply:
        """Send a call and wait for its end.

        Raises:
            ZygoteLost: If the zygote dies, or says nothing for ``patience`` seconds.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[number] = future
        try:
            socket.send_fds(self._control, [REQUEST.pack(number, seconds)], handles)
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            self.kill()
            raise ZygoteLost(f"no answer within {patience:.0f} s") from None
        except OSError as error:
            self.kill()
            raise ZygoteLost(str(error)) from error
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):  # a zygote that is gone has killed its children
                self._control.send(REQUEST.pack(number, -1.0))
            raise
        finally:
            self._waiting.pop(number, None)

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


def _spawn(config: ZygoteConfig, control: int, log: int) -> "subprocess.Popen[bytes]":
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
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
