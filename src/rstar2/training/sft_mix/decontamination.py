"""Which prompts of a mix are problems of a benchmark."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rstar2.problems.data.contamination import copy_finder


@dataclass(frozen=True, slots=True)
class Decontamination:
    """Says which prompts are in a benchmark.

    Attributes:
        name: Names the benchmarks and their version; part of the mix's fingerprint.
        find: Gives the name of the benchmark's item that a prompt is, or None.
    """

    name: str
    find: Callable[[str], str | None]

    @classmethod
    def of(cls, benchmarks: Mapping[str, Sequence[str]]) -> "Decontamination":
        """Keep out copies of problems; their texts make the version.

        Args:
            benchmarks: The problems of each benchmark, by its name.
        """
        ordered = {name: list(problems) for name, problems in benchmarks.items()}
        version = hashlib.sha256(json.dumps(ordered).encode()).hexdigest()[:12]
        return cls(f"{', '.join(ordered)} ({version})", copy_finder(ordered))
