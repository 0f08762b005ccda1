"""What a step of RL leaves on disk of its rollouts: grades, a row a rollout, samples in full."""

import io
from typing import Any

import pandas as pd

from rstar2.records import RunFolder, append_json_line, atomic_write, read_json_lines
from rstar2.records.grades import Phase, append_grades, count_grades
from rstar2.rollout.serialise import rollout_to_json
from rstar2.training.collect import Batch
from rstar2.training.scores import rollout_score

_SET = "rl"
"""What the rows call their set of problems."""

_SAMPLES = 4


def record_rollouts(folder: RunFolder, step: int, batch: Batch) -> None:
    """Appends the grades and the scores of every rollout that was sampled in a step.

    Raises:
        RecordError: A file cannot be written.
    """
    sampled = [rollout for group in batch.groups for rollout in group.rollouts]
    graded = ((rollout.problem.answer, rollout.verdict) for rollout in sampled)
    append_grades(folder.grades, step, count_grades(Phase.RL, graded))
    append_json_line(folder.sampled, {"step": step, "rollouts": _rows(batch)})


def save_samples(folder: RunFolder, step: int, batch: Batch) -> None:
    """Appends a few rollouts of a step as they were.

    Raises:
        RecordError: The file cannot be written.
    """
    firsts = [group.rollouts[0] for group in batch.groups if group.rollouts]
    for rollout in firsts[:_SAMPLES]:
        append_json_line(folder.trajectories, {"step": step, **rollout_to_json(rollout)})


def write_sampled_table(folder: RunFolder) -> None:
    """Writes ``sampled.parquet``, one row a rollout, from what the steps have appended.

    Raises:
        RecordError: A file cannot be read or written.
    """
    rows = [
        {"step": line["step"], **row}
        for line in read_json_lines(folder.sampled)
        for row in line["rollouts"]
    ]
    buffer = io.BytesIO()
    pd.DataFrame(rows).to_parquet(buffer, index=False)
    atomic_write(folder.sampled_parquet, buffer.getvalue())


def _rows(batch: Batch) -> list[dict[str, Any]]:
    """A row for every rollout: its score, its group, and whether the update uses it."""
    return [
        {
            **rollout_score(_SET, rollout).as_row(),
            "group": number,
            "kept": rollout.sample in group.selection.kept,
        }
        for number, group in enumerate(batch.groups)
        for rollout in group.rollouts
    ]
