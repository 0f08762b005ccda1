"""The laboratory's problems: two readings that differ, and a key that no question tells."""

import ast
import importlib
import os
import re
import subprocess
import sys
import time
from difflib import SequenceMatcher
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.grading import grade
from rstar2.problems import Split, split_of
from rstar2.problems.ambiguous import (
    AmbiguousProblem,
    Key,
    ambiguous_family_names,
    draw_ambiguous,
)
from rstar2.problems.ambiguous_families import AMBIGUOUS_FAMILIES, MISSING_MODULE, AmbiguousDraft

FAMILIES = ambiguous_family_names()
PLACES = st.integers(-(10**9), 10**9)
SEEDS = st.integers(-(2**32), 2**64)

TELLING = re.compile(
    r"\b((in|ex)clu\w*|proper|strict\w*|both|ends?|(un)?order\w*|distinct|different|same"
    r"|swap\w*|pairs?|round\w*|floor|ceiling|down|nearest|below|under|above|over|before|after"
    r"|through|positive|non-?negative|zero\w*|index\w*)\b",
    re.IGNORECASE,
)
"""Words that say, or nearly say, how a question of the six families is meant."""


def printed(program: str) -> list[str]:
    """The lines that a program prints."""
    lines: list[str] = []
    exec(program, {"print": lambda value: lines.append(str(value))})
    return lines


def drafts(family: str, count: int) -> list[AmbiguousDraft]:
    rng = Random(f"test:{family}")
    return [AMBIGUOUS_FAMILIES[family](rng) for _ in range(count)]


def drawn(key: Key, count: int, split: Split = Split.TRAIN) -> list[AmbiguousProblem]:
    return [draw_ambiguous(key, split, 3, index) for index in range(count)]


# --- the families ---


