"""The walls: once around the zygote, then around every child before its program starts.

``strict``: the zygote has a user, mount, network, IPC and UTS namespace and a read-only root;
a child has a root, a user and a PID namespace of its own, Landlock where the kernel has it, and
what else ``portable`` has.
``portable``: the zygote is an ordinary user where it can be; a child has Landlock, seccomp,
no capabilities, resource limits.
``none``: as ``portable`` without Landlock and seccomp.

Runs in the zygote and its children only. Standard library only.
"""

import os
import resource
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from rstar2.sandbox import kernel, root
from rstar2.sandbox.filter import for_process
from rstar2.sandbox.limits import Rung
from rstar2.sandbox.scratch import MOST_CHILDREN, Slot, Slots
from rstar2.sandbox.wire import ZygoteConfig

FIRST_OF_NAMESPACE = 1
LEAST_LANDLOCK = 3
"""Earlier ones let a program empty files that it may not open."""


@dataclass(frozen=True, slots=True)
class Jail:
    """The walls around a zygote.

    Attributes:
        config: What they were asked to be.
        slots: Places for children.
        proc: Descriptor of the machine's ``/proc`` (closed in every child).
        zygote: Descriptor of the zygote's own process.
        layers: What is in force, for people.
        filter: The system calls allowed, BPF; empty on rung ``none``.
        ready_filter: The same for the one process number that every child has on ``strict``.
    """

    config: ZygoteConfig
    slots: Slots
    proc: int
    zygote: int
    layers: tuple[str, ...]
    filter: bytes
    ready_filter: kernel.Filter

    @classmethod
    def enter(cls, config: ZygoteConfig) -> "Jail":
        """Put this process behind the walls of ``config.rung``, for good.

        Raises:
            OSError: If the kernel refuses one of them.
        """
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        root.write_file(proc, "self/oom_score_adj", "1000")
        landlock = 0 if config.rung is Rung.NONE else kernel.landlock_version()
        layers = []
        if config.rung is Rung.STRICT:
            root.enter_namespaces(config.home, proc, MOST_CHILDREN)
            layers.append("namespaces")
        else:
            _stop_being_root(config.home)
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if landlock:
            layers.append(f"Landlock {landlock}")
        if config.rung is Rung.PORTABLE and landlock < LEAST_LANDLOCK:
            raise PermissionError(
                f"Landlock {LEAST_LANDLOCK} (Linux 6.2) is needed, this kernel has {landlock}"
            )
        if config.rung is not Rung.NONE:
            layers.append("seccomp")
        layers.append("resource limits")
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        slots = Slots(config, landlock > 0)
        program = bytes.fromhex(config.filter)
        ready = kernel.Filter.of(for_process(program, FIRST_OF_NAMESPACE))
        zygote = os.pidfd_open(os.getpid())
        return cls(config, slots, proc, zygote, tuple(layers), program, ready)

    def die_with_zygote(self) -> None:
        """Have the kernel kill this child when its zygote ends; end now if it has already.

        Raises:
            ChildProcessError: The zygote ended between the fork and this call.
        """
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([self.zygote], [], [], 0)[0]:
            raise ChildProcessError("the zygote is gone")

    def fork(self) -> int:
        """Fork a child; on rung ``strict`` it is alone in a user and a PID namespace."""
        alone = kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID
        return kernel.fork(alone if self.config.rung is Rung.STRICT else 0)

    def limit(self) -> None:
        """Set the limits that all children inherit, and rule new privileges out."""
        pages = int(self._read(f"{os.getpid()}/statm").split()[0])
        memory = pages * resource.getpagesize() + self.config.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.config.file_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.share_one_arena()

    def confine(self, slot: Slot, cpu_seconds: int) -> None:
        """Take every privilege from this child and set the limits that are its own.

        Args:
            slot: Where it may write; its Landlock descriptor is closed.
            cpu_seconds: The kernel's own limit, behind the zygote's clock.
        """
        rung = self.config.rung
        if rung is Rung.STRICT:
            os.chroot(root.slot_root(slot.number))
            os.chdir(root.SCRATCH)
        else:
            os.chdir(slot.directory)
        if rung is Rung.NONE:
            os.setsid()
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.drop_capabilities()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.config.open_files,) * 2)
        if rung is Rung.STRICT:  # counted in its user namespace; elsewhere, for the whole user
            resource.setrlimit(resource.RLIMIT_NPROC, (self.config.threads,) * 2)
        if slot.rules >= 0:
            kernel.landlock_restrict(slot.rules)
            os.close(slot.rules)
        if rung is Rung.STRICT:
            kernel.load_filter(self.ready_filter)
        elif rung is Rung.PORTABLE:
            kernel.load_filter(kernel.Filter.of(for_process(self.filter, os.getpid())))

    def kill(self, pid: int) -> None:
        """Kill the unreaped child ``pid`` and all that it started."""
        if self.config.rung is Rung.NONE and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

    def kill_group(self, pid: int) -> None:
        """Kill what the ended, unreaped child ``pid`` started: on rung ``none`` alone it could."""
        if self.config.rung is Rung.NONE:
            self.kill(pid)

    def kill_orphans(self, children: Iterable[int]) -> None:
        """Kill what ended calls left behind: every child of ours not in ``children``."""
        if self.config.rung is not Rung.NONE:
            return
        known = set(children)
        while strays := set(self._our_children()) - known:
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _our_children(self) -> list[int]:
        me = os.getpid()
        return [int(word) for word in self._read(f"{me}/task/{me}/children").split()]

    def seconds_waited_for_cpu(self, pid: int) -> float:
        """How long ``pid`` was ready and no CPU was free (0.0 if the kernel keeps no count)."""
        try:
            return int(self._read(f"{pid}/schedstat").split()[1]) * 1e-9
        except FileNotFoundError:
            return 0.0

    def collapse_pages(self) -> None:
        """Put this process's memory on huge pages, so that a fork copies less."""
        kernel.collapse_pages(self._read(f"{os.getpid()}/maps"))

    def _read(self, name: str) -> str:
        handle = os.open(name, os.O_RDONLY, dir_fd=self.proc)
        with open(handle, encoding="utf-8", errors="replace") as file:
            return file.read()


def _stop_being_root(home: str) -> None:
    """Become an ordinary user where that is possible and leaves Python in reach."""
    if root.nobody_is_possible() and root.nobody_can_read(home):
        os.chown(home, root.NOBODY, root.NOBODY)
        root.become_nobody()
