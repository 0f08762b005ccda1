"""What the grader says: a verdict with its reason, or that the label is unusable.

Every way an answer can fail has a name here, so that a run can count them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from rstar2.errors import UserError


class Reason(StrEnum):
    """Why a response was paid or not."""

    CORRECT = "correct"
    """The box holds the gold integer."""
    MISMATCH = "mismatch"
    """The box holds another integer."""
    NO_ANSWER_BLOCK = "no_answer_block"
    """The model wrote no ``<answer>`` tag."""
    UNCLOSED = "unclosed"
    """No ``<answer>`` was closed, or the deciding block has a ``\\boxed{`` without an end."""
    NO_BOX = "no_box"
    """The answer block has no ``\\boxed{}``."""
    EMPTY_BOX = "empty_box"
    """Every box of the answer block is blank or holds only dots."""
    HEDGE = "hedge"
    """Two boxes or two blocks say different things."""
    NOT_INTEGER = "not_integer"
    """The box does not denote one integer in an allowed style."""
    TOO_LONG = "too_long"
    """The box holds more characters than an answer may have."""
    TRUNCATED = "truncated"
    """The rollout was cut off before the model's last word; what it wrote does not count."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox or the engine failed; the rollout must be replaced, not learnt from."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of one response.

    Attributes:
        correct: Whether it earns the reward of 1.
        value: The integer that was read; None if there was none, and None for an
            integer of more than 14,000 bits, which Python may refuse to print or to
            write as JSON. Such an integer is still compared exactly.
        reason: Why.
        box: The content of the box that decided, as the model wrote it, cut at 5,000
            characters; empty if none did. Two verdicts may be equal and differ in it.
    """

    correct: bool
    value: int | None
    reason: Reason
    box: str = field(default="", compare=False)


class BadGold(UserError):
    """The gold answer is not an integer, so nothing can be graded against it."""
