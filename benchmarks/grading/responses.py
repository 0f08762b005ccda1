r"""Responses of 30 KB, from a seed: half of them ordinary, half made to hurt a grader.

An ordinary one is prose with formulas, programs and what they printed, and ends in a box. A
hostile one repeats what a reader of tags, braces or numbers may stumble over: none of it needs
computer algebra to be refused, all of it was seen to cost some public grader seconds.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

LENGTH = 30_000
"""Characters, about."""
_INSIDE = 4_900
"""Characters of a box that is just short enough to be read."""

_PROSE = (
    "Let us count the pairs $(a, b)$ with $a < b$ and $\\gcd(a, b) = 1$. ",
    "By symmetry we may assume that $x \\ge y$, so that $x^2 + y^2 \\le 2x^2$. ",
    "Hence \\[ S = \\sum_{k=1}^{n} \\frac{k(k+1)}{2} = \\binom{n+2}{3}. \\] ",
    "It follows from $\\triangle ABC \\sim \\triangle DEF$ that $\\frac{AB}{DE} = \\sqrt{3}$. ",
    "Wait, the case $n = 0$ was left out; it adds one, which gives \\(f(0) = 1\\). ",
    "A first guess would be \\boxed{17}, but the parity argument rules it out. ",
    "The answer should be an integer below 1,000, and 3.14159 is only a check.\n",
    "<reason> Let me compute this with the tool and compare with the formula. </reason>\n",
)
_CODE = "from math import gcd\ncount = 0\nfor a in range(1, {n}):\n    count += gcd(a, {n}) == 1\n"


@dataclass(frozen=True, slots=True)
class Response:
    """One response.

    Attributes:
        kind: ``ordinary``, or how it is hostile.
        text: The text.
        gold: The gold answer.
        correct: Whether it answers that; None where only the time matters.
    """

    kind: str
    text: str
    gold: int
    correct: bool | None


def make_responses(count: int, seed: int = 0) -> Iterator[Response]:
    """Make responses one by one, ordinary and hostile in turn, the hostile kinds in turn.

    Args:
        count: How many.
        seed: The same seed gives the same responses.
    """
    rng = random.Random(f"responses {seed}")
    kinds = list(HOSTILE)
    for i in range(count):
        gold = rng.randrange(1, 10 ** rng.randint(1, 6))
        if i % 2 == 0:
            off = rng.randrange(2)
            yield Response("ordinary", _ordinary(rng, gold + off), gold, off == 0)
        else:
            kind = kinds[i // 2 % len(kinds)]
            yield Response(kind, HOSTILE[kind](rng, gold), gold, None)


def _ordinary(rng: random.Random, answer: int) -> str:
    pieces = []
    length = 0
    while length < LENGTH:
        piece = _tool_turn(rng) if rng.random() < 0.1 else rng.choice(_PROSE)
        pieces.append(piece)
        length += len(piece)
    shown = rng.choice(("{}", "{:,}", "\\text{{{}}}", "n = {}", "{}.")).format(answer)
    return "".join(pieces) + f"\n<answer>\nThe answer is $\\boxed{{{shown}}}$.\n</answer>"


def _tool_turn(rng: random.Random) -> str:
    n = rng.randrange(100, 10_000)
    call = json.dumps({"name": "python", "arguments": {"code": _CODE.format(n=n)}})
    printed = " ".join(str(rng.randrange(n)) for _ in range(rng.randrange(40)))
    return (
        f"<tool_call>\n{call}\n</tool_call>\n<tool_response>\n{printed}\n\\boxed{{{n}}}\n"
        "</tool_response>\n"
    )


def _fill(unit: str, length: int = LENGTH) -> str:
    return unit * (length // len(unit))


def _answer(body: str) -> str:
    return f"<answer>{body}</answer>"


def _box(body: str) -> str:
    return _answer(rf"\boxed{{{body}}}")


def _numbered(template: str, rng: random.Random) -> str:
    """Fill a template with numbers that all differ, until it is long enough."""
    start = rng.randrange(1_000)
    count = LENGTH // len(template.format(n=1_000, twice=2_000))
    return "".join(template.format(n=n, twice=2 * n) for n in range(start, start + count))


def _six(gold: int, left: str, right: str = "") -> list[str]:
    """Write six boxes just short enough to be read: all differ, round one number."""
    most = _INSIDE // len(left + right)
    return [rf"\boxed{{{left * n}{gold}{right * n}}}" for n in range(most - 6, most)]


_Maker = Callable[[random.Random, int], str]

HOSTILE: dict[str, _Maker] = {
    "open boxes": lambda _, __: _fill(r"\boxed{"),
    "open boxes in an answer": lambda _, __: _answer(_fill(r"\boxed{")),
    "open answers": lambda _, __: _fill("<answer>"),
    "empty answers": lambda _, __: _fill("<answer></answer>"),
    "one answer many times": lambda _, gold: _fill(_box(str(gold))),
    "many answers": lambda rng, _: _numbered(r"<answer>\boxed{{{n}}}</answer>", rng),
    "many formulas as answers": lambda rng, _: _numbered(r"<answer>\boxed{{x+{n}}}</answer>", rng),
    "one box many times": lambda _, gold: _answer(_fill(rf"\boxed{{{gold}}}")),
    "many boxes": lambda rng, _: _answer(_numbered(r"\boxed{{{n}}}", rng)),
    "many sums": lambda rng, _: _answer(_numbered(r"\boxed{{{n}+0}}", rng)),
    "many ways to write 2": lambda rng, _: _answer(
        _numbered(r"\boxed{{\frac{{{twice}}}{{{n}}}}}", rng)
    ),
    "open displays": lambda _, gold: _fill(r"\[ a ") + _box(str(gold)),
    "braces": lambda _, __: _box(_fill("{}", LENGTH)),
    "brackets": lambda _, gold: _box("(" * 2_400 + str(gold) + ")" * 2_400),
    "nested fractions": lambda _, __: _box(r"\frac{" * 400 + "1" + "}{2}" * 400),
    "a long sum": lambda _, __: _box(_fill("1+", _INSIDE) + "1"),
    "a long product": lambda _, __: _box(_fill("1*", _INSIDE) + "1"),
    "a long number": lambda _, __: _box(_fill("7", _INSIDE)),
    "a number too long": lambda _, __: _box(_fill("7")),
    "a tower": lambda _, __: _fill("so ") + _box("9^{9^{9^{9}}}"),
    "a power": lambda _, __: _fill("so ") + _box("2^{1000000000}"),
    "a factorial": lambda _, __: _fill("so ") + _box("(10^9)!"),
    "a box after a gap": lambda _, gold: _answer(rf"\boxed{' ' * LENGTH}{{{gold}}}"),
    "boxes after gaps": lambda _, __: _answer(_fill("\\boxed" + " " * 100)),
    "a blank box": lambda _, __: _box(" " * LENGTH),
    "tool output": lambda _, gold: _fill("<tool_response>1</tool_response>") + _box(str(gold)),
    "tool calls": lambda _, gold: _fill("<tool_call>1</tool_call>") + _box(str(gold)),
    "backslashes": lambda _, __: _box(_fill("\\")),
    "commands": lambda _, __: _box(_fill(r"\text{a}", _INSIDE)),
    "six boxes of brackets": lambda _, gold: _answer("".join(_six(gold, "(", ")"))),
    "six boxes of commands": lambda _, gold: _answer("".join(_six(gold, r"\text{}"))),
    "six answers of formulas": lambda _, gold: "".join(map(_answer, _six(gold, "x+"))),
}
"""How a response may be hostile."""
