"""What the caller and a zygote say to each other, over one SOCK_SEQPACKET pair.

A call comes with five descriptors (program, stdin, stdout, stderr, report), each a memory
file of that call alone, and gets one reply. Texts of a program thus never pass through the
zygote's memory, where a later call could look for them.
"""

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum

from rstar2.sandbox.limits import Rung, Tier

REQUEST = struct.Struct("<BQd")
"""``Request``, number, amount."""
REPLY = struct.Struct("<QBidd")
"""Number, ``Ending``, wait status, CPU seconds, wall seconds."""
DESCRIPTORS = 5
"""Program, stdin, stdout, stderr, report."""
CELL = b"\1"
"""What a session's child is told to run a cell with, and answers when it has."""


class Request(IntEnum):
    """What a zygote can be asked for; the number names the call or session."""

    RUN = 0
    """Run a program once; the amount is its time limit in seconds."""
    SESSION = 1
    """Start a child that runs one program after another on the same descriptors."""
    CELL = 2
    """Let a session's child run the program that stands in its memory file now."""
    CANCEL = 3
    """Kill a call or session; it gets its reply."""
    FORK_FLOOR = 4
    """Fork and reap ``amount`` children that do nothing; the wall time is the answer."""


class Ending(IntEnum):
    """What a zygote knows of the end of a call."""

    EXITED = 0
    """The child ended by itself: its wait status tells how."""
    OUT_OF_TIME = 1
    """The zygote killed it for its time."""
    NOT_STARTED = 2
    """The child failed before the program's first instruction."""
    CELL_DONE = 3
    """A session's child has run its cell and waits."""


@dataclass(frozen=True, slots=True)
class ZygoteConfig:
    """What a zygote is started with.

    Attributes:
        rung: The isolation to set up; the zygote gives up where it cannot.
        tier: What to load.
        home: An empty directory: mount point of the root, or where programs work.
        scratch: On rung ``portable``, where ``home`` is to be made and programs may write;
            empty for nowhere.
        scratch_bytes: Size of a call's scratch file system on rung ``strict``.
        memory_bytes: Address space of a program on top of the interpreter's own.
        file_bytes: Largest file.
        open_files: Descriptors.
        threads: Threads of a program, on rung ``strict``.
        output_bytes: Kept of the value and of the traceback.
        filter: The system calls allowed, hexadecimal BPF; empty on rung ``none``.
    """

    rung: Rung
    tier: Tier
    home: str
    scratch: str
    scratch_bytes: int
    memory_bytes: int
    file_bytes: int
    open_files: int
    threads: int
    output_bytes: int
    filter: str

    def to_json(self) -> str:
        """One line for the command line of the zygote."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ZygoteConfig":
        """The inverse of ``to_json``."""
        data = json.loads(text)
        return cls(**{**data, "rung": Rung(data["rung"]), "tier": Tier(data["tier"])})
