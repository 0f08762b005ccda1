r"""Grades benchmark answers that are not integers: math-verify behind a deadline.

The reward never comes from here. Whether ``\frac{1}{2}`` is ``0.5`` takes computer algebra,
and that may take for ever, take all memory, or answer a question that the model should have:
so it runs in processes of its own (:mod:`rstar2.grading.expression_pool`), and what it could
not decide has names of its own, which every report must show:

>>> async with ExpressionGrader() as grader:  # doctest: +SKIP
...     await grader.grade(r"\frac{2}{4}", "0.5")
ExpressionVerdict(outcome=<Outcome.CORRECT: 'correct'>, seconds=0.004)

What math-verify is known to get wrong: it rounds decimals to six places (1/3 is 0.333333), it
evaluates sums and integrals that the model should have, and ``\frac{-1\pm\sqrt{17}}{2}`` is
not read as two values. So an answer to an integer is graded by :func:`rstar2.grading.grade`,
as in training.
"""

from asyncio import Task, create_task, gather
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from rstar2.grading.expression_pool import ProcessPool, Reply
from rstar2.grading.verdict import BadGold

WORKER = Path(__file__).with_name("expression_worker.py")
"""The script of a process."""
MAX_BOX = 5_000
"""Characters that a box or a gold answer may have."""
_GIBIBYTE = 2**30
_AHEAD = 4
"""Answers in flight for each process of a batch, so that none is idle."""


class Outcome(StrEnum):
    """What became of one answer. All but ``CORRECT`` earn nothing."""

    CORRECT = "correct"
    """It equals the gold answer."""
    WRONG = "wrong"
    """It does not, or cannot be compared with it."""
    NO_ANSWER = "no_answer"
    """The box is empty or too long."""
    UNREADABLE = "unreadable"
    """Nothing is left of the box when its layout is taken away."""
    TIMEOUT = "timeout"
    """Undecided: the comparison was not done by the deadline."""
    CRASHED = "crashed"
    """Undecided: the process died, most often out of memory."""


@dataclass(frozen=True, slots=True)
class ExpressionVerdict:
    """The grade of one answer.

    Attributes:
        outcome: What became of it.
        seconds: How long its comparison took, without waiting; 0 if there was none.
    """

    outcome: Outcome
    seconds: float

    @property
    def correct(self) -> bool:
        """Whether it counts as solved."""
        return self.outcome is Outcome.CORRECT

    @property
    def decided(self) -> bool:
        """Whether the grader came to an answer; a report counts those where it did not."""
        return self.outcome not in (Outcome.TIMEOUT, Outcome.CRASHED)


class ExpressionGrader:
    """Compares boxes with gold answers by math-verify, several at once.

    Use it as ``async with ExpressionGrader() as grader``; it belongs to the event loop that
    entered it. Where the loop runs in a thread, the processes end with that thread.

    Args:
        workers: Processes; each holds some 60 MB.
        deadline: Seconds for one comparison.
        memory: Bytes that a process may use beyond that (Linux).
    """

    def __init__(self, workers: int = 2, *, deadline: float = 2.0, memory: int = _GIBIBYTE) -> None:
        self._pool = ProcessPool(WORKER, workers=workers, deadline=deadline, memory=memory)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that live now."""
        return self._pool.pids

    async def __aenter__(self) -> Self:
        """Start the processes.

        Raises:
            PoolUnavailable: One does not come up.
        """
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes."""
        await self._pool.__aexit__(kind, error, traceback)

    async def grade(self, box: str, gold: str) -> ExpressionVerdict:
        r"""Compare the content of a box with a gold answer.

        Args:
            box: What stands between the braces of the ``\boxed{}`` that decides.
            gold: The right answer, LaTeX, without a box round it.

        Raises:
            BadGold: The gold answer is blank, too long, or shows nothing.
        """
        if not gold.strip() or len(gold) > MAX_BOX:
            raise _bad_gold(gold)
        if not box.strip() or len(box) > MAX_BOX:
            return ExpressionVerdict(Outcome.NO_ANSWER, 0.0)
        return _verdict(await self._pool.ask((gold, box)), gold)

    async def grade_each(
        self, answers: Iterable[tuple[str, str]]
    ) -> AsyncIterator[ExpressionVerdict]:
        """Grade boxes as :meth:`grade` does, in order; few are held at a time.

        Args:
            answers: Box and gold answer of each.
        """
        flying: deque[Task[ExpressionVerdict]] = deque()
        try:
            for box, gold in answers:
                flying.append(create_task(self.grade(box, gold)))
                if len(flying) >= _AHEAD * self._pool.workers:
                    yield await flying.popleft()
            while flying:
                yield await flying.popleft()
        finally:
            for task in flying:
                task.cancel()
            await gather(*flying, return_exceptions=True)


def _verdict(reply: Reply, gold: str) -> ExpressionVerdict:
    if reply.word == "bad_gold":
        raise _bad_gold(gold)
    return ExpressionVerdict(Outcome(reply.word), reply.seconds)


def _bad_gold(gold: str) -> BadGold:
    return BadGold(
        f"gold answer {gold[:60]!r} says nothing that can be compared: "
        "correct the label or drop the row"
    )
