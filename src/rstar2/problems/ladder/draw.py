"""The ladder of laptop problems: families in three levels, drawn by name, repeatable.

``draw(family, level, split, seed, index)`` is a pure function, in every process and on every
machine. The split of a question is decided by a hash of its first wording, so that no split
holds the question of another, nor the same question in other words.
"""

from collections.abc import Mapping
from hashlib import blake2b
from random import Random
from types import MappingProxyType

from rstar2.errors import UserError
from rstar2.problems.ladder.counting import COUNTING
from rstar2.problems.ladder.digits import DIGITS
from rstar2.problems.ladder.family import LadderFamily, LadderLevel, worded
from rstar2.problems.ladder.graphs import GRAPHS
from rstar2.problems.ladder.modular import MODULAR
from rstar2.problems.ladder.number_theory import NUMBER_THEORY
from rstar2.problems.ladder.sequences import SEQUENCES
from rstar2.problems.laptop import Split, split_of
from rstar2.problems.types import Problem

LADDER: Mapping[str, LadderFamily] = MappingProxyType(
    {**MODULAR, **NUMBER_THEORY, **DIGITS, **COUNTING, **SEQUENCES, **GRAPHS}
)
"""The families by name."""


class LadderError(UserError):
    """A family that the ladder does not have."""


def ladder_names() -> tuple[str, ...]:
    """The names of the families."""
    return tuple(LADDER)


def ladder_family(name: str) -> LadderFamily:
    """The family of a name.

    Raises:
        LadderError: If there is none.
    """
    if name not in LADDER:
        raise LadderError(f"the ladder has no family {name!r}: choose from {', '.join(LADDER)}")
    return LADDER[name]


def draw(family: str, level: LadderLevel, split: Split, seed: int, index: int) -> Problem:
    """Draw one problem; a pure function of its arguments.

    Args:
        family: Name of a family.
        level: How much work the question takes.
        split: The split that the question must belong to.
        seed: Names a sequence of problems.
        index: Place in that sequence.

    Raises:
        LadderError: If there is no such family.
    """
    kind = ladder_family(family)
    name = f"ladder:{family}:{level}:{split}:{seed}:{index}"
    rng = Random(name)
    size = kind.size(level)
    numbers = kind.numbers(rng, size)
    while split_of(worded(kind.phrasings[0], numbers)) != split:
        numbers = kind.numbers(rng, size)
    question = worded(rng.choice(kind.phrasings), numbers)
    text_hash = blake2b(question.encode(), digest_size=4).hexdigest()
    problem_id = f"{name}:{text_hash}".replace(":", "-")
    return Problem(problem_id, question, kind.answer(**numbers), family)
