"""The warm interpreter: it loads what programs use, then forks one child per call.

It is started from the command line with a clean environment, never forked from the
trainer, so no thread, device or secret of the trainer is in its memory. It never sees
a program, its input or its output, only descriptors (``wire``).
"""

import contextlib
import gc
import heapq
import importlib
import io
import json
import mmap
import os
import select
import socket
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

from rstar2.sandbox import jail, program
from rstar2.sandbox.wire import DESCRIPTORS, REPLY, REQUEST, Ending, ZygoteConfig

PRELOADED = (
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "itertools", "json", "math", "numbers", "operator", "random"),
    *("re", "statistics", "string", "textwrap", "time", "typing", "dataclasses", "threading"),
)
MOST_CHILDREN = mmap.PAGESIZE
SHORTEST_CHECK = 0.005
HARNESS_FAILED = 70


@dataclass(slots=True)
class Child:
    """A call in flight.

    Attributes:
        call: Its number.
        pid: Its process.
        limit: CPU seconds.
        start: When it was forked, monotonic clock.
        slot: Its byte in the page that says which programs have started.
        scratch: Its directory.
        out_of_time: Whether it was killed for its time.
    """

    call: int
    pid: int
    limit: float
    start: float
    slot: int
    scratch: str
    out_of_time: bool = False

    @property
    def cpu_seconds(self) -> float:
        """CPU time so far: the process's clock, named as ``clock_getcpuclockid`` does."""
        return time.clock_gettime((~self.pid << 3) | 2)


