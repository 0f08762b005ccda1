"""Evaluates a policy on sets of problems: one row a rollout, and one a problem.

Rows, not means, are kept: intervals over problems and over seeds are made from them, and
whatever may be asked of single rollouts. The problems go in chunks; a chunk that is done is on
disk, and is not rolled out again by an evaluation that was killed and is run once more.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rstar2.problems.types import Problem
from rstar2.records import RecordError, append_json_line, cut_json_lines, read_json_lines
from rstar2.records.grades import Grade, Phase, count_grades, grades_from_json, grades_to_json
from rstar2.rollout import RolloutLimits, ToolRunner, TorchEngine
from rstar2.rollout.groups import Rollout, roll_out
from rstar2.rollout.serialise import rollout_from_json, rollout_to_json
from rstar2.training.checkpoint import Policy, weights_digest
from rstar2.training.collect import RolloutsLostError
from rstar2.training.scores import ProblemScore, RolloutScore, problem_score, rollout_score
from rstar2.training.spec import EvaluationSpec, LimitsSpec

_CHUNK = 256
"""Rollouts in flight; also the engine's batch."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out of an evaluation.

    Attributes:
        scores: One of each problem.
        rollouts: One of each rollout.
        examples: One rollout of each of the first problems of a set.
        grades: What the grader said of all rollouts.
    """

    scores: tuple[ProblemScore, ...]
    rollouts: tuple[RolloutScore, ...]
    examples: tuple[Rollout, ...]
    grades: Counter[Grade] = field(default_factory=Counter)

    def __add__(self, other: "Evaluation") -> "Evaluation":
        """The evaluation of this one's problems, then of the other's."""
        return Evaluation(
            self.scores + other.scores,
            self.rollouts + other.rollouts,
            self.examples + other.examples,
            self.grades + other.grades,
        )

    def as_json(self) -> dict[str, Any]:
        """The values by name, plain."""
        return {
            "scores": [score.as_row() for score in self.scores],
            "rollouts": [rollout.as_row() for rollout in self.rollouts],
            "examples": [rollout_to_json(rollout) for rollout in self.examples],
            "grades": grades_to_json(self.grades),
        }


def evaluation_limits(
    spec: EvaluationSpec, limits: LimitsSpec, temperature: float
) -> RolloutLimits:
    """Budgets of an evaluation rollout."""
    return RolloutLimits(
        max_prompt_tokens=limits.max_prompt_tokens,
        max_response_tokens=spec.max_response_tokens,
        max_turns=spec.max_turns,
        max_tool_tokens=limits.max_tool_tokens,
        tool_timeout=limits.tool_timeout,
        temperature=temperature,
    )


async def evaluate(
    policy: Policy,
    samples: int,
    limits: RolloutLimits,
    sets: Mapping[str, Sequence[Problem]],
    *,
    seed: int,
    sandbox: ToolRunner,
    on_problems: Callable[[int, int], None],
    examples: int = 4,
    chunks: Path | None = None,
) -> Evaluation:
    """Rolls out every problem of each set.

    Args:
        policy: What is evaluated.
        samples: Rollouts of each problem.
        limits: Budgets and temperature.
        sets: Problems by the name of their set.
        seed: Names the sampling.
        sandbox: Runs programs.
        on_problems: Called with the problems done and their total number, as a chunk ends.
        examples: Problems a set of which a rollout is kept.
        chunks: File of finished chunks. Those of the same weights and settings are taken
            from it; the others go, and what is rolled out is appended.

    Raises:
        RolloutsLostError: If not one rollout of a problem could be finished.
        RecordError: If the file of chunks cannot be read or written.
    """
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=seed, max_rows=_CHUNK)
    asked = {name: [one.problem_id for one in problems] for name, problems in sets.items()}
    settings = (weights_digest(policy.model), samples, limits, asked, seed, examples)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()
    finished = {} if chunks is None else _finished(chunks, key)
    total = sum(map(len, sets.values()))
    size = max(1, _CHUNK // samples)
    result = Evaluation((), (), ())
    for problem_set, problems in sets.items():
        for start in range(0, len(problems), size):
            name = f"{problem_set}/{start}"
            chunk = finished.get(name)
            if chunk is None:
                groups = await roll_out(
                    problems[start : start + size],
                    samples,
                    name=f"evaluate/{name}",
                    engine=engine,
                    sandbox=sandbox,
                    template=policy.template,
                    limits=limits,
                )
                chunk = _evaluate_chunk(problem_set, groups, max(0, examples - start))
                if chunks is not None:
                    append_json_line(chunks, {"key": key, "chunk": name, **chunk.as_json()})
            result += chunk
            on_problems(len(result.scores), total)
    return result


def _evaluate_chunk(
    problem_set: str, groups: Sequence[Sequence[Rollout]], examples: int
) -> Evaluation:
    if not all(groups):
        raise RolloutsLostError(
            f"the sandbox lost every rollout of a problem of {problem_set}: "
            "`rstar2 doctor` looks at it"
        )
    graded = ((r.problem.answer, r.verdict) for group in groups for r in group)
    return Evaluation(
        tuple(problem_score(problem_set, group) for group in groups),
        tuple(rollout_score(problem_set, one) for group in groups for one in group),
        tuple(group[0] for group in groups[:examples]),
        count_grades(Phase.EVALUATION, graded),
    )


def _finished(path: Path, key: str) -> dict[str, Evaluation]:
    """The chunks in a file that were made with the settings of the key; the others go."""
    cut_json_lines(path, lambda row: row.get("key") == key)
    try:
        return {row["chunk"]: _from_json(row, path) for row in read_json_lines(path)}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path} holds no chunks of an evaluation: {error!r}") from error


def _from_json(row: dict[str, Any], path: Path) -> Evaluation:
    return Evaluation(
        tuple(ProblemScore(**score) for score in row["scores"]),
        tuple(RolloutScore(**rollout) for rollout in row["rollouts"]),
        tuple(map(rollout_from_json, row["examples"])),
        grades_from_json(row["grades"], path),
    )
