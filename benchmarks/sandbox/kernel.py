"""What the kernel says of this process and its descendants: CPU, memory, descriptors."""

import ctypes
import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``/proc/<pid>/stat`` has it.

    Attributes:
        pid: Its number.
        parent: Its parent's number.
        state: ``R``, ``S``, ``Z`` …
        cpu: CPU seconds, its own and those of the children it has waited for.
    """

    pid: int
    parent: int
    state: str
    cpu: float


def descendants(root: int) -> list[Process]:
    """List the processes below one, zombies left out."""
    processes = {process.pid: process for process in _processes()}
    found: list[Process] = []
    parents = {root}
    while parents:
        children = [p for p in processes.values() if p.parent in parents]
        found += children
        parents = {child.pid for child in children}
    return [process for process in found if process.state not in "ZX"]


def cpu_seconds() -> float:
    """CPU seconds of this process and all below it, the finished calls of zygotes included.

    Children that this process itself has waited for are left out.
    """
    return time.process_time() + sum(process.cpu for process in descendants(os.getpid()))


def open_descriptors() -> int:
    """Count the open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    """Measure this process's resident memory, after handing back what is free."""
    gc.collect()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Become the parent of every orphan below, so that none escapes :func:`descendants`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _processes() -> Iterator[Process]:
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name in parentheses may hold anything; the fields start after the last one.
            fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2]
            state, parent, *rest = fields.split()
            ticks = sum(map(int, rest[9:13]))
            yield Process(int(name), int(parent), state, ticks * _TICK)
