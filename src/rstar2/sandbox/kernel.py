"""The system calls that Python 3.11 has no name for, through ctypes.

What fails raises ``OSError`` with its own name in the text.
"""

import ctypes
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, AT_RECURSIVE, MNT_DETACH = 1, 2, 0x8000, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
CAPABILITIES_VERSION_3 = struct.pack("<Ii", 0x20080522, 0)
NO_CAPABILITIES = bytes(24)
HUGE_PAGE, MADV_COLLAPSE = 2 << 20, 25
M_ARENA_MAX = -8
ADDR_NO_RANDOMIZE = 0x0040000
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
LANDLOCK_READ = 4 | 8
"""Of files and of directories."""
LANDLOCK_CHANGE = LANDLOCK_READ | 2 | 16 | 32 | 128 | 256 | 8192 | 16384
"""Also write, truncate; in directories remove, make directories and files, rename."""
LANDLOCK_OF_FILES = 2 | 4 | 16384
LANDLOCK_IOCTL = 1 << 15


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl({option})")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount ``source`` (a file system or a directory) on ``target``."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(result, f"mount {target}")


def lock_mounts(root: str) -> None:
    """Make ``root`` and every mount under it read-only (kernel 5.12)."""
    attributes = struct.pack("<4Q", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, -100, root.encode(), AT_RECURSIVE, attributes, len(attributes)
    )
    _check(result, "mount_setattr")


def pivot_root(root: str) -> None:
    """Make ``root`` the root of this mount namespace and drop the old one."""
    os.chdir(root)
    number = SYS_PIVOT_ROOT.get(os.uname().machine, -1)
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


_capset = _libc.capset  # found now: to look a name up costs each child dozens of pages


def drop_capabilities() -> None:
    """Give up every capability for good."""
    _check(_capset(CAPABILITIES_VERSION_3, NO_CAPABILITIES), "capset")


def repeat_addresses() -> None:
    """Start this interpreter again without address randomisation, where the kernel lets us.

    ``hash(None)``, ``id`` and the order of sets of classes come from addresses; with
    random ones the same program may print a different line in the next run.
    """
    flags = _libc.personality(0xFFFFFFFF)
    if not flags & ADDR_NO_RANDOMIZE and _libc.personality(flags | ADDR_NO_RANDOMIZE) >= 0:
        os.execv(sys.executable, sys.orig_argv)


def fork(flags: int = 0) -> int:
    """Fork without the handlers that ``os.fork`` runs, which touch hundreds of pages.

    Only for a process with one thread. The system call is made while the interpreter's
    lock is held, so the child goes on as its only thread.

    Args:
        flags: For example ``CLONE_NEWPID``: the child is the first process of a namespace,
            and when it ends the kernel kills all that it started.

    Returns:
        0 in the child, its process number in the parent.
    """
    number = SYS_CLONE.get(os.uname().machine, -1)
    pid: int = _libc_with_gil.syscall(number, flags | signal.SIGCHLD, 0, 0, 0, 0)
    return _check(pid, "clone")


def share_one_arena() -> None:
    """Keep libc from reserving 64 MiB of address space for each thread."""
    _libc.mallopt(M_ARENA_MAX, 1)


class Filter(ctypes.Structure):
    """A BPF program for ``load_filter``."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))

    @classmethod
    def of(cls, program: bytes) -> "Filter":
        """Make it from the program's bytes."""
        return cls(len(program) // 8, program)


def load_filter(program: Filter) -> None:
    """Filter the system calls of this process for good; needs ``PR_SET_NO_NEW_PRIVS``."""
    result = _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
    _check(result, "seccomp")


def landlock_version() -> int:
    """The version of Landlock's interface; 0 if the kernel has it not, or not switched on."""
    version: int = _libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, 1)
    return max(version, 0)


def landlock_ruleset(readable: Iterable[str], writable: Iterable[str]) -> int:
    """A descriptor of rules that allow these places and what is in them, and nothing else.

    Covers files; from version 4 TCP, from version 6 signals and abstract sockets too.

    Args:
        readable: Files and directories to read.
        writable: Files and directories to read and change.
    """
    version = landlock_version()
    handled = (1 << min(13 + (version >= 2) + (version >= 3), 15)) - 1
    handled |= LANDLOCK_IOCTL if version >= 5 else 0
    attributes = struct.pack("<QQQ", handled, 3, 3)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    rules: int = _libc.syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size, 0)
    _check(rules, "landlock_create_ruleset")
    for paths, access in ((readable, LANDLOCK_READ), (writable, LANDLOCK_CHANGE)):
        for path in paths:
            _allow(rules, path, access & handled)
    return rules


def _allow(rules: int, path: str, access: int) -> None:
    place = os.open(path, os.O_PATH)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= LANDLOCK_OF_FILES
        rule = struct.pack("<Qi", access, place)
        _check(_libc.syscall(SYS_LANDLOCK_ADD_RULE, rules, 1, rule, 0), f"landlock {path}")
    finally:
        os.close(place)


def landlock_restrict(rules: int) -> None:
    """Hold this process to the rules for good; needs ``PR_SET_NO_NEW_PRIVS``."""
    _check(_libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, rules, 0), "landlock_restrict_self")


def unmount(target: str) -> None:
    """Take the mount at ``target`` away, whatever is in it."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def collapse_pages(maps: str) -> None:
    """Put this process's memory on huge pages, where the kernel will (6.1): forks copy less.

    Args:
        maps: Text of ``/proc/self/maps``.
    """
    for line in maps.splitlines():
        span, modes, _, _, _, *name = line.split()
        if modes != "rw-p" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(address, 16) for address in span.split("-"))
        for place in range(start + -start % HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
            _libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE)
