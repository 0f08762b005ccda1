r"""What a reader sees of a LaTeX answer, as one plain line.

The number reader should not care whether a model wrote ``\textcolor{red}{1{,}234}`` or
``1,234``. :func:`shown` drops what only styles (bold, colour, size, spacing, braces) and
writes the rest in a closed alphabet:

- digits ``0-9``, ``+ - * / ^ _ ( ) [ ] = , . '`` and single spaces, as themselves;
- ``\frac{a}{b}`` as ``((a)/(b))``, braced exponents and subscripts as ``^(a)``, ``_(a)``,
  an inner box as ``(a)``, so that two of them do not run together;
- ``%`` for percent, ``°`` for degrees, ``$`` for every currency or formula mark, ``@`` for
  ``\pmod``, ``|`` as itself;
- letters: bare in formulas, in double quotes inside ``\text`` and its kin, because a formula's
  ``m`` is a variable and a text's ``m`` is a metre; Greek letters as themselves; an accent as
  the letter :data:`ACCENT` before what it stands on.

Two runs of digits with a wide gap between them (a new line, ``\quad``, ``\hspace``) are two
numbers, never groups of one.

Anything else (an unknown command, a set brace, ``<``, ``!``, ``:``) makes the answer
unreadable. The list of what is known is the whole of it: nothing is skipped because it
looks harmless. One pass, no recursion.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum, auto

_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_INVISIBLE = (
    "\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u2060"
    "\u2066\u2067\u2068\u2069\ufe0e\ufe0f\ufeff"
)
"""Shown as nothing. The overrides U+202D and U+202E are not here: they reorder digits."""
_VARIANTS = {
    **dict.fromkeys(_DASHES, "-"),
    **dict.fromkeys(_INVISIBLE, ""),
    **dict.fromkeys("×·⋅∗∙•✕✖", "*"),
    **dict.fromkeys("÷⁄∕", "/"),
    **dict.fromkeys("€£¥₹¢￠￡￥", "$"),
    **dict.fromkeys("º˚℃℉", "°"),
    **{"≡": "=", "。": ".", "٪": "%", "٬": ",", "٫": "."},
}
_SMALL_RUN = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹]+)|[₀₁₂₃₄₅₆₇₈₉]+")
_FROM_SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "0123456789" * 2)


ACCENT = "ʘ"
"""Stands in the line for a bar, a hat, ``\\#`` or the like, before what bears it."""
_GAP = "~"
"""A wide gap in the line before it is finished; then it is a space."""


class Unreadable(ValueError):
    """The answer does not denote one integer in a style that the grader reads."""


class _Group(Enum):
    """What a brace group is."""

    PLAIN = auto()
    TEXT = auto()
    ARGUMENT = auto()
    NUMERATOR = auto()
    DENOMINATOR = auto()


_BRACES = {
    _Group.PLAIN: ("", ""),
    _Group.TEXT: ("", ""),
    _Group.ARGUMENT: ("(", ")"),
    _Group.NUMERATOR: ("((", ")/"),
    _Group.DENOMINATOR: ("(", "))"),
}


def _all(names: str, meaning: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), meaning)


_BOXES = frozenset({"boxed", "fbox"})
_FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac"})
_TEXTS = frozenset(
    _all("text textbf textit textrm textsf texttt textnormal textup textsc textsl textmd emph", "")
    | _all("mathrm mbox hbox operatorname", "")
)
_GREEK = dict(
    zip(
        _all("alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa", "")
        | _all("lambda mu nu xi pi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta", "")
        | _all("Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell", ""),
        "αβγδεϵζηθϑικλμνξπρστυφϕχψωΓΔΘΛΞΠΣΥΦΨΩℓ",
        strict=True,
    )
)
_COMMANDS = {
    **_all("displaystyle textstyle scriptstyle left right big Big bigg Bigg bigl bigr", ""),
    **_all("Bigl Bigr tiny scriptsize footnotesize small normalsize large Large LARGE", ""),
    **_all("huge Huge bf bfseries", ""),
    **_all("rm it tt sf mathbf boldsymbol bm pmb mathit mathsf mathtt mathnormal", ""),
    **_all("underline ensuremath negthinspace angle", ""),
    **_all("enspace thinspace medspace thickspace space nobreakspace", " "),
    **_all("quad qquad newline", _GAP),
    **_all("times cdot ast", "*"),
    **_all("div", "/"),
    **_all("equiv", "="),
    **_all("circ degree", "°"),
    **_all("euro pounds", "$"),
    **_all("pmod mod", "@"),
    # A Greek letter may name an unknown or, as ``Ω``, a unit; it is never a number.
    **_GREEK,
    **_all("lvert rvert vert", "|"),
    **_all("overline bar hat widehat vec tilde overrightarrow triangle", ACCENT),
}
_ESCAPES = {
    **dict.fromkeys(",;:>()[] \n\t", " "),
    **{"!": "", "%": "%", "$": "$", "\\": _GAP, "#": ACCENT},
}
_CHARACTERS = {**{mark: mark for mark in "+-*/^_()[]=,.'%$°|"}, "~": " "}
_PIECE = re.compile(
    r"(?P<nothing>\\(?:color|textcolor|colorbox)\s*(?:\[[^][{}]*\]\s*)?\{[^{}]*\}"
    r"|\\(?:left|right)\s*\.)"
    r"|(?P<skip>\\[hv](?:space|skip)\*?\s*\{[^{}]*\})"
    r"|\\(?P<command>[A-Za-z]+)\s*"
    r"|\\(?P<escape>.)"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<letters>[^\W\d_]+)"
    r"|(?P<space>\s+)"
    r"|(?P<character>.)",
    re.DOTALL,
)
_UNSEEN = "|".join(
    [*(name for name, meaning in _COMMANDS.items() if not meaning.strip(" ~")), *_TEXTS]
)
_BLANK = re.compile(
    rf"(?:[\s{{}}.…~${_INVISIBLE}]|\\[,;:!>()\[\] \\]|\\[lc]?dots(?![A-Za-z])"
    rf"|\\[hv](?:space|skip)\*?\s*\{{[^{{}}]*\}}|\\(?:{_UNSEEN})(?![A-Za-z]))*+"
)
_TWO_NUMBERS = re.compile(rf"\d ?{_GAP}[ {_GAP}]*\d")
_DEGREE = re.compile(r"\^ ?(?:\( ?° ?\)|°)")