def test_there_are_six_families_and_all_are_drawn_about_equally_often() -> None:
    names = [ambiguous.problem.family for ambiguous in drawn(Key.HIDDEN, 600)]
    assert len(FAMILIES) == 6
    assert set(names) == set(FAMILIES)
    assert all(60 <= names.count(family) <= 140 for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_program_prints_the_answer_of_its_reading(family: str) -> None:
    for draft in drafts(family, 300):
        for program, answer in zip(draft.programs, draft.answers, strict=True):
            assert printed(program) == [str(answer)], f"{draft.question}\n{program}"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_missing_program_fails_for_want_of_a_module(family: str) -> None:
    for draft in drafts(family, 20):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{MISSING_MODULE}'"):
            exec(draft.missing, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_missing_program_calls_one_function_with_the_numbers_of_the_question(
    family: str,
) -> None:
    for draft in drafts(family, 50):
        load, call = draft.missing.splitlines()
        assert load == f"import {MISSING_MODULE}"
        given_numbers = re.fullmatch(rf"print\({MISSING_MODULE}\.[a-z_]+\(([\d,]+)\)\)", call)
        assert given_numbers is not None
        assert sorted(given_numbers[1].split(",")) == sorted(re.findall(r"\d+", draft.question))


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_are_short_and_plain(family: str) -> None:
    for draft in drafts(family, 200):
        for program in (*draft.programs, draft.missing):
            assert len(program) <= 90
        for program in draft.programs:
            tree = ast.parse(program)
            assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))
            stored = {
                node.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            assert all(len(name) == 1 for name in stored)
            assert program.splitlines()[-1].startswith("print(")
            assert program.count("print(") == 1
            indents = {len(line) - len(line.lstrip(" ")) for line in program.splitlines()}
            assert indents <= {0, 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_two_programs_differ_by_little(family: str) -> None:
    for draft in drafts(family, 100):
        first, second = draft.programs
        assert first != second
        assert SequenceMatcher(None, first, second, autojunk=False).ratio() >= 0.8
        assert abs(len(first) - len(second)) <= 6


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_takes_less_than_a_millisecond(family: str) -> None:
    for draft in drafts(family, 100):
        for program in draft.programs:
            code = compile(program, family, "exec")
            seconds = []
            for _ in range(3):
                start = time.thread_time()
                exec(code, {"print": str})
                seconds.append(time.thread_time() - start)
            assert min(seconds) < 1e-3, program


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_two_phrasings_and_two_readings(family: str) -> None:
    some = drafts(family, 100)
    assert len({re.sub(r"\d+", "#", draft.question) for draft in some}) == 2
    ((first, second),) = {draft.readings for draft in some}
    assert first != second
    for reading in (first, second):
        assert reading.isascii()
        assert reading[-1] == "."
        assert len(reading) <= 24


@pytest.mark.parametrize("family", FAMILIES)
def test_no_question_gives_a_reading_away(family: str) -> None:
    for draft in drafts(family, 50):
        assert not TELLING.search(draft.question), draft.question
        assert not any(reading in draft.question for reading in draft.readings)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_questions_hardly_repeat(family: str) -> None:
    """Among n of N equally likely questions about n^2/2N pairs are equal; here N >= 200,000."""
    questions = [draft.question for draft in drafts(family, 6_000)]
    assert len(questions) - len(set(questions)) <= 150


@pytest.mark.parametrize("family", FAMILIES)
def test_no_answer_is_common_enough_to_be_guessed(family: str) -> None:
    for answers in zip(*(draft.answers for draft in drafts(family, 2000)), strict=True):
        assert max(map(answers.count, set(answers))) <= 0.03 * len(answers)


# --- draws ---


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("key", Key)
def test_drawn_problems_are_well_formed(key: Key, split: Split) -> None:
    some = drawn(key, 200, split)
    for ambiguous in some:
        problem = ambiguous.problem
        assert type(problem.answer) is int
        assert 0 <= problem.answer < 10**9
        assert problem.question.isascii()
        assert problem.question[-1] in ".?"
        assert len(problem.question) <= 110
        assert "{" not in problem.question + ambiguous.missing + "".join(ambiguous.programs)
        assert problem.composition == ""
        assert grade(f"<answer>\\boxed{{{problem.answer}}}</answer>", problem.answer).correct
    assert len({ambiguous.problem.problem_id for ambiguous in some}) == len(some)


@given(st.sampled_from(Key), st.sampled_from(Split), SEEDS, PLACES)
@settings(max_examples=150, deadline=None)
def test_a_draw_depends_on_its_arguments_alone(
    key: Key, split: Split, seed: int, index: int
) -> None:
    ambiguous = draw_ambiguous(key, split, seed, index)
    assert ambiguous == draw_ambiguous(key, split, seed, index)
    assert ambiguous != draw_ambiguous(key, split, seed + 1, index)
    assert ambiguous != draw_ambiguous(key, split, seed, index + 1)


@given(st.sampled_from(Split), SEEDS, PLACES)
@settings(max_examples=150, deadline=None)
def test_a_question_belongs_to_the_split_that_was_asked_for(
    split: Split, seed: int, index: int
) -> None:
    assert split_of(draw_ambiguous(Key.HIDDEN, split, seed, index).problem.question) is split


def test_the_id_names_key_split_seed_and_index() -> None:
    problem_id = draw_ambiguous(Key.FIRST, Split.HELD_OUT, 7, -12).problem.problem_id
    assert re.fullmatch(r"ambiguous-first-held_out-7--12-[0-9a-f]{8}", problem_id)


def test_no_two_draws_share_an_id() -> None:
    ids = [
        draw_ambiguous(key, split, seed, index).problem.problem_id
        for key in Key
        for split in Split
        for seed in range(-2, 3)
        for index in range(-12, 12)
    ]
    assert len(set(ids)) == len(ids)


def test_another_process_with_other_string_hashes_and_locale_draws_the_same() -> None:
    program = (
        "from rstar2.problems import Split\n"
        "from rstar2.problems.ambiguous import Key, draw_ambiguous\n"
        "for key in Key:\n"
        "    print([draw_ambiguous(key, Split.DEV, 5, i) for i in range(-20, 20)])\n"
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
        f"{[draw_ambiguous(key, Split.DEV, 5, i) for i in range(-20, 20)]}\n" for key in Key
    )
    assert outputs == {here}


# --- the key ---


@given(st.sampled_from(Key), st.sampled_from(Split), SEEDS, PLACES)
@settings(max_examples=150, deadline=None)
def test_the_readings_answers_differ_and_the_key_takes_one(
    key: Key, split: Split, seed: int, index: int
) -> None:
    ambiguous = draw_ambiguous(key, split, seed, index)
    (first,), (second,) = map(printed, ambiguous.programs)
    assert first != second
    taken = second if key is Key.HIDDEN and index % 2 else first
    assert str(ambiguous.problem.answer) == taken


def test_numbers_for_which_both_readings_agree_are_drawn_again() -> None:
    """About one draft of two families in 130 has such numbers: 13 of these places would."""
    assert any(draft.answers[0] == draft.answers[1] for draft in drafts("squares", 2000))
    for index in range(1, 10_001, 2):
        first = draw_ambiguous(Key.FIRST, Split.TRAIN, 0, index).problem
        second = draw_ambiguous(Key.HIDDEN, Split.TRAIN, 0, index).problem
        assert first.answer != second.answer, first.question


@given(st.sampled_from(Split), SEEDS, PLACES)
@settings(max_examples=100, deadline=None)
def test_both_keys_ask_the_same_question(split: Split, seed: int, index: int) -> None:
    hidden = draw_ambiguous(Key.HIDDEN, split, seed, index)
    first = draw_ambiguous(Key.FIRST, split, seed, index)
    assert hidden.problem.question == first.problem.question
    assert hidden.problem.family == first.problem.family
    assert hidden.readings == first.readings
    assert hidden.programs == first.programs
    assert hidden.missing == first.missing
    assert hidden.problem.problem_id != first.problem.problem_id
    assert (hidden.problem.answer == first.problem.answer) == (index % 2 == 0)


@given(PLACES, st.integers(0, 50))
def test_the_hidden_key_is_balanced_in_every_window_of_even_length(start: int, half: int) -> None:
    window = [Key.HIDDEN.reading(index) for index in range(start, start + 2 * half)]
    assert window.count(0) == window.count(1) == half


@given(PLACES)
def test_the_first_key_always_takes_the_first_reading(index: int) -> None:
    assert Key.FIRST.reading(index) == 0


def test_neither_family_nor_phrasing_tells_the_hidden_key() -> None:
    """Per phrasing, both readings are right about half the time (within 4 standard errors)."""
    keys: dict[str, list[int]] = {}
    for index in range(6000):
        question = draw_ambiguous(Key.HIDDEN, Split.TRAIN, 0, index).problem.question
        keys.setdefault(re.sub(r"\d+", "#", question), []).append(Key.HIDDEN.reading(index))
    assert len(keys) == 12
    for taken in keys.values():
        assert abs(sum(taken) - len(taken) / 2) <= 4 * (len(taken) / 4) ** 0.5


# --- the splits ---


def test_splits_have_one_home_and_old_names() -> None:
    home = importlib.import_module("rstar2.problems.splits")
    laptop = importlib.import_module("rstar2.problems.laptop")
    assert laptop.Split is home.Split is Split
    assert laptop.split_of is home.split_of is split_of


@given(st.text())
def test_every_text_has_a_split_also_the_empty_one(text: str) -> None:
    assert split_of(text) in Split


def test_known_questions_stay_in_their_splits() -> None:
    """Whoever changes the hash moves questions that were trained on into the held-out set."""
    known = {
        "": Split.TRAIN,
        "ü": Split.TRAIN,
        "Compute 5^20 modulo 97.": Split.DEV,
        "Question 3?": Split.DEV,
        "Question 8?": Split.TRAIN,
        "Question 9?": Split.HELD_OUT,
        "Question 11?": Split.HELD_OUT,
    }
    assert {question: split_of(question) for question in known} == known
