r"""Reads one integer out of a LaTeX answer or a gold label, exactly.

Read: a sign (ASCII, U+2212, dashes, full width); digits with leading zeros; correct groups of
three (``,`` ``{,}`` ``,\!`` ``\,`` or a space); a zero fraction; fractions, products and small
powers of literals (``\frac{84}{2}``, ``6\cdot7``, ``4.2\times10^1``); style wrappers; a choice
letter ``(B)``; degree, percent, currency, unit, ``\pmod{n}``, base or number-word suffix;
``x=42``, ``m+n=42``, ``f(3)=42``, ``6\cdot7=42``, ``=42``.

Not read: sets, lists, intervals, inequalities, ``\pm``, "or", clock times, ratios, mixed
numbers, multiples of letters, factorials, sums and functions left for the grader to compute,
Python. A false equation (``42=43``) is no answer.

Arithmetic is on exact fractions of bounded size; time is linear in the text.
"""

import operator
import re
from typing import NamedTuple

from rstar2.grading.label import is_label
from rstar2.grading.latex import Unreadable, shown
from rstar2.grading.units import CURRENCIES, NUMBER_WORDS, SCALES, is_unit

MAX_LENGTH = 5_000
"""Longest answer that is read, in characters."""
MAX_BITS = 14_000
"""Largest result of a product or power, in bits; a literal may be larger."""

MAX_TERMS = 200
"""Most numbers and operations of an expression, and most sides of an equation."""


class _Ratio(NamedTuple):
    top: int
    bottom: int


_NUMBER = r"""(?:
    [1-9]\d{0,2}(?:,\d{3})+(?!\d)
  | [1-9]\d{0,2}(?:\ \d{3})+(?!\ ?\d)
  | \d+
)(?:\.\d+)?|\.\d+"""
_TOKEN = re.compile(rf"\ ?(?:(?P<number>{_NUMBER})|(?P<mark>[-+*/^()]))", re.VERBOSE)
_BOLD = re.compile(r"\s*\*\*(?P<inside>[^*]*)\*\*\s*")
_CHOICE = re.compile(r' ?\("?[A-Z]"?\)(?=.)')
_CURRENCY = rf'(?:"?(?:{"|".join(sorted(CURRENCIES, reverse=True))})"?\.? ?)?\$*'
_SIGN = re.compile(rf" ?{_CURRENCY} ?([-+]?) ?{_CURRENCY}")
_BASE_NAME = rf'"(?:{"|".join(sorted(NUMBER_WORDS))})"'
_BASE = re.compile(rf" ?_(?:\d\d?|\(\d\d?\)|{_BASE_NAME}|\({_BASE_NAME}\))")
_SCALE = re.compile(rf' ?"?({"|".join(SCALES)})\b"?')
_MODULUS = re.compile(r' ?(?:@ ?(?:\d+|\(\d+\))|\("?mod"? ?\d+\))$')
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "negate": 1, "*": 2, "/": 2, "^": 3}


def parse_integer(text: str) -> int | None:
    """Read the integer that a text denotes.

    Args:
        text: The content of a box, or a gold label. Any text is allowed.

    Returns:
        The integer, of any size; None if the text is longer than ``MAX_LENGTH`` or does not
        denote one integer in an allowed style (see the module docstring).
    """
    if len(text) > MAX_LENGTH:
        return None
    bold = _BOLD.fullmatch(text)
    try:
        return _read(shown(bold["inside"] if bold else text))
    except Unreadable:
        return None


def _read(line: str) -> int:
    line = line.strip("$ ").removesuffix(".").strip("$ ")
    *claims, last = line.removeprefix("=").split("=", MAX_TERMS)
    value, is_sum = _quantity(last)
    if is_sum:
        raise Unreadable("a sum that is left to the grader")
    for claim in claims:
        if not is_label(claim):
            claimed, _ = _quantity(claim)
            if claimed.top * value.bottom != value.top * claimed.bottom:
                raise Unreadable("an equation that is false")
    if value.top % value.bottom:
        raise Unreadable("a number that is not whole")
    return value.top // value.bottom


