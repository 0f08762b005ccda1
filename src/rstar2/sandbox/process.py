"""A zygote as its caller sees it: a process, a socket, and calls that wait for replies."""

import asyncio
import contextlib
import errno
import json
import logging
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

PYTHON_FLAGS = ("-s", "-P", "-B", "-X", "utf8")
"""With ``-I`` Python would ignore PYTHONHASHSEED; these and an environment of our own keep out
the same things."""
BARE_PACKAGE = """
import os, sys, types
for name in ("rstar2", "rstar2.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1]]
"""
"""Lets modules of this folder, the first argument, be imported without the package around
them, which would be weight in every fork."""
_BOOT = f"""{BARE_PACKAGE}
from rstar2.sandbox.kernel import repeat_addresses
repeat_addresses()
register, os.register_at_fork = os.register_at_fork, lambda **handlers: None
from rstar2.sandbox.zygote import main
main(int(sys.argv[2]), sys.argv[3], register)
"""

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_FULL_SECONDS = 0.002
"""Between two tries to send, while the zygote has not yet read what was sent before."""
_LOG = logging.getLogger(__name__)


class ZygoteLost(Exception):
    """The zygote died, or did not start a call: try again."""


class ZygoteProcess:
    """One running zygote and the calls that wait for it.

    Attributes:
        alive: False once it has died or was killed.
        pid: Its process.
        home: Directory that holds the scratch directories of its calls, outside ``strict``.
        layers: The walls that it found itself behind.
        sessions: Sessions that have a child there.
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
        self.sessions = 0

    @property
    def load(self) -> int:
        """Calls that wait for it, and its sessions."""
        return len(self._waiting) + self.sessions

    @classmethod
    async def start(cls, config: ZygoteConfig) -> "ZygoteProcess":
        """Start one and wait until it is warm.

        Raises:
            PermissionError: If the machine refuses ``config.rung``; the text says what.
            SandboxUnavailable: If it dies or hangs on the way, or cannot be started.
        """
        try:
            zygote, log = cls._launch(config)
        except OSError as error:
            raise SandboxUnavailable(
                f"the sandbox's interpreter does not start: {error}"
            ) from error
        try:
            await zygote._greet(log)
        except BaseException:
            zygote.kill()
            raise
        finally:
            os.close(log)
        if config.rung is Rung.STRICT:  # it stands on a root of its own now
            os.rmdir(zygote.home)
        return zygote

    @classmethod
    def _launch(cls, config: ZygoteConfig) -> "tuple[ZygoteProcess, int]":
        with contextlib.ExitStack() as undo:
            home = tempfile.mkdtemp(prefix="rstar2-sandbox-", dir=config.scratch or None)
            undo.callback(os.rmdir, home)
            log = os.memfd_create("zygote-log")
            undo.callback(os.close, log)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs:
                process = _spawn(replace(config, home=home), theirs.fileno(), log)
            undo.pop_all()
        ours.setblocking(False)
        return cls(process, ours, home), log

    async def _greet(self, log: int) -> None:
        waiting = self._loop.sock_recv(self._control, 4096)
        try:
            hello = await asyncio.wait_for(waiting, timeout=_START_SECONDS)
        except TimeoutError:
            raise SandboxUnavailable(f"no warm interpreter in {_START_SECONDS:.0f} s") from None
        if not hello:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)  # it may write yet
            last_lines = read_text(log)[-500:].strip()
            raise SandboxUnavailable(f"the sandbox's interpreter died: {last_lines}")
        said = json.loads(hello)
        if said.get("refused"):
            raise PermissionError(said["refused"])
        if "failed" in said:
            raise SandboxUnavailable(f"the sandbox's interpreter failed: {said['failed']}")
        self.layers = tuple(said["layers"])
        self._loop.add_reader(self._control.fileno(), self._read)

    async def call(
        self, kind: Request, number: int, amount: float, handles: list[int], patience: float
    ) -> Reply:
        """Ask and wait for the reply; ``kind`` is one that is replied to.

        Raises:
            ZygoteLost: If the zygote dies, or says nothing for ``patience`` seconds.
        """
        while not self.send(kind, number, amount, handles):
            await asyncio.sleep(_FULL_SECONDS)
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            self.kill()
            raise ZygoteLost(f"no answer within {patience:.0f} s") from None
        except asyncio.CancelledError:
            self.cancel(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def cancel(self, number: int) -> None:
        """Have a call or session killed; a zygote that is gone has done so already."""
        with contextlib.suppress(ZygoteLost):
            if not self.send(Request.CANCEL, number):
                self._loop.call_later(_FULL_SECONDS, self.cancel, number)

    def send(
        self, kind: Request, number: int, amount: float = 0.0, handles: list[int] | None = None
    ) -> bool:
        """Ask without waiting for a reply; False if there is no room for the message now.

        Raises:
            ZygoteLost: If the zygote is gone.
        """
        if not self.alive:
            raise ZygoteLost("the sandbox's interpreter died")
        message = REQUEST.pack(kind, number, amount)
        try:
            if handles:
                socket.send_fds(self._control, [message], handles)
            else:
                self._control.send(message)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ETOOMANYREFS):
                return False
            self.kill()
            raise ZygoteLost(str(error)) from error
        return True

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
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ZygoteLost("the sandbox's interpreter died"))
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._process.kill()
        self._process.wait()
        _remove(self.home)

    async def close(self) -> None:
        """Let it kill its children and leave."""
        if self.alive:
            self._control.shutdown(socket.SHUT_WR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            self.kill()


def _remove(home: str) -> None:
    """Remove what a zygote left; its children, just killed, may write for a moment yet."""
    for _ in range(20):
        try:
            if os.path.exists(home):
                remove_tree(home)
            return
        except OSError as error:
            reason = error
            time.sleep(0.01)
    _LOG.warning("%s cannot be removed: %s", home, reason)


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
    if libraries := python_libraries():
        environment["LD_LIBRARY_PATH"] = libraries
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, *PYTHON_FLAGS, "-c", _BOOT, here, str(control), config.to_json()],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=[control],
        start_new_session=True,
    )


def python_libraries() -> str:
    """The part of LD_LIBRARY_PATH without which this Python does not start."""
    folders = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return ":".join(folder for folder in folders if list(Path(folder).glob("libpython*")))
