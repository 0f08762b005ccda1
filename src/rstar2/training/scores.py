"""What an evaluation keeps of a rollout and of a problem, each a row of a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rstar2.records.grades import decimal
from rstar2.rollout.groups import Rollout


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
class RolloutScore:
    """What became of one rollout.

    Attributes:
        problem_set: Name of the set.
        problem_id: The problem.
        family: Its family.
        composition: Its composition, or empty.
        sample: Number of the rollout, from 0.
        correct: Whether it is right.
        reason: Why, as the grader says.
        value: The integer that was read, in decimal; empty if there was none.
        calls: Its tool calls.
        errors: Those that failed.
        error_types: Exception class, kind of malformed call or ``timeout`` of each, by spaces.
        turns: Assistant turns.
        answer_tags: Answer tags that the model wrote.
        tokens: Model tokens.
        response_tokens: Model and tool tokens.
        stop: How it ended.
    """

    problem_set: str
    problem_id: str
    family: str
    composition: str
    sample: int
    correct: bool
    reason: str
    value: str
    calls: int
    errors: int
    error_types: str
    turns: int
    answer_tags: int
    tokens: int
    response_tokens: int
    stop: str

    def as_row(self) -> dict[str, str | int | bool]:
        """The values by name."""
        return asdict(self)


def problem_score(problem_set: str, rollouts: Sequence[Rollout]) -> ProblemScore:
    """The score of one problem, from all its rollouts."""
    problem = rollouts[0].problem
    paths = [rollout.trajectory for rollout in rollouts]
    right = [rollout.trajectory for rollout in rollouts if rollout.verdict.correct]
    return ProblemScore(
        problem_set=problem_set,
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


def rollout_score(problem_set: str, rollout: Rollout) -> RolloutScore:
    """The score of one rollout."""
    path = rollout.trajectory
    failed = [call.error_type or call.status.value for call in path.calls if call.status.is_error]
    return RolloutScore(
        problem_set=problem_set,
        problem_id=rollout.problem.problem_id,
        family=rollout.problem.family,
        composition=rollout.problem.composition,
        sample=rollout.sample,
        correct=rollout.verdict.correct,
        reason=rollout.verdict.reason.value,
        value="" if rollout.verdict.value is None else decimal(rollout.verdict.value),
        calls=len(path.calls),
        errors=len(failed),
        error_types=" ".join(failed),
        turns=len(path.turns),
        answer_tags=path.answer_tags,
        tokens=path.num_model_tokens,
        response_tokens=len(path.response_ids),
        stop=path.stop.value,
    )
