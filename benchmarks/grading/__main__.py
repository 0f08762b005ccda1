"""Measure the graders, hold ours against its bars, and write the record.

The last line printed is the record's headline: the figures that have bars, how many inputs the
fuzz made, how math-verify compares, and the keys of the bars that are missed. The exit code
says whether the measurement succeeded, not whether the bars are met.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import command, report
from benchmarks.grading import agreement, fuzz, latency
from rstar2.grading.expression_pool import ProcessPool

SCRIPT = Path(__file__).with_name("whole_response.py")
LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy")
WORKERS = 2
MEMORY = 2**30

BARS = (
    report.Bar("ours_agree", 1.0, "share of the cases where ours and label agree", at_least=True),
    report.Bar("ours_false_positive", 0, "cases that ours pays and the label does not"),
    report.Bar("ours_p99_ms", 1.0, "ours on ordinary responses of 30 KB, p99 in ms of its thread"),
    report.Bar("box_flood_s", 1.0, "ours on 1 MB of open boxes, in s by the clock"),
    report.Bar("fuzz_raised", 0, "random inputs on which ours raises"),
)
BESIDE = ("ours_hostile_p99_ms", "mathverify_agree", "mathverify_p99_ms", "fuzz_inputs")
"""What the headline tells beside the bars."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        responses: Responses of 30 KB that ours grades.
        beside: Those of them that math-verify grades too.
        fuzz: Random inputs.
        seconds: Deadline of math-verify for one response.
    """

    responses: int
    beside: int
    fuzz: int
    seconds: float


FULL = Size(responses=6_400, beside=256, fuzz=1_000_000, seconds=15.0)
QUICK = Size(responses=640, beside=20, fuzz=20_000, seconds=1.0)


async def measure(size: Size, console: Console) -> dict[str, Any]:
    """Measure everything, step by step; nothing else runs meanwhile."""
    cases = agreement.load_cases()
    console.print(f"{len(cases)} labelled cases")
    ours = agreement.ours(cases)
    console.print(f"{size.responses} responses of 30 KB")
    times = latency.ours(size.responses)
    console.print("a megabyte of open boxes")
    flood = latency.box_flood()
    console.print(f"{size.fuzz} random inputs")
    found = fuzz.fuzz(size.fuzz, [case.response for case in cases])
    console.print("math-verify on the cases, and on some of the responses")
    async with ProcessPool(SCRIPT, workers=WORKERS, deadline=size.seconds, memory=MEMORY) as pool:
        theirs = await agreement.mathverify(cases, pool)
        their_times = await latency.mathverify(size.beside, pool)
    return {
        "cases": ours.cases,
        "ours_agree": ours.agree,
        "ours_false_positive": sum(ours.false_positive.values()),
        "ours_false_negative": sum(ours.false_negative.values()),
        "mathverify_agree": theirs.agree,
        "mathverify_false_positive": sum(theirs.false_positive.values()),
        "mathverify_false_negative": sum(theirs.false_negative.values()),
        "by_category": {"ours": ours.as_dict(), "mathverify": theirs.as_dict()},
        "responses": size.responses,
        **times,
        **their_times,
        **flood,
        "fuzz_inputs": found.inputs,
        "fuzz_raised": found.raised,
        "fuzz_examples": list(found.examples),
        "fuzz_per_s": found.inputs / found.seconds,
    }


def beside(figures: dict[str, Any]) -> str:
    """Say how math-verify was measured, and what came out."""
    return (
        f"math-verify: {figures['mathverify_agree']:.1%} of the {figures['cases']} cases; "
        f"p99 {figures['mathverify_p99_ms']:.0f} ms by the clock, {WORKERS} processes at once, on "
        f"the ordinary ones of the first {figures['mathverify_responses']} of "
        f"{figures['responses']} responses ({figures['mathverify_undecided']} of those undecided)"
    )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def benchmark(
    quick: Annotated[bool, typer.Option("--quick", help="Less of all: under 30 s.")] = False,
    json_file: command.JsonFile = None,
) -> None:
    """Measure the integer grader beside math-verify."""
    command.prepare(json_file)
    figures = asyncio.run(measure(QUICK if quick else FULL, Console(stderr=True)))
    command.tell(figures, BARS, LIBRARIES, json_file, beside(figures), beside=BESIDE, quick=quick)


if __name__ == "__main__":
    command.run(app, "benchmarks.grading")
