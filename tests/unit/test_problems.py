"""The laptop's problems: what is drawn, what may be trained on, and whether programs are right."""

import os
import subprocess
import sys
from collections import defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.problems import (
    ProblemSet,
    Split,
    WorkedProblem,
    composition_names,
    draw,
    draw_mixed,
    family_names,
    guessing_baseline,
    split_of,
)
from rstar2.problems.compositions import COMPOSITIONS, UNSEEN_COMPOSITIONS, compose, with_tail
from rstar2.problems.families import FAMILIES, UNSEEN_FAMILIES, Draft

ALL_FAMILIES = {**FAMILIES, **UNSEEN_FAMILIES}
ALL_COMPOSITIONS = {**COMPOSITIONS, **UNSEEN_COMPOSITIONS}
SETS_AND_SPLITS = [
    (problem_set, split)
    for problem_set in ProblemSet
    for split in Split
    if problem_set.is_trained or split is not Split.TRAIN
]


def printed(program: str) -> list[str]:
    """The lines that a program prints."""
    lines: list[str] = []
    exec(program, {"print": lambda value: lines.append(str(value))})
    return lines


def share_of_wrong_that_differ(drafts: list[Draft]) -> float:
    """Over all wrong programs of the drafts; every one must run and print one number."""
    outputs = [(printed(program), draft.answer) for draft in drafts for program in draft.wrong]
    assert all(len(lines) == 1 and lines[0].isdigit() for lines, _ in outputs)
    return sum(lines != [str(answer)] for lines, answer in outputs) / len(outputs)


def assert_right_programs_print_the_answer(drafts: list[Draft]) -> None:
    for draft in drafts:
        for program in draft.right:
            assert printed(program) == [str(draft.answer)], f"{draft.question}\n{program}"


def inner_question(worked: WorkedProblem) -> str:
    """The family's question inside a composition, found through its phrasings."""
    phrasings = ALL_COMPOSITIONS[worked.problem.composition].questions
    for phrasing in phrasings:
        before, after = phrasing.split("{q}")
        tail_words = after.split("{m}")[0]
        if worked.problem.question.startswith(before) and tail_words in worked.problem.question:
            return worked.problem.question.removeprefix(before).rpartition(tail_words)[0]
    raise AssertionError(f"no phrasing of {worked.problem.composition} fits")


# --- what there is ---


def test_there_are_enough_families_and_compositions() -> None:
    assert len(family_names()) >= 12
    assert len(composition_names()) >= 3
    assert len(family_names(ProblemSet.UNSEEN_FAMILIES)) == 2
    assert len(composition_names(ProblemSet.UNSEEN_COMPOSITION)) == 1
    assert composition_names(ProblemSet.FAMILIES) == ()


def test_no_unseen_name_is_a_trained_name() -> None:
    assert not set(family_names()) & set(family_names(ProblemSet.UNSEEN_FAMILIES))
    assert not set(composition_names()) & set(composition_names(ProblemSet.UNSEEN_COMPOSITION))


# --- programs ---


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_programs_of_a_family(family: str) -> None:
    rng = Random(f"test:{family}")
    drafts = [ALL_FAMILIES[family](rng) for _ in range(150)]
    assert_right_programs_print_the_answer(drafts)
    assert share_of_wrong_that_differ(drafts) >= 0.85
    programs = {program for draft in drafts for program in draft.right + draft.wrong}
    assert max(map(len, programs)) <= 120


@pytest.mark.parametrize("composition", ALL_COMPOSITIONS)
def test_programs_of_a_composition(composition: str) -> None:
    rng = Random(f"test:{composition}")
    inner = [FAMILIES[family](rng) for family in FAMILIES for _ in range(20)]
    drafts = [compose(draft, ALL_COMPOSITIONS[composition], rng) for draft in inner]
    assert_right_programs_print_the_answer(drafts)
    assert share_of_wrong_that_differ(drafts) >= 0.85


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_every_family_has_two_phrasings_or_more(family: str) -> None:
    rng = Random(0)
    drafts = [ALL_FAMILIES[family](rng) for _ in range(100)]
    words = {(d.plan, "".join(c for c in d.question if not c.isdigit())) for d in drafts}
    for plan in {d.plan for d in drafts}:
        assert sum(plan == p for p, _ in words) >= 2


def test_a_tail_continues_from_the_result_of_the_program() -> None:
    program = "import math\nprint(math.gcd(12,18))"
    assert with_tail(program, "print(3*v+1)") == "import math\nv=math.gcd(12,18)\nprint(3*v+1)"


# --- draws ---


