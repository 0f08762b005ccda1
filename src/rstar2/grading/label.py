r"""What may stand left of an equals sign: the name of what is asked, ``x``, ``m+n``, ``f(3)``.

A name must not hide work. ``2x=42`` says that x is 21, ``x+x=42`` and ``\sqrt{x}=42`` give x
another value too, and ``\text{at least}=42`` gives none. So a name holds no free digits, no
letter twice in a sum or product, no function that a reader would have to undo, and no word
that bounds, negates or multiplies.
"""

import re

from rstar2.grading.latex import ACCENT
from rstar2.grading.units import NUMBER_WORDS, SCALES, words

_FUNCTIONS = words(
    "ln log lg exp sqrt cbrt abs sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh "
    "floor ceil round gcd lcm hcf mod sgn"
)
_REFUSED = (
    words(
        # Not one value, not this one, or not sure.
        "or and not no nor neither either never if unless except but wrong incorrect false maybe "
        "perhaps possibly probably likely guess infinity "
        # A bound, or near it.
        "least most about approximately approx around roughly nearly almost more less fewer "
        "greater than over under above below bound bounds exceeds "
        # Another quantity than the one named.
        "half halves double doubled twice triple tripled thrice halved squared cubed root roots "
        "inverse reciprocal opposite negative minus plus times divided factorial dozen dozens "
        "multiple percent"
    )
    | _FUNCTIONS
    | NUMBER_WORDS
    | SCALES.keys()
)
_PART_OF = re.compile(
    r'"(?:square|cube|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)" "of"',
    re.IGNORECASE,
)
_WORDS_IN_FORMULAS = words(
    "area total difference perimeter height sum answer ans result value number count product "
    "probability distance circumference hypotenuse degree degrees maximum minimum remainder "
    "length coefficient intersection expression"
)
"""Bare words, with a letter twice or not, that are no products."""
_LETTERS = re.compile(r"[^\W\d_]+")
_FUNCTION_OF_LETTER = re.compile(rf"(?:{'|'.join(sorted(_FUNCTIONS))})[abcmnuvwxyz]", re.IGNORECASE)
_NAME = re.compile(
    rf"""(?P<gap>\ ?(?P<operator>[-+*])?\ ?){ACCENT}?
      (?:(?P<bare>[^\W\d_]+)
        |"(?P<text>[^"]+)"
        |\[\ ?[^\W\d_]{{3,}}\ ?\]            # an area
        |\|\ ?[A-Z]+'?(?:_[^\W_])?\ ?\|)     # the size of a set, the length of a segment
    """,
    re.VERBOSE,
)
_PRIME_OR_INDEX = re.compile(r"'|_[^\W_]")
_FACTOR_BRACKET = re.compile(r"(?<![\w\"'^_)])\(")
_CALLED = re.compile(r"\"[^\"]{2,}\"|([^\W\d_]+)[\"']*(\()?")
_BRACKET = re.compile(r"[()]")


def is_label(side: str) -> bool:
    """Whether a side of an equation only names what is asked.

    Args:
        side: A side of an equation in the plain line of :func:`rstar2.grading.latex.shown`.
    """
    found = [word.lower() for word in _LETTERS.findall(side)]
    if not found or not _REFUSED.isdisjoint(found) or _PART_OF.search(side):
        return False
    if any(map(_FUNCTION_OF_LETTER.fullmatch, found)):
        return False
    side = side.strip(" $")
    closing = _closing_brackets(side)
    return closing is not None and _names_one_thing(side, closing)


def _names_one_thing(side: str, closing: dict[int, int]) -> bool:
    """Whether a side is a word phrase, or a sum or product of different names."""
    names: list[str] = []
    called_on: set[str] = set()
    may_repeat = True
    position = 0
    while position < len(side):
        match = _NAME.match(side, position)
        if match is None or (not position and match["gap"]):
            return False
        may_repeat = may_repeat and not match["operator"]
        position = _tail_end(side, match.end(), closing)
        tail = side[match.end() : position]
        if _FACTOR_BRACKET.search(tail, tail.find("(") + 1):
            return False
        called_on |= _free_letters(tail)
        *before, last = _factors(match)
        names += [*before, last + tail]
        if not called_on.isdisjoint(before) or last in called_on:
            return False
    variables = [name for name in names if not (may_repeat and name.startswith('"'))]
    return called_on.isdisjoint(names) and len(set(variables)) == len(variables)


def _factors(match: re.Match[str]) -> list[str]:
    """The variables of a run of letters, or the one name that it is; words keep a quote."""
    bare, text = match["bare"], match["text"]
    if text:
        is_article = text in ("a", "A") and match.string.startswith(' "', match.end())
        if is_article or (len(set(text)) > 1 and not _is_product(text)):
            return ['"' + text]
        return list(text)
    if bare:
        return ['"' + bare] if bare.lower() in _WORDS_IN_FORMULAS else list(bare)
    return [match[0][len(match["gap"]) :]]


def _is_product(run: str) -> bool:
    """Whether letters in a text are no word: no vowel and one of them twice."""
    return set("aeiouAEIOU").isdisjoint(run) and len(set(run)) < len(run)


def _free_letters(tail: str) -> set[str]:
    """The letters that a bracket holds as variables, not as the names of functions."""
    free: set[str] = set()
    for run, called in _CALLED.findall(tail[tail.find("(") :] if "(" in tail else ""):
        free.update(run[:-1] if called else run)
    return free


def _tail_end(side: str, start: int, closing: dict[int, int]) -> int:
    """Where primes, an index and an argument after a name end."""
    while match := _PRIME_OR_INDEX.match(side, start):
        start = match.end()
    if side.startswith("_(", start):
        start = closing[start + 1] + 1
    return closing[start] + 1 if side.startswith("(", start) else start


def _closing_brackets(side: str) -> dict[int, int] | None:
    """Where each bracket closes; None if they do not match."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for bracket in _BRACKET.finditer(side):
        if bracket[0] == "(":
            opened.append(bracket.start())
        elif opened:
            closing[opened.pop()] = bracket.start()
        else:
            return None
    return None if opened else closing
