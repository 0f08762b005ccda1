"""Collects the groups of one RL step, refilling those that give no gradient."""

from collections.abc import Callable
from dataclasses import dataclass

from rstar2.errors import UserError
from rstar2.problems import Problem
from rstar2.protocol import TokenTemplate
from rstar2.rollout.agent import RolloutLimits, ToolRunner
from rstar2.rollout.engine import Engine
from rstar2.rollout.groups import roll_out
from rstar2.training.selection import Group, select_group
from rstar2.training.spec import Arm, RLSpec

ProblemSource = Callable[[int, int], Problem]
"""``source(step, place)``: the problem at a place of a step, places without end."""


class RolloutsLostError(UserError):
    """The sandbox lost every rollout of a problem or a step, fresh samples included."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups of a step: all that were rolled out, and those that the update uses."""

    groups: tuple[Group, ...]
    used: tuple[Group, ...]


async def collect(
    source: ProblemSource,
    step: int,
    arm: Arm,
    spec: RLSpec,
    *,
    seed: int,
    engine: Engine,
    sandbox: ToolRunner,
    template: TokenTemplate,
    limits: RolloutLimits,
) -> Batch:
    """Rolls out a batch; with ``refill`` dropped groups are replaced by further problems.

    Args:
        source: Where the problems come from.
        step: The RL step, from 0; names the rollouts.
        arm: How rollouts are chosen.
        spec: Sizes and the refill rule.
        seed: Seed of the selection.
        engine: Samples.
        sandbox: Runs programs.
        template: Encodes.
        limits: Budgets.

    Raises:
        RolloutsLostError: If not one rollout of a round could be finished.
    """
    groups: list[Group] = []
    used: list[Group] = []
    for wave in range(1 + (spec.max_refills if spec.refill else 0)):
        missing = spec.problems_per_step - len(used)
        if missing == 0:
            break
        first = len(groups)
        rolled = await roll_out(
            [source(step, first + place) for place in range(missing)],
            arm.samples(spec),
            name=f"{step}/{wave}",
            engine=engine,
            sandbox=sandbox,
            template=template,
            limits=limits,
        )
        if not any(rolled):
            raise RolloutsLostError(
                f"the sandbox lost every rollout of step {step + 1}: `rstar2 doctor` looks at it"
            )
        for place, rollouts in enumerate(rolled):
            group = select_group(rollouts, arm, spec, (seed, step, first + place))
            groups.append(group)
            if group.selection.dropped is None:
                used.append(group)
    return Batch(tuple(groups), tuple(used))
