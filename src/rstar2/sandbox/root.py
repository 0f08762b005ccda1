"""Rung ``strict``: a file system with Python alone in it, and namespaces around a zygote.

Runs in the zygote only. Standard library only.
"""

import contextlib
import errno
import os
import socket
import sys

from rstar2.sandbox import kernel

NOBODY = 65534
INSIDE_UID = 1000
SYSTEM_PATHS = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/alternatives"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
MOUNT_OPTIONS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def python_paths() -> list[str]:
    """Every place that a program may read: the system's libraries and Python's."""
    prefixes = {sys.prefix, sys.base_prefix, *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return sorted(filter(os.path.exists, {*SYSTEM_PATHS, *prefixes, *libraries}))


def enter_namespaces(home: str, proc: int, scratch: list[str]) -> None:
    """Move this process into a root of its own without network, for good.

    Args:
        home: The empty directory to build the root on.
        proc: Descriptor of the machine's ``/proc``.
        scratch: Directories to make in that root, for mounts that come later.

    Raises:
        OSError: If the kernel refuses one of the steps.
    """
    apart = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if nobody_is_possible():
        kernel.unshare(kernel.CLONE_NEWNS)
        _build(home, scratch)
        become_nobody()
        _enter_user_namespace(proc, apart | kernel.CLONE_NEWNS)
    else:
        _enter_user_namespace(proc, apart | kernel.CLONE_NEWNS)
        _build(home, scratch)
    socket.sethostname("sandbox")


def _build(root: str, scratch: list[str]) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in python_paths():
        _show(path, root)
    for path in (*scratch, "/tmp"):
        os.makedirs(root + path)
    kernel.lock_mounts(root)
    kernel.pivot_root(root)


def _show(path: str, root: str) -> None:
    """Bind ``path`` into ``root`` at the same place."""
    target = root + path
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT, 0o644))
    kernel.mount(path, target, flags=kernel.MS_BIND | kernel.MS_REC)


def mount_scratch(target: str, size: int, files: int) -> None:
    """Give one call a file system of its own, of limited size, in memory."""
    kernel.mount("tmpfs", target, "tmpfs", MOUNT_OPTIONS, f"size={size},nr_inodes={files},mode=700")


def nobody_is_possible() -> bool:
    """Whether we are a root that may turn into an ordinary user (some containers' may not)."""
    if os.getuid() != 0:
        return False
    try:
        os.setgroups(os.getgroups())
        os.seteuid(NOBODY)
    except OSError:
        return False
    os.seteuid(0)
    return True


def become_nobody() -> None:
    """Stop being root, for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def nobody_can_read(home: str) -> bool:
    """Whether an ordinary user sees Python and ``home`` here (root only)."""
    os.seteuid(NOBODY)
    try:
        needed = (sys.prefix, sys.base_prefix, os.path.dirname(home))
        return all(os.access(path, os.R_OK | os.X_OK, effective_ids=True) for path in needed)
    finally:
        os.seteuid(0)


def write_file(directory: int, name: str, text: str) -> None:
    """Write to an existing file under a directory's descriptor."""
    handle = os.open(name, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _enter_user_namespace(proc: int, flags: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER | flags)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise PermissionError(error.errno, "unshare: user namespaces are used up") from error
        raise
    write_file(proc, "self/setgroups", "deny")
    write_file(proc, "self/uid_map", f"{INSIDE_UID} {uid} 1")
    write_file(proc, "self/gid_map", f"{INSIDE_UID} {gid} 1")
    with contextlib.suppress(OSError):  # read-only in some containers; it is a second lock only
        write_file(proc, "sys/user/max_user_namespaces", "0")
