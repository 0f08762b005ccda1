"""Two threads beside one, in wall seconds: on the machine as it is, and with one process more.

An operator's threads wait for each other at its end. When another process takes one of their
processors, all wait for the one that was interrupted; one thread has nobody to wait for.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from benchmarks.training.compare import column, speed_over, take_turns
from benchmarks.training.inputs import Inputs
from benchmarks.training.workers import Runtime, worker

ROWS, TOKENS = 32, 40


def two_over_one(inputs: Inputs, rounds: int) -> dict[str, Any]:
    """Compare generation and update with two threads and with one.

    Returns:
        ``threads_2_over_1``: how many times faster two threads are, by work and state of the
        machine; its spread by the same keys.
    """
    ratios: dict[str, Any] = {}
    spreads: dict[str, Any] = {}
    with (
        worker("ours", inputs.folder, runtime=Runtime(threads=1)) as one,
        worker("ours", inputs.folder, runtime=Runtime(threads=2)) as two,
    ):
        for side in (one, two):
            side.ask("record", rows=ROWS, tokens=TOKENS)
        for state, company in (("quiet", nullcontext()), ("beside_one", _busy_process())):
            with company:
                for work, details in (
                    ("generation", {"rows": ROWS, "tokens": TOKENS}),
                    ("update", {}),
                ):
                    ask_one = partial(one.ask, work, **details)
                    ask_two = partial(two.ask, work, **details)
                    answers = take_turns({"1": ask_one, "2": ask_two}, rounds)
                    times = {name: column(arm, "wall_s") for name, arm in answers.items()}
                    figures = speed_over("ratio", times["2"], times["1"])
                    ratios[f"{work}_{state}"] = figures["ratio"]
                    spreads[f"{work}_{state}"] = figures["ratio_spread"]
    return {"threads_2_over_1": ratios, "threads_2_over_1_spread": spreads}


@contextmanager
def _busy_process() -> Iterator[None]:
    """One process that computes and never waits."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
