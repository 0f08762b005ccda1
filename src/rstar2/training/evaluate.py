"""Evaluates a laptop policy on the four sets, one row a problem.

Rows, not means, are kept: intervals over problems and over seeds are made from them. The
problems go in chunks; a chunk that is done is on disk, and is not rolled out again by an
evaluation that was killed and is run once more.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rstar2.problems import ProblemSet, Split, draw
from rstar2.records import RecordError, append_json_line, cut_json_lines, read_json_lines
from rstar2.records.grades import Grade, Phase, count_grades, grades_from_json, grades_to_json
from rstar2.rollout import RolloutLimits, ToolRunner, TorchEngine
from rstar2.rollout.groups import Rollout, roll_out
from rstar2.rollout.serialise import rollout_from_json, rollout_to_json
from rstar2.training.checkpoint import Policy, weights_digest
from rstar2.training.collect import RolloutsLostError
from rstar2.training.spec import EvaluationSpec, LimitsSpec

_CHUNK = 256
"""Rollouts in flight; also the engine's batch."""


@dataclass(frozen=True, slots=True)
class ProblemScore:
    """What a policy did with one problem.

    Attributes:
        problem_set: Name of the set.
        problem_id: The problem.
        family: Its family.
        composition: Its composition, or empty.
        samples: Rollouts.
        correct: Right rollouts.
        calls: Tool calls in all rollouts.
        errors: Those that failed.
        calls_in_correct: Tool calls in right rollouts.
        errors_in_correct: Those that failed.
        tokens: Model tokens of all rollouts.
        tokens_in_correct: Model tokens of right rollouts.
        truncated: Rollouts ended by a limit.
    """

    problem_set: str
    problem_id: str
    family: str
    composition: str
    samples: int
    correct: int
    calls: int
    errors: int
    calls_in_correct: int
    errors_in_correct: int
    tokens: int
    tokens_in_correct: int
    truncated: int

    def as_row(self) -> dict[str, str | int]:
        """The values by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out of an evaluation.

    Attributes:
        scores: One of each problem.
        examples: One rollout of each of the first problems of a set.
        grades: What the grader said of all rollouts.
    """

    scores: tuple[ProblemScore, ...]
    examples: tuple[Rollout, ...]
    grades: Counter[Grade] = field(default_factory=Counter)

    def __add__(self, other: "Evaluation") -> "Evaluation":
        """The evaluation of this one's problems, then of the other's."""
        return Evaluation(
            self.scores + other.scores,
            self.examples + other.examples,
            self.grades + other.grades,
        )

    def as_json(self) -> dict[str, Any]:
        """The values by name, plain."""
        return {
            "scores": [score.as_row() for score in self.scores],
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
    spec: EvaluationSpec,
    limits: RolloutLimits,
    *,
    split: Split,
    seed: int,
    sandbox: ToolRunner,
    on_problems: Callable[[int, int], None],
    sets: Sequence[ProblemSet] = tuple(ProblemSet),
    examples: int = 4,
    chunks: Path | None = None,
) -> Evaluation:
    """Rolls out the first problems of each set.

    Args:
        policy: What is evaluated.
        spec: Problems a set and samples a problem.
        limits: Budgets and temperature.
        split: ``HELD_OUT`` for what is reported, ``DEV`` for choosing.
        seed: Names the problems and the sampling.
        sandbox: Runs programs.
        on_problems: Called with the problems done and their total number, as a chunk ends.
        sets: Which sets.
        examples: Problems a set of which a rollout is kept.
        chunks: File of finished chunks. Those of the same weights and settings are taken
            from it; the others go, and what is rolled out is appended.

    Raises:
        RolloutsLostError: If not one rollout of a problem could be finished.
        RecordError: If the file of chunks cannot be read or written.
    """
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=seed, max_rows=_CHUNK)
    settings = (weights_digest(policy.model), spec, limits, split.value, seed, examples)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()
    finished = {} if chunks is None else _finished(chunks, key)
    total = len(sets) * spec.problems
    size = max(1, _CHUNK // spec.samples)
    result = Evaluation((), ())
    for problem_set in sets:
        problems = [draw(problem_set, split, seed, i).problem for i in range(spec.problems)]
        for start in range(0, spec.problems, size):
            name = f"{problem_set.value}/{start}"
            chunk = finished.get(name)
            if chunk is None:
                groups = await roll_out(
                    problems[start : start + size],
                    spec.samples,
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
    problem_set: ProblemSet, groups: Sequence[Sequence[Rollout]], examples: int
) -> Evaluation:
    if not all(groups):
        raise RolloutsLostError(
            f"the sandbox lost every rollout of a problem of {problem_set}: "
            "`rstar2 doctor` looks at it"
        )
    graded = ((r.problem.answer, r.verdict) for group in groups for r in group)
    return Evaluation(
        tuple(_score(problem_set, group) for group in groups),
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
        tuple(map(rollout_from_json, row["examples"])),
        grades_from_json(row["grades"], path),
    )


def _score(problem_set: ProblemSet, rollouts: Sequence[Rollout]) -> ProblemScore:
    problem = rollouts[0].problem
    paths = [rollout.trajectory for rollout in rollouts]
    right = [rollout.trajectory for rollout in rollouts if rollout.verdict.correct]

    return ProblemScore(
        problem_set=problem_set.value,
        problem_id=problem.problem_id,
        family=problem.family,
        composition=problem.composition,
        samples=len(rollouts),
        correct=len(right),
        calls=sum(len(path.calls) for path in paths),
        errors=sum(path.num_errors for path in paths),
        calls_in_correct=sum(len(path.calls) for path in right),
        errors_in_correct=sum(path.num_errors for path in right),
        tokens=sum(path.num_model_tokens for path in paths),
        tokens_in_correct=sum(path.num_model_tokens for path in right),
        truncated=sum(path.stop.is_truncated for path in paths),
    )
