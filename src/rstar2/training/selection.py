"""Which rollouts of a problem go into the update, by the rule of an arm.

1. Selection sees records, never text. Groups of equal reward give no gradient and go.
2. Resample-on-Correct asks whether an answer is right, and what a failed call costs does not
   change that; plain GRPO sees the reward with its penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rstar2.algorithm.roc import (
    Draw,
    Penalty,
    Selection,
    penalty,
    resample_on_correct,
    select_all,
)
from rstar2.rollout.groups import Rollout
from rstar2.training.spec import Arm, RLSpec


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one problem and the choice among them."""

    rollouts: tuple[Rollout, ...]
    selection: Selection

    @property
    def kept(self) -> tuple[Rollout, ...]:
        """The rollouts that go into the update."""
        chosen = set(self.selection.kept)
        return tuple(rollout for rollout in self.rollouts if rollout.sample in chosen)


def shaped_reward(rollout: Rollout, spec: RLSpec) -> float:
    """The reward that the advantage is made from: 1 or 0, less what failed calls cost."""
    return rollout.reward - spec.tool_penalty * rollout.trajectory.num_errors


def select_group(
    rollouts: Sequence[Rollout], arm: Arm, spec: RLSpec, seed: tuple[int, int, int]
) -> Group:
    """Chooses among the rollouts of a problem.

    Args:
        rollouts: All that were finished.
        arm: The rule.
        spec: Group sizes and ε.
        seed: (seed, step, problem), for the draws of Resample-on-Correct.
    """
    selection = choose(
        [rollout.sample for rollout in rollouts],
        [rollout.reward for rollout in rollouts],
        [penalty(rollout.trajectory) for rollout in rollouts],
        arm,
        spec,
        seed,
        shaped=[shaped_reward(rollout, spec) for rollout in rollouts],
    )
    return Group(tuple(rollouts), selection)


def choose(
    sample_ids: Sequence[int],
    rewards: Sequence[float],
    penalties: Sequence[Penalty],
    arm: Arm,
    spec: RLSpec,
    seed: tuple[int, int, int],
    *,
    shaped: Sequence[float] | None = None,
) -> Selection:
    """Chooses among the rollouts of a problem by what is known of each.

    Args:
        sample_ids: Their numbers.
        rewards: 1 or 0 for each.
        penalties: Whole penalty of each.
        arm: The rule.
        spec: Group sizes and ε.
        seed: As in ``select_group``.
        shaped: Rewards less what failed calls cost; the rewards themselves if none are given.
    """
    size = arm.samples(spec)
    if arm in (Arm.GRPO, Arm.GRPO_2G):
        return select_all(sample_ids, rewards if shaped is None else shaped, group_size=size)
    return resample_on_correct(
        sample_ids,
        rewards,
        [seen_penalty(whole, arm) for whole in penalties],
        group_size=size,
        keep=spec.group_size,
        epsilon=spec.epsilon,
        seed=seed,
        draw=_draw(arm),
    )


def seen_penalty(whole: Penalty, arm: Arm) -> Penalty:
    """What an arm looks at of a penalty."""
    match arm:
        case Arm.ROC_UNIFORM:
            return Penalty(0.0, 0.0)
        case Arm.ROC_ERROR:
            return Penalty(whole.error, 0.0)
        case Arm.ROC_FORMAT:
            return Penalty(0.0, whole.format)
        case _:
            return whole


def _draw(arm: Arm) -> Draw:
    match arm:
        case Arm.ROC_CLEANEST:
            return Draw.CLEANEST_FIRST
        case Arm.ROC_BOTH_SIGNS:
            return Draw.WEIGHTED_BOTH_SIGNS
        case _:
            return Draw.WEIGHTED
