"""Rung ``strict``: a file system with Python alone in it, and namespaces around a zygote.

Runs in the zygote only. Standard library only.
"""

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
SCRATCH = "/scratch"
MOUNT_OPTIONS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def python_paths() -> list[str]:
    """Every place that a program may read: the system's libraries, Python's, and its packages."""
    prefixes = {sys.prefix, sys.base_prefix, *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    packages = {place for place in sys.path if os.path.isdir(f"{place}/numpy")}
    found = {*SYSTEM_PATHS, *prefixes, *libraries, *packages, *map(os.path.realpath, packages)}
    return sorted(filter(os.path.exists, found))


def enter_namespaces(home: str, proc: int, slots: int) -> None:
    """Move this process into a root of its own without network, for good.

    Args:
        home: The empty directory to build the root on.
        proc: Descriptor of the machine's ``/proc``.
        slots: Places to make for the roots of children.

    Raises:
        OSError: If the kernel refuses one of the steps.
    """
    apart = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if nobody_is_possible():
        kernel.unshare(kernel.CLONE_NEWNS)
        _build(home, slots)
        become_nobody()
        _enter_user_namespace(proc, apart | kernel.CLONE_NEWNS)
    else:
        _enter_user_namespace(proc, apart | kernel.CLONE_NEWNS)
        _build(home, slots)
    socket.sethostname("sandbox")


def _build(root: str, slots: int) -> None:
    """Python and the system's libraries under ``/tree``, links to them, and places for slots.

    A child's root is a copy of ``/tree`` with a scratch of its own, so no child can so much
    as name what another one writes.
    """
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in ("/tree/scratch", "/tree/tmp", *map(slot_root, range(slots))):
        os.makedirs(root + path)
    for path in python_paths():
        _show(path, f"{root}/tree")
    for name in os.listdir(f"{root}/tree"):
        os.symlink(f"tree/{name}", f"{root}/{name}")
    kernel.lock_mounts(root)
    kernel.pivot_root(root)


def slot_root(number: int) -> str:
    """The root directory of the children of a slot."""
    return f"/slots/{number:03d}"


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


def mount_slot(number: int) -> None:
    """Make the root of a slot; its scratch comes with ``mount_scratch``."""
    kernel.mount("/tree", slot_root(number), flags=kernel.MS_BIND | kernel.MS_REC)


def mount_scratch(number: int, size: int, files: int) -> str:
    """Give a slot a file system of its own, of limited size, in memory; gives its directory."""
    target = slot_root(number) + SCRATCH
    kernel.mount("tmpfs", target, "tmpfs", MOUNT_OPTIONS, f"size={size},nr_inodes={files},mode=700")
    return target


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
            raise PermissionError(errno.EPERM, "unshare: user namespaces are used up") from error
        raise
    write_file(proc, "self/setgroups", "deny")
    write_file(proc, "self/uid_map", f"{INSIDE_UID} {uid} 1")
    write_file(proc, "self/gid_map", f"{INSIDE_UID} {gid} 1")
