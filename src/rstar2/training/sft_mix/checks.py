"""No mathematics slips in: the cold start teaches format, not solving (paper, section 4.1).

The rules look at what the user asks and at what the assistant writes outside its calls.
They prefer to miss a solution over dropping talk about numbers: a price that a tool gave,
a recipe, a schedule. One rule is enough.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from rstar2.training.sft_mix.messages import Conversation, Role


class MathsRule(StrEnum):
    """What gave a solution away."""

    BOXED = "boxed"
    """The assistant boxes an answer."""
    DERIVATION = "derivation"
    """The user poses a problem; the assistant computes in two steps or more to a number."""
    LATEX = "latex"
    """The user poses a problem; the assistant writes two equations or more in LaTeX."""
    PROOF = "proof"
    """The user asks to prove a statement in symbols; the assistant does."""


@dataclass(frozen=True, slots=True)
class MathsFinding:
    """A solution that was found.

    Attributes:
        rule: The rule that found it.
        asked: What the user asked, shortened.
        shown: What gave it away, shortened.
    """

    rule: MathsRule
    asked: str
    shown: str


_BOXED = re.compile(r"\\boxed\s*\{|\\fbox\s*\{")
_ASKS = re.compile(
    r"\bhow \w+|\bwhat\b|\bwhich\b"
    r"|\b(?:find|calculate|compute|determine|evaluate|solve|simplify|factor|integrate"
    r"|differentiate|express|convert)\b",
    re.IGNORECASE,
)
_NUMBER = r"[$€£]?-?(?<![\d.,])(?:\d[\d,]*(?:\.\d+)?|\.\d+)%?"
_NUMBERS = re.compile(_NUMBER)
_STEP = re.compile(
    rf"{_NUMBER}\)?(?:\s*[a-zA-Z/]+)?\s*(?:[-+*/×÷·^−]|\\times|\\cdot|\\div|\b(?:[xX]|of)\b)\s*"
    rf"\(?{_NUMBER}[^=\n]{{0,60}}=\s*\(?{_NUMBER}"
    r"|\b\d*[a-z]\s*[-+]\s*\d+[^=\n]{0,30}=\s*-?\d"
    r"|\b\d+[a-z]\s*=\s*-?\d"
)
_LATEX = re.compile(
    r"\$\$[^$]+\$\$|\$(?![\d\s])[^$]+\$|\\\[.{1,2000}?\\\]|\\\(.{1,500}?\\\)"
    r"|\\begin\{(align|equation|gather|eqnarray)\*?\}.{1,4000}?\\end\{\1",
    re.DOTALL,
)
_SYMBOLS = re.compile(
    r"\$(?![\d\s])[^$\n]{1,200}\$|\\\(|\\\[|\\frac|\\sqrt|\b[a-z]\^\d|\b\d*[a-z]\s*[-+=]\s*\d"
)
_PROVE = re.compile(r"\b(?:prove|show) that\b", re.IGNORECASE)
_PROVED = re.compile(r"\bQ\.?E\.?D\b|\\(?:blacksquare|square|qed)\b|[∎□■]|\bproof\b", re.IGNORECASE)
_FOREIGN = re.compile(r"```.*?```", re.DOTALL)


def find_maths(one: Conversation) -> MathsFinding | None:
    """The first rule that says that a mathematics problem is solved here; None if none does."""
    asked = "\n".join(one.texts(Role.USER))
    for message in one.messages:
        if message.role is not Role.ASSISTANT or not message.text:
            continue
        said = _FOREIGN.sub("", message.text)
        found = _rule(asked, said)
        if found is not None:
            rule, shown = found
            return MathsFinding(rule, asked[:300], shown[:300])
    return None


def _rule(asked: str, said: str) -> tuple[MathsRule, str] | None:
    boxed = _BOXED.search(said)
    if boxed:
        return MathsRule.BOXED, said[max(0, boxed.start() - 150) : boxed.end() + 50]
    if _PROVE.search(asked) and _SYMBOLS.search(asked) and _PROVED.search(said):
        return MathsRule.PROOF, said
    if not _ASKS.search(asked):
        return None
    equations = [match.group() for match in _LATEX.finditer(said) if "=" in match.group()]
    posed = bool(_SYMBOLS.search(asked))
    if sum(each.count("=") for each in equations) >= 2 and (posed or _NUMBERS.search(asked)):
        return MathsRule.LATEX, " ".join(equations)
    steps = [match.group() for match in _STEP.finditer(said)]
    if len(steps) >= 2 and (posed or _NUMBERS.search(asked)):
        return MathsRule.DERIVATION, "; ".join(steps)
    return None
