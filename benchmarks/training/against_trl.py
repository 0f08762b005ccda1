"""The same work through TRL's trainer and through ours, in turns.

1. Generation: 64 completions of 100 tokens (4 prompts, 16 each) with random weights. Ours records
   the log-prob of each token; TRL's path through ``transformers`` records none.
2. Generation at its best: each side at the number of rows that suits it.
3. Update: the same 64 completions through forward, backward, clipping and one AdamW step. TRL takes
   all rows at once; ``update_best_over_trl`` has it at the number that suits it. TRL computes the
   entropy of each token besides, and cannot be told not to.
4. Step: 4 problems, 32 rollouts each, real calls of the tool, 16 of each kept by RoC, update. See
   ``peer_step`` for how TRL does it. Our time is all that the laptop loop does in a step.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.training.compare import (
    Side,
    column,
    same_gradient,
    same_work,
    share_of_matmul,
    speed_over,
    take_turns,
)
from benchmarks.training.environment import check_peers
from benchmarks.training.inputs import GROUP, TOKENS, Inputs
from benchmarks.training.limits import limit_text
from benchmarks.training.workers import Runtime, Worker, worker

ROWS = 64
Times = tuple[list[float], list[float], list[float]]
"""By round: our CPU seconds, TRL's, and the rate of matmul."""
TRL_DEVIATION = (GROUP / (GROUP - 1)) ** 0.5
"""TRL divides advantages by the deviation of a sample, we by that of a population."""
_SCAN = 24
"""Problems among which those of the step are chosen."""
_SCAN_SAMPLES = 8


class NoProblemsError(RuntimeError):
    """The trained policy solves too many problems always or never: no step can be made of them."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: Turns of generation.
        update_rounds: Turns of the update.
        sweep: Numbers of rows, beside 64, at which generation is tried.
        sweep_rounds: Turns of each of them.
        micro_rows: Numbers of rows that TRL's update takes at once.
        step_rounds: Turns of the RL step.
        problems: Problems of the RL step.
    """

    rounds: int
    update_rounds: int
    sweep: tuple[int, ...]
    sweep_rounds: int
    micro_rows: tuple[int, ...]
    step_rounds: int
    problems: int


def generation(inputs: Inputs, peers: Runtime, effort: Effort) -> dict[str, Any]:
    """Compare generation on one batch, and at each side's best."""
    with (
        worker("ours", inputs.folder, runtime=Runtime()) as ours,
        worker("peer", inputs.folder, "generation", runtime=peers) as trl,
    ):
        libraries = trl.ask("generation", rows=GROUP)["libraries"]
        check_peers(libraries)
        figures: dict[str, Any] = {"peer_libraries": libraries}
        times = _generation(ours, trl, ROWS, effort.rounds)
        figures |= speed_over("generation_over_trl", *times[:2])
        figures |= {
            "generation_tokens_per_cpu_s": ROWS * TOKENS / median(times[0]),
            "trl_generation_tokens_per_cpu_s": ROWS * TOKENS / median(times[1]),
        }
        figures |= _at_its_best(ours, trl, effort, times)
        figures |= _limits(ours, "generation", 2, ROWS * TOKENS, median(times[0]), times[2])
    return figures


def update(inputs: Inputs, peers: Runtime, effort: Effort) -> dict[str, Any]:
    """Compare the update, TRL with all rows at once and with fewer."""
    with ExitStack() as stack:
        ours = stack.enter_context(worker("ours", inputs.folder, runtime=Runtime()))
        ours.ask("record", rows=ROWS, tokens=TOKENS)
        sides: dict[str, Side] = {
            "ours": partial(ours.ask, "update"),
            "matmul": partial(ours.ask, "matmul"),
        }
        for rows in effort.micro_rows:
            arguments = (inputs.folder, "update", str(rows))
            trl = stack.enter_context(worker("peer", *arguments, runtime=peers))
            sides[str(rows)] = partial(trl.ask, "update")
        answers = take_turns(sides, effort.update_rounds)
        for rows in effort.micro_rows:
            for mine, other in zip(answers["ours"], answers[str(rows)], strict=True):
                same_work("update", *({k: a[k] for k in ("tokens", "rows")} for a in (mine, other)))
                same_gradient(mine["gradient"], TRL_DEVIATION * other["gradient"])
        seconds = column(answers["ours"], "cpu_s")
        by_rows = {rows: column(answers[str(rows)], "update_cpu_s") for rows in effort.micro_rows}
        best = min(by_rows, key=lambda rows: median(by_rows[rows]))
        tokens = answers["ours"][0]["tokens"]
        return {
            **speed_over("update_over_trl", seconds, by_rows[ROWS]),
            **speed_over("update_best_over_trl", seconds, by_rows[best]),
            "update_tokens_per_cpu_s": tokens / median(seconds),
            "trl_update_tokens_per_cpu_s": {
                str(rows): tokens / median(times) for rows, times in by_rows.items()
            },
            "trl_update_best_rows": best,
            **_limits(
                ours,
                "update",
                6,
                tokens,
                median(seconds),
                column(answers["matmul"], "flop_per_s"),
            ),
        }


