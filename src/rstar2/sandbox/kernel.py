"""The system calls that Python 3.11 has no name for, through ctypes.

Each raises ``OSError`` with its own name in the text.
"""

import ctypes
import os
import platform
import signal
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, AT_RECURSIVE, MNT_DETACH = 1, 2, 0x8000, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
ADDR_NO_RANDOMIZE = 0x0040000
SYS_MOUNT_SETATTR = 442
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


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
    number = SYS_PIVOT_ROOT.get(platform.machine(), -1)
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up every capability for good."""
    version_3_of_this_process = struct.pack("<Ii", 0x20080522, 0)
    _check(_libc.capset(version_3_of_this_process, bytes(24)), "capset")


def disable_randomisation() -> bool:
    """Switch address randomisation off for the next ``exec``.

    Returns:
        Whether that changed anything: False if it was off, or if the kernel says no.
    """
    flags = _libc.personality(0xFFFFFFFF)
    return not flags & ADDR_NO_RANDOMIZE and _libc.personality(flags | ADDR_NO_RANDOMIZE) >= 0


def fork_into_pid_namespace() -> int:
    """Fork a child that is the first process of a namespace of its own.

    When it ends, the kernel kills all that it started. ``unshare`` and ``os.fork`` would
    do it once only, so the system call is made here, between the calls that Python makes
    around its own fork.

    Returns:
        0 in the child, its process number in the parent.
    """
    number = SYS_CLONE.get(platform.machine(), -1)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc_with_gil.syscall(number, CLONE_NEWPID | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _check(pid, "clone")
