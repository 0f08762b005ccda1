"""What flows through the data pipeline: rows, and what each step did with them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Row:
    """One problem on its way from a raw set to the training pool.

    Attributes:
        source: Name of its source, as ``dapo-17k``.
        row_id: Its id or number there; with ``source`` it names the row.
        question: The text, as the source has it until a step rewrites it.
        gold: The label, as the source has it until it has become a decimal integer.
        notes: Facts of the source that a rule may need, as ``{"label_from": "majority"}``.
    """

    source: str
    row_id: str
    question: str
    gold: str
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Names the row among all sources."""
        return f"{self.source}/{self.row_id}"


class DropReason(StrEnum):
    """Why a row does not reach the pool."""

    EMPTY_QUESTION = "empty_question"
    """The question is blank once its wrapper text is off."""
    BAD_GOLD = "bad_gold"
    """The label does not denote one integer in a style that the grader reads."""
    HUGE_GOLD = "huge_gold"
    """The label has 40 digits or more."""
    LANGUAGE = "language"
    """Letters of another script than Latin and Greek."""
    SHORT = "short"
    """Fewer characters than a problem can have."""
    PROOF = "proof"
    """It asks for a proof and no number."""
    CHOICE = "choice"
    """It is multiple choice: the label may be the option, not the value."""
    FIGURE = "figure"
    """It cannot be solved without a figure that is not there."""
    SEVERAL = "several"
    """It asks several questions and has one label."""
    FIND_ALL = "find_all"
    """It asks for all of something and the label is not their number."""
    ANSWER_SHOWN = "answer_shown"
    """The label is the last word of the question."""
    LABEL_SOURCE = "label_source"
    """The label is only what most model solutions said."""
    CONFLICT = "conflict"
    """Copies of it have different labels, so at least one is wrong."""
    DUPLICATE = "duplicate"
    """The same text, but for spacing and case, stands earlier."""
    NEAR_DUPLICATE = "near_duplicate"
    """Almost the same text stands earlier."""
    CONTAMINATED = "contaminated"
    """It is, or is nearly, a problem of a benchmark."""
    REVIEWED = "reviewed"
    """A person took it out after reading it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that a step took out.

    Attributes:
        row: The row as the step got it.
        reason: Why.
        detail: What decided it: the words that matched, the other row's name, both labels.
    """

    row: Row
    reason: DropReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A row that stays, for a person to look at.

    Attributes:
        row: The row.
        question: What is doubtful, in a few words.
        detail: What it was compared with, or what made it doubtful.
        score: How doubtful, from 0 to 1; the list is sorted by it.
    """

    row: Row
    question: str
    detail: str
    score: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did: every row that went in is kept or dropped.

    Attributes:
        kept: Rows that go on, in their order, perhaps rewritten.
        dropped: Rows that do not.
        doubts: Kept rows that a person should look at.
        facts: Further counts, as ``{"wrappers removed": 120}``.
    """

    kept: tuple[Row, ...]
    dropped: tuple[Dropped, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)


Progress = Callable[[int, int], None]
"""``progress(done, total)``, called now and then."""

_TICK = 1_000


def ticked(rows: Sequence[Row], progress: Progress) -> Iterator[Row]:
    """Go through rows and tell how far it is, now and then and at the end."""
    for done, row in enumerate(rows):
        if done % _TICK == 0:
            progress(done, len(rows))
        yield row
    progress(len(rows), len(rows))


StepFunction = Callable[[Sequence[Row], Progress], Outcome]
"""A pure function of its rows: the same rows give the same outcome, in the same order."""
