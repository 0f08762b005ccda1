"""Where a call may write: one directory a slot, empty for every call.

Runs in the zygote. On rung ``strict`` each is a file system of its own in memory, and the
only one in its child's root; one that was written to is thrown away whole, so no depth, mode
or number of files slows its end.
"""

import os
from dataclasses import dataclass, field

from rstar2.sandbox import kernel, root
from rstar2.sandbox.limits import Rung
from rstar2.sandbox.wire import ZygoteConfig

MOST_CHILDREN = 256
"""Calls in flight and sessions, of one zygote."""
FILES_PER_SCRATCH = 2048


@dataclass(slots=True)
class Slot:
    """A place for one child.

    Attributes:
        number: Its byte in the page that says which programs have started.
        directory: Its scratch directory, as the zygote sees it; set with its first use.
        rules: Landlock descriptor; -1 where there is none or it is not made yet.
        changed: When the empty directory was last changed, ns; 0 before it stands.
    """

    number: int
    directory: str = ""
    rules: int = -1
    changed: int = 0


@dataclass(slots=True)
class Slots:
    """The slots of a zygote; the one used last is given out first, while it is warm.

    Attributes:
        config: Of the zygote.
        landlock: Whether the kernel has Landlock.
    """

    config: ZygoteConfig
    landlock: bool
    _readable: list[str] = field(default_factory=root.python_paths)
    _free: list[Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._free = [Slot(number) for number in reversed(range(MOST_CHILDREN))]

    @property
    def writable(self) -> bool:
        """Whether programs have a scratch at all; without one all work in an empty directory."""
        return self.config.rung is not Rung.PORTABLE or bool(self.config.scratch)

    def take(self) -> Slot:
        """A slot that is ready.

        Raises:
            OSError: If none is free, or its directory cannot be made.
        """
        if not self._free:
            raise OSError(f"more than {MOST_CHILDREN} children of one zygote")
        slot = self._free.pop()
        if not slot.changed:
            try:
                self._prepare(slot)
            except BaseException:
                self._free.append(slot)
                raise
        return slot

    def _prepare(self, slot: Slot) -> None:
        config = self.config
        if config.rung is Rung.STRICT:
            if not slot.directory:
                root.mount_slot(slot.number)
            size = config.scratch_bytes
            slot.directory = root.mount_scratch(slot.number, size, FILES_PER_SCRATCH)
        elif self.writable:
            slot.directory = f"{config.home}/{slot.number:03d}"
            os.makedirs(slot.directory, 0o700, exist_ok=True)
        else:
            slot.directory = config.home
        try:
            if self.landlock:
                slot.rules = self._ruleset(slot.directory)
            slot.changed = os.stat(slot.directory).st_ctime_ns
        except OSError:
            self._discard(slot)
            raise

    def _ruleset(self, directory: str) -> int:
        writable = ["/dev/null", *([directory] if self.writable else [])]
        readable = [*self._readable, *([] if self.writable else [directory])]
        return kernel.landlock_ruleset(readable, writable)

    def give_back(self, slot: Slot) -> None:
        """Take back the slot of a child that is gone, and what it wrote.

        One that cannot be cleaned is not given out again.
        """
        if self.writable and not self._untouched(slot):
            try:
                self._discard(slot)
            except OSError:
                return
        self._free.append(slot)

    def _untouched(self, slot: Slot) -> bool:
        """Whether the directory is as it was made: its contents, its mode, its dates."""
        try:
            same = os.stat(slot.directory).st_ctime_ns == slot.changed
            return same and not os.listdir(slot.directory)
        except PermissionError:
            return False

    def _discard(self, slot: Slot) -> None:
        slot.changed = 0
        if slot.rules >= 0:
            os.close(slot.rules)
            slot.rules = -1
        if self.config.rung is Rung.STRICT:
            kernel.unmount(slot.directory)
        elif self.writable:
            remove_tree(slot.directory)

    def remove(self) -> None:
        """Remove the directories outside rung ``strict``, where they are the machine's."""
        if self.config.rung is not Rung.STRICT:
            remove_tree(self.config.home)


def remove_tree(top: str) -> None:
    """Remove a directory, however deep it is and whatever modes its folders have.

    Folders are moved out to stand beside ``top`` before they are looked into, so that no
    path is long; there no program can have laid anything in the way.
    """
    serial = 0
    folders = [top]
    while folders:
        folder = folders[-1]
        os.chmod(folder, 0o700)
        inner = []
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            else:
                os.unlink(entry.path)
        if not inner:
            os.rmdir(folders.pop())
        for path in inner:
            serial += 1
            moved = f"{top}.removed-{serial}"
            os.chmod(path, 0o700)
            os.rename(path, moved)
            folders.append(moved)
