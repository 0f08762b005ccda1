r"""The rules that one row is judged by: is it a problem whose answer is the integer that it says?

Each rule is a step of its own, with its reason; ``RULES`` has them in order. They are meant to
be right about what they drop: what only looks suspicious stays, as a doubt.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rstar2.grading import parse_integer
from rstar2.problems.data.rows import (
    Doubt,
    Dropped,
    DropReason,
    Outcome,
    Progress,
    Row,
    StepFunction,
    ticked,
)
from rstar2.problems.data.text import mended, without_drawings, without_wrappers

MAX_DIGITS = 39
"""A label has fewer than 40 digits."""
MIN_LENGTH = 25
"""A shorter question, in characters, has lost a part."""
_AGREEING = 2
"""Solutions that must agree on a label if nothing but solutions speaks for it."""


@dataclass(frozen=True, slots=True)
class _Drop:
    reason: DropReason
    detail: str


@dataclass(frozen=True, slots=True)
class _Suspect:
    question: str
    detail: str
    score: float


@dataclass(frozen=True, slots=True)
class _Reading:
    """A row, and its question as rules read it: NFKC (ligatures undone), no drawing code."""

    row: Row
    text: str

    @classmethod
    def of(cls, row: Row) -> "_Reading":
        return cls(row, without_drawings(unicodedata.normalize("NFKC", row.question)))


_Judge = Callable[[_Reading], Row | _Drop | _Suspect | None]
"""Judges a row: drop it, doubt it, go on with it rewritten, or (None) as it is."""


def _rule(judge: _Judge) -> StepFunction:
    """Make a step of a rule that looks at one row at a time."""

    def step(rows: Sequence[Row], progress: Progress) -> Outcome:
        kept: list[Row] = []
        dropped: list[Dropped] = []
        doubts: list[Doubt] = []
        for row in ticked(rows, progress):
            said = judge(_Reading.of(row))
            if isinstance(said, _Drop):
                dropped.append(Dropped(row, said.reason, said.detail))
                continue
            kept.append(said if isinstance(said, Row) else row)
            if isinstance(said, _Suspect):
                doubts.append(Doubt(row, said.question, said.detail, said.score))
        return Outcome(tuple(kept), tuple(dropped), tuple(doubts))

    return step


# --- text and label ------------------------------------------------------------------------


def clean(rows: Sequence[Row], progress: Progress) -> Outcome:
    """Take off wrapper prompts and restore broken escapes; blank questions are dropped."""
    kept: list[Row] = []
    dropped: list[Dropped] = []
    unwrapped = repaired = 0
    for row in ticked(rows, progress):
        whole = mended(row.question)
        question = without_wrappers(whole)
        if not question:
            dropped.append(Dropped(row, DropReason.EMPTY_QUESTION))
            continue
        repaired += whole != row.question
        unwrapped += question != whole.strip()
        kept.append(dataclasses.replace(row, question=question))
    facts = {"wrappers removed": unwrapped, "escapes restored": repaired}
    return Outcome(tuple(kept), tuple(dropped), facts=facts)


_HALF_WIDTH = {ord("\u3000"): " "} | {char: char - 0xFEE0 for char in range(0xFF01, 0xFF5F)}
"""Full-width forms of ASCII; NFKC would take a superscript for one more digit."""
_LITERAL = re.compile(
    r"[\s${(+\-−–—]*+\d(?:\d|\s|[,.]|\{[,.]\}|\\[,!;: ])*+[\s.$)}]*+",
)
"""Digits with a sign, grouping, a fraction and wrapping; no letter, unit or operation."""
_HUGE = re.compile(rf"[\s${{(+\-−–—]*+0*+\d{{{MAX_DIGITS + 1},}}[\s.$)}}]*+")
"""More digits in a row than a label may have, however many."""


def _integer_label(read: _Reading) -> Row | _Drop:
    r"""The label becomes a decimal integer if it is one literal.

    Read: a sign, leading zeros, groups of three, a fraction of zeros, ``$`` around it. Not
    read: expressions such as ``\frac{84}{2}``, powers, words, units, sets.
    """
    plain = read.row.gold.translate(_HALF_WIDTH).strip()
    if _HUGE.fullmatch(plain):
        return _Drop(DropReason.HUGE_GOLD, _cut(plain))
    value = parse_integer(plain) if _LITERAL.fullmatch(plain) else None
    if value is None:
        return _Drop(DropReason.BAD_GOLD, _cut(plain))
    if abs(value) >= 10**MAX_DIGITS:
        return _Drop(DropReason.HUGE_GOLD, _cut(plain))
    return dataclasses.replace(read.row, gold=str(value))


def _label_source(read: _Reading) -> _Drop | None:
    """A label voted by model solutions needs two of them, at least, in the record."""
    notes = read.row.notes
    if notes.get("label_from") != "majority":
        return None
    agreeing = int(notes.get("agreeing", "0"))
    if agreeing >= _AGREEING:
        return None
    return _Drop(DropReason.LABEL_SOURCE, f"majority of model solutions, {agreeing} known")


# --- language and length -------------------------------------------------------------------


def _language(read: _Reading) -> _Drop | None:
    """Letters other than Latin (accents too) and Greek; letterlike signs as ℵ are no letters."""
    for letter in read.row.question:
        if letter > "\x7f" and letter.isalpha() and not "\u2100" <= letter <= "\u214f":
            name = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "UNNAMED")
            if unicodedata.category(letter) != "Lm" and not name.startswith(("LATIN", "GREEK")):
                return _Drop(DropReason.LANGUAGE, f"{letter} {name}")
    return None


def _short(read: _Reading) -> _Drop | None:
    length = len(read.row.question.strip())
    return _Drop(DropReason.SHORT, f"{length} characters") if length < MIN_LENGTH else None


# --- what is asked -------------------------------------------------------------------------

_ASKS = re.compile(
    r"""\?|\b(?:find|determine|compute|calculate|evaluate|what|how\ (?:many|much|long|far)|which
    |who|when|give|provide|express|solve|simplify|enter|write|state|name|count|convert|estimate
    |obtain|identify|list|report|factor|subtract|add|multiply|define|select|choose|pick)s?\b
    |_{2,}|\\underline|\\q?quad\b|(?:=|:|\bis|\bequals?)\W{0,20}\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_ORDER = re.compile(
    r"\?|\b(?:find|determine|compute|calculate|evaluate|how many|what|write|show|prove|solve)\b",
    re.IGNORECASE,
)
_PROVE = re.compile(r"\W*(?:\w+\W+){0,3}?(?:prove|show)\b", re.IGNORECASE)


