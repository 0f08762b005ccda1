"""Further families from reasoning-gym: its questions and answers, our splits and our grader.

Only tasks whose commonest answer is rare are taken: there a guess earns next to nothing. Install
them with the ``gym`` extra. The split of a question is decided by a hash of its numbers, as
reasoning-gym puts the same numbers into several wordings. The package's own scorer is not used:
it pays for answers that are a part of the right one.
"""

import importlib
import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from types import ModuleType

from rstar2.errors import UserError
from rstar2.grading import parse_integer
from rstar2.problems.laptop import Split, split_of
from rstar2.problems.types import Problem

SCANNED_PER_PROBLEM = 100
"""Entries that are looked at for each problem asked for before the search is given up."""


class GymTask(StrEnum):
    """The tasks of reasoning-gym with integer answers that are hard to guess."""

    BASIC_ARITHMETIC = "basic_arithmetic"
    CHAIN_SUM = "chain_sum"
    PRODUCTS = "products"
    LCM = "lcm"
    COUNT_PRIMES = "count_primes"
    SIMPLE_EQUATIONS = "simple_equations"
    SIMPLE_GEOMETRY = "simple_geometry"
    LEG_COUNTING = "leg_counting"
    GSM_SYMBOLIC = "gsm_symbolic"


class GymError(UserError):
    """reasoning-gym is not installed, or a task has too few questions."""


@dataclass(frozen=True, slots=True)
class GymProblems:
    """The first problems of one sequence.

    Attributes:
        problems: No two have the same question.
        not_integer: Entries passed over because our grader reads no integer in their answer.
        repeated: Entries passed over because an earlier one asks the same.
    """

    problems: tuple[Problem, ...]
    not_integer: int
    repeated: int


def gym_problems(task: GymTask, split: Split, seed: int, count: int) -> GymProblems:
    """The first problems of a task in a split; a pure function for one version of the package.

    Args:
        task: The task, with the package's default difficulty.
        split: The split that the questions must belong to.
        seed: Names a sequence of problems.
        count: How many.

    Raises:
        GymError: If the package is missing, or the task has fewer such questions.
    """
    # The package seeds entry i with seed + i: neighbouring seeds would share their entries.
    start = int.from_bytes(blake2b(f"gym:{task}:{seed}".encode(), digest_size=4).digest()) >> 1
    limit = SCANNED_PER_PROBLEM * count
    entries = _package().create_dataset(task.value, seed=start, size=max(1, limit))
    found: dict[str, Problem] = {}
    not_integer = repeated = 0
    for index in range(limit):
        if len(found) == count:
            break
        entry = entries[index]
        question = str(entry["question"]).strip()
        if split_of(_numbers_of(task, question)) != split:
            continue
        answer = parse_integer(str(entry["answer"]))
        if answer is None:
            not_integer += 1
        elif question in found:
            repeated += 1
        else:
            name = f"gym-{task}-{split}-{seed}-{index}"
            found[question] = Problem(name, question, answer, f"gym_{task}")
    if len(found) < count:
        raise GymError(
            f"reasoning-gym task {task} gave {len(found)} different {split} questions with an "
            f"integer answer in {limit} entries, not {count}: ask for fewer"
        )
    return GymProblems(tuple(found.values()), not_integer, repeated)


def _numbers_of(task: GymTask, question: str) -> str:
    """The task and the numbers of a question: the same in all of its wordings."""
    return " ".join((task, *re.findall(r"\d+", question)))


def _package() -> ModuleType:
    try:
        return importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        if error.name != "reasoning_gym":
            raise
        raise GymError(
            "the reasoning-gym tasks need a package that is not installed: "
            "pip install 'rstar2[gym]'"
        ) from error
