r"""Finds the answer in a response: tool spans, ``<answer>`` blocks, boxes.

The rules, in the order they are applied:

1. Only model text counts. Everything from the first ``<tool_response>`` to the last
   ``</tool_response>`` goes, whatever tags a tool printed in between.
2. The answer stands in closed ``<answer>`` blocks; text outside them is never read. A block
   that is not closed earns nothing, but an integer in it contradicts another one.
3. In a block, blank boxes are ignored; a box without an end or two boxes that differ spoil it.
4. The last block decides. Different integers anywhere are a hedge. A block with neither an
   integer nor a digit (a quoted template) is ignored.
"""

import re

from rstar2.grading.number import MAX_LENGTH, parse_integer
from rstar2.grading.verdict import Reason

_TOOL_OPEN = "<tool_response>"
_TOOL_CLOSE = "</tool_response>"
_ANSWER_TAG = re.compile(r"<(?P<close>/?)answer>")
_BOX = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\[{}\\]|(?P<brace>[{}])")
_MAYBE_TEMPLATE = frozenset({Reason.NO_BOX, Reason.EMPTY_BOX, Reason.NOT_INTEGER})


def read_answer(text: str) -> int | Reason:
    """Read the integer that a response answers.

    Args:
        text: The text of the last assistant turn, or of a whole response.

    Returns:
        The integer, or the reason why there is none. Never raises.
    """
    closed, unclosed = _blocks(model_text(text))
    if not closed:
        return Reason.UNCLOSED if unclosed else Reason.NO_ANSWER_BLOCK
    readings = [_read_block(block) for block in closed]
    integers = {value for value in readings if not isinstance(value, Reason)}
    integers.update(value for value in map(_read_block, unclosed) if not isinstance(value, Reason))
    if len(integers) > 1 or Reason.HEDGE in readings:
        return Reason.HEDGE
    for block, reading in zip(reversed(closed), reversed(readings), strict=True):
        if not _is_template(block, reading):
            return reading
    return readings[-1]


def model_text(text: str) -> str:
    """Remove tool output from a response.

    A tool may print tags to end its span early, so no tag between the first opening and the
    last closing one can be believed: all of that goes, turns of the model in between too.

    Args:
        text: A response, with or without ``<tool_response>`` spans.
    """
    opened, closed = text.find(_TOOL_OPEN), text.find(_TOOL_CLOSE)
    if opened < 0 and closed < 0:
        return text
    starts_outside = opened >= 0 and (closed < 0 or opened < closed)
    before = text[:opened] if starts_outside else ""
    after = text[text.rfind(_TOOL_CLOSE) + len(_TOOL_CLOSE) :] if closed >= 0 else ""
    return before + "\n" + after.partition(_TOOL_OPEN)[0]


def _blocks(text: str) -> tuple[list[str], list[str]]:
    """Split off the closed answer blocks and those that another tag or the end cuts off."""
    closed: list[str] = []
    unclosed: list[str] = []
    start = -1
    for tag in _ANSWER_TAG.finditer(text):
        if start >= 0:
            (closed if tag["close"] else unclosed).append(text[start : tag.start()])
        start = -1 if tag["close"] else tag.end()
    if start >= 0:
        unclosed.append(text[start:])
    return closed, unclosed


def _read_block(block: str) -> int | Reason:
    bodies = _boxes(block)
    if bodies is None:
        return Reason.UNCLOSED
    if not bodies:
        return Reason.NO_BOX
    filled = dict.fromkeys(body for body in bodies if body.strip())
    if not filled:
        return Reason.EMPTY_BOX
    first, *others = filled
    reading = _read_box(first)
    if any(_read_box(other) != reading for other in others):
        return Reason.HEDGE
    return reading


def _read_box(body: str) -> int | Reason:
    if len(body) > MAX_LENGTH:
        return Reason.TOO_LONG
    value = parse_integer(body)
    return Reason.NOT_INTEGER if value is None else value


def _boxes(block: str) -> list[str] | None:
    """The contents of the outermost boxes; None if one has no end."""
    bodies: list[str] = []
    position = 0
    while box := _BOX.search(block, position):
        end = _closing_brace(block, box.end())
        if end is None:
            return None
        bodies.append(block[box.end() : end])
        position = end + 1
    return bodies


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for match in _BRACE.finditer(text, start):
        if match["brace"]:
            depth += 1 if match["brace"] == "{" else -1
            if depth == 0:
                return match.start()
    return None


def _is_template(block: str, reading: int | Reason) -> bool:
    if not isinstance(reading, Reason) or reading not in _MAYBE_TEMPLATE:
        return False
    return not any(map(str.isdecimal, block))
