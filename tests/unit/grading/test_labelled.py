"""The grader beside labels: who is paid, and what is counted."""

import pytest

from rstar2.grading import Reason
from rstar2.grading.labelled import Tally, judge, paid

RIGHT = r"<answer>\boxed{42}</answer>"


def test_a_response_is_judged_as_it_is_graded() -> None:
    verdict = judge(RIGHT, "43")
    assert verdict is not None
    assert verdict.reason is Reason.MISMATCH
    assert paid(RIGHT, "42")
    assert not paid(RIGHT, "43")


@pytest.mark.parametrize("gold", ["", "none", "1/2"])
def test_a_label_that_is_no_integer_pays_nobody(gold: str) -> None:
    assert judge(rf"<answer>\boxed{{{gold}}}</answer>", gold) is None
    assert not paid(rf"<answer>\boxed{{{gold}}}</answer>", gold)


def test_both_ways_to_disagree_are_counted() -> None:
    tally = Tally()
    pairs = [(True, True), (False, False), (True, False), (False, True), (False, True)]
    agree = [tally.count(paid=paid, expected=expected) for paid, expected in pairs]
    assert agree == [True, True, False, False, False]
    assert tally == Tally(cases=5, agree=2, false_positive=1, false_negative=2)
