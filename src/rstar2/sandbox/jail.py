"""What keeps a program in: namespaces once per zygote, limits once per child.

Runs in the zygote and its children only. Standard library only.
"""

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from rstar2.sandbox import kernel
from rstar2.sandbox.wire import Rung, ZygoteConfig

NOBODY = 65534
INSIDE_UID = 1000
SYSTEM_PATHS = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/alternatives"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
REPORT_RESERVE = 64 << 20
"""Bytes of address space kept back for telling of a MemoryError."""


def repeat_addresses() -> None:
    """Start this interpreter again without address randomisation, where the kernel lets us.

    ``hash(None)``, ``id`` and the order of sets of classes come from addresses; with
    random ones the same program may print a different line in the next run.
    """
    if kernel.disable_randomisation():
        os.execv(sys.executable, sys.orig_argv)


def _build_root(root: str, scratch_bytes: int) -> None:
    """Lay a read-only root with Python and the system's libraries, and enter it."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    prefixes = {sys.prefix, sys.base_prefix, *map(os.path.realpath, (sys.prefix, sys.base_prefix))}
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    for path in sorted({*SYSTEM_PATHS, *prefixes, *libraries}):
        _show(path, root)
    for name in ("scratch", "tmp"):
        os.mkdir(f"{root}/{name}")
    kernel.lock_mounts(root)
    options = f"size={scratch_bytes},nr_inodes=8192,mode=777"
    kernel.mount(
        "tmpfs",
        f"{root}/scratch",
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC,
        options,
    )
    kernel.pivot_root(root)


def _show(path: str, root: str) -> None:
    """Bind ``path`` into ``root`` at the same place; what the machine lacks is left out."""
    target = root + path
    if os.path.lexists(target) or not os.path.exists(path):
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


def _nobody_is_possible() -> bool:
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


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def _nobody_can_read(home: str) -> bool:
    os.seteuid(NOBODY)
    try:
        needed = (sys.prefix, sys.base_prefix, os.path.dirname(home))
        return all(os.access(path, os.R_OK | os.X_OK, effective_ids=True) for path in needed)
    finally:
        os.seteuid(0)


def _write(directory: int, name: str, text: str) -> None:
    handle = os.open(name, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _enter_user_namespace(proc: int, flags: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER | flags)
    _write(proc, "self/setgroups", "deny")
    _write(proc, "self/uid_map", f"{INSIDE_UID} {uid} 1")
    _write(proc, "self/gid_map", f"{INSIDE_UID} {gid} 1")
    with contextlib.suppress(OSError):  # read-only in some containers; it is a second lock only
        _write(proc, "sys/user/max_user_namespaces", "0")


@dataclass(frozen=True, slots=True)
class Jail:
    """The walls around a zygote.

    Attributes:
        rung: Which they are.
        scratch: Directory that holds the scratch directories of the calls.
        proc: Descriptor of the machine's ``/proc`` (closed in every child).
    """

    rung: Rung
    scratch: str
    proc: int

    @classmethod
    def enter(cls, config: ZygoteConfig) -> "Jail":
        """Put this process behind the walls of ``config.rung``, for good.

        Raises:
            OSError: If the kernel refuses one of them.
        """
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        _write(proc, "self/oom_score_adj", "1000")
        if config.rung is Rung.NAMESPACES:
            _enter_namespaces(config, proc)
            scratch = "/scratch"
        else:
            _enter_limits(config)
            scratch = config.home
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        return cls(config.rung, scratch, proc)

    def fork(self) -> int:
        """``os.fork``; on rung ``namespaces`` the child's processes all end with it."""
        if self.rung is Rung.LIMITS:
            return os.fork()
        return kernel.fork_into_pid_namespace()

    def limits_processes(self) -> bool:
        """Whether a limit on processes holds here: the kernel exempts the machine's root."""
        if self.rung is Rung.LIMITS:
            return False
        pid = self.fork()
        if pid == 0:
            kernel.drop_capabilities()
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            try:
                os.fork()
            except BlockingIOError:
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1

    def kill(self, pid: int) -> None:
        """Kill the unreaped child ``pid`` and all that it started."""
        if self.rung is Rung.LIMITS and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

    def kill_orphans(self, children: Iterable[int]) -> None:
        """Kill what ended calls left behind: every child of ours not in ``children``."""
        if self.rung is Rung.NAMESPACES:
            return
        known = set(children)
        while strays := set(self._our_children()) - known:
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _our_children(self) -> list[int]:
        me = os.getpid()
        handle = os.open(f"{me}/task/{me}/children", os.O_RDONLY, dir_fd=self.proc)
        with open(handle, encoding="ascii") as file:
            return [int(word) for word in file.read().split()]

    def seconds_waited_for_cpu(self, pid: int) -> float:
        """How long ``pid`` was ready and no CPU was free (0.0 if the kernel keeps no count)."""
        try:
            handle = os.open(f"{pid}/schedstat", os.O_RDONLY, dir_fd=self.proc)
        except FileNotFoundError:
            return 0.0
        with open(handle, encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9

    def address_space(self) -> int:
        """Bytes of address space of this process."""
        handle = os.open(f"{os.getpid()}/statm", os.O_RDONLY, dir_fd=self.proc)
        with open(handle, encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()


def _enter_namespaces(config: ZygoteConfig, proc: int) -> None:
    apart = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if _nobody_is_possible():
        kernel.unshare(kernel.CLONE_NEWNS)
        _build_root(config.home, config.scratch_bytes)
        _become_nobody()
        _enter_user_namespace(proc, apart)
    else:
        _enter_user_namespace(proc, apart | kernel.CLONE_NEWNS)
        _build_root(config.home, config.scratch_bytes)
    socket.sethostname("sandbox")


def _enter_limits(config: ZygoteConfig) -> None:
    if _nobody_is_possible() and _nobody_can_read(config.home):
        os.chown(config.home, NOBODY, NOBODY)
        _become_nobody()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)


def confine(config: ZygoteConfig, baseline: int, cpu_seconds: float) -> None:
    """Take every privilege from this child and set its limits.

    Args:
        config: The limits.
        baseline: Address space of the zygote, bytes.
        cpu_seconds: CPU time; the kernel's whole-second limit stands behind the zygote's.
    """
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if config.rung is Rung.LIMITS:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.drop_capabilities()
    memory = baseline + config.memory_bytes
    seconds = int(cpu_seconds) + 2
    limits = {
        resource.RLIMIT_AS: (memory, memory + REPORT_RESERVE),
        resource.RLIMIT_CPU: (seconds, seconds),
        resource.RLIMIT_FSIZE: (config.file_bytes, config.file_bytes),
        resource.RLIMIT_NOFILE: (config.open_files, config.open_files),
        resource.RLIMIT_CORE: (0, 0),
    }
    if config.rung is Rung.NAMESPACES:  # elsewhere it would count the user's other processes
        limits[resource.RLIMIT_NPROC] = (config.processes, config.processes)
    for name, pair in limits.items():
        resource.setrlimit(name, pair)


def open_reserve() -> None:
    """Let this child use the memory kept back for its report."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
