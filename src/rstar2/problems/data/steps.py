"""The steps from raw rows to the pool, in the order in which they are run."""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rstar2.problems.data.contamination import decontaminate
from rstar2.problems.data.duplicates import drop_duplicates, drop_near_duplicates
from rstar2.problems.data.rows import StepFunction
from rstar2.problems.data.rules import RULES


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the pipeline.

    Attributes:
        name: What reports call it.
        run: What it does.
        source: The file whose code, with what it imports, decides what it does.
        given: Names what else decides it, as a hash; empty if nothing does.
    """

    name: str
    run: StepFunction
    source: Path
    given: str = ""

    @classmethod
    def of(cls, name: str, run: StepFunction, given: str = "") -> "Step":
        """Make a step of a function; its source is where the function is written."""
        return cls(name, run, Path(inspect.getsourcefile(run) or ""), given)


def pool_steps(benchmarks: Mapping[str, Sequence[str]]) -> tuple[Step, ...]:
    """The steps of a pool: rules for single rows, duplicates, benchmarks.

    Args:
        benchmarks: Texts that the pool must not hold, by name of the set; without any, nothing
            is compared and there is no such step.
    """
    steps = [Step.of(name, run) for name, run in RULES]
    steps.append(Step.of("duplicates", drop_duplicates))
    steps.append(Step.of("near duplicates", drop_near_duplicates))
    if benchmarks:
        texts = json.dumps({name: list(texts) for name, texts in benchmarks.items()})
        given = hashlib.sha256(texts.encode()).hexdigest()
        steps.append(Step.of("decontamination", decontaminate(benchmarks), given))
    return tuple(steps)
