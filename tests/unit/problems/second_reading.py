"""How the text of a question is read back into numbers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


class Reading:
    """The values that a wording names, as text."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields

    def text(self, name: str) -> str:
        return self.fields[name]

    def int(self, name: str) -> int:
        return int(self.fields[name])

    def ints(self, *names: str) -> list[int]:
        """One list under one name, or several single numbers."""
        return [int(part) for name in names for part in self.fields[name].split(", ")]

    def tuples(self, name: str) -> list[tuple[int, ...]]:
        groups = re.findall(r"\(([^()]*)\)", self.fields[name])
        return [tuple(map(int, group.split(", "))) for group in groups]


@dataclass(frozen=True)
class SecondMethod:
    """How a family's questions read, what their size is, and how else they are solved.

    A wording is the text of a question in which ``<name>`` stands for a value and ``~`` for
    words that hold none.
    """

    wordings: tuple[str, ...]
    size: Callable[[Reading], int]
    solve: Callable[[Reading], int]

    def read(self, question: str) -> tuple[int, Reading]:
        """Which wording fits, and its values."""
        fits = [
            (at, Reading(found.groupdict()))
            for at, wording in enumerate(self.wordings)
            if (found := re.fullmatch(pattern(wording), question))
        ]
        assert len(fits) == 1, f"{len(fits)} wordings fit: {question}"
        return fits[0]


@cache
def pattern(wording: str) -> str:
    """The regular expression of a wording; a name that comes again must have the same value."""
    seen: set[str] = set()
    parts = []
    for part in re.split(r"(<\w+>|~)", wording):
        if part == "~":
            parts.append(r"[^0-9]*?")
        elif part.startswith("<"):
            name = part[1:-1]
            parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>.+?)")
            seen.add(name)
        else:
            parts.append(re.escape(part))
    return "".join(parts)
