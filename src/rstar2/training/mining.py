"""Hard problems for a stage: those that the policy does not solve every time.

What was mined is kept on disk under the name of the weights that rolled it out, so that a run
that was killed after it does not mine again, and never trains on what others mined.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rstar2.problems import Problem
from rstar2.records import RecordError, atomic_write
from rstar2.records.grades import Grade, Phase, count_grades, grades_from_json, grades_to_json
from rstar2.rollout import RolloutLimits, ToolRunner, TorchEngine
from rstar2.rollout.groups import roll_out
from rstar2.training.checkpoint import Policy, weights_digest
from rstar2.training.collect import RolloutsLostError
from rstar2.training.screening import is_hard


@dataclass(frozen=True, slots=True)
class Mined:
    """What came out of mining.

    Attributes:
        problems: The hard ones, in order; none if all are solved.
        grades: What the grader said of all rollouts.
    """

    problems: tuple[Problem, ...]
    grades: Counter[Grade]


def mined_file(stage: int) -> str:
    """Name of the file of what was mined for a stage, from 1."""
    return f"mined-{stage}.json"


async def mine_hard_problems(
    candidates: Sequence[Problem],
    samples: int,
    *,
    name: str,
    engine: TorchEngine,
    policy: Policy,
    limits: RolloutLimits,
    sandbox: ToolRunner,
) -> Mined:
    """Rolls out problems and keeps those with a wrong rollout (paper, section 4.3).

    Args:
        candidates: Problems to try.
        samples: Rollouts of each; 8 in the paper.
        name: Names the rollouts.
        engine: Samples with the policy's weights.
        policy: Gives the template.
        limits: Budgets.
        sandbox: Runs programs.

    Raises:
        RolloutsLostError: If not one rollout of a problem could be finished.
    """
    groups = await roll_out(
        candidates,
        samples,
        name=name,
        engine=engine,
        sandbox=sandbox,
        template=policy.template,
        limits=limits,
    )
    if not all(groups):
        raise RolloutsLostError(
            "the sandbox lost every rollout of a problem that was mined: "
            "`rstar2 doctor` looks at it"
        )
    hard = tuple(
        problem
        for problem, rollouts in zip(candidates, groups, strict=True)
        if is_hard(sum(rollout.verdict.correct for rollout in rollouts), len(rollouts) - 1)
    )
    graded = ((r.problem.answer, r.verdict) for group in groups for r in group)
    return Mined(hard, count_grades(Phase.MINING, graded))


def save_mined(path: Path, mined: Mined, policy: Policy) -> None:
    """Writes what was mined with the weights of ``policy``.

    Raises:
        RecordError: The file cannot be written.
    """
    value = {
        "weights": weights_digest(policy.model),
        "problems": [problem.problem_id for problem in mined.problems],
        "grades": grades_to_json(mined.grades),
    }
    atomic_write(path, json.dumps(value, indent=1).encode())


def find_mined(path: Path, candidates: Sequence[Problem], policy: Policy) -> Mined | None:
    """What was mined of ``candidates`` with the weights of ``policy``; None if nothing was.

    Raises:
        RecordError: The file cannot be read.
    """
    if not path.exists() or _read(path)["weights"] != weights_digest(policy.model):
        return None
    return load_mined(path, candidates)


def load_mined(path: Path, candidates: Sequence[Problem]) -> Mined:
    """What was mined of ``candidates``, with whatever weights.

    Raises:
        RecordError: The file is missing or cannot be read.
    """
    value = _read(path)
    names = set(value["problems"])
    hard = tuple(problem for problem in candidates if problem.problem_id in names)
    return Mined(hard, grades_from_json(value["grades"], path))


def mined_grades(paths: Sequence[Path]) -> Counter[Grade]:
    """The grades in files of ``save_mined``.

    Raises:
        RecordError: A file is missing or cannot be read.
    """
    total: Counter[Grade] = Counter()
    for path in paths:
        total += grades_from_json(_read(path)["grades"], path)
    return total


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}; begin the run again") from error
    if not isinstance(value, dict) or not {"weights", "problems", "grades"} <= value.keys():
        raise RecordError(f"{path} holds nothing that was mined; begin the run again")
    return value
