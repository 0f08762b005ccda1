"""Hostile sizes: a verdict always, in time linear in the text."""

import json
import time

import pytest

from rstar2.grading import Reason, Verdict, grade
from rstar2.grading.answer import MOST_CHARACTERS
from rstar2.grading.number import MAX_LENGTH

MEGABYTE = 1_000_000


def answer(body: str) -> str:
    return rf"<answer>\boxed{{{body}}}</answer>"


@pytest.mark.parametrize(
    "body",
    [
        *["9^{9^{9}}", "9^{9^{9^{9}}}", "2^{1000000000}", "2^{-1000000000}", "(10^9)!"],
        *["1" + "*9999999" * 620, "1" + "/7" * 2_000, "9^9" * 1_000, "2^" * 2_000 + "2"],
        *["(" * 2_499 + "42" + ")" * 2_400, "\\frac{" * 800, "((((" * 1_200, "1," * 2_400],
    ],
)
def test_a_costly_expression_is_refused_before_it_is_computed(body: str) -> None:
    assert grade(answer(body), 42).reason in (Reason.NOT_INTEGER, Reason.UNCLOSED)


def test_nesting_is_limited_by_length_alone() -> None:
    assert grade(answer("(" * 2_400 + "42" + ")" * 2_400), 42).correct
    assert grade(answer("{" * 2_400 + "42" + "}" * 2_400), 42).correct
    assert grade(answer(r"\boxed{" * 600 + "42" + "}" * 600), 42).correct


def test_thousands_of_digits_are_compared_exactly() -> None:
    digits = "7" * 4_999
    assert grade(answer(digits + "1"), digits + "1").correct
    assert grade(answer(digits + "1"), digits + "2").reason is Reason.MISMATCH


def test_a_verdict_can_always_be_printed_and_stored() -> None:
    for count in (4_200, 4_300, 4_301, 5_000):
        verdict = grade(answer("9" * count), 42)
        assert repr(verdict)
        assert json.dumps({"value": verdict.value, "box": verdict.box})


FLOODS = {
    **{f"only {unit}": (unit, "{}") for unit in (r"\boxed{", "<answer>", "</answer>", r"\[ a ")},
    **{f"only {unit}": (unit, "{}") for unit in ("<tool_response>", "<tool_call>", "</tool_call>")},
    **{
        f"in a box {unit}": (unit, answer("{}"))
        for unit in (
            r"\frac{",
            "{",
            "{}",
            "^",
            "7",
            ",",
            "$ ",
            "\\",
            r"\{",
            ".",
            " ",
            '"',
            r"\color{",
        )
    },
    **{
        f"in a block {unit}": (unit, "<answer>{}</answer>")
        for unit in (r"\boxed{", r"\boxed{42}", r"\boxed{\,}", r"\boxed{...}", r"\boxed   ", "}")
    },
    "empty blocks": ("<answer></answer>", "{}"),
    "right blocks": (answer("42"), "{}"),
    "template blocks": (answer("x"), "{}"),
    "boxes cut by tags": (r"<answer>\boxed{\boxed{\boxed{</answer>", "{}"),
    "alternating tags": ("<answer><tool_call></answer></tool_call>", "{}"),
    "long groups": (answer("1" + " 234" * 1_200 + " 5"), "{}"),
    "long labels": (answer("a(" * 2_300 + "=42"), "{}"),
}


DIFFERENT_BOXES = {
    f"{boxes} boxes of {size} in a block, {unit}": (boxes, size, unit)
    for boxes, size in ((1, 4_800), (16, 4_800), (16, 2_400), (16, 20), (1, 20))
    for unit in ("(", "=7^{4600}", "a(", "a+", ",234", "/7", " cm")
}
"""No two of these boxes are the same, so none is spared because another was read."""


def numbered(boxes: int, size: int, unit: str, total: int) -> str:
    """Blocks of numbered boxes of ``size`` characters, ``total`` characters in all."""
    body = unit * (size // len(unit))
    count = max(total // (size + 20), 1)
    written = [rf"\boxed{{{number}{body}}}" for number in range(1, count + 1)]
    blocks = ["".join(written[start : start + boxes]) for start in range(0, count, boxes)]
    return "".join(f"<answer>{block}</answer>" for block in blocks)


def flood(name: str, size: int) -> str:
    if name in DIFFERENT_BOXES:
        return numbered(*DIFFERENT_BOXES[name], size)
    unit, frame = FLOODS[name]
    return frame.replace("{}", unit * (size // len(unit)), 1)


def seconds(text: str) -> float:
    start = time.process_time()
    assert isinstance(grade(text, 42), Verdict)
    return time.process_time() - start


@pytest.mark.parametrize("name", [*FLOODS, *DIFFERENT_BOXES])
def test_twice_the_text_takes_twice_the_time(name: str) -> None:
    """Quadratic work would take four times as long; what is too quick to time passes."""

    def is_linear() -> bool:
        half, whole = (seconds(flood(name, size)) for size in (MEGABYTE // 4, MEGABYTE // 2))
        return whole < max(3 * half, 0.05)

    assert is_linear() or is_linear(), "twice, so that a busy machine is no reason to fail"


def test_a_megabyte_of_boxes_takes_less_than_a_second() -> None:
    assert seconds(r"\boxed{" * (MEGABYTE // 7)) < 1
    assert seconds("<answer>" + r"\boxed{" * (MEGABYTE // 7) + "</answer>") < 1


@pytest.mark.parametrize("name", DIFFERENT_BOXES)
@pytest.mark.parametrize("size", [MAX_LENGTH, MOST_CHARACTERS, 30_000, MEGABYTE])
def test_different_boxes_cost_little_however_many_there_are(name: str, size: int) -> None:
    """Near the cap all of them are read; beyond it, none is."""
    text = flood(name, size)
    assert min(seconds(text) for _ in range(3)) < 0.3


def test_boxes_are_read_up_to_a_number_of_characters_in_all() -> None:
    def padded(count: int, size: int) -> str:
        boxes = [rf"\boxed{{{' ' * (size - n - 2)}{'0' * n}42}}" for n in range(count)]
        return f"<answer>{''.join(boxes)}</answer>"

    size = MOST_CHARACTERS // 5
    assert grade(padded(5, size), 42).correct
    assert grade(padded(6, size), 42).reason is Reason.HEDGE
    assert grade(padded(5, size) * 3, 42).correct, "the same boxes again cost nothing"


def test_a_crowd_of_different_boxes_or_blocks_is_a_hedge_that_is_not_read() -> None:
    boxes = [rf"\boxed{{{n} + 0}}" for n in range(1_000)]
    assert grade(f"<answer>{''.join(boxes)}</answer>", 42).reason is Reason.HEDGE
    blocks = [f"<answer>see {n}</answer>" for n in range(1_000)]
    assert grade("".join(blocks) + answer("42"), 42).reason is Reason.HEDGE
    box = r"\boxed{42}"
    same = answer("42") * 1_000 + f"<answer>{box * 1_000}</answer>"
    assert grade(same, 42).correct


def test_an_expression_has_an_end() -> None:
    assert grade(answer(r"\cdot".join(["1"] * 100)), 1).correct
    assert grade(answer(r"\cdot".join(["1"] * 101)), 1).reason is Reason.NOT_INTEGER
    assert grade(answer("=".join(["7"] * 201)), 7).correct
    assert grade(answer("=".join(["7"] * 202)), 7).reason is Reason.NOT_INTEGER
    assert grade(answer("(" * 2_000 + "7" + ")" * 2_000), 7).correct
