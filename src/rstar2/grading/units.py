r"""What may follow a number without changing it: units and what is counted.

After ``42`` the words ``cm``, ``square units`` or ``apples`` leave the integer alone; ``tens``,
``never``, ``upper bound`` or a product of letters do not. So a phrase must be made of what is
known: modifiers, then a noun, which is a unit, a counted thing in the singular, or a plural;
nouns may be joined by ``per``, ``of``, ``/``, ``*`` and a hyphen. A plural is told by
its ending, and words that only look like one (``this``, ``always``, ``twelfths``) are listed.
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


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


NUMBER_WORDS = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
CURRENCIES = words("USD EUR GBP CNY RMB JPY INR CAD AUD CHF HKD Rs US")
"""Codes that may also stand before a number."""
_SYMBOLS = CURRENCIES | words(
    "mm cm dm km ft in mi yd nm mg kg lb lbs oz gal qt ml mL dl dL cl hr hrs min mins sec secs ms "
    "ns yr yrs mph kph kmh rpm rad deg pts pct Hz kHz MHz GHz kW MW kWh mol Pa kPa kJ kN kV mA kB "
    "KB MB GB TB dB eV cal kcal ppm ha cc sqft"
)
_LETTERS = words("m g s h L l N J W V")
_LETTERS_APART = words("A K C F T")
"""Symbols that are units after a space; ``2A`` may be written in another base."""
_FOREIGN = words("元 円 度 个 個 人 米 次 种 種 天 年 Ω kΩ μm µm μs µs Å")
_UNIT_NAMES = words(
    "meter metre centimeter centimetre millimeter millimetre kilometer kilometre decimeter "
    "decimetre micrometer nanometer inch foot yard mile acre hectare liter litre milliliter "
    "millilitre gallon quart pint cup gram kilogram milligram pound ounce ton tonne second minute "
    "hour day week month year decade century degree radian percent cent dollar euro penny pence "
    "yen yuan won rupee newton joule watt kilowatt volt ampere amp ohm pascal hertz kelvin mole "
    "celsius fahrenheit unit point bit byte kilobyte megabyte gigabyte knot calorie candela tesla"
)
_COUNTED = words(
    "way time solution pair triple triplet quadruple tuple set subset element number "
    "integer value total digit point line edge vertex face side triangle circle polygon angle "
    "path route person man woman child student boy girl team game match player coin ball box bag "
    "card page "
    "book apple piece item step move turn term factor divisor function sequence "
    "permutation combination arrangement word letter string tree graph color colour stamp tile "
    "ticket car seat vote question problem car dog cat case possibility outcome head group area "
    "volume length revolution rotation intersection region lap trip gift chair"
)
_IRREGULAR = words(
    "people men women children feet inches mice geese fish sheep deer dice teeth oxen cattle "
    "vertices matrices indices axes polyhedra loci radii data series species yen"
)
_NOUNS = _UNIT_NAMES | _COUNTED | _IRREGULAR
_MODIFIERS = words(
    "square sq cubic cu different distinct possible total whole positive negative nonnegative odd "
    "even such unit ordered unordered prime real complex rational natural integral valid unique "
    "equal remaining consecutive lattice linear fluid nautical light working business full red "
    "blue green white black yellow man woman person percentage good safe integer nonzero "
    "distinguishable nonempty acute right obtuse isosceles equilateral congruent similar "
    "composite perfect"
)
_AFTER_NOUN = words(
    "old long wide tall high deep away clockwise counterclockwise altogether overall"
)
_NO_PLURALS = words(
    # Function words, adverbs and verbs.
    "this thus does goes always perhaps besides sometimes otherwise whereas others theirs yours "
    "ours hers nowadays across versus alias sans alas onwards towards upwards downwards backwards "
    "forwards afterwards inwards outwards sideways equals exceeds becomes gives makes fails seems "
    "appears contains means implies holds follows represents denotes divides satisfies yields "
    "differs suffices solves exists says thinks lies "
    # Parts, multiples and number words.
    "ones twos threes fours fives sixes sevens eights nines tens elevens twelves teens dozens "
    "scores grosses twenties thirties forties fifties sixties seventies eighties nineties halves "
    "thirds quarters lakhs crores myriads googols doubles bounds limits estimates negatives "
    "inverses reciprocals factorials logs "
    "alphas betas gammas deltas thetas sigmas omegas"
)
_ORDINAL = re.compile(
    r".*(?:tie|teen|illion|lliard|hundred|thousand|dozen)ths?|zeroths?|oneths?"
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf)ths?|.*(?:hundred|thousand|illion|lliard)s?"
)
_PLURAL = re.compile(r"(?=.*[aeiou])[A-Za-z][a-z]+[a-rt-z]s")
_SINGULAR_ENDINGS = ("us", "is")
_WORD = re.compile(
    r"""(?P<joint>\ ?[/*]\ ?|-)?
        (?P<space>\ ?)
        (?:(?P<mark>[%$]|°(?:\ ?"?[CF]"?(?!\w))?)|"(?P<text>[^"]+)"|(?P<bare>[^\W\d_]+))\.?
        (?:\^(?:-?\d|\(\ ?-?\d\ ?\)))?""",
    re.VERBOSE,
)
_MAX_WORDS = 6


def is_unit(suffix: str) -> bool:
    """Whether a suffix is empty or a phrase of units alone.

    Args:
        suffix: What follows a number in the plain line of :func:`rstar2.grading.latex.shown`.
    """
    position = 0
    complete = True
    for _ in range(_MAX_WORDS):
        if position == len(suffix):
            break
        match = _WORD.match(suffix, position)
        if match is None or (match["joint"] and not position):
            return False
        known = _completes(match, begun=position > 0 and complete)
        if known is None:
            return False
        complete = known
        position = match.end()
    return complete and position == len(suffix)


def _completes(match: re.Match[str], *, begun: bool) -> bool | None:
    """Whether a phrase may end after a word; None if the word has no place in one.

    Args:
        match: The word with what joins it to the words before.
        begun: Whether a noun stands before the word.
    """
    if match["mark"]:
        return True
    word = match["text"] or match["bare"]
    is_text, is_apart = match["text"] is not None, match["space"] != ""
    if word == "per" or (word == "of" and begun):
        return False if is_text or is_apart else None
    if _is_noun(word, is_text=is_text, is_apart=is_apart):
        return True
    if begun and word in _AFTER_NOUN:
        return is_text or is_apart or None
    return False if word.lower() in _MODIFIERS else None


def _is_noun(word: str, *, is_text: bool, is_apart: bool) -> bool:
    if word in _SYMBOLS or word in _FOREIGN:
        return True
    if is_text and (word in _LETTERS or (is_apart and word in _LETTERS_APART)):
        return True
    lower = word.lower()
    if lower in _NOUNS:
        return is_text or is_apart
    if not _is_plural(word):
        return False
    # A short bare word may be a product of letters, unless its singular is known.
    return is_text or (is_apart and (len(word) > 4 or lower[:-1] in _NOUNS))


def _is_plural(word: str) -> bool:
    lower = word.lower()
    if lower in _NO_PLURALS or lower.endswith(_SINGULAR_ENDINGS) or _ORDINAL.fullmatch(lower):
        return False
    return _PLURAL.fullmatch(word) is not None
