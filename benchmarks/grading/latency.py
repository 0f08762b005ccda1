"""How long one response takes, and a megabyte of open boxes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

from benchmarks.grading.responses import Response, make_responses
from rstar2.grading import grade
from rstar2.grading.expression_pool import ProcessPool
from rstar2.grading.expression_process import Lost

FLOOD = r"\boxed{" * (1_000_000 // len(r"\boxed{"))


class WrongVerdict(Exception):
    """The reward's grader was wrong on an ordinary response: its time means nothing."""


@dataclass(frozen=True, slots=True)
class Times:
    """The milliseconds of some responses.

    Attributes:
        p50: Half took less.
        p99: All but one in a hundred took less.
        most: The slowest.
    """

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """Summarise at least two times."""
        cuts = quantiles(seconds, n=100, method="inclusive")
        return cls(1000 * cuts[49], 1000 * cuts[98], 1000 * max(seconds))


def ours(count: int) -> dict[str, float | dict[str, float]]:
    """Time the reward's grader, each response once, by what its thread computes.

    Time of other programs on the machine is left out: a grade takes less than a slice of it.

    Args:
        count: Responses, half of them hostile.

    Returns:
        Milliseconds by key, of the ordinary half and of the hostile one, and the median of
        each kind.

    Raises:
        WrongVerdict: It misjudges an ordinary response.
    """
    seconds: dict[str, list[float]] = {}
    for response in make_responses(count):
        started = time.thread_time()
        verdict = grade(response.text, response.gold)
        seconds.setdefault(response.kind, []).append(time.thread_time() - started)
        if response.correct not in (None, verdict.correct):
            raise WrongVerdict(f"{verdict} for gold {response.gold}: {response.text[-200:]!r}")
    ordinary = seconds["ordinary"]
    hostile = [one for kind, times in seconds.items() if kind != "ordinary" for one in times]
    figures = _figures("ours", ordinary, hostile)
    by_kind = {kind: 1000 * sorted(times)[len(times) // 2] for kind, times in seconds.items()}
    slowest = sorted(by_kind.items(), key=lambda item: -item[1])
    return {**figures, "ours_ms_by_kind": {kind: round(ms, 4) for kind, ms in slowest}}


async def mathverify(count: int, pool: ProcessPool) -> dict[str, float]:
    """Time math-verify on the first of the same responses; what is late counts as the deadline.

    Args:
        count: Responses, half of them hostile.
        pool: Processes of :mod:`benchmarks.grading.whole_response`.

    Returns:
        Milliseconds by key, and how many of the responses it did not decide.
    """
    responses = list(make_responses(count))
    replies = await asyncio.gather(*(_ask(pool, response) for response in responses))
    seconds = [seconds for seconds, _ in replies]
    kinds = [response.kind == "ordinary" for response in responses]
    figures = _figures(
        "mathverify",
        [one for one, ordinary in zip(seconds, kinds, strict=True) if ordinary],
        [one for one, ordinary in zip(seconds, kinds, strict=True) if not ordinary],
    )
    undecided = sum(lost for _, lost in replies)
    return {**figures, "mathverify_responses": count, "mathverify_undecided": undecided}


async def _ask(pool: ProcessPool, response: Response) -> tuple[float, bool]:
    reply = await pool.ask((str(response.gold), response.text))
    return reply.seconds, isinstance(reply.word, Lost)


def _figures(who: str, ordinary: Sequence[float], hostile: Sequence[float]) -> dict[str, float]:
    figures = {}
    for half, seconds in (("", ordinary), ("hostile_", hostile)):
        times = Times.of(seconds)
        figures[f"{who}_{half}p50_ms"] = times.p50
        figures[f"{who}_{half}p99_ms"] = times.p99
        figures[f"{who}_{half}max_ms"] = times.most
    return figures


def box_flood() -> dict[str, float]:
    r"""Seconds for a megabyte of ``\boxed{``: bare, and as an answer; the worse of the two."""
    worst = 0.0
    for text in (FLOOD, f"<answer>{FLOOD}</answer>"):
        started = time.perf_counter()
        grade(text, 42)
        worst = max(worst, time.perf_counter() - started)
    return {"box_flood_s": worst}
