"""The moments of the kills: drawn from a seed, placed in the phases of a reference run."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a run is killed in."""

    PRETRAIN = "pretrain"
    SFT = "sft"
    RL = "rl"
    MINING = "mining"
    EVALUATION = "evaluation"


class Part(StrEnum):
    """A stretch of both runs, in their order; what a reference is timed by."""

    PRETRAIN = "pretrain"
    SFT = "sft"
    SFT_EVALUATION = "evaluation of the SFT policy"
    BEFORE_MINING = "RL before mining"
    MINING = "mining"
    AFTER_MINING = "RL after mining"
    ARM_EVALUATION = "evaluation of the arm"


PARTS_OF = {
    Phase.PRETRAIN: (Part.PRETRAIN,),
    Phase.SFT: (Part.SFT,),
    Phase.RL: (Part.BEFORE_MINING, Part.AFTER_MINING),
    Phase.MINING: (Part.MINING,),
    Phase.EVALUATION: (Part.SFT_EVALUATION, Part.ARM_EVALUATION),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """When a run is killed.

    Attributes:
        phase: In which phase.
        share: Where in it, between 0 and 1.
        part: In which stretch that is.
        after: Seconds after its beginning.
    """

    phase: Phase
    share: float
    part: Part
    after: float


def part_of(progress: str, *, arm: bool, boundary: int, mined: bool) -> Part | None:
    """The stretch that a run is in.

    Args:
        progress: What ``progress.json`` says, as ``RL 3/8 accuracy 0.10``; empty before.
        arm: Whether it is the run of the arm.
        boundary: RL steps before the stage that mines.
        mined: Whether what was mined is on disk.
    """
    name, _, rest = progress.partition(" ")
    done, _, total = rest.partition(" ")[0].partition("/")
    match name:
        case "pretrain" | "sft":
            return Part(name)
        case "evaluation":
            return Part.ARM_EVALUATION if arm else Part.SFT_EVALUATION
        case "mining":
            return Part.AFTER_MINING if done == total else Part.MINING
        case "RL":
            over = int(done) > boundary or (int(done) == boundary and mined)
            return Part.AFTER_MINING if over else Part.BEFORE_MINING
        case _:
            return None


def draw_moments(
    seed: int, lengths: Mapping[Part, float], stratum: int = 0, strata: int = 1
) -> list[Moment]:
    """One moment in each phase, in the order of the runs.

    Args:
        seed: Seed of the draws.
        lengths: Seconds of each part in the reference.
        stratum: Which part of each phase the moments are drawn from, from 0.
        strata: Equal parts of each phase: as many chains of kills reach all of it.
    """
    rng = random.Random(f"moments:{seed}")
    shares = [(stratum + rng.random()) / strata for _ in Phase]
    moments = [place(phase, share, lengths) for phase, share in zip(Phase, shares, strict=True)]
    order: Sequence[Part] = list(Part)
    return sorted(moments, key=lambda moment: order.index(moment.part))


def place(phase: Phase, share: float, lengths: Mapping[Part, float]) -> Moment:
    """Finds the stretch of a phase in which a share of its length falls."""
    parts = PARTS_OF[phase]
    left = share * sum(lengths[part] for part in parts)
    for part in parts[:-1]:
        if left < lengths[part]:
            return Moment(phase, share, part, left)
        left -= lengths[part]
    return Moment(phase, share, parts[-1], left)
