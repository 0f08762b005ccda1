"""Sides that take turns, and what comes out: ratios of medians with their spread."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

Answer = dict[str, Any]
"""What a worker says of one round."""

Side = Callable[[], Answer]


class DifferentWorkError(RuntimeError):
    """Two sides did not do the same: no figure of this run can be trusted."""


def take_turns(sides: Mapping[str, Side], rounds: int) -> dict[str, list[Answer]]:
    """Let each side do a round to warm up, then so many in turn.

    Args:
        sides: What does a round of each.
        rounds: Rounds that count.
    """
    for side in sides.values():
        side()
    answers: dict[str, list[Answer]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            answers[name].append(side())
    return answers


def column(answers: Sequence[Answer], key: str) -> list[float]:
    """One number of each round."""
    return [float(answer[key]) for answer in answers]


def speed_over(
    name: str, ours: Sequence[float], theirs: Sequence[float]
) -> dict[str, float | list[float]]:
    """How many times faster we are: the ratio of the medians, and of the rounds the extremes.

    Args:
        name: Key of the ratio; its extremes stand under the key with ``_spread``.
        ours: Seconds of our rounds.
        theirs: Seconds of theirs, in the same order, of the same work.
    """
    pairs = [t / o for o, t in zip(ours, theirs, strict=True)]
    return {name: median(theirs) / median(ours), f"{name}_spread": [min(pairs), max(pairs)]}


def same_work(what: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Compare what was done.

    Raises:
        DifferentWorkError: Something differs; the message says what.
    """
    different = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
    if different:
        told = ", ".join(f"{k} {ours.get(k)} and {theirs.get(k)}" for k in different)
        raise DifferentWorkError(f"{what}: ours and theirs differ: {told}")


def same_gradient(ours: float, theirs: float) -> None:
    """Compare the norms of two gradients of one loss.

    Raises:
        DifferentWorkError: They differ by more than a thousandth.
    """
    if not math.isclose(ours, theirs, rel_tol=1e-3):
        raise DifferentWorkError(f"update: the gradient's norm is {ours:.6g}, theirs {theirs:.6g}")


def share_of_matmul(
    flop_per_token: float, parameters: int, tokens: int, seconds: float, rate: float
) -> float:
    """Achieved FLOP a second over the rate of matmul.

    Args:
        flop_per_token: For each parameter: 2 forward, 6 forward and backward.
        parameters: Parameters of the model, the head's once.
        tokens: Tokens that went through.
        seconds: CPU seconds.
        rate: FLOP per CPU second of matmul.
    """
    return flop_per_token * parameters * tokens / seconds / rate
