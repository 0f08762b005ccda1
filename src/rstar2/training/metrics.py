"""The names of the metrics log, and what each value is taken over.

- Without a prefix, and ``stop/…``, ``reason/…``: every rollout sampled, before selection.
- ``kept/…``: the rollouts that a selection kept. A selection that prefers clean rollouts must
  not make an unchanged policy look cleaner.
- ``update/…``: the optimiser steps of the update.
"""

from collections.abc import Iterable, Sequence

from rstar2.grading import Reason
from rstar2.protocol import StopReason
from rstar2.rollout.groups import Rollout
from rstar2.training.grpo import UpdateReport
from rstar2.training.selection import Group


def rollout_metrics(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Means over rollouts. A mean over nothing is NaN.

    Keys:
        accuracy: Share that is right.
        tool_error_in_correct: Failed calls over calls, in right rollouts (paper, Figure 4).
        tool_error: The same in all rollouts.
        tokens, tokens_in_correct: Model tokens a rollout.
        calls, turns: Calls and assistant turns a rollout.
        no_call: Share without a call.
        repeated_answer: Share with more than one answer tag.
        truncated: Share ended by a limit.
        void_turns: Share of assistant turns with neither a call that was run or refused nor an
            answer tag: the last turn of a rollout, where it ends in text or is cut.
        entropy: Mean −log-prob of a model token at the temperature it was sampled at, in nats.
    """
    every = list(rollouts)
    right = [rollout for rollout in every if rollout.verdict.correct]
    paths = [rollout.trajectory for rollout in every]
    right_paths = [rollout.trajectory for rollout in right]
    return {
        "accuracy": _mean([rollout.reward for rollout in every]),
        "tool_error_in_correct": _ratio(
            sum(path.num_errors for path in right_paths),
            sum(len(path.calls) for path in right_paths),
        ),
        "tool_error": _ratio(
            sum(path.num_errors for path in paths), sum(len(path.calls) for path in paths)
        ),
        "tokens": _mean([path.num_model_tokens for path in paths]),
        "tokens_in_correct": _mean([path.num_model_tokens for path in right_paths]),
        "calls": _mean([len(path.calls) for path in paths]),
        "turns": _mean([len(path.turns) for path in paths]),
        "no_call": _mean([not path.calls for path in paths]),
        "repeated_answer": _mean([path.answer_tags > 1 for path in paths]),
        "truncated": _mean([path.stop.is_truncated for path in paths]),
        "void_turns": _mean([turn.is_void for path in paths for turn in path.turns]),
        "entropy": _ratio(
            -sum(sum(path.log_probs) for path in paths),
            sum(path.num_model_tokens for path in paths),
        ),
    }


def step_metrics(groups: Sequence[Group], used: Sequence[Group]) -> dict[str, float]:
    """One step: all rollouts sampled, those kept, and what became of the groups.

    ``stop/…`` and ``reason/…`` are shares of every rollout sampled: how it ended, and why the
    grader paid it or not.

    Args:
        groups: Every group rolled out in the step, refills included.
        used: Those that went into the update.
    """
    kept = [rollout for group in used for rollout in group.kept]
    sampled = [rollout for group in groups for rollout in group.rollouts]
    stops = [rollout.trajectory.stop for rollout in sampled]
    reasons = [rollout.verdict.reason for rollout in sampled]
    return {
        **rollout_metrics(sampled),
        **{f"kept/{name}": value for name, value in rollout_metrics(kept).items()},
        "rollouts": float(len(stops)),
        "groups": float(len(groups)),
        "groups_used": float(len(used)),
        **{f"stop/{reason.value}": _mean([stop is reason for stop in stops]) for reason in _STOPS},
        **{f"reason/{one.value}": _mean([r is one for r in reasons]) for one in _REASONS},
    }


def update_metrics(report: UpdateReport) -> dict[str, float]:
    """The update's report under the names of the metrics log.

    Keys:
        kept/clip_low_ratio, kept/clip_high_ratio: Shares of the kept model tokens that a bound
            of the clip range held.
        kept/kl: Estimated KL divergence of the policy that sampled from the one in the update,
            a mean over the kept model tokens, in nats.
        update/loss, update/grad_norm: Means over the optimiser steps; each step weighs its
            tokens by the normaliser, so the loss is no mean over rollouts.
        update/optimizer_steps: Their number.
    """
    return {
        "kept/clip_low_ratio": report.clip_low_ratio,
        "kept/clip_high_ratio": report.clip_high_ratio,
        "kept/kl": report.kl,
        "update/loss": report.loss,
        "update/grad_norm": report.grad_norm,
        "update/optimizer_steps": float(report.optimizer_steps),
    }


_STOPS = tuple(reason for reason in StopReason if reason is not StopReason.INFRASTRUCTURE)
_REASONS = tuple(reason for reason in Reason if reason is not Reason.INFRASTRUCTURE)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else float("nan")
