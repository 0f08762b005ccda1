"""The rules of the data pipeline that judge one row: what is dropped, doubted, rewritten."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.problems.data.rows import Doubt, DropReason, Outcome, Row
from rstar2.problems.data.rules import RULES
from rstar2.problems.data.text import mended, without_drawings, without_wrappers

STEPS = dict(RULES)
ASK = "Find the number of primes below one hundred."


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


def run(name: str, question: str, gold: str = "7", **notes: str) -> Outcome:
    return STEPS[name]([Row("set", "1", question, gold, notes)], quiet)


def reason(name: str, question: str, gold: str = "7", **notes: str) -> DropReason | None:
    """Why a step drops the row, or None if it stays."""
    outcome = run(name, question, gold, **notes)
    return outcome.dropped[0].reason if outcome.dropped else None


def doubt(name: str, question: str, gold: str = "7") -> Doubt | None:
    doubts = run(name, question, gold).doubts
    return doubts[0] if doubts else None


# --- wrappers and escapes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrapped",
    [
        f"Solve the following math problem step by step. The last line of your response should be"
        f" of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
        f'\n\n{ASK}\n\nRemember to put your answer on its own line after "Answer:".',
        f"Solve the following math problem step by step. The last line of your response should be"
        f" of the form Answer: \\boxed{{$Answer}} where $Answer is the answer to the problem.\n\n"
        f'{ASK}\n\nRemember to put your answer on its own line after "Answer:", and you do not'
        f" need to use a \\boxed command.",
        f"{ASK}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
        f"{ASK} Let's think step by step and output the final answer within \\boxed{{}}.",
        f"{ASK} Please put your final answer in $\\boxed{{answer}}$",
        f"{ASK}\n\nPresent the answer in LaTex format: \\boxed{{Your answer}}",
        f"{ASK} The final result in the answer MUST BE within \\boxed{{}}.",
        f"<|im_start|>user\n{ASK}<|im_end|>\n<|im_start|>assistant",
        f"Question: {ASK}\nAnswer:",
        "Answer the given question. You must conduct reasoning inside <think> and </think> first"
        " every time you get new information. For example, <answer> Beijing </answer>."
        f" Question: {ASK}\n",
    ],
)
def test_a_wrapper_prompt_is_taken_off(wrapped: str) -> None:
    outcome = run("clean", wrapped)
    assert [row.question for row in outcome.kept] == [ASK]
    assert outcome.facts["wrappers removed"] == 1


@pytest.mark.parametrize(
    "question",
    [
        ASK,
        "Find the answer that Ann should write in the box.",
        "Let $\\boxed{N}$ be the number of divisors of $N$. What is $\\boxed{\\boxed{20}}$?",
        "What is the last line of the following math problem?",
        "If 12 is the sum of two primes, what is the answer:",
    ],
)
def test_a_problem_without_a_wrapper_is_left_alone(question: str) -> None:
    outcome = run("clean", question)
    assert [row.question for row in outcome.kept] == [question]
    assert outcome.facts == {"wrappers removed": 0, "escapes restored": 0}


def test_an_instruction_in_the_same_sentence_does_not_take_the_question_with_it() -> None:
    asked = "Find the number of primes below 100 and put your final answer within \\boxed{}."
    assert without_wrappers(asked) == "Find the number of primes below 100"


def test_a_question_that_is_only_a_wrapper_is_empty() -> None:
    assert reason("clean", "Question: ") is DropReason.EMPTY_QUESTION
    assert reason("clean", "\n \t") is DropReason.EMPTY_QUESTION


def test_latex_whose_backslash_became_an_escape_is_restored() -> None:
    assert mended("in the form \x0crac{m}{n}") == "in the form \\frac{m}{n}"
    assert mended("$2\times3$, $\theta$") == "$2\\times3$, $\\theta$"
    assert mended("di\x0bfferent\x00\n\tcases") == "different\n\tcases"
    assert run("clean", "\x0crac{m}{n} and more").facts["escapes restored"] == 1


@given(st.text(max_size=200))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = without_wrappers(mended(text))
    assert without_wrappers(mended(once)) == once


def test_drawing_code_is_blanked_and_the_text_between_stays() -> None:
    text = "Let [asy]draw((0,0)--(1,1));[/asy] be [asy] dot(A); [/asy] so."
    assert without_drawings(text).split() == ["Let", "be", "so."]


# --- labels --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        ("42", "42"),
        (" 042 ", "42"),
        ("-7", "-7"),
        ("−7", "-7"),
        ("１２", "12"),
        ("1,234,567", "1234567"),
        ("1{,}234", "1234"),
        ("12.00", "12"),
        ("$42$", "42"),
        ("${42}$", "42"),
        ("－１，２３４", "-1234"),
        ("1\u202f234", "1234"),
        ("9" * 39, "9" * 39),
    ],
)
def test_a_literal_label_becomes_a_decimal_integer(gold: str, value: str) -> None:
    (row,) = run("integer labels", ASK, gold).kept
    assert row.gold == value


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "proof",
        "notfound",
        "yes",
        "3.5",
        "1/2",
        r"\frac{84}{2}",
        "x=42",
        "42 cm",
        "50%",
        "{1, 2}",
        "1, 2",
        r"\pm 3",
        "5!",
        "2^{10}",
        "6*7",
        "(B) 42",
        "1,23",
        "12:30",
        "10²",
        "2³",
        "4₂",
        "①",
        "{42}{3}",
        "{4}2",
        "4{2}",
    ],
)
def test_a_label_that_is_no_literal_is_dropped_not_cut(gold: str) -> None:
    assert reason("integer labels", ASK, gold) is DropReason.BAD_GOLD


def test_a_label_of_forty_digits_is_too_large() -> None:
    assert reason("integer labels", ASK, "1" + "0" * 39) is DropReason.HUGE_GOLD
    assert reason("integer labels", ASK, "-1" + "0" * 39) is DropReason.HUGE_GOLD
    assert reason("integer labels", ASK, "9" * 6_000) is DropReason.HUGE_GOLD
    assert reason("integer labels", ASK, "0" * 60 + "7") is None


@given(st.integers(-(10**39) + 1, 10**39 - 1))
def test_every_integer_of_fewer_than_forty_digits_is_a_label(value: int) -> None:
    (row,) = run("integer labels", ASK, str(value)).kept
    assert row.gold == str(value)


def test_a_majority_label_needs_two_solutions_whatever_the_pass_rate() -> None:
    def judged(**notes: str) -> DropReason | None:
        return reason("label source", ASK, **notes)

    assert judged(label_from="majority") is DropReason.LABEL_SOURCE
    assert judged(label_from="majority", agreeing="1") is DropReason.LABEL_SOURCE
    rated = judged(label_from="majority", agreeing="1", pass_rate_72b_tir="0.9")
    assert rated is DropReason.LABEL_SOURCE
    assert judged(label_from="majority", agreeing="2") is None
    assert judged(label_from="majority", agreeing="12", pass_rate_72b_tir="0.0") is None
    assert judged(label_from="extracted", agreeing="1") is None
    assert judged() is None


# --- language and length -------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    ["求所有素数的和", "Найдите сумму", "أوجد المجموع", "합을 구하시오", "すべて", "מצא את"],
)
def test_another_script_is_dropped(question: str) -> None:
    assert reason("language", f"Find $x$. {question}") is DropReason.LANGUAGE


@pytest.mark.parametrize(
    "question", ["Erdős and Cauchy–Schwarz", "angle α of △ABC, π ≤ ℓ", "𝑥 + 𝑦", "ℵ₀ sets", "①，。"]
)
def test_accents_greek_and_symbols_stay(question: str) -> None:
    assert reason("language", question) is None


def test_a_question_under_25_characters_is_short() -> None:
    assert reason("short", r"$\frac{2020}{6063}$") is DropReason.SHORT
    assert reason("short", "a" * 24) is DropReason.SHORT
    assert reason("short", "a" * 25) is None


# --- what is asked -------------------------------------------------------------------------


def test_a_proof_is_dropped_unless_it_asks_for_more() -> None:
    assert reason("proof", "Prove that 2 is the only even prime.") is DropReason.PROOF
    assert reason("proof", "(a) Show that the limit exists.") is DropReason.PROOF
    assert reason("proof", "Show that the sum is an integer and determine it.") is None
    assert reason("proof", "Find, with proof, the least value.") is None


def test_a_text_that_asks_nothing_is_a_doubt() -> None:
    assert doubt("asks nothing", "Study the convergence of a sequence of integers.")
    for question in [ASK, "The number of primes below 10 is:", "The sum is ______.", "$1+1=$"]:
        assert doubt("asks nothing", question) is None


@pytest.mark.parametrize(
    "options",
    [
        r"$\textbf{(A)}\ 7\qquad\textbf{(B)}\ 8\qquad\textbf{(C)}\ 16$",
        r"$(A) 10\qquad (B) 12\qquad (C) 16$",
        "**(A) 16**  **(B) 17**  **(C) 19**",
        "\nA) 1\nB) 2\nC) 3\nD) 4",
        "\n- A. one\n- B. two\n- C. three",
        "A) 51 B) 57 C) 61 D) 91",
        r"A) $2$; B) $f(2)$; C) $\frac{1}{2}$; D) none of these",
    ],
)
def test_options_make_a_multiple_choice(options: str) -> None:
    assert reason("choice", f"What is the sum? {options}") is DropReason.CHOICE


@pytest.mark.parametrize(
    "question",
    [
        "If $n(A) + n(B) + n(C) = 100$, find $n(A \\cup B)$.",
        "Guess A, get an A. Guess B, get a B. Guess C, get a C. How many?",
        'Find $AC$. [asy] label("A", (A), N); label("B", (B), S); label("C", (C), E); [/asy]',
        "Points (A), (B) and no third: find the distance.",
        "Points (A) and (B) and (C) are on a line. Find AB.",
        "Points (A), (B), and (C) are on a line. Find AB.",
        "Weigh 3 (the nuts in A) 4 (those in B) 5 (those in C) 6 (those in D): how many?",
    ],
)
def test_letters_alone_are_no_options(question: str) -> None:
    assert reason("choice", question) is None


@pytest.mark.parametrize(
    "options", ["(a) 1 (b) 2 (c) 3 (d) 4", r"a) $\frac{1}{2}$ b) $-2$ c) $3\pi$ d) 4"]
)
def test_values_in_small_letters_may_be_options(options: str) -> None:
    assert reason("choice", f"What is the sum? {options}") is None
    assert doubt("choice", f"What is the sum? {options}")


def test_parts_in_small_letters_are_no_options() -> None:
    assert doubt("choice", "Find (a) the sum (b) the product (c) the mean (d) the mode.") is None
    assert doubt("choice", "Let f(a) 1, f(b) 2, f(c) 3 and f(d) 4 be the values. Find f.") is None


def test_two_parts_that_both_ask_are_several_questions() -> None:
    two = "(a) How many faces has a cube? (b) How many edges has it?"
    assert reason("several", two) is DropReason.SEVERAL
    assert reason("several", f"{two} Please provide the sum of both answers.") is None
    conditions = "Find $f(2)$ if (i) $f(1)=1$ and (ii) $f(2n)=2f(n)$ for all $n$."
    assert reason("several", conditions) is None


def test_find_all_is_dropped_unless_one_number_is_asked_for() -> None:
    every = "Find all primes $p$ such that $p+2$ is prime and below 10."
    assert reason("find all", every) is DropReason.FIND_ALL
    assert reason("find all", f"{every} How many are there?") is None
    assert reason("find all", f"{every} Please provide the sum of these.") is None
    assert reason("find all", "Find the sum of all primes below 10.") is None


# --- figures and answers -------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "In the figure below, find the shaded area.",
        "Find the angle at $A$ as shown in the diagram.",
        "In the adjoining figure, $AB$ is a tangent. Find $AD$.",
        "The diagram shows two squares. Find the area that both cover.",
        "Find the area. ![Diagram](https://example.org/a.png)",
        "Find the perimeter. AIME 1994 Problem 2.png",
        "Find x in the ﬁgure below.",
    ],
)
def test_a_figure_that_is_not_there_drops_the_problem(question: str) -> None:
    assert reason("figure", question) is DropReason.FIGURE


@pytest.mark.parametrize(
    "question",
    [
        "In the figure below, find $AB$. [asy]draw((0,0)--(3,4)); [/asy]",
        r"Find $f(2)$ in the table shown. \begin{array}{c|c} x & 1 \end{array}",
        "Find the image of $A$ under the rotation.",
        "How many triangles does a figure of 5 lines contain?",
        "She keeps drawing until the bag is empty. Find the probability.",
        "It can be shown that the limit exists. Find it.",
        "Find the sum of the 5 significant figures.",
    ],
)
def test_a_problem_that_needs_no_picture_stays(question: str) -> None:
    assert reason("figure", question) is None
    assert doubt("figure", question) is None


@pytest.mark.parametrize(
    "question",
    [
        "Two strips overlap at 30 degrees as shown. Find the area.",
        "See Figure 3. Find the area of the shaded region.",
        "As in Fig. 2, a square is cut in four. Find the area of a piece.",
    ],
)
def test_as_shown_or_a_number_of_a_figure_alone_is_a_doubt(question: str) -> None:
    assert reason("figure", question) is None
    assert doubt("figure", question)
    assert doubt("figure", f"{question} [asy]draw((0,0)--(3,4)); [/asy]") is None


def test_the_label_after_the_question_is_an_answer_shown() -> None:
    assert reason("answer shown", f"{ASK} Answer: 25", "25") is DropReason.ANSWER_SHOWN
    assert reason("answer shown", "What is 5 times 5? (25)", "25") is DropReason.ANSWER_SHOWN
    assert reason("answer shown", "What is 5 times 5? 125", "25") is None
    assert reason("answer shown", "Find $f(99)f'(99)$ for the function.", "99") is None
    assert doubt("answer shown", "How many of these are divisible by 323.", "323")


# --- every rule ----------------------------------------------------------------------------

PIECES = st.sampled_from(
    [ASK, "Prove that", "(A) 1 (B) 2 (C) 3", "in the figure below", "(a) find", "(b) find", "素数",
     "A) 1 B) 2 C) 3 D) 4", "(a) 1 (b) 2 (c) 3 (d) 4", "Fig. 2",
     "find all", "7", "?", "as shown", "[asy]", "[/asy]", "\x0crac", "\\boxed{}", "Answer:", " "]
)  # fmt: skip
ROWS = st.lists(
    st.builds(
        Row,
        source=st.just("set"),
        row_id=st.uuids().map(str),
        question=st.lists(PIECES | st.text(max_size=10), max_size=8).map(" ".join),
        gold=st.sampled_from(["7", "-12", "1,000", "x", ""]),
        notes=st.sampled_from([{}, {"label_from": "majority"}]),
    ),
    max_size=8,
)


@given(ROWS)
def test_every_row_is_kept_or_dropped_once_in_order_and_again_the_same(rows: list[Row]) -> None:
    for name, step in RULES:
        outcome = step(rows, quiet)
        kept = [row.name for row in outcome.kept]
        dropped = [one.row.name for one in outcome.dropped]
        names = [row.name for row in rows]
        assert sorted(kept + dropped) == sorted(names), name
        assert kept == [one for one in names if one in set(kept)], name
        assert {one.row.name for one in outcome.doubts} <= set(kept), name

        again = step(outcome.kept, quiet)
        assert again.kept == outcome.kept, name
        assert not again.dropped, name
        rows = list(outcome.kept)


@pytest.mark.parametrize(
    "piece", ["(A) (B) ", "A) B) C) ", "a) 1 b) ", "![", "a-", "\n", " ", "[asy]", "=", "(a) find "]
)
def test_a_huge_question_costs_no_more_than_its_length(piece: str) -> None:
    rows = [Row("set", "1", "Find x. " + piece * (100_000 // len(piece)) + "z", "7")]
    start = time.process_time()
    for _, step in RULES:
        outcome = step(rows, quiet)
        assert len(outcome.kept) + len(outcome.dropped) == 1
    assert time.process_time() - start < 5


# --- the real file -------------------------------------------------------------------------


def dapo() -> Iterator[Row]:
    file = Path(os.environ["RSTAR2_DATA"]) / "dapo_math_17k.parquet"
    for record in parquet.read_table(file).to_pylist():
        question = record["prompt"][0]["content"]
        gold = record["reward_model"]["ground_truth"]
        yield Row("dapo-17k", str(record["extra_info"]["index"]), question, gold)


@pytest.mark.skipif("RSTAR2_DATA" not in os.environ, reason="RSTAR2_DATA names no folder of sets")
def test_the_counts_of_the_dapo_file() -> None:
    rows: list[Row] = list(dapo())
    assert len(rows) == 17_917
    counts = {}
    for name, step in RULES:
        outcome = step(rows, quiet)
        counts[name] = len(outcome.dropped)
        rows = list(outcome.kept)
    assert counts["integer labels"] == 0
    assert counts["language"] == 17_917 - 14_485
    assert counts["short"] == 1
    assert counts["choice"] == 26
    assert counts["figure"] == 211
    assert counts["find all"] == 175
