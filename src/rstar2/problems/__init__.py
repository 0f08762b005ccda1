"""Problems with integer answers: where they come from and which programs solve them."""

from rstar2.problems.laptop import (
    ProblemSet,
    composition_names,
    draw,
    draw_mixed,
    family_names,
    guessing_baseline,
)
from rstar2.problems.splits import Split, split_of
from rstar2.problems.types import Problem, WorkedProblem

__all__ = [
    "Problem",
    "ProblemSet",
    "Split",
    "WorkedProblem",
    "composition_names",
    "draw",
    "draw_mixed",
    "family_names",
    "guessing_baseline",
    "split_of",
]
