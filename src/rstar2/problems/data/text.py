r"""How two texts are compared: keys, words and trigrams; and what in a text is not the problem.

Three things are not the problem: wrapper prompts that a data set was stored with, drawing code
(Asymptote, TikZ), and the boilerplate of contests ("where $m$ and $n$ are relatively prime
positive integers. Find $m+n$"), which makes unrelated problems look alike.
"""

import re
import unicodedata
from collections.abc import Sequence

Trigram = tuple[str, str, str]

# --- what is not the problem ---------------------------------------------------------------

_TAIL = 1_000
"""A wrapper at the end of a text is looked for in its last characters only."""

_HEAD = re.compile(
    r"""(?:
        (?:please\s+)?(?:solve|answer)\s+the\s+following\s+(?:math\w*\s+)?(?:problem|question)s?
        (?:\s+(?:step[\s-]by[\s-]step|efficiently\ and\ clearly|carefully))?\s*[.:]
      | the\s+last\s+line\s+of\s+your\s+response\s+should\s+(?:only\s+)?be\s+of\s+the\s+form
        [^\n]{0,80}?\bwhere\s[^\n]{0,20}\sis\s+the\s+answer\s+to\s+the\s+(?:problem|question)\.
      | answer\s+the\s+given\s+question\.(?=\s*you\s+must\s+conduct\s+reasoning)
        (?s:.{0,2000}?)question:
      | below\s+is\s+an\s+instruction\s+that\s+describes\s+a\s+task\.[^\n]{0,100}\n
      | <\|im_start\|>\s*user\b | <\|im_end\|>
      | \#*\ ?(?:question|problem|instruction)\ ?:
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_FOOT = re.compile(
    r"""(?<![^\s.?!$}\])])(?:
        remember\s+to\s+put\s+your\s+answer\s+on\s+its\s+own\s+line\s+after\s+["“]?answer:["”]?
        (?:,[^.\n]{0,80})?\.?
      | (?:please\s+|let['’]s\s+)(?:reason|think)\s+(?:about\s+it\s+)?step[\s-]by[\s-]step
        ,?(?:\s+and)?\.?
      | (?:and\s+)?(?:please\s+|make\s+sure\s+to\s+)?
        (?:(?:put|give|write|present|enclose|place|provide|output|express|return|box)\s|(?=the|your))
        (?:(?!and\b)\w+\s+){0,6}?(?:answer|result|solution)s?\b[^.?!\n]{0,80}
        \\f?boxed\s*\{(?:[$\\.]|ldots|(?:your|the|final|answer|result|here)\b|\s)*\}
        (?:[^.?!\n]{0,80}[.!]|\W*)
      | (?:(?<=\n)|(?<=[.?!$]\ ))\#*\ ?(?:response|solution|answer)\ ?:\s*\$?(?:answer)?
      | <\|im_end\|>(?:\s*<\|im_start\|>\s*assistant)?
    )\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_ESCAPED = {
    "\a": ("a", r"lpha|ngle|pprox"),
    "\b": ("b", r"eta|inom|egin|oxed|ullet|mod"),
    "\t": ("t", r"ext\b|imes|heta\b|frac|riangle"),
    "\v": ("v", r"ec\b|ert\b|arphi|dots"),
    "\f": ("f", r"rac|orall"),
    "\r": ("r", r"ight\b|ho\b"),
}
_BROKEN = re.compile("|".join(f"{mark}(?={tail})" for mark, (_, tail) in _ESCAPED.items()))
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DRAWING = re.compile(
    r"""\[asy\](?:(?!\[asy\]).)*?\[/asy\]
      | ```asy(?:(?!```).)*```
      | \\begin\{asy\}(?:(?!\\begin\{asy\}).)*?\\end\{asy\}
      | \\begin\{tikzpicture\}(?:(?!\\begin\{tikzpicture\}).)*?\\end\{tikzpicture\}""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def without_wrappers(text: str) -> str:
    r"""Take off the prompts around a problem: "Solve the following…", "…within \boxed{}"."""
    text = text.strip()
    while head := _HEAD.match(text):
        text = text[head.end() :].lstrip()
    while foot := _FOOT.search(text, max(0, len(text) - _TAIL)):
        text = text[: foot.start()].rstrip(" \t\r\n,")
    return text


def mended(text: str) -> str:
    r"""Restore LaTeX commands whose backslash was read as an escape, as form feed + ``rac``.

    Other control characters but tabs and line ends are dropped.
    """
    text = _BROKEN.sub(lambda mark: "\\" + _ESCAPED[mark[0]][0], text)
    return _CONTROL.sub("", text)


def without_drawings(text: str) -> str:
    """Blank out Asymptote and TikZ code."""
    return _DRAWING.sub(" ", text)


# --- keys, words, trigrams -----------------------------------------------------------------

_STYLE = re.compile(
    r"""\\(?:left|right|middle|bigg?[lrm]?|quad|qquad|hspace\*?\{[^{}]*\}|hfill|displaystyle
      |textstyle|limits|text|textrm|mathrm|mbox|operatorname)(?![a-z])""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dtc]frac(?![a-z])")
_DOTS = re.compile(r"\\(?:l|c)?dots[cbm]?(?![a-z])|…|\.\.\.")
_ORDER = re.compile(r"\\(l|g)eq(?:slant)?(?![a-z])")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_WORD = re.compile(r"[^\W_]+")
_SINGLE_DIGITS = re.compile(r"\\(?:[dtc]?frac|[dt]?binom)\s*(\d)\s*(\d)")
_GROUPED = re.compile(
    r"""(?<![\d.])[1-9]\d{0,2}(?:(?:,(?:\s{1,3}(?=000))?|\{,\}|,?\\[,!\ ])\d{3})+(?!\d)
    | \b\d(?:[\s~]\d){3,}\b""",
    re.VERBOSE,
)
"""Groups of three digits, and four or more digits set apart by blanks."""
_NOT_DIGIT = re.compile(r"\D")
_SIGN = re.compile(r"[-+*/^<>=|!±×÷−]")
_CARDINALS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
_NUMBER = re.compile(
    r"""(?<![\w.])\.\d+ | \d+(?:\.\d+)*
    | \b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|first|second|third|fourth
    |fifth|sixth|seventh|eighth|ninth|tenth|hundred|thousand|million|half|twice|thrice)\b""",
    re.VERBOSE,
)
_MARKUP = re.compile(r"\\[a-z]+|\[/?[a-z]+\]|https?://\S+")
_LETTERS = re.compile(r"[^\W\d_]+")
_STEM = 4
"""Letters by which a word is known: ``labeled`` is ``labelled``."""
_FILLER = re.compile(
    r"""also|answer|calculate|compute|denoted?|determine|each|evaluate|find|following|given|have
    |having|integers?|list|number|please|problem|provide|question|says|such|supposed?|that|then
    |there|they|this|value|what|when|where|which|with|your""",
    re.VERBOSE,
)

_BOILERPLATE = re.compile(
    r"""\b(?:
        (?:can|may)\ be\ (?:uniquely\ )?(?:expressed|written)\ (?:uniquely\ )?(?:as|in\ the\ form)
        (?:\ (?:an?\ (?:simplified\ |common\ )?fraction|frac|sqrt|pi|[a-z]|\d+)\b){0,8}
      | (?:where|for|with)(?:\ \w+){0,12}?\ (?:relatively\ prime|coprime|co\ prime)
        (?:\ (?:positive|integers?|numbers?))*
      | (?:where|with|and)(?:\ \w+){0,20}?\ not\ divisible\ by\ the\ square\ of\ any\ prime
      | (?:find|compute|determine|what\ is|calculate|evaluate)(?:\ the\ value\ of)?
        (?:\ \d{0,4}[a-z]\b){2,6}\Z
      | the\ (?:original\ )?answer\ (?:is|should\ be|can\ be)\ (?:\w+\ ){0,3}?(?:form|format)\b.*
      | if\ the\ answer\ is\ .{0,80}\ (?:what|find)\ .{0,60}\Z
      | (?:please\ )?(?:provide|give|find|calculate)\ the\ (?:value|sum)\ of(?:\ [a-z]\b){2,6}\Z
      | please\ (?:provide|give|find|calculate|compute)\ .{0,100}\Z
      | express\ your\ answer\ (?:as|in)\ .{0,60}\Z
      | provide\ your\ answer\ (?:as|in)\ .{0,60}\Z
    )""",
    re.VERBOSE,
)


def _plain(text: str) -> str:
    text = _STYLE.sub(" ", unicodedata.normalize("NFKC", text).lower())
    text = _ORDER.sub(r"\\\1e", _FRACTION.sub(r"\\frac", text))
    return _DOTS.sub(r"\\dots", text)


def text_key(text: str) -> str:
    r"""The letters and digits of a text; equal for copies that differ in spacing and style.

    NFKC, lower case; LaTeX spacing, ``\left`` and ``\right``, font commands dropped;
    ``\dfrac`` is ``\frac``. A text without letters and digits is its own key.
    """
    return _NOT_ALPHANUMERIC.sub("", _plain(text)) or text


def words(text: str) -> list[str]:
    """The words of a text in order: runs of letters and digits, as in ``text_key``."""
    return _WORD.findall(_plain(text))


def problem_words(text: str) -> list[list[str]]:
    """The words that tell a problem from another: no wrapper, drawing code or boilerplate.

    Returns:
        Runs of words; what stood between two runs was boilerplate.
    """
    line = " ".join(words(without_drawings(without_wrappers(text))))
    return [run.split() for run in _BOILERPLATE.split(line) if run.strip()]


def trigrams(*runs: Sequence[str]) -> frozenset[Trigram]:
    """All three consecutive words of the runs; none in a run of two words."""
    return frozenset(gram for run in runs for gram in zip(run, run[1:], run[2:], strict=False))


def jaccard(left: frozenset[Trigram], right: frozenset[Trigram]) -> float:
    """Size of the intersection over size of the union; 0 for two empty sets."""
    both = len(left & right)
    return both / (len(left) + len(right) - both) if both else 0.0


def numbers(text: str) -> tuple[str, ...]:
    r"""The numbers of a text in order: digits with a decimal point, and numerals in words.

    ``text_key`` does not tell ``1.5`` from ``15``, nor (12, 3) from (1, 23); this does. Digits
    grouped as ``1,234`` are one number, ``\frac12`` has two, and ``six`` is ``6``.
    """
    line = unicodedata.normalize("NFKC", text).lower()
    line = _GROUPED.sub(lambda group: _NOT_DIGIT.sub("", group[0]), line)
    found = _NUMBER.findall(_SINGLE_DIGITS.sub(r" \1 \2 ", line))
    return tuple(_CARDINALS.get(number, number) for number in found)


def telling_words(text: str) -> frozenset[str]:
    """The first letters of the words that carry a meaning: no LaTeX commands, no filler."""
    found = _LETTERS.findall(_MARKUP.sub(" ", unicodedata.normalize("NFKC", text).lower()))
    return frozenset(
        word[:_STEM] for word in found if len(word) >= _STEM and not _FILLER.fullmatch(word)
    )


def signs(text: str) -> str:
    """The signs of a text in order: what ``text_key`` drops and a formula may turn on."""
    return "".join(_SIGN.findall(unicodedata.normalize("NFKC", text)))
