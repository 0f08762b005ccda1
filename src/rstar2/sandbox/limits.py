"""What a program may use, and the two ways the sandbox itself can fail."""

from dataclasses import dataclass, fields


class SandboxUnsupported(RuntimeError):
    """This machine cannot run the sandbox at all; the message names what is missing."""


class SandboxUnavailable(RuntimeError):
    """The sandbox failed, not the program: retry later, never show it to the model."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one call.

    Attributes:
        cpu_seconds: CPU time of a call that names no ``timeout``.
        wall_factor: The wall clock stops a program that sleeps or waits after
            ``wall_factor * timeout`` seconds; waiting for a CPU does not count.
        memory_mib: Address space on top of the interpreter's own, MiB.
        output_bytes: What is kept of stdout, of the value and of the traceback, bytes.
        file_mib: Largest file (stdout included) that a program may write, MiB.
        open_files: Open file descriptors.
        processes: Processes and threads of a call; shared by the calls in flight.

    Raises:
        ValueError: If a limit is not positive or ``wall_factor`` is below 1.
    """

    cpu_seconds: float = 2.0
    wall_factor: float = 5.0
    memory_mib: int = 1024
    output_bytes: int = 65536
    file_mib: int = 16
    open_files: int = 64
    processes: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 1 if field.name == "wall_factor" else 0
            value = getattr(self, field.name)
            if not value > 0 or value < least:
                raise ValueError(
                    f"SandboxLimits.{field.name} is {value}: it must be "
                    + ("at least 1" if least else "positive")
                )
