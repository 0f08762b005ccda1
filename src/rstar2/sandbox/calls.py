"""The memory files of one call, and its result from what is left in them."""

import os
import tempfile
from types import TracebackType
from typing import Self

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.process import ZygoteLost
from rstar2.sandbox.result import Files, Reply, Scrubber, read_result, read_text


class CallFiles:
    """Five files in memory: program, stdin, stdout, stderr, report.

    They are made on entering and gone on leaving, so a call that waits holds none.

    Attributes:
        handles: Their descriptors, in that order.
    """

    def __init__(self, code: str, stdin: str) -> None:
        self._texts = (code, stdin)
        self.handles: list[int] = []

    def __enter__(self) -> Self:
        """Make them.

        Raises:
            ZygoteLost: If the machine has no descriptors or memory left.
        """
        try:
            for _ in range(5):
                self.handles.append(_memory_file())
            self.fill(*self._texts)
        except OSError as error:
            self._close()
            raise ZygoteLost(f"no memory files for the call: {error}") from error
        except ZygoteLost:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        while self.handles:
            os.close(self.handles.pop())

    def fill(self, code: str, stdin: str) -> None:
        """Put the next program in; the others are emptied.

        Raises:
            ZygoteLost: If the machine has no memory left.
        """
        for handle, text in zip(self.handles, (code, stdin, "", "", ""), strict=True):
            data = text.encode("utf-8", "surrogatepass")
            try:
                os.ftruncate(handle, 0)
                written = os.pwrite(handle, data, 0) if data else 0
            except OSError as error:
                raise ZygoteLost(f"a call's memory file cannot be written: {error}") from error
            if written < len(data):
                raise ZygoteLost("a call's memory file is full")

    def result(self, reply: Reply, limit: int, scrub: Scrubber, scratch: str) -> ToolResult:
        """Judge the program by how it ended and by what it left.

        Args:
            reply: Its end.
            limit: Bytes kept of each text.
            scrub: Takes addresses and paths out.
            scratch: The zygote's directory of scratches.
        """
        _, _, stdout, stderr, report = self.handles
        files = Files.read(stdout, stderr, report, limit)
        return read_result(reply, files, lambda text: scrub(text, scratch))

    def fault(self) -> str:
        """Why the program was not started, as the zygote wrote it."""
        return read_text(self.handles[-1])


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("call")
    with tempfile.TemporaryFile() as file:  # not on Linux
        return os.dup(file.fileno())
