"""The ladder: what its questions say, that their answers are right, and that they repeat."""

import os
import re
import subprocess
import sys
from itertools import combinations
from string import Formatter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from second_methods import SECOND_METHODS

from rstar2.errors import UserError
from rstar2.grading import grade
from rstar2.problems import Problem, Split, split_of
from rstar2.problems.ladder import LadderLevel, draw, ladder_family, ladder_names

FAMILIES = ladder_names()
CHECKED = 15
"""Problems of each split that a second method solves, per family and level."""


def problems(family: str, level: LadderLevel) -> list[Problem]:
    return [
        draw(family, level, split, 7, index)
        for split in (Split.TRAIN, Split.HELD_OUT)
        for index in range(CHECKED)
    ]


def normal(text: str) -> str:
    """Words and numbers alone, in lower case."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


# --- the families ---


def test_there_are_enough_families_and_each_has_a_second_method() -> None:
    assert len(FAMILIES) >= 24
    assert set(SECOND_METHODS) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_wording_shows_every_value(family: str) -> None:
    """So a question's text is the whole problem, and different problems have different texts."""
    phrasings = ladder_family(family).phrasings
    names = [{name for _, name, _, _ in Formatter().parse(p) if name} for p in phrasings]
    assert len(phrasings) >= 2
    assert all(shown == names[0] for shown in names)


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no family 'modular_power': choose from modular_powers,"):
        draw("modular_power", LadderLevel.ONE, Split.TRAIN, 0, 0)


# --- the answers ---


@pytest.mark.parametrize("level", LadderLevel)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_method_that_reads_the_text_finds_the_answer(
    family: str, level: LadderLevel
) -> None:
    second = SECOND_METHODS[family]
    wordings = set()
    for problem in problems(family, level):
        wording, reading = second.read(problem.question)
        assert second.solve(reading) == problem.answer, problem.question
        wordings.add(wording)
    assert wordings == set(range(len(second.wordings))), "a wording was never drawn"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_question_asks_for_grows_from_level_to_level(family: str) -> None:
    """Read from the texts: the largest question of a level is below the smallest of the next."""
    second = SECOND_METHODS[family]
    sizes = [
        [second.size(second.read(problem.question)[1]) for problem in problems(family, level)]
        for level in LadderLevel
    ]
    assert max(sizes[0]) < min(sizes[1])
    assert max(sizes[1]) < min(sizes[2])


def steps(family: str, problem: Problem) -> int:
    """Lines of Python that the second method runs; a call into a library counts as one."""
    second = SECOND_METHODS[family]
    reading = second.read(problem.question)[1]
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        second.solve(reading)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("family", FAMILIES)
def test_level_one_takes_a_short_plain_search(family: str) -> None:
    drawn = problems(family, LadderLevel.ONE)[:5]
    assert max(steps(family, problem) for problem in drawn) < 20_000


# --- the draws ---


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_are_plain_and_answers_are_integers_that_our_grader_reads(family: str) -> None:
    for level in LadderLevel:
        for problem in problems(family, level):
            assert problem.question.isascii()
            assert problem.question[0].isalpha()
            assert problem.question[-1] in ".?"
            assert len(problem.question) < 2_000
            assert type(problem.answer) is int
            assert abs(problem.answer) < 10**40
            assert problem.family == family
            assert str(level) in problem.problem_id.split("-")
            boxed = f"<answer>\\boxed{{{problem.answer}}}</answer>"
            assert grade(boxed, problem.answer).correct


@given(
    st.sampled_from(FAMILIES),
    st.sampled_from(LadderLevel),
    st.sampled_from(Split),
    st.integers(-(2**32), 2**64),
    st.integers(0, 10**9),
)
@settings(max_examples=150)
def test_a_draw_depends_on_its_arguments_alone(
    family: str, level: LadderLevel, split: Split, seed: int, index: int
) -> None:
    drawn = draw(family, level, split, seed, index)
    assert drawn == draw(family, level, split, seed, index)
    assert drawn.question != draw(family, level, split, seed + 1, index).question


def test_another_process_with_other_string_hashes_and_locale_draws_the_same() -> None:
    program = (
        "from rstar2.problems import Split\n"
        "from rstar2.problems.ladder import LadderLevel, draw, ladder_names\n"
        "for name in ladder_names():\n"
        "    print([draw(name, level, Split.DEV, 5, 1) for level in LadderLevel])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": locale},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, locale in (("1", "C"), ("2", "tr_TR.UTF-8"))
    }
    here = "".join(
        f"{[draw(name, level, Split.DEV, 5, 1) for level in LadderLevel]}\n" for name in FAMILIES
    )
    assert outputs == {here}


# --- the splits ---


@pytest.mark.thorough
def test_splits_share_no_text_also_when_only_words_and_numbers_are_kept() -> None:
    cells = [(family, level) for family in FAMILIES for level in LadderLevel]
    texts = {
        split: {
            draw(*cells[index % len(cells)], split, index % 3, index).question
            for index in range(2_000)
        }
        for split in Split
    }
    assert all(len(found) > 1_960 for found in texts.values()), "drawn twice: more than 2%"
    for one, other in combinations(Split, 2):
        assert not texts[one] & texts[other]
        assert not set(map(normal, texts[one])) & set(map(normal, texts[other]))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_in_other_words_stays_in_its_split(family: str) -> None:
    first = ladder_family(family).phrasings[0]
    for level in LadderLevel:
        for split in Split:
            question = draw(family, level, split, 1, 1).question
            values = SECOND_METHODS[family].read(question)[1].fields
            assert split_of(first.format(**values)) is split
