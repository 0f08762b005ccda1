"""Rolls out groups: several samples of each of several problems, graded.

A rollout that the infrastructure lost is replaced by a fresh sample; it is never
graded and never counts. A group that stays short is for the selection to drop.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rstar2.grading import Verdict, grade
from rstar2.problems import Problem
from rstar2.protocol import StopReason, TokenTemplate, Trajectory
from rstar2.rollout.agent import RolloutLimits, ToolRunner, run_rollout
from rstar2.rollout.engine import Engine

_FRESH_SAMPLES = 3

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Rollout:
    """A graded trajectory.

    Attributes:
        problem: What was asked.
        sample: Its number in the group, from 0.
        trajectory: What happened.
        verdict: What the grader said.
    """

    problem: Problem
    sample: int
    trajectory: Trajectory
    verdict: Verdict

    @property
    def reward(self) -> float:
        """1.0 for a right answer, else 0.0 (paper, Eq. 3)."""
        return float(self.verdict.correct)


async def roll_out(
    problems: Sequence[Problem],
    samples: int,
    *,
    name: str,
    engine: Engine,
    sandbox: ToolRunner,
    template: TokenTemplate,
    limits: RolloutLimits,
) -> list[list[Rollout]]:
    """Rolls out every problem ``samples`` times, all at once.

    Args:
        problems: The problems; one may stand there twice.
        samples: Rollouts of each.
        name: Names the batch: with the place and sample it names the random numbers.
        engine: Samples the turns.
        sandbox: Runs the programs.
        template: Encodes what the model does not write.
        limits: Budgets.

    Returns:
        One group per problem, in order; at most ``samples`` rollouts each.

    Raises:
        Exception: What a rollout raised; the others are cancelled first.
    """

    async def one(place: int, sample: int) -> Rollout | None:
        problem = problems[place]
        for fresh in range(1 + _FRESH_SAMPLES):
            trajectory = await run_rollout(
                f"{name}/{place}/{sample}/{fresh}",
                problem.question,
                engine=engine,
                sandbox=sandbox,
                template=template,
                limits=limits,
            )
            if trajectory.stop is not StopReason.INFRASTRUCTURE:
                return Rollout(problem, sample, trajectory, grade(trajectory, problem.answer))
        return None

    places = range(len(problems))
    finished = await run_all(one(p, s) for p in places for s in range(samples))
    rows = [finished[p * samples : (p + 1) * samples] for p in places]
    return [[rollout for rollout in row if rollout is not None] for row in rows]


async def run_all(jobs: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Runs coroutines at once; one that fails ends the others.

    Returns:
        Their results, in order.

    Raises:
        Exception: What the first to fail raised, itself and not in a group, when the others
            have ended.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first
