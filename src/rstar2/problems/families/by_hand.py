"""Arithmetic written out as by hand, for the steps of a problem; notation in ``draft.py``.

Every function returns sentences, each small enough to be done in one's head: a number
times one digit, a sum, a difference.
"""

from collections.abc import Iterable

PLAIN_LIMIT = 400
"""Characters of the steps of a family's question, joined by spaces."""
COMPOSED_LIMIT = 520
"""The same for a composition."""
ELLIPSIS = "..."
"""The step that stands where steps were left out."""


def conclusion(answer: int) -> str:
    """The last step of every problem."""
    return f"The answer is {answer}."


def shortened(steps: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """Steps with their middle left out, if together they are too long.

    Args:
        steps: The sentences, in order.
        limit: Characters that they may have, joined by spaces.

    Returns:
        The steps themselves if they fit; else as many of the first and the last as fit,
        in about equal parts, and ``ELLIPSIS`` between them.
    """
    if len(" ".join(steps)) <= limit:
        return steps
    start, stop = 0, len(steps)
    head = tail = 0
    while True:
        from_end = tail <= head
        size = len(steps[stop - 1 if from_end else start]) + 1
        if head + tail + size + len(ELLIPSIS) > limit:
            return (*steps[:start], ELLIPSIS, *steps[stop:])
        if from_end:
            stop, tail = stop - 1, tail + size
        else:
            start, head = start + 1, head + size


def product(a: int, b: int) -> tuple[str, ...]:
    """``a * b``, one digit of the factor with fewer of them at a time.

    Args:
        a: A factor, at least 0.
        b: The other, at least 0.
    """
    if len(_places(b)) > len(_places(a)):
        a, b = b, a
    places = _places(b)
    if len(places) < 2:
        return (f"{a}*{b}={a * b}.",)
    steps = [f"{a}*{b}: {a}*{places[0]}={a * places[0]}."]
    done = a * places[0]
    for place in places[1:]:
        steps += [f"{a}*{place}={a * place}.", f"{done}+{a * place}={done + a * place}."]
        done += a * place
    return tuple(steps)


def division(n: int, k: int) -> tuple[str, ...]:
    """Quotient and remainder, as ``n=k*quotient+remainder`` in the last sentence.

    Args:
        n: What is divided, at least 0.
        k: The divisor; below 10 no working is shown.
    """
    result = f"{n}={k}*{n // k}+{n % k}."
    working = () if k < 10 else _subtractions(n, k)
    return (*_labelled(f"{n}//{k}", working), result)


def remainder(n: int, m: int) -> tuple[str, ...]:
    """``n`` modulo ``m``, the last sentence ending in it; nothing if ``n`` is below ``m``."""
    return _labelled(f"{n} mod {m}", _subtractions(n, m))


def remainder_by_digits(n: int, m: int) -> tuple[str, ...]:
    """``n`` modulo ``m`` for a long ``n``: its digits are brought down one by one.

    Args:
        n: What is divided, at least 0.
        m: The modulus; a step ``Work mod m.`` must stand before.

    Returns:
        Reductions ``x->y``, of which the last ends in the remainder; none if ``n`` is below ``m``.
    """
    steps = []
    left = 0
    for digit in str(n):
        left = 10 * left + int(digit)
        if left >= m:
            steps.append(f"{left}->{left % m}.")
            left %= m
    if steps and not steps[-1].endswith(f"->{n % m}."):
        steps.append(f"{n} mod {m}={n % m}.")
    return tuple(steps)


def addition(numbers: Iterable[int]) -> tuple[str, ...]:
    """The sum of numbers, one more at a time; nothing if there is only one."""
    first, *others = numbers
    steps = []
    for number in others:
        steps.append(f"{first}+{number}={first + number}.")
        first += number
    return tuple(steps)


def reduced(value: int, m: int) -> str:
    """A value and, if it is not below ``m``, its remainder: ``41616->739``."""
    return f"{value}->{value % m}" if value >= m else str(value)


def digit_addition(digits: list[int]) -> tuple[str, ...]:
    """The sum of digits in one sentence; nothing if there is only one."""
    return (f"{'+'.join(map(str, digits))}={sum(digits)}.",) if len(digits) > 1 else ()


def _places(n: int) -> list[int]:
    """The parts of a number that have one digit other than zero: 408 is 400 and 8."""
    text = str(n)
    return [int(d) * 10 ** (len(text) - 1 - i) for i, d in enumerate(text) if d != "0"]


def _subtractions(n: int, k: int) -> tuple[str, ...]:
    steps = []
    for place in _places(n // k):
        steps += [f"{k}*{place}={k * place}.", f"{n}-{k * place}={n - k * place}."]
        n -= k * place
    return tuple(steps)


def _labelled(label: str, steps: tuple[str, ...]) -> tuple[str, ...]:
    return (f"{label}: {steps[0]}", *steps[1:]) if steps else ()
