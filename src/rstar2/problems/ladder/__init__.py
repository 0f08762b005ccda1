"""The ladder: problem families of our own in three levels, from pen and paper to programs."""

from rstar2.problems.ladder.draw import LadderError, draw, ladder_family, ladder_names
from rstar2.problems.ladder.family import LadderFamily, LadderLevel
from rstar2.problems.ladder.table import LadderRow, guessing_baseline, ladder_table

__all__ = [
    "LadderError",
    "LadderFamily",
    "LadderLevel",
    "LadderRow",
    "draw",
    "guessing_baseline",
    "ladder_family",
    "ladder_names",
    "ladder_table",
]