def _quantity(side: str) -> tuple[_Ratio, bool]:
    """Read a number with what may stand round it; also whether a sum was taken."""
    choice = _CHOICE.match(side)
    body = side[choice.end() :] if choice else side
    body = _SIGN.sub(r"\1", body, count=1)
    value, is_sum, end = _expression(body)
    rest = body[end:]
    base = _BASE.match(rest)
    if base:
        rest = rest[base.end() :]
    scale = _SCALE.match(rest)
    if scale:
        value = _apply("*", value, _Ratio(SCALES[scale[1]], 1))
        rest = rest[scale.end() :]
    rest = _MODULUS.sub("", rest.rstrip())
    if not is_unit(rest.rstrip()):
        raise Unreadable(f"{rest[:20]!r} after the number")
    return value, is_sum


def _expression(text: str) -> tuple[_Ratio, bool, int]:
    """Evaluate the longest expression at the start of a text (two stacks, no recursion).

    Returns:
        The value, whether it holds a sum, and where the expression ends.
    """
    values: list[_Ratio] = []
    pending: list[str] = []
    complete = is_sum = False
    at_start = True
    end = terms = 0
    while match := _TOKEN.match(text, end):
        number, mark = match["number"], match["mark"]
        terms += mark not in ("(", ")")
        if terms > MAX_TERMS:
            raise Unreadable("an expression of too many terms")
        if complete and (number or mark == "(" or (mark == ")" and "(" not in pending)):
            break
        if number:
            values.append(_literal(number))
            complete = True
        elif mark == "(":
            pending.append(mark)
        elif mark == ")" and complete:
            _reduce(values, pending, above=0)
            pending.pop()
        elif complete:
            _reduce(values, pending, above=_PRECEDENCE[mark] - (mark != "^"))
            pending.append(mark)
            is_sum = is_sum or mark in "+-"
            complete = False
        elif mark in "+-" and at_start:
            if mark == "-":
                pending.append("negate")
        else:
            raise Unreadable(f"{mark!r} without a number before it")
        at_start = mark == "("
        end = match.end()
    if not complete:
        raise Unreadable("no number")
    _reduce(values, pending, above=0)
    if pending:
        raise Unreadable("a bracket that is not closed")
    return values[0], is_sum, end


def _reduce(values: list[_Ratio], pending: list[str], *, above: int) -> None:
    """Carry out the pending operations that bind more tightly than ``above``."""
    while pending and _PRECEDENCE[pending[-1]] > above:
        name = pending.pop()
        value = values.pop()
        if name == "negate":
            values.append(_Ratio(-value.top, value.bottom))
        else:
            values.append(_apply(name, values.pop(), value))


def _apply(name: str, left: _Ratio, right: _Ratio) -> _Ratio:
    if name == "^":
        result = _power(left, right)
    elif name == "*":
        result = _Ratio(left.top * right.top, left.bottom * right.bottom)
    elif name == "/":
        result = _Ratio(left.top * right.bottom, left.bottom * right.top)
    else:
        add = operator.add if name == "+" else operator.sub
        top = add(left.top * right.bottom, right.top * left.bottom)
        result = _Ratio(top, left.bottom * right.bottom)
    if result.bottom == 0:
        raise Unreadable("a division by zero")
    if max(result.top.bit_length(), result.bottom.bit_length()) > MAX_BITS:
        raise Unreadable("a result too large to compute")
    return result


def _power(base: _Ratio, exponent: _Ratio) -> _Ratio:
    if exponent.top % exponent.bottom:
        raise Unreadable("a root")
    times = exponent.top // exponent.bottom
    bits = max(base.top.bit_length(), base.bottom.bit_length())
    if abs(times) * bits > MAX_BITS:
        raise Unreadable("a power too large to compute")
    if base.top == 0 and times <= 0:
        raise Unreadable("a power of zero that is undefined")
    if times < 0:
        base, times = _Ratio(base.bottom, base.top), -times
    return _Ratio(base.top**times, base.bottom**times)


def _literal(number: str) -> _Ratio:
    whole, _, fraction = number.replace(",", "").replace(" ", "").partition(".")
    return _Ratio(_from_digits(whole + fraction), 10 ** len(fraction))


def _from_digits(digits: str) -> int:
    """Convert in short pieces: Python refuses to convert thousands of digits at once."""
    value = 0
    for start in range(0, len(digits), 500):
        piece = digits[start : start + 500]
        value = value * 10 ** len(piece) + int(piece)
    return value
