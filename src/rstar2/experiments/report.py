"""Reads the records of finished runs and says what they show.

A record lies in ``results/<sweep>/<name>/``. Rates of one seed pool all rollouts of a held-out
set; means are over seeds, with Student t intervals; a single seed has no interval. A policy is
evaluated by the run that made it or by a run of its own, and counts once either way.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.errors import UserError
from rstar2.experiments.checkout import project_root
from rstar2.experiments.finished_runs import pooled_rates
from rstar2.experiments.laptop import HELD_OUT_SEED
from rstar2.experiments.planner import plan_experiment
from rstar2.experiments.plans import BOOK_SEED, RECORD_SWEEPS, RESULTS_SIZE, SFT_ARM, Kind
from rstar2.problems import ProblemSet, Split, guessing_baseline
from rstar2.records import RunFolder
from rstar2.training.spec import Arm

HEADLINE = ProblemSet.FAMILIES

MEASURES = ("accuracy", "tool_error_in_correct", "tokens", "tokens_in_correct")
"""The rates that a report tells of."""

Estimate = list[float | None]
"""Mean, low and high; None where there is none."""

Rates = Mapping[str, Mapping[str, float]]
"""The rates of each held-out set, by its name."""


class NoRecordsError(UserError):
    """There is nothing to report on."""


class BrokenRecordError(UserError):
    """A file of a record cannot be read."""


@dataclass(frozen=True, slots=True)
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
        """Its arm's name in the sweep, or ``sft``; the arm itself if no sweep named it."""
        return str(self.run.get("sweep_arm", self.run["arm"]))

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.run["seed"])

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step."""
        return self._table("metrics")

    @property
    def evaluation(self) -> pd.DataFrame:
        """One row a held-out problem."""
        return self._table("evaluation")

    @property
    def rollouts(self) -> pd.DataFrame:
        """One row a rollout of the evaluation."""
        return self._table("rollouts")

    @property
    def sampled(self) -> pd.DataFrame:
        """One row a rollout that RL sampled."""
        return self._table("sampled")

    def _table(self, name: str) -> pd.DataFrame:
        path = self.path / f"{name}.parquet"
        try:
            return pd.read_parquet(path)
        except (OSError, pa.ArrowException) as error:
            raise BrokenRecordError(
                f"{path} cannot be read: {error}; `git restore` brings a committed one back"
            ) from error


def records_in(sweep: str) -> list[Record]:
    """The records in ``results/<sweep>/``; empty if there are none."""
    folder = project_root() / "results" / sweep
    return [Record(path.parent, RunFolder.open(path.parent).read()) for path in _runs(folder)]


def committed_records(sweep: str | None = None) -> list[Record]:
    """The records of a sweep; of every record sweep if none is named.

    Raises:
        NoRecordsError: If there are none.
    """
    results = project_root() / "results"
    names = [sweep] if sweep else sorted(path.name for path in results.glob(RECORD_SWEEPS))
    found = [record for name in names for record in records_in(name)]
    if not found:
        where = results / (sweep or RECORD_SWEEPS)
        raise NoRecordsError(f"there are no records in {where}: `make results` makes them")
    return found


def records_of_this_machine(preset: str = "laptop", seed: int = BOOK_SEED) -> list[Record]:
    """What ``make book`` has made here with the sources as they are; empty if nothing."""
    plans = plan_experiment(preset, [seed], "book")
    return [
        Record(plan.folder, RunFolder.open(plan.folder).read()) for plan in plans if plan.is_done
    ]


def of_arm(records: Iterable[Record], arm: str) -> list[Record]:
    """The runs that trained an arm, by seed."""
    kept = (r for r in records if r.arm == arm and r.run.get("kind") != Kind.EVALUATION)
    return sorted(kept, key=lambda record: record.seed)


def evaluated(records: Iterable[Record], arm: str, size: str = RESULTS_SIZE) -> list[Record]:
    """The runs that evaluated an arm's policies in an evaluation of this size, by seed."""
    kept = (r for r in records if r.arm == arm and r.run.get("evaluation") == size)
    return sorted(kept, key=lambda record: record.seed)


def logs(records: Iterable[Record], arm: str) -> dict[int, pd.DataFrame]:
    """The metrics log of each seed of an arm; stages that are runs of their own are joined."""
    parts: dict[int, list[pd.DataFrame]] = {}
    for record in of_arm(records, arm):
        parts.setdefault(record.seed, []).append(record.metrics)
    return {seed: pd.concat(tables).sort_values("step") for seed, tables in parts.items()}