@pytest.mark.parametrize(("problem_set", "split"), SETS_AND_SPLITS)
def test_drawn_problems_are_well_formed(problem_set: ProblemSet, split: Split) -> None:
    drawn = [draw(problem_set, split, 3, index) for index in range(200)]
    for worked in drawn:
        problem = worked.problem
        assert type(problem.answer) is int
        assert 0 <= problem.answer < 10**9
        assert problem.question.isascii()
        assert problem.question[-1] in ".?"
        assert "{" not in problem.question
        assert 1 <= len(worked.right) <= 3
        assert 1 <= len(worked.wrong) <= 2
        assert problem.family in family_names(problem_set)
        assert (problem.composition or "") in (composition_names(problem_set) or ("",))
    assert {w.problem.family for w in drawn} == set(family_names(problem_set))
    assert len({w.problem.problem_id for w in drawn}) == len(drawn)


@given(st.sampled_from(SETS_AND_SPLITS), st.integers(0, 2**32), st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_a_draw_depends_on_its_arguments_alone(
    where: tuple[ProblemSet, Split], seed: int, index: int
) -> None:
    assert draw(*where, seed, index) == draw(*where, seed, index)


def test_another_process_with_other_string_hashes_draws_the_same() -> None:
    program = (
        "from rstar2.problems import draw, ProblemSet, Split\n"
        "for s in ProblemSet:\n"
        "    print([draw(s, Split.HELD_OUT, 5, i) for i in range(20)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    here = "".join(f"{[draw(s, Split.HELD_OUT, 5, i) for i in range(20)]}\n" for s in ProblemSet)
    assert outputs == {here}


def test_seed_index_and_set_each_change_the_problem() -> None:
    base = draw(ProblemSet.FAMILIES, Split.TRAIN, 0, 0).problem
    others = [
        draw(ProblemSet.FAMILIES, Split.TRAIN, 1, 0).problem,
        draw(ProblemSet.FAMILIES, Split.TRAIN, 0, 1).problem,
        draw(ProblemSet.COMPOSITIONS, Split.TRAIN, 0, 0).problem,
        draw(ProblemSet.FAMILIES, Split.DEV, 0, 0).problem,
    ]
    assert all(other.question != base.question for other in others)


# --- splits ---


@pytest.mark.thorough
def test_splits_share_no_question() -> None:
    questions: dict[Split, set[str]] = defaultdict(set)
    for problem_set, split in SETS_AND_SPLITS:
        for index in range(700):
            questions[split].add(draw(problem_set, split, index % 3, index).problem.question)
    assert sum(map(len, questions.values())) > 5000
    assert not questions[Split.TRAIN] & questions[Split.DEV]
    assert not questions[Split.TRAIN] & questions[Split.HELD_OUT]
    assert not questions[Split.DEV] & questions[Split.HELD_OUT]


@pytest.mark.parametrize("split", Split)
def test_the_split_is_that_of_the_family_question_also_inside_a_composition(split: Split) -> None:
    for index in range(100):
        plain = draw(ProblemSet.FAMILIES, split, 0, index)
        assert split_of(plain.problem.question) is split
        composed = draw(ProblemSet.COMPOSITIONS, split, 0, index)
        assert split_of(inner_question(composed)) is split


def test_the_split_shares_are_eighty_ten_ten() -> None:
    rng = Random(1)
    splits = [split_of(FAMILIES["recurrence_mod"](rng).question) for _ in range(5000)]
    assert splits.count(Split.DEV) / 5000 == pytest.approx(0.1, abs=0.02)
    assert splits.count(Split.HELD_OUT) / 5000 == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("problem_set", [ProblemSet.UNSEEN_FAMILIES, ProblemSet.UNSEEN_COMPOSITION])
def test_unseen_sets_have_no_train_split(problem_set: ProblemSet) -> None:
    with pytest.raises(ValueError, match=f"{problem_set} has no train split"):
        draw(problem_set, Split.TRAIN, 0, 0)


def test_training_never_shows_an_unseen_family_or_composition() -> None:
    drawn = [draw_mixed(Split.TRAIN, 0, index, 0.5).problem for index in range(2000)]
    assert {p.family for p in drawn} == set(family_names())
    assert {p.composition for p in drawn} == {"", *composition_names()}


# --- mixtures and the baseline ---


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_holds_the_asked_share_of_compositions(share: float) -> None:
    drawn = [draw_mixed(Split.TRAIN, 1, index, share).problem for index in range(600)]
    assert sum(bool(p.composition) for p in drawn) / 600 == pytest.approx(share, abs=0.06)


def test_a_mixture_refuses_what_is_no_share() -> None:
    with pytest.raises(ValueError, match=r"composition_share is 1\.5"):
        draw_mixed(Split.TRAIN, 0, 0, 1.5)


@pytest.mark.parametrize("problem_set", ProblemSet)
def test_guessing_gets_almost_nothing(problem_set: ProblemSet) -> None:
    baseline = guessing_baseline(problem_set, Split.HELD_OUT, 0, 200)
    assert 0.0 <= baseline < 0.2
    assert baseline == guessing_baseline(problem_set, Split.HELD_OUT, 0, 200)
