"""The system calls that a program may make: an allowlist, compiled with libseccomp.

Everything else fails with EPERM, which Python shows as ``PermissionError``. No process can
be made (threads can), no program executed, no socket opened but a pair of its own, no
signal sent but to itself. SIGKILL is kept back even there, and so is every other way to
have the kernel send it: a child that dies of SIGKILL was killed by the zygote or for the
machine's lack of memory, and no program can pretend the one or the other.
"""

import errno
import tempfile
from types import ModuleType

from rstar2.sandbox.limits import SandboxUnsupported

FILES = """
    access chdir close copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
    fallocate fchdir fdatasync fgetxattr flistxattr flock fstat fstatfs fsync
    ftruncate getcwd getdents getdents64 getxattr lgetxattr listxattr llistxattr lseek lstat mkdir
    mkdirat newfstatat open openat pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readlink
    readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statx truncate
    umask unlink unlinkat write writev
"""
MODES_AND_DATES = "chmod fchmod fchmodat utime utimensat utimes"
"""They do nothing and say that they did: Landlock does not cover them, so a program could
lock out the next one; and with an error ``shutil.copy`` would fail."""
WAITING = """
    alarm clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl
    epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 getitimer gettimeofday nanosleep pause
    pipe pipe2 poll ppoll pselect6 recvfrom select setitimer shutdown time timerfd_create
    timerfd_gettime timerfd_settime times
"""
MEMORY_AND_THREADS = """
    arch_prctl brk exit exit_group futex futex_waitv get_robust_list getcpu madvise membarrier
    mlock mmap mprotect mremap munlock munmap restart_syscall rseq rt_sigaction rt_sigpending
    rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler
    sched_yield set_robust_list set_tid_address sigaltstack
"""
QUESTIONS = """
    getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getrandom
    getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid getuid sysinfo
    uname wait4 waitid close_range
"""

CLONE_THREAD = 0x00010000
AF_UNIX = 1
SIGKILL = 9
BINARY_TREE = 2
"""The kernel tries the filter on every system call when a child loads it: a tree is half
the work of a list."""
FCNTL_COMMANDS = (
    *range(8),  # F_DUPFD, F_GETFD … F_SETLKW; F_SETOWN and F_SETSIG send signals
    *(36, 37, 38),  # locks of open files
    *(1030, 1032, 1034),  # F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS
)
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
PRCTL_OPTIONS = (15, 16)
"""PR_SET_NAME and PR_GET_NAME."""

OWN_PID = 0x77777777
"""Stands in the filter for the child's process number, see ``for_process``."""


def compile_filter() -> bytes:
    """The filter as a BPF program, for this machine's architecture.

    Raises:
        SandboxUnsupported: If libseccomp is missing.
    """
    seccomp = _library()
    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    rules.set_attr(seccomp.Attr.CTL_OPTIMIZE, BINARY_TREE)
    for name in f"{FILES} {WAITING} {MEMORY_AND_THREADS} {QUESTIONS}".split():
        if _exists(seccomp, name):
            rules.add_rule(seccomp.ALLOW, name)
    for name in MODES_AND_DATES.split():
        if _exists(seccomp, name):
            rules.add_rule(seccomp.ERRNO(0), name)
    is_thread = seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, CLONE_THREAD)
    rules.add_rule(seccomp.ALLOW, "clone", is_thread)
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # libc falls back to clone
    rules.add_rule(seccomp.ALLOW, "prlimit64", seccomp.Arg(2, seccomp.EQ, 0))
    rules.add_rule(seccomp.ALLOW, "sched_setaffinity", seccomp.Arg(0, seccomp.EQ, 0))
    rules.add_rule(seccomp.ALLOW, "socketpair", seccomp.Arg(0, seccomp.EQ, AF_UNIX))
    rules.add_rule(seccomp.ALLOW, "sendto", seccomp.Arg(4, seccomp.EQ, 0))
    for name, position, values in (
        ("fcntl", 1, FCNTL_COMMANDS),
        ("ioctl", 1, IOCTL_REQUESTS),
        ("prctl", 0, PRCTL_OPTIONS),
    ):
        for value in values:
            rules.add_rule(seccomp.ALLOW, name, seccomp.Arg(position, seccomp.EQ, value))
    # A signal is 32 bits of a 64-bit argument: it is compared bit by bit, of which one must differ.
    itself = seccomp.Arg(0, seccomp.EQ, OWN_PID)
    for name, position in (("kill", 1), ("tkill", 1), ("tgkill", 2)):
        for bit in (1 << number for number in range(7)):
            differs = seccomp.Arg(position, seccomp.MASKED_EQ, bit, bit & ~SIGKILL)
            rules.add_rule(seccomp.ALLOW, name, itself, differs)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def for_process(program: bytes, pid: int) -> bytes:
    """The filter of one child, which may send signals to ``pid``."""
    return program.replace(OWN_PID.to_bytes(4, "little"), pid.to_bytes(4, "little"))


def _library() -> ModuleType:
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise SandboxUnsupported(
            f"the sandbox needs libseccomp 2 (Debian's package libseccomp2): {error}"
        ) from error
    library: ModuleType = pyseccomp
    return library


def _exists(seccomp: ModuleType, name: str) -> bool:
    """Whether this architecture has the call (some have only its newer form)."""
    try:
        return bool(seccomp.resolve_syscall(seccomp.system_arch(), name) >= 0)
    except OSError:
        return False
