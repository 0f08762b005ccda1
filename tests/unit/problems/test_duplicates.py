"""Exact and near copies: which stay, which go, and that the order of the rows decides little."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.problems.data import duplicates
from rstar2.problems.data.duplicates import drop_duplicates, drop_near_duplicates
from rstar2.problems.data.rows import DropReason, Outcome, Row, StepFunction
from rstar2.problems.data.text import jaccard, numbers, text_key, trigrams, words

LONG = (
    "A rectangular garden of {n} by 40 metres is divided by straight paths into equal squares, "
    "and a gardener plants one tree at every corner of each square that he can reach. "
    "Find the {largest} number of trees that he {needs}."
)


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


def rows(*texts: tuple[str, str]) -> list[Row]:
    return [Row("set", str(number), text, gold) for number, (text, gold) in enumerate(texts)]


def long(n: int = 30, largest: str = "largest", needs: str = "needs") -> str:
    return LONG.format(n=n, largest=largest, needs=needs)


def kept(outcome: Outcome) -> list[str]:
    return [row.row_id for row in outcome.kept]


# --- keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Find $x+1$.", "find  $ X + 1 $"),
        (r"$\left( \frac12 \right)$", r"$(\frac{1}{2})$"),
        (r"$\dfrac{1}{2}\quad\text{and}\,3$", r"$\frac{1}{2}$ and $3$"),
        (r"$1,\ldots,n \leq 5$", r"$1,\dots,n\le5$"),
        ("ﬁnd １２", "find 12"),
    ],
)
def test_copies_in_another_style_have_one_key(one: str, other: str) -> None:
    assert text_key(one) == text_key(other)


def test_another_letter_or_digit_is_another_key() -> None:
    assert text_key("Find $x$ mod 7.") != text_key("Find $x$ mod 11.")
    assert text_key(r"$\leftarrow$") != text_key(r"$\rightarrow$")


def test_texts_without_letters_and_digits_are_not_one() -> None:
    assert text_key("$+$") != text_key("$-$")


@given(st.text("abcXYZ019 $+-", min_size=1), st.randoms(use_true_random=False))
def test_a_key_is_stable_under_spacing_and_case(text: str, rng: random.Random) -> None:
    spaced = "".join(char + rng.choice(["", " ", "\n", "\\,"]) for char in text)
    shouted = "".join(rng.choice([char.lower(), char.upper()]) for char in spaced)
    if any(char.isalnum() for char in text):
        assert text_key(shouted) == text_key(text)


def test_jaccard_counts_trigrams_of_words() -> None:
    one, other = trigrams(words("a b c d")), trigrams(words("a b c e"))
    assert jaccard(one, other) == pytest.approx(1 / 3)
    assert jaccard(trigrams(words("a b")), trigrams(words("a b"))) == 0.0


def test_numbers_are_digits_with_their_point_and_numerals_in_order() -> None:
    assert numbers("2 of 12 and half") == ("2", "12", "half")
    assert numbers("1.5 and .5, then 15.") == ("1.5", ".5", "15")
    assert numbers("mod 7") != numbers("mod 11")
    assert numbers("1, 234") == ("1", "234")
    assert numbers("C(11,1)") != numbers("C(1,11)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$1,234$", "1234"),
        ("$1{,}234$", "1234"),
        (r"$1\,234\,567$", "1234567"),
        (r"$1,\!234$", "1234"),
        ("$10, 000$", "10000"),
        ("1 2 3 4 5 6", "123456"),
        (r"$\frac12$", r"$\dfrac{1}{2}$"),
        (r"$\binom52$", r"$\binom{5}{2}$"),
        ("１２", "12"),
        ("six", "6"),
        ("1~2~3~4", "1 2 3 4"),
    ],
)
def test_numbers_in_another_style_are_equal(one: str, other: str) -> None:
    assert numbers(one) == numbers(other)


# --- exact copies --------------------------------------------------------------------------


def test_the_first_of_equal_copies_stays() -> None:
    outcome = drop_duplicates(rows(("Find x.", "1"), ("Find y.", "1"), ("find  X", "1")), quiet)
    assert kept(outcome) == ["0", "1"]
    (gone,) = outcome.dropped
    assert (gone.reason, gone.detail) == (DropReason.DUPLICATE, "copy of set/0")


def test_copies_with_different_labels_all_go() -> None:
    outcome = drop_duplicates(rows(("Find x.", "1"), ("find x", "2"), ("Find x", "1")), quiet)
    assert kept(outcome) == []
    assert {gone.reason for gone in outcome.dropped} == {DropReason.CONFLICT}
    assert outcome.dropped[0].detail == "set/0 = 1, set/1 = 2, set/2 = 1"


def test_formulas_that_differ_in_a_sign_are_two_problems() -> None:
    texts = ("Factor $x^8-98x^4+1$.", "4"), ("Factor $x^8+98x^4+1$.", "20")
    outcome = drop_duplicates(rows(*texts), quiet)
    assert kept(outcome) == ["0", "1"]
    assert [doubt.row.row_id for doubt in outcome.doubts] == ["0", "1"]


def test_a_sign_does_not_hide_a_conflict_of_true_copies() -> None:
    texts = ("Factor $x-1$.", "4"), ("Factor $x-1$", "5"), ("Factor $x+1$.", "20")
    assert kept(drop_duplicates(rows(*texts), quiet)) == ["2"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("What is 1.5 times 4?", "6"), ("What is 15 times 4?", "60")),
        (("Find the gcd of (12, 3).", "3"), ("Find the gcd of (1, 23).", "1")),
        (("Evaluate $C(11,1)$.", "11"), ("Evaluate $C(1,11)$.", "0")),
        (("Find the gcd of (11, 2).", "1"), ("Find the gcd of (1, 12).", "1")),
    ],
)
def test_one_key_of_other_numbers_is_two_problems(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert text_key(one[0]) == text_key(other[0])
    outcome = drop_duplicates(rows(one, other, other), quiet)
    assert kept(outcome) == ["0", "1"]
    assert len(outcome.doubts) == (2 if one[1] != other[1] else 0)


def test_copies_whose_digits_are_set_apart_are_copies() -> None:
    texts = "What is 10000 plus 7?", "What is 10,000 plus 7?", "What is 1 0 0 0 0 plus 7?"
    assert kept(drop_duplicates(rows(*((text, "9") for text in texts)), quiet)) == ["0"]
    other = [(text, str(label)) for label, text in enumerate(texts)]
    assert kept(drop_duplicates(rows(*other), quiet)) == []


# --- near copies ---------------------------------------------------------------------------


def test_a_near_copy_with_the_same_label_goes() -> None:
    outcome = drop_near_duplicates(rows((long(), "9"), (long(needs="wants"), "9")), quiet)
    assert kept(outcome) == ["0"]
    assert outcome.dropped[0].reason is DropReason.NEAR_DUPLICATE


def test_a_near_copy_with_another_label_is_a_conflict() -> None:
    outcome = drop_near_duplicates(rows((long(), "9"), ("So: " + long(), "8")), quiet)
    assert kept(outcome) == []
    assert {gone.reason for gone in outcome.dropped} == {DropReason.CONFLICT}


def test_a_changed_number_makes_another_problem() -> None:
    outcome = drop_near_duplicates(rows((long(30), "9"), (long(50), "8")), quiet)
    assert kept(outcome) == ["0", "1"]
    assert not outcome.doubts


def test_a_changed_number_makes_another_problem_with_one_label_too() -> None:
    outcome = drop_near_duplicates(rows((long(30), "9"), (long(50), "9")), quiet)
    assert kept(outcome) == ["0", "1"]
    assert not outcome.doubts


def test_a_changed_word_makes_another_problem_to_look_at() -> None:
    texts = (long(largest="largest"), "9"), (long(largest="smallest"), "8")
    outcome = drop_near_duplicates(rows(*texts), quiet)
    assert kept(outcome) == ["0", "1"]
    (doubt,) = outcome.doubts
    assert doubt.row.row_id == "1"
    assert 0.8 <= doubt.score < 1


def test_texts_that_share_less_stay() -> None:
    outcome = drop_near_duplicates(rows((long(), "9"), (long()[:120], "9")), quiet)
    assert kept(outcome) == ["0", "1"]


def test_nothing_and_texts_of_two_words_are_fine() -> None:
    assert drop_near_duplicates([], quiet) == Outcome(())
    assert drop_duplicates([], quiet) == Outcome(())
    assert kept(drop_near_duplicates(rows(("Find x", "1"), ("Find x", "2")), quiet)) == ["0", "1"]


# --- templated rows ------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, function: str) -> list[None]:
    """One entry for each call of a function that the step makes."""
    calls: list[None] = []
    real = getattr(duplicates, function)

    def counting(*given: object) -> object:
        calls.append(None)
        return real(*given)

    monkeypatch.setattr(duplicates, function, counting)
    return calls


@pytest.mark.parametrize("change", ["number", "word"])
@pytest.mark.parametrize("labels", [1, 2_000])
def test_the_work_on_templated_rows_grows_with_their_number(
    monkeypatch: pytest.MonkeyPatch, change: str, labels: int
) -> None:
    def text(number: int) -> str:
        if change == "number":
            return long(number)
        name = "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")
        return long(needs=f"plants for {name}")

    pool = rows(*((text(number), str(number % labels)) for number in range(2_000)))
    compared, read = counted(monkeypatch, "jaccard"), counted(monkeypatch, "trigrams")
    outcome = drop_near_duplicates(pool, quiet)
    assert len(compared) <= 2 * len(pool)
    assert len(read) <= len(pool)
    alike = change == "word" and labels == 1
    assert len(outcome.kept) == (1 if alike else len(pool))


# --- invariants ----------------------------------------------------------------------------

TEXTS = st.builds(
    long,
    n=st.sampled_from([30, 50]),
    largest=st.sampled_from(["largest", "greatest", "least"]),
    needs=st.sampled_from(["needs", "wants", "Needs "]),
)
POOL = st.lists(st.tuples(TEXTS, st.sampled_from(["8", "9"])), max_size=10).map(
    lambda texts: rows(*texts)
)


@pytest.mark.parametrize("step", [drop_duplicates, drop_near_duplicates])
@given(POOL, st.randoms(use_true_random=False))
def test_the_order_of_rows_decides_only_which_copy_stays(
    step: StepFunction, pool: list[Row], rng: random.Random
) -> None:
    outcome = step(pool, quiet)
    gone = [one.row.name for one in outcome.dropped]
    assert sorted(kept(outcome) + [name.split("/")[1] for name in gone]) == sorted(
        row.row_id for row in pool
    )
    assert kept(outcome) == [row.row_id for row in pool if row in outcome.kept]
    again = step(outcome.kept, quiet)
    assert again.kept == outcome.kept

    shuffled = rng.sample(pool, len(pool))
    other = step(shuffled, quiet)
    assert len(other.kept) == len(outcome.kept)
    if step is drop_duplicates:
        keys = {(text_key(row.question), row.gold) for row in outcome.kept}
        assert {(text_key(row.question), row.gold) for row in other.kept} == keys
