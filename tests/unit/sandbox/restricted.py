"""Runs a command as an unprivileged container would: ``python restricted.py COMMAND …``.

No capabilities, ``no_new_privs``, and a system-call filter that denies what Docker's default
profile denies to a container without capabilities: namespaces, mounts, keys, modules, io_uring
and the like. Files, network and processes stay those of the machine.
"""

import ctypes
import errno
import os
import sys

import pyseccomp

DENIED = """
    acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig
    fsmount fsopen fspick get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup
    ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind mount mount_setattr
    move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open
    pidfd_getfd pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl
    quotactl_fd reboot request_key set_mempolicy setdomainname sethostname setns settimeofday
    swapoff swapon sysfs syslog umount2 unshare uselib userfaultfd ustat vhangup
"""
"""Unknown on some architectures: those are left out there."""

NAMESPACE_FLAGS = tuple(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

ADDR_NO_RANDOMIZE = 0x0040000
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, action: str) -> None:
    """Raise OSError if a call of libc failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def drop_privileges() -> None:
    """Give up every capability, and the way back to one through an exec."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    if os.geteuid() == 0:
        for capability in range(last + 1):
            if libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0):
                checked(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "PR_CAPBSET_DROP")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def deny_calls() -> None:
    """Load the filter, for this process and all that it starts."""
    refusal = pyseccomp.ERRNO(errno.EPERM)
    table = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in DENIED.split():
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            table.add_rule(refusal, name)
    for flag in NAMESPACE_FLAGS:
        table.add_rule(refusal, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    table.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    random = pyseccomp.Arg(0, pyseccomp.EQ, ADDR_NO_RANDOMIZE)
    table.add_rule(refusal, "personality", random)
    table.load()


if __name__ == "__main__":
    drop_privileges()
    deny_calls()
    os.execvp(sys.argv[1], sys.argv[1:])
