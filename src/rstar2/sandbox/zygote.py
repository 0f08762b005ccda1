"""The warm interpreter: it loads what programs use, then forks one child per call.

It is started from the command line with a clean environment, never forked from the
trainer, so no thread, device or secret of the trainer is in its memory. It never sees
a program, its input or its output, only descriptors (``wire``).
"""

import contextlib
import errno
import heapq
import io
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from rstar2.sandbox import jail, kernel, program, tiers
from rstar2.sandbox.child import Child, be_child
from rstar2.sandbox.scratch import MOST_CHILDREN
from rstar2.sandbox.wire import CELL, DESCRIPTORS, REPLY, REQUEST, Ending, Request, ZygoteConfig

SHORTEST_CHECK, LONGEST_POLL = 0.005, 3600.0
REFUSALS = (
    *(errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EROFS),
    *(errno.EOPNOTSUPP, errno.ENOENT, errno.EBUSY),
)
"""Errors that say that the machine does not allow a wall; others may pass, as ENOMEM does."""
REHEARSALS = ("x = [i for i in range(3)]\nprint(f'{x}')\nx", "1 / 0", "def", "raise SystemExit(2)")


class Zygote:
    """Serves calls until its control socket closes."""

    def __init__(self, control: socket.socket, walls: jail.Jail, stage: program.Stage) -> None:
        self._control = control
        self._stage = stage
        self._jail = walls
        self._started = mmap.mmap(-1, MOST_CHILDREN)
        self._children: dict[int, Child] = {}
        """By the process descriptor that says when one ends."""
        self._orders: dict[int, int] = {}
        """From the descriptor of a session's line to that of its process."""
        self._checks: list[tuple[float, int, float]] = []
        """When to look at which child (time, process descriptor, its start), soonest first."""
        self._poll = select.poll()

    def serve(self) -> None:
        """Fork a child per request and reply when it has ended."""
        self._poll.register(self._control, select.POLLIN)
        try:
            while self._serve_once():
                self._check_times()
        finally:
            self._leave()

    def _serve_once(self) -> bool:
        for handle, _ in self._poll.poll(self._milliseconds_to_check()):
            if handle in self._children:
                self._reap(handle)
            elif handle in self._orders:
                self._end_cell(self._orders[handle])
            elif handle == self._control.fileno() and not self._receive():
                return False
        return True

    def _receive(self) -> bool:
        message, handles, flags, _ = socket.recv_fds(self._control, REQUEST.size, DESCRIPTORS)
        if not message:
            return False
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "the zygote has no descriptors left")
        kind, number, amount = REQUEST.unpack(message)
        match Request(kind):
            case Request.RUN | Request.SESSION:
                self._start(Request(kind), number, amount, handles)
            case Request.CELL:
                self._start_cell(number, amount)
            case Request.CANCEL:
                for child in self._children.values():
                    if child.number == number:
                        self._jail.kill(child.pid)
            case Request.FORK_FLOOR:
                self._control.send(REPLY.pack(number, Ending.EXITED, 0, 0.0, _floor(int(amount))))
        return True

    def _start(self, kind: Request, number: int, seconds: float, handles: list[int]) -> None:
        try:
            self._fork(kind, number, seconds, handles)
        except OSError as error:
            os.pwrite(handles[-1], str(error).encode(), 0)
            self._control.send(REPLY.pack(number, Ending.NOT_STARTED, 0, 0.0, 0.0))
        for handle in handles:
            os.close(handle)

    def _fork(self, kind: Request, number: int, seconds: float, handles: list[int]) -> None:
        slot = self._jail.slots.take()
        self._started[slot.number] = 0
        ours = theirs = None
        pid = 0
        start = time.monotonic()
        try:
            if kind is Request.SESSION:
                ours, theirs = socket.socketpair()
            pid = self._jail.fork()
            if pid == 0:
                be_child(self._jail, self._stage, self._started, seconds, handles, slot, theirs)
            handle = os.pidfd_open(pid)
        except OSError:
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self._jail.slots.give_back(slot)
            raise
        self._children[handle] = Child(number, pid, seconds, start, slot, orders=ours)
        self._poll.register(handle, select.POLLIN)
        if theirs and ours:
            theirs.close()
            self._children[handle].idle = True
            self._orders[ours.fileno()] = handle
            self._poll.register(ours, select.POLLIN)
        else:
            self._check_at(start + seconds, handle, start)

    def _check_at(self, when: float, handle: int, start: float) -> None:
        heapq.heappush(self._checks, (when, handle, start))
        if len(self._checks) > 4 * MOST_CHILDREN:  # most are of calls that have ended
            living = {(handle, child.start) for handle, child in self._children.items()}
            self._checks = [check for check in self._checks if check[1:] in living]
            heapq.heapify(self._checks)

    def _start_cell(self, number: int, seconds: float) -> None:
        for handle, child in self._children.items():
            if child.number == number and child.orders:
                child.idle, child.limit, child.start = False, seconds, time.monotonic()
                child.used = child.cpu_seconds
                child.waited = self._jail.seconds_waited_for_cpu(child.pid)
                self._check_at(child.start + seconds, handle, child.start)
                os.kill(child.pid, signal.SIGCONT)
                with contextlib.suppress(OSError):  # it has just died: its end is the reply
                    child.orders.send(CELL, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
        self._control.send(REPLY.pack(number, Ending.NOT_STARTED, 0, 0.0, 0.0))

    def _end_cell(self, handle: int) -> None:
        child = self._children[handle]
        assert child.orders is not None
        said = b""
        with contextlib.suppress(ConnectionResetError):
            said = child.orders.recv(1)
        if said != CELL:  # the child's end is closed: its death is the answer
            return self._hang_up(child)
        if child.idle:  # a program wrote on the line by itself
            return
        os.kill(child.pid, signal.SIGSTOP)  # nothing that it left behind runs on
        child.idle = True
        wall, cpu = time.monotonic() - child.start, child.cpu_seconds - child.used
        self._control.send(REPLY.pack(child.number, Ending.CELL_DONE, 0, cpu, wall))

    def _hang_up(self, child: Child) -> None:
        if child.orders and self._orders.pop(child.orders.fileno(), None) is not None:
            self._poll.unregister(child.orders)
            child.orders.close()

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        self._hang_up(child)
        self._jail.kill_group(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        self._jail.kill_orphans(other.pid for other in self._children.values())
        wall = time.monotonic() - child.start
        cpu = usage.ru_utime + usage.ru_stime - child.used
        ending = Ending.EXITED
        if child.out_of_time or cpu > child.limit:
            ending = Ending.OUT_OF_TIME
        elif not self._started[child.slot.number]:
            ending = Ending.NOT_STARTED
        self._jail.slots.give_back(child.slot)
        self._control.send(REPLY.pack(child.number, ending, status, cpu, wall))

    def _milliseconds_to_check(self) -> float | None:
        if not self._children or not self._checks:
            return None
        return min(max(0.0, self._checks[0][0] - time.monotonic()), LONGEST_POLL) * 1000 + 1

    def _check_times(self) -> None:
        now = time.monotonic()
        while self._checks and self._checks[0][0] <= now:
            _, handle, start = heapq.heappop(self._checks)
            child = self._children.get(handle)
            if child is None or child.start != start or child.idle:
                continue
            left = self._seconds_left(child, now)
            if left > 0:
                self._check_at(now + max(left, SHORTEST_CHECK), handle, start)
            else:
                child.out_of_time = True
                self._jail.kill(child.pid)

    def _seconds_left(self, child: Child, now: float) -> float:
        """Of the program's own time: it runs or sleeps, but does not wait for a CPU."""
        waited = self._jail.seconds_waited_for_cpu(child.pid) - child.waited
        own = max(child.cpu_seconds - child.used, now - child.start - waited)
        return child.limit - own

    def _leave(self) -> None:
        for child in self._children.values():
            self._jail.kill(child.pid)
            os.waitpid(child.pid, 0)
        self._jail.kill_orphans([])


def _floor(count: int) -> float:
    """Seconds that one fork of this process takes with nothing done in the child."""
    start = time.monotonic()
    for _ in range(count):
        pid = kernel.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return (time.monotonic() - start) / max(count, 1)


def _warm_up(config: ZygoteConfig, walls: jail.Jail) -> program.Stage:
    """Load the tier and walk the child's path until nothing in it is new."""
    program.repeat_randomness()
    tiers.load(config.tier)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    for source in REHEARSALS:
        for _ in range(10):
            program.execute(source, program.new_main()).to_bytes(1000)
    sys.stdout = stdout
    program.repeat_randomness()
    program.keep_reserve()
    os.environ.pop("LD_LIBRARY_PATH", None)
    sys.orig_argv = [sys.executable, program.FILE_NAME]
    stage = program.set_stage()
    tiers.settle()
    walls.collapse_pages()
    return stage


def _on_sigterm(leave: Callable[[], object]) -> None:
    """Set what the zygote does when its caller is gone; a child that inherits it just ends."""
    zygote = os.getpid()

    def handle(*_: object) -> None:
        if os.getpid() == zygote:
            leave()
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)


def main(control: int, config_text: str, register_at_fork: Callable[..., None]) -> None:
    """Enter the jail, load, say ``ready`` and serve.

    Args:
        control: Descriptor of the socket to the caller.
        config_text: A ``ZygoteConfig``.
        register_at_fork: The real one; what was loaded so far found one that does nothing,
            because a child of ours has one thread and its handlers only touch pages.
    """
    config = ZygoteConfig.from_json(config_text)
    _on_sigterm(sys.exit)
    with socket.socket(fileno=control) as channel:
        try:
            walls = jail.Jail.enter(config)
        except OSError as error:
            kind = "refused" if error.errno in REFUSALS or not error.errno else "failed"
            channel.send(json.dumps({kind: error.strerror or str(error)}).encode())
            return
        try:
            _warm_up_and_serve(channel, walls, register_at_fork)
        finally:
            walls.slots.remove()


def _warm_up_and_serve(
    channel: socket.socket, walls: jail.Jail, register_at_fork: Callable[..., None]
) -> None:
    try:
        stage = _warm_up(walls.config, walls)
    except ImportError as error:
        said = f"{error}: install it into {sys.prefix}; PYTHONPATH and user sites do not count"
        channel.send(json.dumps({"failed": said}).encode())
        return
    walls.limit()
    os.register_at_fork = register_at_fork
    channel.send(json.dumps({"layers": walls.layers}).encode())
    # a hang-up: SIGTERM and a closed line come together, and leaving must not be broken off
    _on_sigterm(lambda: channel.shutdown(socket.SHUT_RDWR))
    Zygote(channel, walls, stage).serve()
