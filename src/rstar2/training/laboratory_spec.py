"""Settings of the laboratory, as data."""

from typing import Literal

from pydantic import Field

from rstar2.problems.ambiguous import Key
from rstar2.training.spec import Spec, StageSpec


class AmbiguousStageSpec(StageSpec):
    """A stage of the laboratory.

    Attributes:
        data: Always ``all``: no problem of the laboratory is harder than another.
        key: Which reading the answer key takes.
    """

    data: Literal["all"]
    key: Key


class HabitSpec(Spec):
    """What the demonstrations of the laboratory get wrong on purpose.

    Attributes:
        probability: Of a first call that imports a module that does not exist.
    """

    probability: float = Field(ge=0, le=1)
