"""Where a figure's numbers come from, in one line a reader can check."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from rstar2.experiments.progress_view import duration


class Source(StrEnum):
    """What kind of numbers a figure shows; the words stand under it."""

    FORMULA = "computed from the formula"
    """Exact: any reader gets the same numbers."""
    SIMULATED = "simulated"
    """Drawn by a program with a seed; no model was trained."""
    EXAMPLE = "worked example"
    """Numbers chosen by hand to explain."""
    PAPER = "paper's number"
    """Printed in the paper, cited."""
    LAPTOP = "laptop run"
    """Trained on a laptop, recorded in ``results/``."""
    THIS_MACHINE = "this machine"
    """Trained where the book was built, by ``make book``."""
    CLUSTER = "cluster run"
    """Trained on a cluster, recorded in ``results/``."""


RUN_SOURCES = frozenset({Source.LAPTOP, Source.THIS_MACHINE, Source.CLUSTER})
"""The sources that are runs: a figure of one of them names it."""

_KEYS = frozenset(
    {
        "id",
        "arm",
        "preset",
        "seed",
        "commit",
        "dirty",
        "hardware",
        "wall_seconds",
        "started",
        "label",
    }
)


def provenance_line(run: Mapping[str, Any]) -> str:
    """Describe a run: kind, id, arm, preset, seed, commit, hardware, wall time, date.

    Args:
        run: A run's ``run.json`` with the keys ``id``, ``arm``, ``preset``, ``seed``,
            ``commit`` (hash, or empty if unknown), ``dirty``, ``hardware`` (``cpu``,
            ``cores``, ``memory_gib``), ``wall_seconds``, ``started`` (ISO 8601), and
            ``label``, one of the run sources: *laptop run*, *this machine*, *cluster run*.

    Returns:
        One line; a ``+`` after the commit says that the tree had uncommitted changes.

    Raises:
        ValueError: A key is missing, or the label is not a kind of run.
    """
    missing = sorted(_KEYS - run.keys())
    if missing:
        raise ValueError(f"run {run.get('id', '?')}: run.json lacks {', '.join(missing)}")
    if run["label"] not in RUN_SOURCES:
        known = ", ".join(sorted(RUN_SOURCES))
        raise ValueError(f"run {run['id']}: label {run['label']!r} is not one of: {known}")
    hardware = run["hardware"]
    commit = run["commit"][:8] + ("+" if run["dirty"] else "") if run["commit"] else "unknown"
    parts = (
        run["label"],
        f"run {run['id']}",
        f"arm {_arm(run)}",
        f"preset {run['preset']}",
        f"seed {run['seed']}",
        f"commit {commit}",
        f"{hardware['cores']} cores ({hardware['cpu']}), {hardware['memory_gib']:.0f} GiB",
        duration(run["wall_seconds"]),
        run["started"][:10],
    )
    return " · ".join(parts)


def provenance_summary(runs: Sequence[Mapping[str, Any]]) -> str:
    """Describe several runs in one line: kinds, arms, seeds, commits, hardware, wall times.

    Args:
        runs: Each a ``run.json`` that :func:`provenance_line` accepts.
    """

    def distinct(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    seconds = [run["wall_seconds"] for run in runs]
    seeds = sorted({run["seed"] for run in runs})
    shortest, longest = duration(min(seconds)), duration(max(seconds))
    parts = (
        distinct(run["label"] for run in runs),
        f"{len(runs)} runs",
        distinct(map(_arm, runs)),
        f"{'seed' if len(seeds) == 1 else 'seeds'} {distinct(seeds)}",
        f"commit {distinct((run['commit'] or 'unknown')[:8] for run in runs)}",
        distinct(f"{run['hardware']['cores']} cores" for run in runs),
        shortest if shortest == longest else f"{shortest} to {longest} a run",
    )
    return " · ".join(parts)


def _arm(run: Mapping[str, Any]) -> str:
    """The arm's name in its sweep, which tells ``collapse`` from ``grpo``; else the arm itself."""
    return str(run.get("sweep_arm", run["arm"]))