def _proof(read: _Reading) -> _Drop | None:
    """It starts with "prove" or "show" and asks for nothing after."""
    start = _PROVE.match(read.text)
    if start and not _ASKS.search(read.text, start.end()):
        return _Drop(DropReason.PROOF, start[0].strip())
    return None


def _asks_nothing(read: _Reading) -> _Suspect | None:
    return None if _ASKS.search(read.text) else _Suspect("asks for nothing", read.text[-100:], 0.7)


_TAIL = 3_000
"""Options are looked for in the last characters only."""
_OPTION = (
    r"(?:(?<![\w|])\({0}\)|^[^\w\n]{{0,10}}{0}[).:])(?=[\s\\}}~*$])"
    r"(?!\s*(?:[,;&]\s*)?(?:and|or|[,;&])\s*\(?[A-E]\b)"
)
"""``(A)``, or ``A)`` at the start of a line; of a list as "(A) and (B)", it is a name."""
_OPTIONS = re.compile(
    r".{1,200}?".join(_OPTION.format(letter) for letter in "ABC"), re.DOTALL | re.MULTILINE
)
_ON_A_LINE = re.compile(
    r"(?:[^()\n]|\([^()\n]{0,40}\)){1,60}".join(rf"(?<![^\s.,:;?$]){c}\)" for c in "ABCD")
)
_VALUES = re.compile(
    r"[\s~]{0,9}[-+−$\\]{0,3}\w[^()\n]{0,30}?[\s;,$]".join(
        rf"(?<![^\s.,:;?$])\(?{c}\)(?=[\s~]*[-+−$\\]*(?:\d|\\))" for c in "abcd"
    )
)


def _choice(read: _Reading) -> _Drop | _Suspect | None:
    """Options A, B and C in order, near the end; values as (a), (b), (c), (d) are a doubt."""
    tail = read.text[-_TAIL:]
    found = _OPTIONS.search(tail) or _ON_A_LINE.search(tail)
    if found:
        return _Drop(DropReason.CHOICE, _cut(found[0]))
    values = _VALUES.search(tail)
    return _Suspect("it may be multiple choice", _cut(values[0]), 0.6) if values else None


_PARTS = [
    re.compile(rf"(?:^|[\s$]){first}\s(?P<one>.{{3,2000}}?)[\s$]{second}\s(?P<two>.*)", re.DOTALL)
    for first, second in [(r"\(?a\)", r"\(?b\)"), (r"\(?i\)", r"\(?ii\)")]
]
_TOGETHER = re.compile(
    r"\b(?:sum|product|total|difference|provide|please give|answer (?:is|to)|add)\b", re.IGNORECASE
)


def _several(read: _Reading) -> _Drop | None:
    """Two lettered parts that each ask, and nothing that joins the answers."""
    for parts in _PARTS:
        found = parts.search(read.text)
        asked = found and _ORDER.search(found["one"]) and _ORDER.search(found["two"])
        if found and asked and not _TOGETHER.search(found["two"]):
            return _Drop(DropReason.SEVERAL, _cut(found[0].strip()))
    return None


