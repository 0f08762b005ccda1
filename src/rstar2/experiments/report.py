"""Reads the records of the laptop experiment and says what they show.

Means are over seeds, with Student t intervals; a single seed has no interval. Rates of
one seed pool all rollouts of a set. The headline numbers are those of the trained
families.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rstar2.algorithm.statistics import mean_interval
from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.finished_runs import pooled_rates
from rstar2.experiments.laptop import HELD_OUT_SEED
from rstar2.experiments.planner import plan_experiment
from rstar2.experiments.plans import BOOK_SEED, SFT_ARM
from rstar2.problems import ProblemSet, Split, guessing_baseline
from rstar2.records import RunFolder
from rstar2.training.spec import Arm

HEADLINE = ProblemSet.FAMILIES

Estimate = list[float | None]
"""Mean, low and high; None where there is none."""


class NoRecordsError(UserError):
    """There is nothing to report on."""


@dataclass(frozen=True)
class Record:
    """One finished run.

    Attributes:
        path: Its folder.
        run: Its ``run.json``.
    """

    path: Path
    run: dict[str, Any]

    @property
    def arm(self) -> str:
        """``sft`` or the RL arm."""
        return str(self.run["arm"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.run["seed"])

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step."""
        return pd.read_parquet(self.path / "metrics.parquet")

    @property
    def evaluation(self) -> pd.DataFrame:
        """One row a held-out problem."""
        return pd.read_parquet(self.path / "evaluation.parquet")


def committed_records(name: str = "laptop") -> list[Record]:
    """The records in ``results/<name>/``.

    Raises:
        NoRecordsError: If there are none.
    """
    folder = project_root() / "results" / name
    found = [Record(path.parent, RunFolder.open(path.parent).read()) for path in _runs(folder)]
    if not found:
        raise NoRecordsError(f"there are no records in {folder}: `make results` makes them")
    return found


def records_of_this_machine(preset: str = "laptop", seed: int = BOOK_SEED) -> list[Record]:
    """What ``make book`` has made here with the sources as they are; empty if nothing."""
    plans = plan_experiment(preset, [seed], "book")
    return [
        Record(plan.folder, RunFolder.open(plan.folder).read()) for plan in plans if plan.is_done
    ]


def of_arm(records: Iterable[Record], arm: str) -> list[Record]:
    """The records of one arm, by seed."""
    return sorted((r for r in records if r.arm == arm), key=lambda record: record.seed)


def rates(record: Record, problem_set: ProblemSet) -> dict[str, float]:
    """Pooled rates of one run on one set.

    Keys:
        accuracy: Right rollouts over rollouts.
        tool_error_in_correct: Failed calls over calls, in right rollouts.
        tokens: Model tokens a rollout.
        tokens_in_correct: Model tokens a right rollout.
        truncated: Share ended by a limit.
    """
    table = record.evaluation
    part = table[table["problem_set"] == problem_set.value].sum(numeric_only=True)
    return pooled_rates({str(name): float(value) for name, value in part.items()})


def over_seeds(records: Sequence[Record], problem_set: ProblemSet, rate: str) -> Estimate:
    """Mean of a rate over seeds with its 95% interval."""
    values = [rates(record, problem_set)[rate] for record in records]
    return _estimate([value for value in values if not math.isnan(value)])


def laptop_report(records: Sequence[Record]) -> dict[str, Any]:
    """All that ``rstar2 report laptop --json`` says; see its form in the README of results."""
    base = of_arm(records, SFT_ARM)
    guessing = {one: _guessing(one, records) for one in ProblemSet} if records else {}
    arms: dict[str, Any] = {}
    for arm in Arm:
        runs = of_arm(records, arm)
        if not runs:
            continue
        seeds = {run.seed for run in runs}
        start = [run for run in base if run.seed in seeds]
        arms[arm.value] = {
            "seeds": len(runs),
            **_before_and_after(start, runs, HEADLINE),
            "by_set": {
                problem_set.value: {
                    **_before_and_after(start, runs, problem_set),
                    "guessing": guessing[problem_set],
                }
                for problem_set in ProblemSet
            },
        }
    return {"arms": arms}


def _before_and_after(
    start: Sequence[Record], runs: Sequence[Record], problem_set: ProblemSet
) -> dict[str, Estimate]:
    return {
        "sft_accuracy": over_seeds(start, problem_set, "accuracy"),
        "final_accuracy": over_seeds(runs, problem_set, "accuracy"),
        "sft_tool_error_in_correct": over_seeds(start, problem_set, "tool_error_in_correct"),
        "final_tool_error_in_correct": over_seeds(runs, problem_set, "tool_error_in_correct"),
        "sft_tokens": over_seeds(start, problem_set, "tokens"),
        "final_tokens": over_seeds(runs, problem_set, "tokens"),
    }


def _guessing(problem_set: ProblemSet, records: Sequence[Record]) -> float:
    """Accuracy of guessing on the problems that the records were evaluated on."""
    tables = (record.evaluation["problem_set"] for record in records)
    problems = max(int((table == problem_set.value).sum()) for table in tables)
    return guessing_baseline(problem_set, Split.HELD_OUT, HELD_OUT_SEED, problems)


def _estimate(values: Sequence[float]) -> Estimate:
    if not values:
        return [None, None, None]
    interval = mean_interval(values)
    numbers = (interval.mean, interval.low, interval.high)
    return [None if math.isnan(number) else float(number) for number in numbers]


def _runs(folder: Path) -> list[Path]:
    found = folder.glob("*/run.json")
    return sorted(path for path in found if not path.parent.name.startswith("."))
