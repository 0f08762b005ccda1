"""What the machine can do at most, and where our time goes instead."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

SIDE = 1024
"""Rows and columns of the matrices of the rate."""
_REPEATS = 10

_KINDS = {
    "matmul": {"mm", "addmm"},
    "attention": {"bmm", "baddbmm", "softmax", "safe_softmax", "softmax_backward_data"},
    "sampling and log-probs": {
        "log_softmax",
        "log_softmax_backward_data",
        "searchsorted",
        "cumsum",
        "argmax",
        "gather",
    },
    "copies": {
        "copy",
        "cat",
        "constant_pad_nd",
        "fill",
        "index",
        "index_copy",
        "index_put_impl",
        "index_select",
        "scatter",
        "slice_backward",
        "zero",
    },
}
_LIBRARY = "aten::"
ELEMENTWISE = "elementwise and norms"
PYTHON = "Python and dispatch"
"""What is outside every operator: the interpreter, the profiler's own cost with it."""


def matmul_rate() -> float:
    """FLOP per CPU second of float32 matmul, 1024 x 1024 by 1024 x 1024: the median of some."""
    left, right = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    left @ right  # the first one makes room
    seconds = []
    for _ in range(_REPEATS):
        start = time.process_time()
        left @ right
        seconds.append(time.process_time() - start)
    return 2 * SIDE**3 / median(seconds)


def profiled(work: Callable[[], Any]) -> dict[str, Any]:
    """Do the work once under the profiler; it should be warm.

    Returns:
        ``shares``: of the time under the profiler, by kind, the largest first. It is wall time,
        as the profiler's is: a busy machine lengthens all kinds alike.
    """
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
        spent = time.perf_counter() - start
    events = profiler.key_averages()
    times = {event.key: event.self_cpu_time_total / 1e6 for event in events}
    return {"shares": shares(times, spent)}


def shares(times: Mapping[str, float], spent: float) -> dict[str, float]:
    """Group operators by kind; what none of them accounts for is Python's.

    Args:
        times: Seconds inside each operator itself, those it calls left out.
        spent: Seconds in all.
    """
    total: dict[str, float] = defaultdict(float)
    for name, seconds in times.items():
        if name.startswith(_LIBRARY):
            total[kind_of(name)] += seconds
    total[PYTHON] = max(0.0, spent - sum(total.values()))
    whole = sum(total.values())
    largest_first = sorted(total.items(), key=lambda item: -item[1])
    return {kind: seconds / whole for kind, seconds in largest_first}


def kind_of(operator: str) -> str:
    """The kind of an operator of torch, by its name."""
    name = operator.rpartition("::")[2].strip("_")
    if "attention" in name:
        return "attention"
    return next((kind for kind, names in _KINDS.items() if name in names), ELEMENTWISE)


def limit_text(parts: Mapping[str, float], share_of_matmul: float) -> str:
    """Say where the time goes and how fast matmul is while it runs.

    Args:
        parts: Shares of the time by kind, the largest first.
        share_of_matmul: Achieved FLOP a second over the rate of large matrices.
    """
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in parts.items() if share >= 0.01)
    inside = parts.get("matmul", 0.0)
    if not inside:
        return f"of the time: {told}"
    rate = share_of_matmul / inside
    return f"of the time: {told}; inside matmul {rate:.0%} of the rate of large matrices"
