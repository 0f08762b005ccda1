"""How the progress of a run reads: one wording for the terminal, the notebook and the status."""

import math
from collections.abc import Mapping

from rstar2.experiments.progress import ProgressState

_RATES = {
    "loss": "loss {:.2f}",
    "accuracy": "accuracy {:.2f}",
    "tool_error": "tool errors {:.2f}",
    "truncated": "truncated {:.2f}",
}


def duration(seconds: float) -> str:
    """A wall time for people: ``48 s``, ``12 min``, ``3 h 05 min``, ``7 d 00 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def place(state: ProgressState) -> str:
    """Where a run is: phase, share of the whole, time left."""
    left = "" if state.left_seconds is None else f", {duration(state.left_seconds)} left"
    return f"{state.phase} · {math.floor(100 * state.done)}%{left}"


def figures(state: ProgressState) -> str:
    """What the run says of itself: rates of the last step, speed, the sandbox; empty if nothing."""
    said = [
        text.format(state.figures[name]) for name, text in _RATES.items() if name in state.figures
    ]
    if state.tokens_per_second:
        said.append(f"{state.tokens_per_second:,.0f} tokens/s")
    return " · ".join([*said, *_sandbox(state.figures)])


def _sandbox(values: Mapping[str, float]) -> list[str]:
    if not values.get("tool_calls"):
        return []
    speed = f" of {1000 * values['tool_seconds']:.0f} ms" if "tool_seconds" in values else ""
    retries = round(values.get("tool_retries", 0))
    health = "healthy" if not retries else f"{retries} retried"
    return [f"sandbox {health}, {round(values['tool_calls']):,} calls{speed}"]
