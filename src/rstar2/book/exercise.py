"""Exercises that check the reader's answer and say in plain words what is wrong.

An answer is a value or a function. An exercise states the cases that it must
meet; until the reader writes something, it says that it waits, so a chapter
with open exercises still runs from top to bottom.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SOLUTION = re.compile(
    r"^(?P<fence>`{4,})\{solution\}\s+(?P<name>\S+)\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S
)
_CODE = re.compile(r"^```python\n(.*?)^```\s*$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Case:
    """What a function must return.

    Attributes:
        args: Positional arguments.
        want: The right result: a number, an array of numbers, or anything with ``==``.
        why: What the case is about, to complete "it fails for …".
    """

    args: tuple[Any, ...]
    want: object
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an answer.

    Attributes:
        passed: Whether it is right.
        message: The same in words.
    """

    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question whose answer checks itself.

    Attributes:
        name: As the reader knows it, such as ``Exercise 1``.
        cases: What a function must return for which arguments.
        want: The value asked for, where the answer is no function.
        hint: What to think about after a wrong answer.
        tolerance: Largest difference of two numbers that still counts as equal.
    """

    name: str
    cases: tuple[Case, ...] = ()
    want: object = None
    hint: str = ""
    tolerance: float = 1e-6

    def check(self, answer: object) -> Verdict:
        """Judge an answer: ``...`` or ``None`` stand for "not yet"."""
        if answer is None or answer is ...:
            return Verdict(False, f"{self.name}: waiting for your answer.")
        if not self.cases:
            return self._say(self._difference(answer, self.want, "your answer is"))
        if not callable(answer):
            return self._say(f"a function is asked for, not {answer!r}.")
        return self._say(next(filter(None, (self._try(answer, case) for case in self.cases)), ""))

    def __call__(self, answer: object) -> None:
        """Judge an answer and print the verdict."""
        verdict = self.check(answer)
        print(f"{'✓' if verdict.passed else '·'} {verdict.message}")

    def _try(self, function: Callable[..., object], case: Case) -> str:
        shown = ", ".join(map(repr, case.args))
        try:
            got = function(*case.args)
        except Exception as error:  # the reader's code may raise anything; that is the verdict
            return (
                f"it fails for {case.why}: your function raised "
                f"{type(error).__name__}: {error} (arguments: {shown})."
            )
        fault = self._difference(got, case.want, "your function returns")
        return f"it fails for {case.why}: {fault} (arguments: {shown})" if fault else ""

    def _difference(self, got: object, want: object, subject: str) -> str:
        if _is_numeric(want):
            if not _is_numeric(got):
                return f"{subject} {got!r}, a number or an array of numbers is asked for."
            found, wanted = np.asarray(got), np.asarray(want)
            if found.shape != wanted.shape:
                return f"{subject} of shape {found.shape}, {wanted.shape} is asked for."
            equal = bool(np.allclose(found, wanted, rtol=0, atol=self.tolerance))
        else:
            equal = got == want
        return "" if equal else f"{subject} {got!r}, which is not right."

    def _say(self, fault: str) -> Verdict:
        if not fault:
            return Verdict(True, f"{self.name}: right.")
        return Verdict(
            False, f"{self.name}: not yet; {fault}{' Hint: ' * bool(self.hint)}{self.hint}"
        )


def _is_numeric(value: object) -> bool:
    if isinstance(value, bool | str) or value is None:
        return False
    try:
        return bool(np.issubdtype(np.asarray(value).dtype, np.number))
    except ValueError:  # a ragged sequence
        return False


@dataclass(frozen=True, slots=True)
class Solution:
    """The code of a folded solution.

    Attributes:
        name: Label of the exercise that it solves.
        code: Its Python blocks, joined.
    """

    name: str
    code: str


def solutions(cells: Sequence[dict[str, Any]]) -> tuple[Solution, ...]:
    """Find the ``{solution}`` blocks in a notebook's Markdown cells.

    Args:
        cells: The notebook's cells as in its JSON; ``source`` is a string or lines.

    Returns:
        In the order of the chapter; a solution in words alone has empty code.
    """
    text = "\n".join(
        "".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "markdown"
    )
    return tuple(
        Solution(match["name"], "\n".join(_CODE.findall(match["body"])))
        for match in _SOLUTION.finditer(text)
    )