def shown(latex: str) -> str:
    """Write a LaTeX answer as the plain line that the module docstring describes.

    Args:
        latex: The content of a box, or a gold label.

    Returns:
        The line, without outer spaces.

    Raises:
        Unreadable: It holds anything unknown, or braces that do not match.
    """
    writer = _Writer()
    for match in _PIECE.finditer(_fold(latex)):
        writer.write(match.lastgroup or "", match[match.lastgroup or 0])
    return writer.finish()


def is_blank(latex: str) -> bool:
    """Whether a reader sees nothing, or dots alone.

    Args:
        latex: The content of a box.
    """
    return _BLANK.fullmatch(latex) is not None


@dataclass(slots=True)
class _Writer:
    """Takes the pieces of the LaTeX one by one.

    Attributes:
        line: What has been written.
        groups: The brace groups that are open.
        texts: How many of them are text.
        upcoming: What the next brace group is, as the last command decided.
    """

    line: list[str] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    texts: int = 0
    upcoming: _Group = _Group.PLAIN

    def write(self, kind: str, piece: str) -> None:
        """Write one piece; a space does not come between a command and its group."""
        if kind == "nothing":
            return
        if kind in ("space", "skip"):
            self.line.append(" " if piece.splitlines() == [piece] and kind == "space" else _GAP)
            return
        group, self.upcoming = self.upcoming, _Group.PLAIN
        if (kind, piece) == ("character", "{"):
            self._open(group)
        elif (kind, piece) == ("character", "}"):
            self._close()
        elif group in (_Group.NUMERATOR, _Group.DENOMINATOR):
            self._bare_argument(group, kind, piece)
        elif kind == "command":
            self._command(piece)
        elif kind == "letters":
            if not piece.isalpha():
                raise Unreadable(f"{piece[:20]!r} holds a numeral that is no decimal digit")
            self.line.append(f'"{piece}"' if self.texts else piece)
        elif kind == "digits":
            self.line.append(piece)
        else:
            known = _ESCAPES if kind == "escape" else _CHARACTERS
            self.line.append(_look_up(known, piece))
            if piece in ("^", "_"):
                self.upcoming = _Group.ARGUMENT

    def finish(self) -> str:
        """The whole line, runs of spaces as one."""
        if self.groups:
            raise Unreadable("a brace that is not closed")
        line = " ".join("".join(self.line).split())
        if _TWO_NUMBERS.search(line):
            raise Unreadable("two numbers with a gap between them")
        return _DEGREE.sub("°", " ".join(line.replace(_GAP, " ").split()))

    def _open(self, group: _Group) -> None:
        self.groups.append(group)
        self.texts += group is _Group.TEXT
        self.line.append(_BRACES[group][0])

    def _close(self) -> None:
        if not self.groups:
            raise Unreadable("a closing brace without its opening")
        group = self.groups.pop()
        self.texts -= group is _Group.TEXT
        self.line.append(_BRACES[group][1])
        if group is _Group.NUMERATOR:
            self.upcoming = _Group.DENOMINATOR

    def _command(self, name: str) -> None:
        if name in _FRACTIONS:
            self.upcoming = _Group.NUMERATOR
        elif name in _TEXTS:
            self.upcoming = _Group.TEXT
        elif name in _BOXES:
            self.upcoming = _Group.ARGUMENT
        else:
            self.line.append(_look_up(_COMMANDS, name))
            if self.line[-1] == "@":
                self.upcoming = _Group.ARGUMENT

    def _bare_argument(self, group: _Group, kind: str, piece: str) -> None:
        r"""A fraction's argument without braces is one digit, as in ``\frac84``."""
        if kind != "digits":
            raise Unreadable(f"a fraction of {piece[:20]!r}")
        for digit in piece:
            if group is _Group.PLAIN:
                raise Unreadable("digits that touch a fraction")
            self._open(group)
            self.line.append(digit)
            self._close()
            group, self.upcoming = self.upcoming, _Group.PLAIN
        self.upcoming = group


def _look_up(known: dict[str, str], piece: str) -> str:
    meaning = known.get(piece)
    if meaning is None:
        raise Unreadable(f"{piece[:20]!r} has no place in an integer")
    return meaning


def _fold(text: str) -> str:
    """Replace typographic variants by ASCII: full width, dashes, digits, small digits."""
    if text.isascii():
        return text
    return _SMALL_RUN.sub(_full_size, "".join(map(_fold_character, text)))


def _full_size(run: re.Match[str]) -> str:
    mark = "^" if run[1] else "_"
    return f"{mark}{{{run[0].translate(_FROM_SMALL)}}}"


def _fold_character(char: str) -> str:
    variant = _VARIANTS.get(char)
    if variant is not None:
        return variant
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if "！" <= char <= "～":
        return chr(ord(char) - 0xFEE0)
    return char