class Zygote:
    """Serves calls until its control socket closes."""

    def __init__(self, control: socket.socket, config: ZygoteConfig, walls: jail.Jail) -> None:
        self._control = control
        self._config = config
        self._jail = walls
        self._null = os.open("/dev/null", os.O_RDWR)
        self._started = mmap.mmap(-1, MOST_CHILDREN)
        self._slots = list(range(MOST_CHILDREN))
        self._children: dict[int, Child] = {}
        """By the process descriptor that says when one ends."""
        self._checks: list[tuple[float, int, int]] = []
        """When to look at which call (time, call, descriptor), soonest first."""
        self._poll = select.poll()
        self._baseline = walls.address_space()

    def serve(self) -> None:
        """Fork a child per request and reply when it has ended."""
        self._poll.register(self._control, select.POLLIN)
        while True:
            for handle, _ in self._poll.poll(self._milliseconds_to_check()):
                if handle in self._children:
                    self._reap(handle)
                elif not self._receive():
                    return self._kill_all()
            self._check_times()

    def _receive(self) -> bool:
        message, handles, _, _ = socket.recv_fds(self._control, REQUEST.size, DESCRIPTORS)
        if not message:
            return False
        call, seconds = REQUEST.unpack(message)
        if seconds < 0:
            for child in self._children.values():
                if child.call == call:
                    self._jail.kill(child.pid)
            return True
        try:
            self._fork(call, seconds, handles)
        except OSError as error:
            os.write(handles[-1], str(error).encode())
            self._control.send(REPLY.pack(call, Ending.NOT_STARTED, 0, 0.0, 0.0))
        for handle in handles:
            os.close(handle)
        return True

    def _fork(self, call: int, seconds: float, handles: list[int]) -> None:
        scratch = f"{self._jail.scratch}/{call}"
        os.mkdir(scratch, 0o700)
        slot = self._slots.pop()
        self._started[slot] = 0
        start = time.monotonic()
        try:
            pid = self._jail.fork()
        except OSError:
            self._slots.append(slot)
            os.rmdir(scratch)
            raise
        if pid == 0:
            self._be_child(seconds, handles, slot, scratch)
        handle = os.pidfd_open(pid)
        self._children[handle] = Child(call, pid, seconds, start, slot, scratch)
        self._poll.register(handle, select.POLLIN)
        heapq.heappush(self._checks, (start + seconds, call, handle))

    def _be_child(self, seconds: float, handles: list[int], slot: int, scratch: str) -> NoReturn:
        leave, status = os._exit, HARNESS_FAILED
        source, stdin, stdout, report = handles
        try:
            code = os.pread(source, os.fstat(source).st_size, 0)
            for target, handle in enumerate((stdin, stdout, self._null, report)):
                os.dup2(handle, target)
            report = 3
            os.closerange(4, 1 << 16)
            os.chdir(scratch)
            os.environ["HOME"] = os.environ["TMPDIR"] = scratch
            jail.confine(self._config, self._baseline, seconds)
            program.repeat_randomness()
            gc.enable()
            self._started[slot] = 1
            self._started.close()
            status = program.run_as_main(code, report, self._config.output_bytes)
        except BaseException as error:
            os.write(report, f"{type(error).__name__}: {error}".encode())
        finally:
            leave(status)

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        self._jail.kill(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        self._jail.kill_orphans(other.pid for other in self._children.values())
        _remove(child.scratch)
        wall = time.monotonic() - child.start
        cpu = usage.ru_utime + usage.ru_stime
        ending = Ending.EXITED
        if child.out_of_time or cpu > child.limit:
            ending = Ending.OUT_OF_TIME
        elif not self._started[child.slot]:
            ending = Ending.NOT_STARTED
        self._slots.append(child.slot)
        self._control.send(REPLY.pack(child.call, ending, status, cpu, wall))

    def _milliseconds_to_check(self) -> float | None:
        if not self._children or not self._checks:
            return None
        return max(0.0, self._checks[0][0] - time.monotonic()) * 1000 + 1

    def _check_times(self) -> None:
        now = time.monotonic()
        while self._checks and self._checks[0][0] <= now:
            _, call, handle = heapq.heappop(self._checks)
            child = self._children.get(handle)
            if child is None or child.call != call:
                continue
            left = self._seconds_left(child, now)
            if left > 0:
                heapq.heappush(self._checks, (now + max(left, SHORTEST_CHECK), call, handle))
            else:
                child.out_of_time = True
                self._jail.kill(child.pid)

    def _seconds_left(self, child: Child, now: float) -> float:
        waited = self._jail.seconds_waited_for_cpu(child.pid)
        cpu_left = child.limit - child.cpu_seconds
        wall_left = child.limit * self._config.wall_factor - (now - child.start - waited)
        return min(cpu_left, wall_left)

    def _kill_all(self) -> None:
        for child in self._children.values():
            self._jail.kill(child.pid)
            os.waitpid(child.pid, 0)
            _remove(child.scratch)
        self._jail.kill_orphans(())


def _remove(directory: str) -> None:
    """Remove a scratch directory, whatever the program has done to its modes."""
    with contextlib.suppress(OSError):  # the common case: it is empty
        return os.rmdir(directory)
    folders = [directory]
    for folder in folders:
        os.chmod(folder, 0o700)
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                os.unlink(entry.path)
    for folder in reversed(folders):
        os.rmdir(folder)


def _preload() -> None:
    """Import what programs import, and walk the child's path once, so that it is warm."""
    for name in PRELOADED:
        importlib.import_module(name)
    stdout = sys.stdout
    sys.stdout = io.StringIO()
    for source in ("x = [i for i in range(3)]\nprint(f'{x}')\nx", "1 / 0", "def"):
        program.execute(source).to_bytes(1000)
    sys.stdout = stdout
    for name in [name for name in sys.modules if name.split(".")[0] == "rstar2"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    gc.disable()


def main(control: int, config_text: str) -> None:
    """Enter the jail, load, say ``ready`` and serve."""
    jail.repeat_addresses()
    config = ZygoteConfig.from_json(config_text)
    with socket.socket(fileno=control) as channel:
        try:
            walls = jail.Jail.enter(config)
            _preload()
        except (OSError, ImportError) as error:
            channel.send(json.dumps({"refused": str(error)}).encode())
            return
        hello = {"scratch": walls.scratch, "limits_processes": walls.limits_processes()}
        channel.send(json.dumps(hello).encode())
        Zygote(channel, config, walls).serve()
