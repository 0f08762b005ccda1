"""What may follow a number without changing it: units, and what only looks like one.

After ``42`` the words ``cm``, ``degrees`` or ``apples`` leave the integer alone; ``or``,
``dozen``, ``factorial`` or a variable ``i`` do not. Problems count anything, so a word of a
text is a unit unless it is listed as changing the value; a bare word of a formula, which may
be a product of variables, must be a known symbol or plainly a word.
"""

import re

SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "quadrillion": 10**15,
    "quintillion": 10**18,
}
"""Number words that multiply the number before them."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SYMBOLS = _words(
    "mm cm dm km ft in mi yd mg kg lb lbs oz ml mL dl hr hrs min mins sec secs ms "
    "mph kph rad deg USD EUR GBP CNY RMB pts pct Hz kHz kW kWh mol Pa kPa"
)
_LETTERS = _words("m g s h L l N J W V")
_FOREIGN = _words("元 円 度 个 個 人 米 Ω μm µm")
_CHANGES_THE_VALUE = _words(
    # Not one value, or not this one.
    "or and to nor not no if unless when maybe perhaps possibly else otherwise but except "
    "wrong incorrect false negative infinity infinite undefined unknown "
    # Near it, or a bound.
    "about approximately approx around roughly nearly almost circa ish at least most more less "
    "fewer than over under above below between up down "
    # A sum that is left to do.
    "plus minus divided mod modulo by factorial squared cubed doubled tripled halved root "
    "sqrt choose base "
    # Parts and multiples.
    "half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh "
    "sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth "
    "thousandths millionth millionths dozen dozens score gross hundreds thousands millions "
    "billions trillions mil mn bn lakh lakhs crore crores googol sextillion septillion "
    # Ranks, clock times, letters, number words.
    "st nd rd th am pm pi tau alpha beta gamma delta epsilon zeta eta theta iota kappa lambda "
    "sigma omega zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty "
    "seventy eighty ninety"
) | frozenset(SCALES)
_WORD = re.compile(
    r"""(?:\ ?[/*]\ ?)?          # between two units: m/s, N*m
        (?P<space>\ ?)
        (?:(?P<mark>[%$]|°(?:\ ?"?[CF]"?(?!\w))?)|"(?P<text>[^"]+)"|(?P<bare>[^\W\d_]+))\.?
        (?:\^(?:-?\d|\(\ ?-?\d\ ?\)))?""",
    re.VERBOSE,
)
_MAX_WORDS = 5


def is_unit(suffix: str) -> bool:
    """Whether a suffix is empty or made of units alone.

    Args:
        suffix: What follows a number in the plain line of :func:`rstar2.grading.latex.shown`.
    """
    position = 0
    for _ in range(_MAX_WORDS):
        if position == len(suffix):
            return True
        match = _WORD.match(suffix, position)
        if match is None or not _leaves_value(match):
            return False
        position = match.end()
    return position == len(suffix)


def _leaves_value(match: re.Match[str]) -> bool:
    if match["mark"]:
        return True
    word = match["text"] or match["bare"]
    if word.lower() in _CHANGES_THE_VALUE:
        return False
    if not word.isascii() or (match["text"] and len(word) == 1):
        return word in _FOREIGN or word in _LETTERS
    if match["text"]:
        return True
    return word in _SYMBOLS or (len(word) >= 4 and match["space"] != "")
