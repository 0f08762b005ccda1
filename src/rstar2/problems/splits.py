"""What a question may be used for: three splits, told apart by a hash of the question's text."""

from enum import StrEnum
from hashlib import blake2b


class Split(StrEnum):
    """What a question may be used for."""

    TRAIN = "train"
    """Training: 80% of all questions."""
    DEV = "dev"
    """Choosing settings: 10%."""
    HELD_OUT = "held_out"
    """Reported results: 10%."""


def split_of(question: str) -> Split:
    """The split of a family's question, from a hash of its text.

    Args:
        question: The text of a plain question, or of the one inside a composition.
    """
    decile = int.from_bytes(blake2b(question.encode(), digest_size=8).digest()) % 10
    return {0: Split.DEV, 1: Split.HELD_OUT}.get(decile, Split.TRAIN)
