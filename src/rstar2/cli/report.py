"""``rstar2 report …``: what the committed records show."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rstar2.cli.report_grading import grading
from rstar2.records import atomic_write

if TYPE_CHECKING:
    from rstar2.experiments.claims import Outcome
    from rstar2.experiments.report import Record
    from rstar2.experiments.sweeps import Sweep

_MEASURES = MappingProxyType(
    {
        "accuracy": ("accuracy", 2),
        "tool_error_in_correct": ("errors in correct", 3),
        "tokens": ("tokens", 0),
        "tokens_in_correct": ("of right answers", 0),
    }
)
"""Name and digits of each measure of the report."""

_NAMED = 4
"""Most records that a line names."""

app = typer.Typer(help="What the committed records show.", no_args_is_help=True)


app.command()(grading)


@app.callback()
def _report() -> None:
    """What the committed records show."""


@app.command()
def laptop(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file.")
    ] = None,
    figure_file: Annotated[
        Path | None, typer.Option("--figure", help="Draw the README's picture to this PNG.")
    ] = None,
) -> None:
    """The laptop experiments: every arm on every held-out set, and what became of the claims."""
    from rstar2.cli.picture import draw_laptop_run
    from rstar2.experiments.claims import load_claims, load_reasons, outcomes
    from rstar2.experiments.plans import NATURAL_SWEEP
    from rstar2.experiments.publish import record_sweeps
    from rstar2.experiments.report import committed_records, laptop_report, records_in

    committed_records()
    sweeps = record_sweeps()
    records = {sweep.name: records_in(sweep.name) for sweep in sweeps}
    natural = records.get(NATURAL_SWEEP, [])
    folder = _sweeps_folder()
    claims = load_claims(folder / "claims.yaml")
    found = outcomes(claims, records, load_reasons(folder / "verdicts.yaml", claims))
    if figure_file is not None:
        draw_laptop_run(natural, figure_file)
    if json_file is not None:
        told = {**laptop_report(natural), "claims": [one.as_json() for one in found]}
        atomic_write(json_file, json.dumps(told, indent=1, allow_nan=False).encode() + b"\n")
    console = Console(highlight=False)
    for part in _parts(sweeps, records, found):
        console.print(part)


def _parts(
    sweeps: "Sequence[Sweep]",
    records: "Mapping[str, Sequence[Record]]",
    found: "Sequence[Outcome]",
) -> Iterator[RenderableType]:
    yield Text(
        "Mean over seeds [95% interval]. Errors in correct: failed tool calls over calls, in right "
        "rollouts.\nTokens: those that the model wrote, a rollout and a right rollout."
    )
    for sweep in sweeps:
        yield Text(f"\n{sweep.name}: {sweep.spec.description}", style="bold")
        if missing := _missing(sweep):
            yield Text(missing)
        yield from _sets(records[sweep.name])
    yield Text("\nClaims", style="bold")
    yield _claims(found)


def _sets(records: "Sequence[Record]") -> Iterator[Table]:
    """A table for each held-out set, a row for each policy: before RL, then every arm."""
    from rstar2.experiments.report import arm_names, evaluated, held_out, sft_names

    names = [*sft_names(records), *arm_names(records)]
    policies = {name: [held_out(run) for run in evaluated(records, name)] for name in names}
    sets = dict.fromkeys(part for runs in policies.values() for run in runs for part in run)
    for part in sets:
        table = Table(box=None, pad_edge=False)
        table.add_column(f"\n{part}", overflow="fold")
        for column in ("seeds", *(name for name, _ in _MEASURES.values())):
            table.add_column(f"\n{column}", justify="right")
        for name, runs in policies.items():
            if those := [run for run in runs if part in run]:
                table.add_row(name, str(len(those)), *_cells(those, part))
        yield table


def _cells(runs: Sequence[Mapping[str, Mapping[str, float]]], part: str) -> Iterator[str]:
    from rstar2.experiments.curves import show_estimate
    from rstar2.experiments.report import mean_rate

    for rate, (_, digits) in _MEASURES.items():
        yield show_estimate(mean_rate(runs, part, rate), digits)


def _claims(found: "Sequence[Outcome]") -> Table:
    from rstar2.experiments.curves import show_estimate

    table = Table(box=None, pad_edge=False, show_lines=False)
    for column, ratio in (("claim", 5), ("paper", 3), ("effect", 3), ("verdict", 2), ("why", 4)):
        table.add_column(column, ratio=ratio, overflow="fold")
    for one in found:
        claim, digits = one.claim, 1 if one.claim.metric.startswith("tokens") else 3
        effect = show_estimate(one.effect, digits, signed=claim.minus is not None)
        seeds = f"\n{len(one.values)} seeds" if len(one.values) > 1 else ""
        told = Text.assemble((claim.id, "bold"), f"\n{claim.claim}\n")
        table.add_row(told, *map(Text, (claim.paper, effect + seeds, one.verdict.value, one.why)))
    return table


def _missing(sweep: "Sweep") -> str:
    """Which records the sweep does not have, in a line; empty if it has all."""
    from rstar2.experiments.publish import Standing, record_plans, results_folder

    plans, folder = record_plans(sweep), results_folder(sweep)
    left = [one.name for one in plans if one.standing(folder) is not Standing.PUBLISHED]
    if not left:
        return ""
    more = ", …" if len(left) > _NAMED else ""
    return f"{len(left)} of {len(plans)} records are missing: {', '.join(left[:_NAMED])}{more}"


def _sweeps_folder() -> Path:
    from rstar2.experiments.checkout import project_root

    return project_root() / "sweeps"
