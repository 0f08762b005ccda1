"""What the caller and the zygote say to each other, over one SOCK_SEQPACKET pair.

The caller sends a request with four descriptors (program, stdin, stdout, report), each a
memory file of that call alone, and gets one reply per request. Texts of a program thus
never pass through the zygote's memory, where a later call could look for them.
"""

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum

REQUEST = struct.Struct("<Qd")
"""Call number, CPU seconds; negative seconds cancel the call."""
REPLY = struct.Struct("<QBidd")
"""Call number, ``Ending``, wait status, CPU seconds, wall seconds."""
DESCRIPTORS = 4
"""Program, stdin, stdout, report."""


class Rung(StrEnum):
    """How strongly programs are kept apart from the machine."""

    NAMESPACES = "namespaces"
    """No network, a read-only root with Python alone in it, no view of other processes."""
    LIMITS = "limits"
    """Resource limits, no privileges, own process group; the kernel allowed no more."""


class Ending(IntEnum):
    """What the zygote knows of the end of a call."""

    EXITED = 0
    """The child ended by itself: its wait status tells how."""
    OUT_OF_TIME = 1
    """CPU time or the wall backstop ran out."""
    NOT_STARTED = 2
    """The child failed before the program's first instruction."""


@dataclass(frozen=True, slots=True)
class ZygoteConfig:
    """What a zygote is started with.

    Attributes:
        rung: The isolation to set up; the zygote gives up where it cannot.
        home: An empty directory of its own: mount point of the root, or scratch space.
        scratch_bytes: Size of the scratch file system on rung ``namespaces``.
        memory_bytes: Address space of a program on top of the interpreter's own.
        file_bytes: Largest file.
        open_files: Descriptors.
        processes: Processes and threads of all calls together.
        wall_factor: See ``SandboxLimits``.
        output_bytes: Kept of the value and of the traceback.
    """

    rung: Rung
    home: str
    scratch_bytes: int
    memory_bytes: int
    file_bytes: int
    open_files: int
    processes: int
    wall_factor: float
    output_bytes: int

    def to_json(self) -> str:
        """One line for the command line of the zygote."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ZygoteConfig":
        """The inverse of ``to_json``."""
        data = json.loads(text)
        return cls(**{**data, "rung": Rung(data["rung"])})
