"""``rstar2 report …``: what the committed records show."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rstar2.cli.report_grading import grading
from rstar2.records import atomic_write

if TYPE_CHECKING:
    from rstar2.experiments.outcomes import Outcome
    from rstar2.experiments.report import Rates, Record
    from rstar2.experiments.sweeps import Sweep

_MEASURES = MappingProxyType(
    {
        "accuracy": ("\naccuracy", 2),
        "tool_error_in_correct": ("errors\nin correct", 3),
        "tokens": ("\ntokens", 0),
        "tokens_in_correct": ("tokens\nin correct", 0),
    }
)
"""Heading and digits of each measure of the report."""

_HEADING = """\
Mean over seeds [95% interval]. Errors: failed tool calls over calls. Tokens: those that the model
wrote, a rollout. In correct: in right rollouts alone."""

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
    from rstar2.experiments.claims import load_claims, load_reasons
    from rstar2.experiments.outcomes import outcomes
    from rstar2.experiments.plans import NATURAL_SWEEP
    from rstar2.experiments.publish import record_sweeps
    from rstar2.experiments.report import committed_records, laptop_report

    every = committed_records()
    sweeps = record_sweeps()
    records = {one.name: [r for r in every if r.path.parent.name == one.name] for one in sweeps}
    natural = records.get(NATURAL_SWEEP, [])
    folder = _sweeps_folder()
    claims = load_claims(folder / "claims.yaml")
    found = outcomes(claims, records, load_reasons(folder / "verdicts.yaml", claims))
    told = {**laptop_report(natural), "claims": [one.as_json() for one in found]}
    if figure_file is not None:
        draw_laptop_run(natural, figure_file)
    if json_file is not None:
        atomic_write(json_file, json.dumps(told, indent=1, allow_nan=False).encode() + b"\n")
    console = Console(highlight=False)
    console.print(Text(_HEADING))
    for sweep in sweeps:
        guessing = _guessing(told) if sweep.name == NATURAL_SWEEP else {}
        for part in _sweep(sweep, records[sweep.name], guessing):
            console.print(part)
    for part in _claims(found):
        console.print(part)


def _sweep(
    sweep: "Sweep", records: "Sequence[Record]", guessing: Mapping[str, float]
) -> Iterator[RenderableType]:
    """What the sweep is, what it lacks, and a table for each held-out set."""
    from rstar2.experiments.report import arm_names, evaluated, held_out, sft_names

    yield Text(f"\n{sweep.name}: {sweep.spec.description}", style="bold")
    if missing := _missing(sweep):
        yield Text(missing)
    names = [*sft_names(records), *arm_names(records)]
    policies = {name: [held_out(run) for run in evaluated(records, name)] for name in names}
    for part in dict.fromkeys(part for runs in policies.values() for run in runs for part in run):
        table = Table(box=None, pad_edge=False)
        table.add_column(f"\n{part}", overflow="fold")
        for column in ("\nseeds", *(heading for heading, _ in _MEASURES.values())):
            table.add_column(column, justify="right")
        for name, runs in policies.items():
            if those := [run for run in runs if part in run]:
                table.add_row(name, str(len(those)), *_cells(those, part))
        if part in guessing:
            table.add_row("guessing", "", f"{guessing[part]:.2f}")
        yield table


def _cells(runs: "Sequence[Rates]", part: str) -> Iterator[str]:
    from rstar2.experiments.curves import show_estimate
    from rstar2.experiments.report import mean_rate

    for rate, (_, digits) in _MEASURES.items():
        yield show_estimate(mean_rate(runs, part, rate), digits)


def _guessing(told: Mapping[str, Any]) -> dict[str, float]:
    """What guessing would reach on each set; the same for every arm."""
    arms = told["arms"].values()
    return {name: row["guessing"] for arm in arms for name, row in arm["by_set"].items()}


def _claims(found: "Sequence[Outcome]") -> Iterator[RenderableType]:
    """The verdicts in a table; under it what each claim says, and why."""
    from rstar2.experiments.curves import show_estimate

    table = Table(box=None, pad_edge=False)
    for column in ("\nclaim", "\neffect", "\nseeds", "\nverdict"):
        table.add_column(Text(column, style="bold"), overflow="fold")
    for one in found:
        signed = one.claim.minus is not None
        effect = show_estimate(one.effect, one.claim.digits, signed=signed)
        table.add_row(one.claim.id, effect, str(len(one.values)), one.verdict.value)
    yield table
    for one in found:
        why = f" Why: {one.why}" if one.why else ""
        yield Text(f"\n{one.claim.id}: {one.claim.claim} Paper: {one.claim.paper}.{why}")


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