_ALL = re.compile(r"\b(?:find|determine|list|give|identify)\s+all\b", re.IGNORECASE)
_THEN = re.compile(
    r"""\b(?:provide|give|compute|calculate|evaluate|what|how\ many|find(?!\s+all)|answer\ is
    |determine(?!\s+all)|number\ of\ (?:such|all|possible)|sum\ of\ (?:all|the|such)|submit)\b""",
    re.VERBOSE | re.IGNORECASE,
)


def _find_all(read: _Reading) -> _Drop | None:
    """It asks for all of something, and then for no number made of them."""
    found = _ALL.search(read.text)
    if not found or _THEN.search(read.text, found.end()):
        return None
    return _Drop(DropReason.FIND_ALL, _cut(read.text[found.start() :]))


# --- what is missing or given away ---------------------------------------------------------

_NOUN = r"(?:figure|diagram|picture|drawing|illustration|sketch)s?"
_POINTER = re.compile(
    rf"""\b(?:in|on|from|see|at|of|to)\ (?:the|this)\ (?:\w+\ )?{_NOUN}(?=[\s,.;:)]*
          (?:\Z|[,.;:)]|below|above|shown|to\ the|at\ (?:the\ )?(?:right|left)|on\ the))
      | \bin\ (?:the|this)\ (?:\w+\ )?(?:figure|diagram|picture)\b
      | \b(?:adjoining|accompanying|following|attached|given|provided)\ (?:figure|diagram|picture)
      | \b(?:{_NOUN}|image|graph|map)\ (?:shown\ )?
          (?:below|above|(?:to|on|at)\ the\ (?:right|left))\b
      | \bthe\ (?:figure|diagram|picture|image)s?\ (?:below\ |above\ )?
          (?:shows?|depicts?|illustrates?|represents?|is\ made|is\ created)\b
      | \b(?:shown|depicted|illustrated|pictured|indicated)\ (?:in|on|by)\ (?:the|this)\ (?:\w+\ )?
          (?:{_NOUN}|image)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_LINK = re.compile(
    r"!\[[^\]\n]{0,200}\]\(|\[img|<img\b|\\includegraphics|\.(?:png|jpe?g|gif|svg)\b|<image>",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"\[/?asy\]|\{asy\}|```asy|\bdraw\}?\s*\(|\\draw\b|\{tikzpicture\}|\\begin\{(?:array|tabular)",
    re.IGNORECASE,
)
_SHOWN = re.compile(
    r"""\bas\ (?:shown|pictured|depicted|illustrated)\b
      | \b(?:shown|pictured|depicted|illustrated)\ (?:below|above|here|at\ (?:the\ )?(?:right|left))
      | \b(?:is|are)\ shown\b(?!\ (?:that|to))
      | \b(?:figures?|figs?\.?|diagrams?)\ ?\(?\d""",
    re.VERBOSE | re.IGNORECASE,
)


def _figure(read: _Reading) -> _Drop | _Suspect | None:
    """It points at a figure, and neither drawing code nor a table stands in for it.

    "As shown" or "Figure 3" alone is a doubt: the text often tells all that the figure does.
    """
    if _CODE.search(read.row.question):
        return None
    pointer = _LINK.search(read.text) or _POINTER.search(read.text)
    if pointer:
        return _Drop(DropReason.FIGURE, _cut(read.text[max(0, pointer.start() - 40) :]))
    shown = _SHOWN.search(read.text)
    if shown:
        return _Suspect("a figure may be missing", _cut(read.text[shown.start() :]), 0.5)
    return None


def _answer_shown(read: _Reading) -> _Drop | _Suspect | None:
    """The label stands at the end, after the question or after "Answer:".

    As the last word of the question itself, and no part of a formula, it is a doubt.
    """
    tail = read.text[-200:]
    label = re.escape(read.row.gold)
    if re.search(rf"(?:\?|\banswer\s*[:=])[\s($\[*\\]*{label}[\s.!$)\]}}*\\]*\Z", tail, re.I):
        return _Drop(DropReason.ANSWER_SHOWN, tail[-80:])
    if re.search(rf"\s{label}[\s.!]*\Z", tail):
        return _Suspect("the label is the last word", tail[-80:], 0.2)
    return None


def _cut(text: str) -> str:
    return text[:120]


RULES: tuple[tuple[str, StepFunction], ...] = (
    ("clean", clean),
    ("integer labels", _rule(_integer_label)),
    ("label source", _rule(_label_source)),
    ("language", _rule(_language)),
    ("short", _rule(_short)),
    ("proof", _rule(_proof)),
    ("asks nothing", _rule(_asks_nothing)),
    ("choice", _rule(_choice)),
    ("figure", _rule(_figure)),
    ("several", _rule(_several)),
    ("find all", _rule(_find_all)),
    ("answer shown", _rule(_answer_shown)),
)
"""Name and step of each rule, in the order in which they are run."""
