"""The reward's grader: a response and a gold integer give a verdict (paper, section 2.1).

Pure and total: standard library only, no evaluation of model text, no signals, no shared
state, time linear in the response. Whatever a model writes gets a verdict; only a gold answer
that is not an integer raises, because that is a fault of the data.
"""

import operator

from rstar2.grading.answer import read_answer
from rstar2.grading.number import MAX_BITS, parse_integer
from rstar2.grading.verdict import BadGold, Reason, Verdict
from rstar2.protocol.types import StopReason, Trajectory


def grade(response: str | Trajectory, gold: int | str) -> Verdict:
    r"""Grade one response.

    Args:
        response: A finished rollout, of which only the last turn's text is read, or that text
            alone. Tool output in the text is ignored.
        gold: The right integer, or a label that denotes it (``"073"``, ``"13.0"``).

    Returns:
        Correct if the boxed integer equals the gold exactly; else the reason why not.

    Raises:
        BadGold: The gold label is not an integer.
    """
    right = _gold_integer(gold)
    if isinstance(response, Trajectory):
        if response.stop is StopReason.INFRASTRUCTURE:
            return Verdict(False, None, Reason.INFRASTRUCTURE)
        if response.stop.is_truncated:
            return Verdict(False, None, Reason.TRUNCATED)
        text = response.turns[-1].text if response.turns else ""
    else:
        text = response
    answer = read_answer(text)
    if isinstance(answer, Reason):
        return Verdict(False, None, answer)
    value = answer if answer.bit_length() <= MAX_BITS else None
    correct = answer == right
    return Verdict(correct, value, Reason.CORRECT if correct else Reason.MISMATCH)


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
