"""An RL step of the laptop preset: today's code beside the code of the first issue, in turns.

Both run in this environment, each from its own sources and its own preset, from the same trained
weights, which are put back after every step: step ``n`` is the same problems for both.
"""

from typing import Any

from benchmarks.training.compare import column, speed_over, take_turns
from benchmarks.training.inputs import TRAINED, Inputs
from benchmarks.training.workers import Runtime, Worker, worker


def laptop_step(inputs: Inputs, first: Runtime, steps: int) -> dict[str, Any]:
    """Compare the CPU and wall seconds of some steps, rollouts and update apart.

    Args:
        inputs: Where the task is written.
        first: Where the first code is.
        steps: Steps that count.
    """
    task = inputs.task(
        "laptop", policy=str(TRAINED), places=None, share=None, learning_rate=5e-4, spec={}
    )
    with (
        worker("rl_step", task, runtime=Runtime()) as ours,
        worker("rl_step", task, runtime=first) as theirs,
    ):
        sides = {"ours": Numbered(ours), "first": Numbered(theirs)}
        answers = take_turns(sides, steps)
    mine, other = answers["ours"], answers["first"]
    figures: dict[str, Any] = {}
    for name, key in (
        ("laptop_step", "cpu_s"),
        ("laptop_rollout", "rollout_cpu_s"),
        ("laptop_update", "update_cpu_s"),
        ("laptop_rollout_wall", "rollout_wall_s"),
        ("laptop_update_wall", "update_wall_s"),
    ):
        ours_s, first_s = column(mine, key), column(other, key)
        # The steps differ in size: the sum over them is the work.
        figures |= speed_over(f"{name}_over_first", ours_s, first_s)
        figures[f"{name}_over_first"] = sum(first_s) / sum(ours_s)
        figures[f"{name}_s"] = sum(ours_s) / steps
        figures[f"first_{name}_s"] = sum(first_s) / steps
    return {
        **figures,
        "laptop_steps": steps,
        "laptop_same_conversations": [a["work"] for a in mine] == [a["work"] for a in other],
        "laptop_generated_tokens": [a["work"]["generated_tokens"] for a in mine],
        "first_laptop_generated_tokens": [a["work"]["generated_tokens"] for a in other],
    }


class Numbered:
    """A side whose rounds are steps 0, 1, 2 …; the first is the one that warms up."""

    def __init__(self, side: Worker) -> None:
        self._side, self._next = side, 0

    def __call__(self) -> dict[str, Any]:
        """The next step."""
        number, self._next = self._next, self._next + 1
        return self._side.ask("step", number=number)
