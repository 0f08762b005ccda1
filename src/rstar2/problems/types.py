"""What a problem is: a question with an integer answer, and programs that solve it or do not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A question whose answer is one integer (paper, section 4.2).

    Attributes:
        problem_id: Names the draw: set, split, stream and index. The same name is always the
            same problem; a problem that is drawn twice has two names.
        question: The text that the model reads.
        answer: The right answer.
        family: The family that the question comes from.
        composition: The outer operation put on the family's question; empty if none.
    """

    problem_id: str
    question: str
    answer: int
    family: str
    composition: str = ""


@dataclass(frozen=True, slots=True)
class WorkedProblem:
    """A problem with the programs from which demonstrations are written.

    Attributes:
        problem: The problem itself.
        plan: A short clause that says how to solve it, as ``count the divisors``.
        right: One to three programs that print the answer and nothing else.
        wrong: One or two plausible programs that run and print, but for rare
            coincidences, another number.
        steps: How to solve it by hand, without a program: short ASCII sentences, the last one
            stating the answer, ``...`` where some are left out; empty if nobody wrote them.
    """

    problem: Problem
    plan: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    steps: tuple[str, ...]
