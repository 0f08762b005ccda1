"""What a program may use, what it runs behind, and the ways the sandbox itself can fail."""

from dataclasses import dataclass, fields
from enum import StrEnum

LONGEST_TIMEOUT = 86_400
"""Seconds: a day."""
_LARGEST = 1 << 40
_REPORT_BYTES = 12
"""Of JSON for one character, see ``result.report_bytes``."""


class SandboxUnsupported(RuntimeError):
    """This machine cannot run the sandbox at all; the message names what is missing."""


class SandboxUnavailable(RuntimeError):
    """The sandbox failed, not the program: retry later, never show it to the model."""


class BadCall(ValueError):
    """The call cannot be run as it stands: the caller's mistake, not the program's."""


class Rung(StrEnum):
    """How strongly programs are kept apart from the machine."""

    STRICT = "strict"
    """Namespaces, Landlock where the kernel has it, seccomp, resource limits."""
    PORTABLE = "portable"
    """Landlock, seccomp, resource limits: what an unprivileged container can do."""
    NONE = "none"
    """Resource limits only, for programs that are trusted; never chosen automatically."""


class Tier(StrEnum):
    """What a zygote has loaded: the more, the dearer its fork and the cheaper an import."""

    BARE = "bare"
    """The standard library's mathematics."""
    SYMPY = "sympy"
    """And numpy and sympy."""
    FULL = "full"
    """And scipy."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one call.

    Attributes:
        timeout: Seconds of a call that names none. The program's own seconds, running or
            sleeping: waiting for a CPU does not count.
        memory_mib: Address space on top of the interpreter's own, MiB.
        output_bytes: What is kept of stdout and of stderr, bytes each, and of a value or a
            traceback, characters.
        code_length: Longest program, and longest stdin, characters.
        file_mib: Largest file (stdout included) that a program may write, MiB.
        scratch_mib: All files of a call together, MiB.
        open_files: Open file descriptors.
        threads: Threads of a call (on rung ``strict``; memory alone bounds them elsewhere).

    Raises:
        ValueError: If a limit is not positive, or ``file_mib`` too small for the output.
    """

    timeout: float = 5.0
    memory_mib: int = 1024
    output_bytes: int = 65536
    code_length: int = 1 << 20
    file_mib: int = 16
    scratch_mib: int = 32
    open_files: int = 64
    threads: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "timeout":
                _check_seconds(value, ValueError)
            elif not isinstance(value, int) or not 0 < value <= _LARGEST:
                raise ValueError(
                    f"SandboxLimits.{field.name} is {value!r}: it must be a whole number from 1"
                )
        if _REPORT_BYTES * self.output_bytes + 1024 > self.file_mib << 20:
            raise ValueError(
                f"SandboxLimits.file_mib is {self.file_mib}: too little to tell of "
                f"output_bytes {self.output_bytes}, which may take {_REPORT_BYTES} bytes each"
            )

    def check(self, code: object, stdin: object, timeout: object) -> tuple[str, str, float]:
        """Refuse a call that cannot be run.

        Raises:
            BadCall: Text that is none or too long, a timeout that is not positive or above a day.
        """
        for name, text in (("code", code), ("stdin", stdin)):
            if not isinstance(text, str):
                raise BadCall(f"{name} is {type(text).__name__}: it must be a string")
            if len(text) > self.code_length:
                raise BadCall(
                    f"{name} has {len(text)} characters: at most {self.code_length} are run"
                )
        seconds = _check_seconds(self.timeout if timeout is None else timeout, BadCall)
        return str(code), str(stdin), seconds


def _check_seconds(value: object, kind: type[ValueError]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise kind(f"timeout is {value!r}: it must be a number of seconds")
    if not 0 < value <= LONGEST_TIMEOUT:
        shown = str(value) if isinstance(value, float) or abs(value) < 10**15 else "far too large"
        raise kind(f"timeout is {shown}: it must be positive, and at most {LONGEST_TIMEOUT} s")
    return float(value)
