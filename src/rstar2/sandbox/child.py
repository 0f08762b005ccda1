"""A child of the zygote: what the zygote knows of it, and its way to its program."""

import fcntl
import gc
import mmap
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

from rstar2.sandbox import program
from rstar2.sandbox.jail import Jail
from rstar2.sandbox.scratch import Slot

HARNESS_FAILED = 70
SESSION_CPU_SECONDS = 1 << 20
"""The kernel's own limit of a session; the zygote holds each cell to its time."""


@dataclass(slots=True)
class Child:
    """A call or session in flight.

    Attributes:
        number: Of the call or session.
        pid: Its process.
        limit: Seconds that the running program may take.
        start: When that program was started, monotonic clock.
        slot: Its place.
        waited: Seconds that the process had waited for a CPU at ``start``.
        used: CPU seconds that it had used at ``start``.
        orders: The zygote's end of a session's line to its child; None for a call.
        idle: Whether a session waits for its next cell.
        out_of_time: Whether it was killed for its time.
    """

    number: int
    pid: int
    limit: float
    start: float
    slot: Slot
    waited: float = 0.0
    used: float = 0.0
    orders: socket.socket | None = None
    idle: bool = False
    out_of_time: bool = False

    @property
    def cpu_seconds(self) -> float:
        """CPU time so far: the process's clock, named as ``clock_getcpuclockid`` does."""
        return time.clock_gettime((~self.pid << 3) | 2)


def be_child(
    walls: Jail,
    stage: program.Stage,
    started: mmap.mmap,
    seconds: float,
    handles: list[int],
    slot: Slot,
    orders: socket.socket | None,
) -> NoReturn:
    """Be what was just forked: put the descriptors in place, go behind the walls, run.

    Args:
        walls: Of this child.
        stage: What its program finds.
        started: The page in which its slot's byte is set before the program's first instruction.
        seconds: Time limit, of which the kernel is told.
        handles: Program, stdin, stdout, stderr, report.
        slot: Its place.
        orders: A session's line from the zygote; None for a single call.
    """
    leave, status = os._exit, HARNESS_FAILED
    code, stdin, stdout, stderr, report = handles
    limit = walls.config.output_bytes
    try:
        walls.die_with_zygote()
        source = b"" if orders else os.pread(code, os.fstat(code).st_size, 0)
        kept = [stdin, stdout, stderr, report]
        kept += [code, orders.fileno()] if orders else []
        kept += [slot.rules] if slot.rules >= 0 else []
        for place, handle in enumerate(_clear_of(kept)):
            os.dup2(handle, place)
        report = 3
        os.closerange(len(kept), 1 << 16)
        slot.rules = len(kept) - 1 if slot.rules >= 0 else -1
        cpu_seconds = SESSION_CPU_SECONDS if orders else int(seconds) + 2
        walls.confine(slot, cpu_seconds)
        # As after os.fork; else it names the zygote's thread. Private, so typeshed lacks it.
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
        gc.enable()
        started[slot.number] = 1
        started.close()
        if orders:
            status = program.run_cells(stage, 5, 4, report, limit)
        else:
            status = program.run_as_main(stage, source, report, limit)
    except BaseException as error:
        os.pwrite(report, f"{type(error).__name__}: {error}".encode(), 0)
    finally:
        leave(status)


def _clear_of(handles: list[int]) -> list[int]:
    """The same files on descriptors above the places where they will be put."""
    return [
        handle if handle >= len(handles) else fcntl.fcntl(handle, fcntl.F_DUPFD, len(handles))
        for handle in handles
    ]
