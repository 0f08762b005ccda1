r"""The process that compares two expressions by math-verify, one pair after another.

It is started by :mod:`rstar2.grading.expression_pool` as a script in a fresh interpreter, so
that it holds neither the memory nor the files of its parent, and imports nothing of this
package. What it is asked is text of a model, and may want all the time and memory there is:

1. Nothing of it reaches Python's ``eval``. SymPy evaluates every string that it is given as a
   number, ``sympy.Number("42")``, by compiling ``Integer (42 )``; :func:`seal` puts
   :func:`read_number` in the place of that one door. math-verify's own use of it, for answers
   that are not LaTeX, is not called.
2. Should a way round it be found: no file can be written, and a process that opens a socket,
   or starts another, ends.
3. An allocation beyond the limit fails (Linux). SymPy hides that and goes on, so a process
   that has grown by more than a quarter of the limit ends, unless it found both equal.
4. Its parent kills it when it is late. If the parent is gone, the kernel does: at once on
   Linux, elsewhere when the time for one pair is over, or when the next pair does not come.
"""

import ctypes
import json
import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from types import FrameType
from typing import Any

Answer = Callable[[Sequence[str]], str]
"""Answers one question: a few texts in, a word out."""

NO_MEMORY = 71
"""Exit code: an allocation failed, or may have."""
FORBIDDEN = 72
"""Exit code: something was tried that comparing expressions does not need."""

_KILL_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
_NUMBER = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*(?P<point>\.)?[0-9]*(?P<exponent>[eE][+-]?[0-9]+)?")
_BASE = re.compile(r"(?<=[0-9])_(?:([0-9]+)|\{([0-9]+)\})")
_BELIEVED = 1 / 4
"""Share of the limit up to which no allocation fails: a product needs three times its size."""
_WORN = 1 / 8
"""Share of the limit from which a fresh process should follow."""
_NEEDLESS = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn")


def compare(question: Sequence[str]) -> str:
    r"""Say whether a box holds what the gold answer says.

    Both are read as the content of a ``\boxed{}``, never searched for one: what a box says
    about a "final answer" is no second answer.

    Args:
        question: The gold answer and the content of the box, LaTeX.

    Returns:
        ``correct``, ``wrong``, ``unreadable`` if the box shows nothing that can be compared,
        or ``bad_gold`` if the gold answer does.
    """
    from math_verify import verify

    gold, box = map(_read, question)
    if not gold:
        return "bad_gold"
    if not box:
        return "unreadable"
    if _bases_differ(*question):
        return "wrong"
    for right, answered in product(gold, box):  # verify is not symmetric: gold first
        try:
            if verify(right, answered, timeout_seconds=None, raise_on_error=True):
                return "correct"
        except MemoryError:
            raise
        except Exception:  # any: what SymPy cannot compare is not equal
            continue
    return "wrong"


def _bases_differ(gold: str, box: str) -> bool:
    r"""Whether both name bases, ``2516_8``, and not the same: math-verify skips a base."""
    named = [
        sorted(int(plain or braced) for plain, braced in _BASE.findall(text.rpartition("=")[2]))
        for text in (gold, box)
    ]
    return all(named) and named[0] != named[1]


def _read(latex: str) -> list[Any]:
    """Read an expression: SymPy's object if it can be parsed, and its normalised text."""
    from math_verify.parser import normalize_latex, parse_latex_cached

    text = normalize_latex(latex.strip(), _normalisation()).strip()
    try:
        return [parse_latex_cached(text), text]
    except MemoryError:
        raise
    except Exception:  # any: a text that is no formula is compared as a text
        return [text] if text else []


@cache
def _normalisation() -> Any:
    from math_verify import LatexExtractionConfig

    return replace(LatexExtractionConfig().normalization_config, boxed="none")


def read_number(text: str) -> Any:
    """Read a decimal number.

    Raises:
        SyntaxError: It is anything else; SymPy expects this of its parser.
    """
    import sympy

    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        raise SyntaxError("not a decimal number")
    decimal = number["point"] or number["exponent"]
    return sympy.Float(number[0]) if decimal else sympy.Integer(int(number[0]))


def seal() -> None:
    """Close the ways from a text to running code, and from this process to others."""
    from sympy.parsing import sympy_parser

    evaluate = sympy_parser.parse_expr

    def parse_expr(text: str, *arguments: Any, **options: Any) -> Any:
        return evaluate(text, *arguments, **options) if _importing() else read_number(text)

    sympy_parser.parse_expr = parse_expr
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(_end_if_needless)


def _importing() -> bool:
    """Whether SymPy is loading a module: some have strings of their own to evaluate then."""
    frame: FrameType | None = sys._getframe()
    while frame := frame and frame.f_back:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and module.startswith("sympy."):
            return True
    return False


def _end_if_needless(event: str, _: object) -> None:
    if event.startswith(_NEEDLESS):
        os._exit(FORBIDDEN)


def warm_up() -> Answer:
    """Load what comparisons need, and close what they do not."""
    seal()
    for question in (("\\frac{1}{2}", "0.5"), ("x^2+1", "1+x^2"), ("(1,2]", "\\{1,2\\}")):
        compare(question)
    return compare


def serve(load: Callable[[], Answer]) -> None:
    """Answer the questions on standard input until it ends: a line of JSON for a line of JSON.

    The arguments of the script are the process that started it, the bytes that it may use
    beyond what it holds when it is warm, and the seconds after which the kernel ends it if a
    question is not answered. A reply is the answer, and whether the process has grown so much
    that a fresh one should follow it.

    Args:
        load: Gives the function that answers; called once.
    """
    parent, memory, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    _end_with(parent)
    questions, replies = _streams()
    logging.disable()
    sys.set_int_max_str_digits(0)
    answer = load()
    _limit_memory(memory)
    fresh = _peak_bytes()
    os.write(replies, b"ready\n")
    for line in questions:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            word = answer(json.loads(line))
        except MemoryError:
            os._exit(NO_MEMORY)
        signal.setitimer(signal.ITIMER_REAL, 0)
        grown = _peak_bytes() - fresh
        if word != "correct" and grown > _BELIEVED * memory:
            os._exit(NO_MEMORY)
        os.write(replies, json.dumps([word, grown > _WORN * memory]).encode() + b"\n")


def _end_with(parent: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that call
        os._exit(0)


def _streams() -> tuple[Any, int]:
    """Questions and the way back; what a library prints goes nowhere."""
    replies = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return sys.stdin.buffer, replies


def _limit_memory(beyond: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        _, allowed = resource.getrlimit(resource.RLIMIT_AS)
        most = now + beyond if allowed == resource.RLIM_INFINITY else min(now + beyond, allowed)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _peak_bytes() -> int:
    """The most memory ever held: address space where it is limited, else what was resident."""
    if sys.platform == "linux":
        with open("/proc/self/status") as status:
            (peak,) = (line.split()[1] for line in status if line.startswith("VmPeak"))
        return int(peak) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    serve(warm_up)
