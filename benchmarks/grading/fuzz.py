"""Random inputs from a seed: whatever is written, the grader gives a verdict."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rstar2.grading import Reason, grade

TOKENS = (
    *(r"\boxed{", r"\boxed {", r"\fbox{", "{", "}", "<answer>", "</answer>", "<answer", "answer>"),
    *("<tool_response>", "</tool_response>", "<tool_call>", "</tool_call>", "<reason>"),
    *(r"\frac", r"\dfrac{1}{2}", r"\sqrt{", r"\text{", r"\textbf{", r"\textcolor{red}{"),
    *(r"\mathrm{", r"\pmod{", r"\times", r"\cdot", r"\left(", r"\right)", "\\", r"\\"),
    *(r"\,", r"\!", r"\;", r"\%", r"\$", "^", "_", "(", ")", "=", ",", "{,}", ".", "-", "+", "*"),
    *("/", "!", "$", "%", "°", "~", "'", '"', " ", "\n", "\t", "\r", "\x00", "\x1b[0m"),
    *("0", "7", "42", "-42", "1,234", "1 234", "3.0", "1e5", "9" * 50, "10^{9}", "42."),
    *("x", "n =", "i", "e", "or", "and", "million", "cm", "<|im_end|>"),
    *("\u200b", "−", "²", "４２", "½", "٤٢", "é", "度", "\ud800", "\U0001d7d9", "\ufeff", "\u202e"),
)
GOLDS = ("42", "-7", "0", "1234567", "1,234", "042", "9" * 60, "\\frac{84}{2}")
"""Gold answers, all good: one that is refused ends a grade before the input is read."""
_CODE_POINTS = 0x110000
_TRACKED = 5
"""Inputs that raised, of which the record tells."""

Strategy = Callable[[random.Random, Sequence[str]], str]
"""Makes one input; the second argument holds the responses of the case file."""


def tokens(rng: random.Random, _: Sequence[str]) -> str:
    """Write tokens in any order."""
    return "".join(rng.choices(TOKENS, k=rng.randrange(40)))


def boxed(rng: random.Random, _: Sequence[str]) -> str:
    """Write tokens in the box of an answer, where they are read most closely."""
    body = "".join(rng.choices(TOKENS, k=rng.randrange(1, 12)))
    return rf"<answer>\boxed{{{body}}}</answer>"


def numbers(rng: random.Random, _: Sequence[str]) -> str:
    """Write an expression of numbers in a box, mostly well formed."""
    parts = [_number(rng)]
    for _step in range(rng.randrange(4)):
        parts += [rng.choice("+-*/^=,") if rng.random() < 0.7 else r"\times ", _number(rng)]
    return rf"<answer>\boxed{{{''.join(parts)}}}</answer>"


def unicode(rng: random.Random, _: Sequence[str]) -> str:
    """Write any code points, surrogates too, in a box or bare."""
    text = "".join(chr(rng.randrange(_CODE_POINTS)) for _ in range(rng.randrange(1, 12)))
    return text if rng.random() < 0.3 else rf"<answer>\boxed{{{text}}}</answer>"


def mutated(rng: random.Random, cases: Sequence[str]) -> str:
    """Change a response of the case file in a few places."""
    text = rng.choice(cases)
    for _ in range(rng.randrange(1, 5)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randrange(8))
        put = rng.choice(TOKENS) if rng.random() < 0.6 else text[start:end] * rng.randrange(3)
        text = text[:start] + put + text[end:]
    return text


def spliced(rng: random.Random, cases: Sequence[str]) -> str:
    """Join the start of one response of the case file with the end of another."""
    first, second = rng.choice(cases), rng.choice(cases)
    return first[: rng.randrange(len(first) + 1)] + second[rng.randrange(len(second) + 1) :]


def _number(rng: random.Random) -> str:
    digits = str(rng.randrange(10 ** rng.randint(1, 12)))
    styles = ("{}", "-{}", "({})", "{}.0", "{}!", r"\frac{{{}}}{{2}}", r"10^{{{}}}", r"\sqrt{{{}}}")
    return rng.choice(styles).format(digits)


STRATEGIES: tuple[Strategy, ...] = (tokens, boxed, numbers, unicode, mutated, spliced)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the fuzz found.

    Attributes:
        inputs: Inputs graded.
        raised: Those that raised, or whose verdict contradicts itself.
        examples: The first of them.
        seconds: How long it took, making the inputs included.
    """

    inputs: int
    raised: int
    examples: tuple[str, ...]
    seconds: float


def fuzz(count: int, cases: Sequence[str], seed: int = 0) -> Outcome:
    """Grade random inputs, the strategies in turn.

    Args:
        count: Inputs.
        cases: Responses of the case file; long ones are cut, they would be all the time.
        seed: The same seed gives the same inputs.
    """
    rng = random.Random(f"fuzz {seed}")
    short = [case[:2_000] for case in cases]
    raised = 0
    examples: list[str] = []
    started = time.perf_counter()
    for i in range(count):
        text = STRATEGIES[i % len(STRATEGIES)](rng, short)
        gold = rng.choice(GOLDS)
        error = _complaint(text, gold)
        if error is not None:
            raised += 1
            if len(examples) < _TRACKED:
                examples.append(f"{error}: gold {gold!r}, response {text!a}")
    return Outcome(count, raised, tuple(examples), time.perf_counter() - started)


def _complaint(text: str, gold: str) -> str | None:
    """What is wrong with grading an input; None if nothing is."""
    try:
        verdict = grade(text, gold)
    except Exception as error:  # any: to count them is what this is for
        return repr(error)
    if verdict.correct != (verdict.reason is Reason.CORRECT):
        return "the verdict contradicts itself"
    return None