def step(inputs: Inputs, peers: Runtime, effort: Effort, micro_rows: int) -> dict[str, Any]:
    """Compare a whole RL step on conversations that are the same on both sides.

    Args:
        inputs: Where the policy is.
        peers: The peer's environment.
        effort: How much.
        micro_rows: Rows that TRL's update takes at once.

    Raises:
        NoProblemsError: No problems for it were found.
        DifferentWorkError: The conversations or the choice among them differ.
    """
    scan = _step_task(inputs, "scan", list(range(_SCAN)), _SCAN_SAMPLES, _SCAN_SAMPLES)
    with worker("rl_step", scan, runtime=Runtime()) as ours:
        task = _choose_problems(ours, inputs, effort.problems)
        arguments = (inputs.folder, task, str(micro_rows))
        with worker("peer_step", *arguments, runtime=peers) as trl:
            sides = {"ours": partial(ours.ask, "step", number=0), "trl": partial(trl.ask, "step")}
            answers = take_turns(sides, effort.step_rounds)
    for mine, other in zip(answers["ours"], answers["trl"], strict=True):
        same_work("step", mine["work"], other["work"])
    ours_s, trl_s = column(answers["ours"], "cpu_s"), column(answers["trl"], "all_cpu_s")
    updates = column(answers["ours"], "update_cpu_s"), column(answers["trl"], "update_cpu_s")
    rest = [
        [whole - part for whole, part in zip(*arm, strict=True)]
        for arm in zip((ours_s, trl_s), updates, strict=True)
    ]
    return {
        **speed_over("step_over_trl", ours_s, trl_s),
        **speed_over("step_rollout_over_trl", *rest),
        **speed_over("step_update_over_trl", *updates),
        "step_cpu_s": median(ours_s),
        "trl_step_cpu_s": median(trl_s),
        "step_work": answers["ours"][0]["work"],
    }


def _generation(ours: Worker, trl: Worker, rows: int, rounds: int) -> Times:
    """CPU seconds of both sides on one batch, and the rate of matmul in the same rounds."""
    sides = {
        "ours": partial(ours.ask, "generation", rows=rows, tokens=TOKENS),
        "trl": partial(trl.ask, "generation", rows=rows),
        "matmul": partial(ours.ask, "matmul"),
    }
    answers = take_turns(sides, rounds)
    for answer in answers["ours"] + answers["trl"]:
        same_work("generation", {"tokens": rows * TOKENS}, {"tokens": answer["tokens"]})
    return (
        column(answers["ours"], "cpu_s"),
        column(answers["trl"], "cpu_s"),
        column(answers["matmul"], "flop_per_s"),
    )


def _at_its_best(ours: Worker, trl: Worker, effort: Effort, known: Times) -> dict[str, Any]:
    """Each side at the number of rows that suits it; that of 64 rows is known."""
    speeds: dict[str, dict[int, float]] = {"": {}, "trl_": {}}
    for rows in (ROWS, *effort.sweep):
        times = known if rows == ROWS else _generation(ours, trl, rows, effort.sweep_rounds)
        for side, seconds in zip(speeds, times[:2], strict=True):
            speeds[side][rows] = rows * TOKENS / median(seconds)
    figures: dict[str, Any] = {}
    for side, by_rows in speeds.items():
        figures[f"{side}generation_by_rows"] = {str(rows): s for rows, s in by_rows.items()}
        figures[f"{side}generation_best_rows"] = max(by_rows, key=lambda rows: by_rows[rows])
    best = {side: max(by_rows.values()) for side, by_rows in speeds.items()}
    return {**figures, "generation_best_over_trl": best[""] / best["trl_"]}


def _limits(
    ours: Worker, work: str, flop: float, tokens: int, seconds: float, rates: list[float]
) -> dict[str, Any]:
    """What our side reaches of matmul's rate, and what stands in the way."""
    rate = median(rates)
    parameters = ours.ask("size")["parameters"]
    share = share_of_matmul(flop, parameters, tokens, seconds, rate)
    parts: Mapping[str, float] = ours.ask("profile", of=work)["shares"]
    return {
        "parameters": parameters,
        f"{work}_matmul_gflop_per_s": rate / 1e9,
        f"{work}_share_of_matmul": share,
        f"{work}_limited_by": limit_text(parts, share),
        f"{work}_time_by_kind": parts,
    }


def _step_task(inputs: Inputs, name: str, places: list[int], keep: int, sample: int) -> Path:
    """The task of a step on these problems; nothing is refilled, the learning rate is 0."""
    spec = {
        "problems_per_step": len(places),
        "group_size": keep,
        "oversample": sample,
        "refill": False,
        "minibatches": 1,
    }
    common = {"policy": str(inputs.policy), "learning_rate": 0.0, "share": 1.0}
    return inputs.task(name, places=places, spec=spec, **common)


def _choose_problems(ours: Worker, inputs: Inputs, wanted: int) -> Path:
    """The task of a step in which every group has right and wrong rollouts; its script too.

    Args:
        ours: A worker whose task is the scan.
        inputs: Gets the script.
        wanted: Problems of the step.
    """
    solved = ours.ask("rollouts", number=0)["solved"]
    ranked = sorted(range(_SCAN), key=lambda n: (abs(solved[n] - _SCAN_SAMPLES / 2), n))
    places, further = ranked[:wanted], ranked[wanted:]
    while True:
        task = _step_task(inputs, "step", places, GROUP, 2 * GROUP)
        script = str(inputs.script)
        answer = ours.ask("rollouts", number=0, task=str(task), script=script)
        if answer["work"]["kept"] == wanted * GROUP:
            return task
        for place, right in enumerate(answer["solved"]):
            if right not in (0, 2 * GROUP):
                continue
            if not further:
                raise NoProblemsError(f"of {_SCAN} problems too few are sometimes right: {solved}")
            places[place] = further.pop(0)
