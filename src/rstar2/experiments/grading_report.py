"""How healthy the reward of a run was: what the grader said, and whether another agrees.

Every distinct box of the run is graded again by math-verify, which reads any expression and
not just integers. Where it disagrees with the reward, a person should look: either the model
has found a way of writing answers that the reward reads wrongly, or math-verify has.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from rstar2.grading import Reason
from rstar2.grading.expression import MAX_BOX, ExpressionGrader, ExpressionVerdict, Outcome
from rstar2.records import RecordError, RunFolder
from rstar2.records.grades import Grade, Phase, load_grades

ALARM_SHARE = 0.002
"""Share of the compared rollouts above which a disagreement is more than odd spellings."""

COMPARED = (Reason.CORRECT, Reason.MISMATCH, Reason.NOT_INTEGER)
"""Verdicts that one box decided; the others are about the frame around it."""

MALFORMED = (
    Reason.UNCLOSED,
    Reason.NO_BOX,
    Reason.EMPTY_BOX,
    Reason.HEDGE,
    Reason.NOT_INTEGER,
    Reason.TOO_LONG,
)
"""Answers that were begun and cannot be paid, whatever the gold is."""

_PARTS = 10


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """What the grader said in one phase of a run.

    Attributes:
        phase: What the rollouts were made for.
        rollouts: Their number.
        reasons: Rollouts by reason, the most frequent first.
    """

    phase: Phase
    rollouts: int
    reasons: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class TrainingPart:
    """Malformed answers in some steps of the training.

    Attributes:
        first: First step, from 1.
        last: Last step.
        rollouts: Rollouts sampled.
        malformed: Share of them with a malformed answer.
    """

    first: int
    last: int
    rollouts: int
    malformed: float


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A box that only one of the two graders pays.

    Attributes:
        gold: The right answer, in decimal.
        box: The content of the box.
        reason: What the reward said.
        value: The integer that the reward read, in decimal; empty if none.
        expression: What math-verify said.
        rollouts: Rollouts that wrote it.
    """

    gold: str
    box: str
    reason: Reason
    value: str
    expression: Outcome
    rollouts: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both graders on the same boxes.

    Attributes:
        boxes: Distinct pairs of gold and box.
        rollouts: Rollouts that wrote them.
        outcomes: Boxes by what math-verify said; timeouts are among them.
        undecided: Rollouts of boxes on which it gave no verdict: timeout, crash.
        disagreements: Boxes on which they disagree, those of most rollouts first.
        slowest: Seconds of the slowest box.
    """

    boxes: int
    rollouts: int
    outcomes: Mapping[Outcome, int]
    undecided: int
    disagreements: tuple[Disagreement, ...]
    slowest: float

    @property
    def share(self) -> float:
        """Share of the decided rollouts on which they disagree; 0 if none was decided."""
        decided = self.rollouts - self.undecided
        return sum(one.rollouts for one in self.disagreements) / decided if decided else 0.0

    @property
    def alarms(self) -> bool:
        """Whether a person must look before the reward is trusted."""
        return self.share > ALARM_SHARE


@dataclass(frozen=True, slots=True)
class GradingReport:
    """The reward of one run.

    Attributes:
        run: Name of the run.
        run_id: Its id.
        phases: What the grader said, phase by phase.
        training: Malformed answers over the training; empty for a run without RL.
        comparison: Whether math-verify agrees.
    """

    run: str
    run_id: str
    phases: tuple[PhaseReport, ...]
    training: tuple[TrainingPart, ...]
    comparison: Comparison


def grading_report(
    folder: Path, *, on_boxes: Callable[[int, int], None] = lambda _done, _total: None
) -> GradingReport:
    """Examines the reward of a finished run or a published record.

    Args:
        folder: The run folder, or the folder of its record.
        on_boxes: Called with the boxes compared and their total number.

    Raises:
        RecordError: If the folder holds no run, or one without a record of its grades.
    """
    run = RunFolder.open(folder)
    grades = load_grades(run.grades_parquet)
    told = run.read()
    return GradingReport(
        run=str(told["name"]),
        run_id=str(told["id"]),
        phases=phase_reports(grades),
        training=training_parts(_metrics(run.metrics_parquet)),
        comparison=asyncio.run(compare_graders(grades, on_boxes=on_boxes)),
    )


def _metrics(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}; remake the record") from error


def phase_reports(grades: Counter[Grade]) -> tuple[PhaseReport, ...]:
    """Counts the reasons of each phase that has rollouts."""
    reports = []
    for phase in Phase:
        reasons: Counter[Reason] = Counter()
        for grade, count in sorted(grades.items()):
            if grade.phase is phase:
                reasons[grade.reason] += count
        if reasons:
            reports.append(PhaseReport(phase, reasons.total(), dict(reasons.most_common())))
    return tuple(reports)


def training_parts(metrics: pd.DataFrame) -> tuple[TrainingPart, ...]:
    """Shares of malformed answers over the training, in at most ten parts of equal length.

    Args:
        metrics: One row a step; of a run without RL, which has no reasons, nothing is made.
    """
    names = [f"reason/{reason.value}" for reason in MALFORMED]
    if metrics.empty or not set(names) <= set(metrics.columns):
        return ()
    share = metrics[names].sum(axis=1)
    parts = []
    count = min(_PARTS, len(metrics))
    edges = [len(metrics) * number // count for number in range(count + 1)]
    for start, end in pairwise(edges):
        part, rollouts = metrics.iloc[start:end], metrics["rollouts"].iloc[start:end]
        parts.append(
            TrainingPart(
                first=int(part["step"].iloc[0]),
                last=int(part["step"].iloc[-1]),
                rollouts=int(rollouts.sum()),
                malformed=float((share.iloc[start:end] * rollouts).sum() / rollouts.sum()),
            )
        )
    return tuple(parts)


async def compare_graders(
    grades: Counter[Grade], *, on_boxes: Callable[[int, int], None]
) -> Comparison:
    """Grades every distinct box again by math-verify.

    Args:
        grades: What the reward said.
        on_boxes: Called with the boxes compared and their total number.
    """
    rollouts: Counter[tuple[str, str]] = Counter()
    said: dict[tuple[str, str], Grade] = {}
    for grade, count in grades.items():
        if grade.reason in COMPARED and grade.box and len(grade.gold) <= MAX_BOX:
            rollouts[grade.gold, grade.box] += count
            said[grade.gold, grade.box] = grade
    pairs = sorted(said)
    verdicts = await _grade_all(pairs, on_boxes)
    disagreements = [
        Disagreement(
            gold=pair[0],
            box=pair[1],
            reason=said[pair].reason,
            value=said[pair].value,
            expression=verdict.outcome,
            rollouts=rollouts[pair],
        )
        for pair, verdict in zip(pairs, verdicts, strict=True)
        if verdict.decided and verdict.correct != (said[pair].reason is Reason.CORRECT)
    ]
    return Comparison(
        boxes=len(pairs),
        rollouts=rollouts.total(),
        outcomes=dict(Counter(verdict.outcome for verdict in verdicts).most_common()),
        undecided=sum(
            rollouts[pair]
            for pair, verdict in zip(pairs, verdicts, strict=True)
            if not verdict.decided
        ),
        disagreements=tuple(sorted(disagreements, key=lambda one: (-one.rollouts, one.box))),
        slowest=max((verdict.seconds for verdict in verdicts), default=0.0),
    )


async def _grade_all(
    pairs: Sequence[tuple[str, str]], on_boxes: Callable[[int, int], None]
) -> list[ExpressionVerdict]:
    verdicts: list[ExpressionVerdict] = []
    if pairs:
        async with ExpressionGrader() as grader:
            async for verdict in grader.grade_each((box, gold) for gold, box in pairs):
                verdicts.append(verdict)
                on_boxes(len(verdicts), len(pairs))
    return verdicts


def alarm(report: GradingReport) -> str | None:
    """What must be said loudly of a run; None if its reward can be trusted so far."""
    comparison = report.comparison
    if not comparison.alarms:
        return None
    return (
        f"ALARM: the reward of {report.run} and math-verify disagree on "
        f"{comparison.share:.2%} of the rollouts, more than {ALARM_SHARE:.1%}: "
        f"read the {len(comparison.disagreements)} boxes before you trust the reward"
    )


def as_json(report: GradingReport) -> dict[str, Any]:
    """The report as JSON values, with the shares that people ask for first."""
    comparison = report.comparison
    return {
        "run": report.run,
        "run_id": report.run_id,
        "disagreement": comparison.share,
        "alarm": comparison.alarms,
        "phases": {
            one.phase.value: {
                "rollouts": one.rollouts,
                "reasons": {r.value: n / one.rollouts for r, n in one.reasons.items()},
            }
            for one in report.phases
        },
        "training": [asdict(part) for part in report.training],
        "comparison": asdict(comparison),
    }
