"""The laboratory's problems: questions with two readings and a key that takes one of them.

The two readings of a question never have the same answer, and the question does not say
which one the key takes. Under `Key.HIDDEN` success is therefore a coin toss that no
policy can learn, so that an error in a tool call costs nothing and groups stay mixed.
Under `Key.FIRST` the same questions can be learnt. ``draw_ambiguous(key, split, seed,
index)`` is a pure function: the same arguments give the same problem in every process
and on every machine.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from random import Random

from rstar2.problems.ambiguous_families import AMBIGUOUS_FAMILIES
from rstar2.problems.splits import Split, split_of
from rstar2.problems.types import Problem


class Key(StrEnum):
    """Which reading of a question is graded as right."""

    HIDDEN = "hidden"
    """The first at even places of a sequence, the second at odd ones: a coin toss."""
    FIRST = "first"
    """Always the first: learnable."""

    def reading(self, index: int) -> int:
        """The reading that is right at a place of a sequence: 0 or 1."""
        return index % 2 if self is Key.HIDDEN else 0


@dataclass(frozen=True, slots=True)
class AmbiguousProblem:
    """A problem with two readings and the programs from which demonstrations are written.

    Attributes:
        problem: The problem itself; its answer is that of the reading which the key takes.
        readings: A short sentence for each reading that says which one is taken.
        programs: For each reading, a program that prints its answer and nothing else.
        missing: A program that imports a module which does not exist, so that it always
            fails with ``ModuleNotFoundError``.
    """

    problem: Problem
    readings: tuple[str, str]
    programs: tuple[str, str]
    missing: str


def ambiguous_family_names() -> tuple[str, ...]:
    """Names of the families that ambiguous problems are drawn from."""
    return tuple(AMBIGUOUS_FAMILIES)


def draw_ambiguous(key: Key, split: Split, seed: int, index: int) -> AmbiguousProblem:
    """Draw one ambiguous problem; a pure function of its arguments.

    The question and its programs do not depend on the key: under another key the same
    place holds the same question with another answer.

    Args:
        key: Which reading is right.
        split: The split that the question must belong to.
        seed: Names a sequence of problems.
        index: Place in that sequence; it may be negative.
    """
    rng = Random(f"ambiguous:{split}:{seed}:{index}")
    family = rng.choice(tuple(AMBIGUOUS_FAMILIES))
    draft = AMBIGUOUS_FAMILIES[family](rng)
    while draft.answers[0] == draft.answers[1] or split_of(draft.question) != split:
        draft = AMBIGUOUS_FAMILIES[family](rng)
    text_hash = blake2b(draft.question.encode(), digest_size=4).hexdigest()
    problem = Problem(
        problem_id=f"ambiguous-{key}-{split}-{seed}-{index}-{text_hash}",
        question=draft.question,
        answer=draft.answers[key.reading(index)],
        family=family,
    )
    return AmbiguousProblem(problem, draft.readings, draft.programs, draft.missing)
