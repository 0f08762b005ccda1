r"""Finds the answer in a response: tool spans, ``<answer>`` blocks, boxes.

The rules, in the order they are applied:

1. Only what the model says counts. Everything from the first ``<tool_response>`` to the last
   ``</tool_response>`` goes, whatever tags a tool printed in between; then the model's closed
   ``<tool_call>`` spans go, for a program that holds an answer is no answer.
2. The answer stands in closed ``<answer>`` blocks; text outside them is never read. A block
   that is not closed earns nothing, but an integer in it contradicts another one.
3. In a block, boxes (``\boxed`` or ``\fbox``) that are blank or hold only dots are ignored; a
   box without an end spoils it, and so do two different ones unless both are one integer.
4. The last block decides. Different integers anywhere are a hedge. A block with neither an
   integer nor a digit (a quoted template) is ignored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rstar2.grading.latex import is_blank
from rstar2.grading.number import MAX_LENGTH, parse_integer
from rstar2.grading.verdict import Reason
from rstar2.protocol.manifest import CALL_CLOSE, CALL_OPEN, RESPONSE_CLOSE, RESPONSE_OPEN

_ANSWER_TAG = re.compile(r"<(?P<close>/?)answer>")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\[{}\\]|(?P<brace>[{}])")
MOST_BLOCKS = 64
"""Different answer blocks that are read; a response with more of them is a hedge."""
MOST_BOXES = 16
"""Different boxes of a block that are read; a block with more of them is a hedge."""
MOST_CHARACTERS = 20_000
"""Characters of different boxes that are read; a response with more of them is a hedge."""
_MAYBE_TEMPLATE = frozenset({Reason.NO_BOX, Reason.EMPTY_BOX, Reason.NOT_INTEGER})


@dataclass(frozen=True, slots=True)
class Reading:
    """What a response answers.

    Attributes:
        answer: The integer, or the reason why there is none.
        box: The content of the box that decided, as the model wrote it, cut at
            ``MAX_LENGTH`` characters; empty if none did.
    """

    answer: int | Reason
    box: str = ""


def read_answer(text: str) -> int | Reason:
    """Read the integer that a response answers, or the reason why there is none."""
    return read_response(text).answer


def read_response(text: str) -> Reading:
    """Read what a response answers and the box that says so.

    Args:
        text: The text of the last assistant turn, or of a whole response. Any text is allowed.
    """
    closed, unclosed = _blocks(model_text(text))
    if not closed:
        return Reading(Reason.UNCLOSED if unclosed else Reason.NO_ANSWER_BLOCK)
    different = dict.fromkeys([*closed, *unclosed])
    if len(different) > MOST_BLOCKS:
        return Reading(Reason.HEDGE)
    boxes_of = {block: _filled_boxes(block) for block in different}
    value_of = _read_boxes(boxes_of.values())
    if value_of is None:
        return Reading(Reason.HEDGE)
    reading_of = {block: _read_block(boxes, value_of) for block, boxes in boxes_of.items()}
    said = {reading.answer for reading in reading_of.values()}
    if Reason.HEDGE in said or sum(not isinstance(answer, Reason) for answer in said) > 1:
        return Reading(Reason.HEDGE)
    for block in reversed(closed):
        if not _is_template(block, reading_of[block].answer):
            return reading_of[block]
    return reading_of[closed[-1]]


def model_text(text: str) -> str:
    """Remove tool output and tool calls from a response.

    A tool may print tags to end its span early, so no tag between the first opening and the
    last closing one can be believed: all of that goes, turns of the model in between too.

    Args:
        text: A response, with or without ``<tool_response>`` and ``<tool_call>`` spans.
    """
    opened, closed = text.find(RESPONSE_OPEN), text.find(RESPONSE_CLOSE)
    if opened >= 0 or closed >= 0:
        starts_outside = opened >= 0 and (closed < 0 or opened < closed)
        before = text[:opened] if starts_outside else ""
        after = text[text.rfind(RESPONSE_CLOSE) + len(RESPONSE_CLOSE) :] if closed >= 0 else ""
        text = before + "\n" + after.partition(RESPONSE_OPEN)[0]
    first, *pieces = text.split(CALL_OPEN)
    return first + "".join(map(_without_call, pieces))


def _without_call(piece: str) -> str:
    """What follows a ``<tool_call>`` up to the next: without the call, or all if it is unclosed."""
    _, closed, after = piece.partition(CALL_CLOSE)
    return "\n" + after if closed else CALL_OPEN + piece


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


def _read_boxes(blocks: Iterable[list[str] | Reason]) -> dict[str, int | Reason] | None:
    """Read each different box once; None if they are too much to read."""
    bodies = {body for boxes in blocks if not isinstance(boxes, Reason) for body in boxes}
    if sum(len(body) for body in bodies if len(body) <= MAX_LENGTH) > MOST_CHARACTERS:
        return None
    return {body: _read_box(body) for body in bodies}


def _read_block(boxes: list[str] | Reason, value_of: Mapping[str, int | Reason]) -> Reading:
    if isinstance(boxes, Reason):
        return Reading(boxes)
    first, *others = boxes
    answer = value_of[first]
    if others and (isinstance(answer, Reason) or any(value_of[box] != answer for box in others)):
        return Reading(Reason.HEDGE)
    return Reading(answer, first[:MAX_LENGTH])


def _read_box(body: str) -> int | Reason:
    if len(body) > MAX_LENGTH:
        return Reason.TOO_LONG
    value = parse_integer(body)
    return Reason.NOT_INTEGER if value is None else value


def _filled_boxes(block: str) -> list[str] | Reason:
    """The different contents of the boxes that hold something, or why there is nothing to read."""
    bodies = _boxes(block)
    if bodies is None:
        return Reason.UNCLOSED
    if not bodies:
        return Reason.NO_BOX
    filled = [body for body in dict.fromkeys(bodies) if not is_blank(body)]
    if not filled:
        return Reason.EMPTY_BOX
    return filled if len(filled) <= MOST_BOXES else Reason.HEDGE


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


def _is_template(block: str, answer: int | Reason) -> bool:
    return answer in _MAYBE_TEMPLATE and not any(map(str.isdecimal, block))