def arm_names(records: Iterable[Record]) -> list[str]:
    """The RL arms of records: those of ``Arm`` in its order, then the others by name."""
    order = list(Arm)
    names = {record.arm for record in records if record.run["arm"] != SFT_ARM}
    return sorted(names, key=lambda name: (order.index(Arm(name)) if name in order else 99, name))


def sft_names(records: Iterable[Record]) -> list[str]:
    """The SFT policies of records, the shared one first."""
    names = {record.arm for record in records if record.run["arm"] == SFT_ARM}
    return sorted(names, key=lambda name: (name != SFT_ARM, name))


def held_out(record: Record) -> dict[str, dict[str, float]]:
    """The pooled rates of each set that a run was evaluated on, in its order.

    Keys of a set:
        accuracy: Right rollouts over rollouts.
        tool_error_in_correct: Failed calls over calls, in right rollouts.
        tokens: Model tokens a rollout.
        tokens_in_correct: Model tokens a right rollout.
        truncated: Share ended by a limit.
    """
    totals = record.evaluation.groupby("problem_set", sort=False).sum(numeric_only=True)
    return {str(name): pooled_rates(dict(row)) for name, row in totals.iterrows()}


def rates(record: Record, problem_set: str) -> dict[str, float]:
    """The rates of one run on one set, as ``held_out`` names them."""
    return held_out(record)[problem_set]


def over_seeds(records: Sequence[Record], problem_set: str, rate: str) -> Estimate:
    """Mean of a rate over seeds with its 95% interval."""
    return mean_rate([held_out(record) for record in records], problem_set, rate)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of one value a seed with its 95% interval."""
    return as_estimate(mean_interval(values)) if values else [None, None, None]


def as_estimate(interval: Interval) -> Estimate:
    """An interval as JSON has it."""
    numbers = (interval.mean, interval.low, interval.high)
    return [None if math.isnan(number) else float(number) for number in numbers]


def mean_rate(runs: Iterable[Rates], problem_set: str, rate: str) -> Estimate:
    """Mean of a rate over the runs that have it, with its 95% interval."""
    values = [run[problem_set][rate] for run in runs if problem_set in run]
    return estimate([value for value in values if not math.isnan(value)])


def arms_report(records: Sequence[Record], size: str = RESULTS_SIZE) -> dict[str, Any]:
    """What the RL arms were before and after RL, on each set and, first, on the headline set."""
    arms: dict[str, Any] = {}
    for arm in arm_names(records):
        runs = evaluated(records, arm, size)
        if not runs:
            continue
        before = [held_out(run) for run in _starts(records, runs, size)]
        after = [held_out(run) for run in runs]
        sets = {name: _before_and_after(before, after, name) for name in after[0]}
        headline = HEADLINE if HEADLINE in sets else next(iter(sets))
        arms[arm] = {"seeds": len(runs), **sets[headline], "by_set": sets}
    return arms


def laptop_report(records: Sequence[Record], size: str = RESULTS_SIZE) -> dict[str, Any]:
    """The arms on the families of the laptop, with what guessing would reach on each set."""
    arms = arms_report(records, size)
    runs = [run for arm in arms for run in evaluated(records, arm, size)]
    guessing = {one.value: _guessing(one, runs) for one in ProblemSet} if runs else {}
    for numbers in arms.values():
        for name, told in numbers["by_set"].items():
            told["guessing"] = guessing[name]
    return {"arms": arms}


def _starts(records: Sequence[Record], runs: Sequence[Record], size: str) -> list[Record]:
    """The evaluations of the SFT policies that runs started from, each once."""
    wanted = {run.run.get("sft_run") for run in runs} - {None}
    found = {
        record.run["sft_run"]: record
        for record in records
        if record.run["arm"] == SFT_ARM
        and record.run.get("evaluation") == size
        and record.run.get("sft_run") in wanted
    }
    return list(found.values())


def _before_and_after(
    before: Sequence[Rates], after: Sequence[Rates], problem_set: str
) -> dict[str, Estimate]:
    return {
        f"{when}_{rate}": mean_rate(runs, problem_set, rate)
        for rate in MEASURES
        for when, runs in (("sft", before), ("final", after))
    }


def _guessing(problem_set: ProblemSet, records: Sequence[Record]) -> float:
    """Accuracy of guessing on the problems that the records were evaluated on."""
    tables = (record.evaluation["problem_set"] for record in records)
    problems = max(int((table == problem_set.value).sum()) for table in tables)
    return guessing_baseline(problem_set, Split.HELD_OUT, HELD_OUT_SEED, problems)


def _runs(folder: Path) -> list[Path]:
    found = folder.glob("*/run.json")
    return sorted(path for path in found if not path.parent.name.startswith("."))
