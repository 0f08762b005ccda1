"""The laptop's problems: an endless, repeatable supply in three splits and four sets.

``draw(problem_set, split, seed, index)`` is a pure function: the same arguments give
the same problem in every process and on every machine. Which split a question
belongs to is decided by a hash of its text alone, so the splits share no question,
whatever the seed. A composition belongs to the split of the question inside it: no
held-out composition contains a question that was trained on.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from random import Random

from rstar2.problems.compositions import COMPOSITIONS, UNSEEN_COMPOSITIONS, Composition, compose
from rstar2.problems.families import FAMILIES, UNSEEN_FAMILIES, Draft, Family
from rstar2.problems.families.by_hand import COMPOSED_LIMIT, PLAIN_LIMIT, shortened
from rstar2.problems.splits import Split as Split
from rstar2.problems.splits import split_of as split_of
from rstar2.problems.types import Problem, WorkedProblem

BASELINE_DRAWS = 3000
"""Problems from which the guessing baseline learns the commonest answers."""


class ProblemSet(StrEnum):
    """The four sets of the held-out table."""

    FAMILIES = "families"
    """Questions of the trained families."""
    COMPOSITIONS = "compositions"
    """Trained compositions of questions of the trained families."""
    UNSEEN_FAMILIES = "unseen_families"
    """Questions of families that are never trained on."""
    UNSEEN_COMPOSITION = "unseen_composition"
    """A composition that is never trained on, of questions of the trained families."""

    @property
    def is_trained(self) -> bool:
        """Whether the set has a train split."""
        return self in (ProblemSet.FAMILIES, ProblemSet.COMPOSITIONS)


def family_names(problem_set: ProblemSet = ProblemSet.FAMILIES) -> tuple[str, ...]:
    """Names of the families that a set draws from."""
    return tuple(_families(problem_set))


def composition_names(problem_set: ProblemSet = ProblemSet.COMPOSITIONS) -> tuple[str, ...]:
    """Names of the compositions that a set draws from; empty for the sets of plain questions."""
    return tuple(_compositions(problem_set))


def draw(problem_set: ProblemSet, split: Split, seed: int, index: int) -> WorkedProblem:
    """Draw one problem; a pure function of its arguments.

    Args:
        problem_set: Which of the four sets.
        split: The split that the question must belong to.
        seed: Names a sequence of problems.
        index: Place in that sequence.

    Raises:
        ValueError: If the train split of a set that is never trained on is asked for.
    """
    if split == Split.TRAIN and not problem_set.is_trained:
        raise ValueError(
            f"problem set {problem_set} has no train split, as nothing is trained on it: "
            f"ask for {Split.DEV} or {Split.HELD_OUT}"
        )
    name = f"{problem_set}:{split}:{seed}:{index}"
    rng = Random(name)
    families, compositions = _families(problem_set), _compositions(problem_set)
    family = rng.choice(tuple(families))
    draft = families[family](rng)
    while split_of(draft.question) != split:
        draft = families[family](rng)
    composition = ""
    if compositions:
        composition = rng.choice(tuple(compositions))
        draft = compose(draft, compositions[composition], rng)
    return _worked(draft, name, family, composition)


def draw_mixed(split: Split, seed: int, index: int, composition_share: float) -> WorkedProblem:
    """Draw from the trained families or, with a given probability, the trained compositions.

    Args:
        split: The split that the question must belong to.
        seed: Names a sequence of problems.
        index: Place in that sequence.
        composition_share: Probability of a composition, from 0 to 1.

    Raises:
        ValueError: If ``composition_share`` is no probability.
    """
    if not 0.0 <= composition_share <= 1.0:
        raise ValueError(f"composition_share is {composition_share}: give a number from 0 to 1")
    composed = Random(f"mixed:{split}:{seed}:{index}").random() < composition_share
    return draw(ProblemSet.COMPOSITIONS if composed else ProblemSet.FAMILIES, split, seed, index)


def guessing_baseline(problem_set: ProblemSet, split: Split, seed: int, count: int) -> float:
    """Accuracy of a guesser that knows only which answers are common.

    On the trained sets it answers with the commonest answer of the problem's family
    and composition among train problems. The unseen sets have no train problems:
    there it answers everything with the commonest answer among dev problems.

    Args:
        problem_set: The set to guess on.
        split: The split to guess on.
        seed: The sequence of problems to guess on.
        count: How many of its first problems, at least 1.

    Returns:
        The share guessed right, from 0 to 1. What it learns from lies beyond the
        first ``count`` of the sequence, so it never sees the problems it guesses.
    """
    known_split = Split.TRAIN if problem_set.is_trained else Split.DEV
    answers: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for index in range(count, count + BASELINE_DRAWS):
        known = draw(problem_set, known_split, seed, index).problem
        answers[_kind(known, problem_set)][known.answer] += 1
    guesses = {kind: seen.most_common(1)[0][0] for kind, seen in answers.items()}
    problems = [draw(problem_set, split, seed, index).problem for index in range(count)]
    return sum(guesses[_kind(p, problem_set)] == p.answer for p in problems) / count


def _kind(problem: Problem, problem_set: ProblemSet) -> tuple[str, str]:
    return (problem.family, problem.composition) if problem_set.is_trained else ("", "")


def _families(problem_set: ProblemSet) -> Mapping[str, Family]:
    return UNSEEN_FAMILIES if problem_set == ProblemSet.UNSEEN_FAMILIES else FAMILIES


def _compositions(problem_set: ProblemSet) -> Mapping[str, Composition]:
    if problem_set == ProblemSet.COMPOSITIONS:
        return COMPOSITIONS
    return UNSEEN_COMPOSITIONS if problem_set == ProblemSet.UNSEEN_COMPOSITION else {}


def _worked(draft: Draft, name: str, family: str, composition: str) -> WorkedProblem:
    text_hash = blake2b(draft.question.encode(), digest_size=4).hexdigest()
    problem_id = f"{name}:{text_hash}".replace(":", "-")
    problem = Problem(problem_id, draft.question, draft.answer, family, composition)
    steps = shortened(draft.steps, COMPOSED_LIMIT if composition else PLAIN_LIMIT)
    return WorkedProblem(problem, draft.plan, draft.right, draft.wrong, steps)
