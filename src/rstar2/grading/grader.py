"""The reward's grader: a response and a gold integer give a verdict (paper, section 2.2.1).

Pure and total: standard library only, no evaluation of model text, no signals, no shared
state, time linear in the response. Whatever a model writes gets a verdict. What a programmer
hands over wrong raises: a gold answer that is not an integer, a message that is none.
"""

import operator
from collections.abc import Mapping, Sequence

from rstar2.grading.answer import read_response
from rstar2.grading.number import MAX_BITS, parse_integer
from rstar2.grading.verdict import BadGold, Reason, Verdict
from rstar2.protocol.types import StopReason, Trajectory

Message = Mapping[str, object]
"""A chat message: ``role``, ``content`` (a str, None, or parts with ``type`` and ``text``) and,
while calls of the assistant wait for their results, ``tool_calls``."""

Response = str | Trajectory | Sequence[Message]
"""What can be graded: a text, a finished rollout, or a conversation."""


def grade(response: Response, gold: int | str) -> Verdict:
    r"""Grade one response.

    Of a rollout or a conversation only the model's last turn is read, and only if nothing
    follows it: a conversation that ends with a tool's or a user's message, or with calls
    that nobody answered, is truncated.

    Args:
        response: A finished rollout, a conversation, or a text. Tool output in a text is
            ignored.
        gold: The right integer, or a label that denotes it (``"073"``, ``"13.0"``).

    Returns:
        Correct if the boxed integer equals the gold exactly; else the reason why not.

    Raises:
        BadGold: The gold label is not an integer.
        TypeError: The response is nothing of the kind, or one of its messages is not; the
            error names it.
    """
    right = _gold_integer(gold)
    text = _last_words(response)
    if isinstance(text, Reason):
        return Verdict(False, None, text)
    reading = read_response(text)
    answer = reading.answer
    if isinstance(answer, Reason):
        return Verdict(False, None, answer, reading.box)
    value = answer if answer.bit_length() <= MAX_BITS else None
    correct = answer == right
    return Verdict(correct, value, Reason.CORRECT if correct else Reason.MISMATCH, reading.box)


def _last_words(response: Response) -> str | Reason:
    """The text of the model's last turn, or why it does not count."""
    if isinstance(response, Trajectory):
        return _last_turn(response)
    if isinstance(response, str):
        return response
    return _last_message(response)


def _last_turn(trajectory: Trajectory) -> str | Reason:
    if trajectory.stop is StopReason.INFRASTRUCTURE:
        return Reason.INFRASTRUCTURE
    if trajectory.stop.is_truncated:
        return Reason.TRUNCATED
    return trajectory.turns[-1].text if trajectory.turns else ""


def _last_message(messages: Sequence[Message]) -> str | Reason:
    if not isinstance(messages, Sequence):
        raise TypeError(
            f"a response is a str, a Trajectory or a list of messages, not {_kind(messages)}"
        )
    roles = [_role(message, index) for index, message in enumerate(messages)]
    if not roles:
        return ""
    last = messages[-1]
    if roles[-1] != "assistant" or last.get("tool_calls"):
        return Reason.TRUNCATED
    return _content(last.get("content"), len(roles) - 1)


def _role(message: Message, index: int) -> str:
    if not isinstance(message, Mapping):
        raise TypeError(f"message {index} is {_kind(message)}, not a mapping with 'role'")
    role = message.get("role")
    if not isinstance(role, str):
        raise TypeError(f"message {index} has no 'role' that is a str")
    return role


def _content(content: object, index: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        # A line of its own for each part: tags and digits of two parts do not join.
        return "\n".join(_part(part, index) for part in content)
    raise TypeError(f"message {index} has {_kind(content)} as content: give a str or parts")


def _part(part: object, index: int) -> str:
    """The text of a part; a part of another type has none."""
    if isinstance(part, Mapping) and isinstance(part.get("type"), str):
        text = part.get("text") if part["type"] == "text" else ""
        if isinstance(text, str):
            return text
    raise TypeError(f"message {index} has a part that is not {{'type': 'text', 'text': ...}}")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _gold_integer(gold: int | str) -> int:
    if isinstance(gold, str):
        value = parse_integer(gold)
        if value is None:
            raise BadGold(
                f"gold answer {gold[:60]!r} is not an integer: correct the label or drop the row"
            )
        return value
    try:
        if isinstance(gold, bool):
            raise TypeError("a bool is no answer")
        return operator.index(gold)
    except TypeError as error:
        raise BadGold(
            f"gold answer is a {type(gold).__name__}: give an int or the label as a str"
        ) from error
