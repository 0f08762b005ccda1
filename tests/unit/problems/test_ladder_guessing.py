"""The ladder: what a guesser earns who knows which answers are common, or copies from the text."""

import re
from collections import Counter
from functools import cache

import pytest

from rstar2.problems import Problem, Split
from rstar2.problems.ladder import LadderLevel, draw, guessing_baseline, ladder_names, ladder_table

DRAWS = 400


@cache
def drawn(family: str, level: LadderLevel, split: Split) -> tuple[Problem, ...]:
    return tuple(draw(family, level, split, 0, index) for index in range(DRAWS))


@pytest.mark.thorough
@pytest.mark.parametrize("level", LadderLevel)
@pytest.mark.parametrize("family", ladder_names())
def test_guesses_earn_next_to_nothing_and_questions_seldom_repeat(
    family: str, level: LadderLevel
) -> None:
    train, held_out = drawn(family, level, Split.TRAIN), drawn(family, level, Split.HELD_OUT)
    commonest, times = Counter(problem.answer for problem in train).most_common(1)[0]
    copied = [str(p.answer) in re.findall(r"-?\d+", p.question) for p in held_out]

    assert sum(problem.answer == commonest for problem in held_out) / DRAWS < 0.04
    assert times / DRAWS < 0.04
    assert sum(copied) / DRAWS < 0.08, "the answer stands in the question"
    assert len({problem.question for problem in held_out}) / DRAWS > 0.92


def test_the_baseline_of_the_package_is_that_share() -> None:
    family, level = "word_rank", LadderLevel.ONE
    train, held_out = drawn(family, level, Split.TRAIN), drawn(family, level, Split.HELD_OUT)
    commonest = Counter(problem.answer for problem in train).most_common(1)[0][0]
    share = sum(problem.answer == commonest for problem in held_out) / DRAWS
    assert share > 0
    assert guessing_baseline(family, level, 0, DRAWS) == share


def test_the_table_has_a_row_for_each_family_and_level() -> None:
    rows = ladder_table(seed=3, count=4)
    wanted = [(family, level) for family in ladder_names() for level in LadderLevel]
    assert [(row.family, row.level) for row in rows] == wanted
    assert all(row.example.family == row.family for row in rows)
    assert all(row.example == draw(row.family, row.level, Split.HELD_OUT, 3, 0) for row in rows)
    assert all(0 <= row.baseline <= 1 for row in rows)
