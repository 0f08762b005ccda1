"""Problems as the rows that verl's data loader reads.

A row has ``prompt`` (one user message: the question alone), ``data_source``, ``reward_model``
(its ``ground_truth`` is the answer as a decimal string, because it may exceed 64 bits),
``extra_info`` (``index``, ``problem_id``, ``composition``) and ``agent_name``. verl gives an
agent loop all of them, the messages also as ``raw_prompt``; ``problem_of`` reads them.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rstar2.experiments.cluster.job import RecipeError
from rstar2.problems import Problem
from rstar2.records import atomic_write

AGENT = "rstar2"
"""Name of our agent loop."""


def problem_row(index: int, problem: Problem) -> dict[str, Any]:
    """The row of a problem."""
    return {
        "data_source": problem.family,
        "prompt": [{"role": "user", "content": problem.question}],
        "reward_model": {"style": "rule", "ground_truth": str(problem.answer)},
        "extra_info": {
            "index": index,
            "problem_id": problem.problem_id,
            "composition": problem.composition,
        },
        "agent_name": AGENT,
    }


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of verl's data set.

    Args:
        row: As above, with ``raw_prompt``. Its message is the question alone: the manifest's texts
            are put around it later.
    """
    told = row["extra_info"]
    return Problem(
        problem_id=told["problem_id"],
        question=row["raw_prompt"][-1]["content"],
        answer=int(row["reward_model"]["ground_truth"]),
        family=row["data_source"],
        composition=told["composition"],
    )


def drawn(problems: Sequence[Problem], number: int) -> list[Problem]:
    """So many problems of a pool, or all; the same ones whatever the seed and their order.

    A pool holds one source after the other, so its first rows are no sample of it.
    """
    return sorted(problems, key=lambda one: hashlib.sha256(one.problem_id.encode()).digest())[
        :number
    ]


def write_problem_rows(path: Path, problems: Sequence[Problem], problems_per_step: int) -> None:
    """Writes the parquet file that ``data.train_files`` names.

    Raises:
        RecipeError: If they do not fill a batch: verl would train on nothing.
        RecordError: If the file cannot be written.
    """
    if len(problems) < problems_per_step:
        raise RecipeError(
            f"{len(problems)} problems do not fill a batch of {problems_per_step}: "
            "give a larger pool, or a smaller rl.problems_per_step"
        )
    rows = [problem_row(index, problem) for index, problem in enumerate(problems)]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, compression="zstd")
    atomic_write(path, buffer.getvalue())
