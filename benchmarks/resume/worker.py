"""One session of a run, as a process that may be killed.

    python -m benchmarks.resume.worker PRESET SEED sft grpo-roc

makes the runs that are named, in the checkout in which it stands, and goes on with those that
a former session began. Problems have one of four answers, so that a model of seconds is right
now and then, groups are mixed and every RL step moves the weights.
"""

import sys
from functools import cache

from rstar2.experiments.planner import Planner
from rstar2.experiments.plans import SFT_ARM
from rstar2.experiments.worker import make
from rstar2.problems import Split, WorkedProblem, draw_mixed
from rstar2.training import family_world

ANSWERS = frozenset({0, 4, 12, 18})
_PLACES = 1000


@cache
def draw_guessable(split: Split, seed: int, index: int, share: float) -> WorkedProblem:
    """The first problem from a place on whose answer may be guessed; its programs print it."""
    places = range(_PLACES * index, _PLACES * (index + 1))
    drawn = (draw_mixed(split, seed, place, share) for place in places)
    posed = next(worked.problem for worked in drawn if worked.problem.answer in ANSWERS)
    programs = (f"print({posed.answer})", f"n={posed.answer}\nfor i in [n]:\n  print(i)")
    return WorkedProblem(posed, "guess", programs, programs, (f"{posed.answer}.",))


def work(preset: str, seed: int, arms: list[str]) -> None:
    """Makes runs, or goes on with them: ``sft``, or an arm after it."""
    family_world.draw_mixed = draw_guessable
    for arm in arms:
        planner = Planner()
        if arm == SFT_ARM:
            plan = planner.sft(preset, seed, "book")
        else:
            plan = planner.rl(preset, seed, "book", arm)
        make(plan, lambda: False)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
