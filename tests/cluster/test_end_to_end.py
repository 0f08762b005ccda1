"""verl's released trainer on two ranks of this machine, with all of our parts, killed and resumed.

Real are the policy, the sandbox, the grader, the agent loop, the selection, the router and the
recipe; the platform is ``rstar2.verl_plugin.cpu_platform``. A run takes minutes: each process
imports verl.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from cpu_job import KEPT, PROBLEMS, RANKS, SAMPLES, SEED, Run
from installed import cpu_environment
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import create_rl_sampler

from rstar2.grading import Reason
from rstar2.training.metrics import step_metrics

pytestmark = pytest.mark.thorough

STEPS = 3
LONGEST_WAIT = 1800.0
STARTS = 4
NO_RAY = "The current node timed out during startup"
"""Ray gives itself 30 s, which a busy machine may need for more."""
GAPS = {"mean": 1e-6, "max": 1e-5}
"""Most by which the probability of a token may differ between trainer and server, 32 bits both.

The mean is held to the 1e-6 that both are to keep. The maximum has been seen above that, at
2.1e-6, for the policy is sure of most tokens and its largest logits are about 30, of which the
last bit is 2e-6; its limit here tells old weights from rounding and no more.
"""


@contextmanager
def started(run: Run) -> Iterator["subprocess.Popen[bytes]"]:
    """The job in a session of its own; whatever is left of it is killed."""
    folder = Path(run.folder)
    site = folder.with_suffix(f".site-{time.monotonic_ns()}")
    log = folder.with_suffix(".log").open("ab")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("cpu_job.py")), json.dumps(asdict(run))],
        env=cpu_environment(site),
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(process)
        log.close()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to the driver and all that it started: Ray, the ranks, the servers, the sandbox."""
    if process.poll() is None:
        every = psutil.Process(process.pid).children(recursive=True)
        for one in [psutil.Process(process.pid), *every]:
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        psutil.wait_procs(every, timeout=60)
    process.wait()


def finish(run: Run) -> None:
    """Starts the job until it is over; a job that Ray did not get up goes on, as any does."""
    for _ in range(STARTS):
        with started(run) as process:
            code = process.wait(timeout=LONGEST_WAIT)
        said = Path(run.folder).with_suffix(".log").read_text(errors="replace")
        if NO_RAY not in said[-2000:]:
            break
    assert code == 0, said[-6000:]


def kill_after_a_checkpoint(run: Run) -> int:
    """Kills the whole job as soon as it has a checkpoint; its step."""
    latest = Path(run.folder, "checkpoints", "latest_checkpointed_iteration.txt")
    for _ in range(STARTS):
        with started(run) as process:
            while process.poll() is None:
                if latest.exists() and latest.read_text():
                    kill(process)
                    return int(latest.read_text())
                time.sleep(0.05)
    raise AssertionError("it ended before it had a checkpoint")


def metrics(run: Run) -> dict[int, dict[str, Any]]:
    """By step, of all sessions; a step that was done twice as it was the last time."""
    found = {}
    for file in sorted(Path(run.folder, "metrics").glob("session-*.jsonl")):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            found[told["step"]] = told["data"]
    return found


def rows(run: Run, step: int) -> list[dict[str, Any]]:
    """The rows of the update, as verl dumps them."""
    file = Path(run.folder, "rows", f"{step}.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def asked(run: Run) -> list[list[str]]:
    """The questions of each step, by verl's own sampler in a process that was never killed."""
    table = pq.read_table(run.job.problems_file).to_pylist()
    questions = [row["prompt"][0]["content"] for row in table]
    order = list(create_rl_sampler(OmegaConf.create({"shuffle": True, "seed": SEED}), questions))
    batches = range(0, STEPS * PROBLEMS, PROBLEMS)
    return [[questions[place] for place in order[at : at + PROBLEMS]] for at in batches]


def question_of(row: dict[str, Any], questions: list[str]) -> str:
    [found] = [one for one in questions if one in row["input"]]
    return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(str(tmp_path_factory.mktemp("unbroken") / "run"), STEPS, "torch_cpu")
    finish(run)
    return run


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    """A run that was killed, and the step from which it went on."""
    run = Run(str(tmp_path_factory.mktemp("resumed") / "run"), STEPS, "torch_cpu")
    step = kill_after_a_checkpoint(run)
    finish(run)
    return run, step


@pytest.fixture(scope="module")
def with_vllm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(str(tmp_path_factory.mktemp("vllm") / "run"), 2, "vllm")
    finish(run)
    return run


@pytest.fixture(params=["unbroken", "resumed", "with_vllm"])
def run(request: pytest.FixtureRequest) -> Run:
    value = request.getfixturevalue(request.param)
    return value[0] if isinstance(value, tuple) else value


def test_every_step_is_done_and_has_our_metrics(run: Run) -> None:
    found = metrics(run)
    assert sorted(found) == list(range(1, run.steps + 1))
    names = step_metrics([], []).keys()
    for step in found.values():
        assert names <= step.keys()
        assert step["groups"] == PROBLEMS
        assert step["rollouts"] == PROBLEMS * SAMPLES
        assert sum(step[f"reason/{one.value}"] for one in Reason if f"reason/{one.value}" in step)
        assert 0 < step["accuracy"] < 1, "the policy is neither perfect nor lost"
        assert step["calls"] > 0, "the sandbox was asked"
        assert step["groups_used"] >= 1
        assert math.isfinite(step["actor/grad_norm"])
        assert step["actor/grad_norm"] > 0


def test_roc_keeps_half_of_the_rollouts_of_a_group(run: Run) -> None:
    questions = [one for batch in asked(run) for one in batch]
    for step, told in metrics(run).items():
        kept = Counter(question_of(row, questions) for row in rows(run, step))
        assert len(kept) == told["groups_used"]
        assert set(kept.values()) == {KEPT}
        for question in kept:
            scores = {r["score"] for r in rows(run, step) if question in r["input"]}
            assert scores == {0.0, 1.0}, "a group of equal reward teaches nothing"


def test_the_trainer_and_the_servers_have_the_same_weights_after_every_sync(run: Run) -> None:
    for step in metrics(run).values():
        assert step["training/rollout_probs_diff_valid"] == 1
        for name, most in GAPS.items():
            assert step[f"training/rollout_probs_diff_{name}"] < most
        assert step["training/rollout_actor_probs_pearson_corr"] > 0.999999


def test_each_step_writes_a_sharded_checkpoint(run: Run) -> None:
    checkpoints = run.job.checkpoints
    assert (checkpoints / "latest_checkpointed_iteration.txt").read_text() == str(run.steps)
    for rank in range(RANKS):
        name = f"model_world_size_{RANKS}_rank_{rank}.pt"
        assert (checkpoints / f"global_step_{run.steps}" / "actor" / name).is_file()


def test_a_killed_run_goes_on_with_the_prompts_that_come_next(
    unbroken: Run, resumed: tuple[Run, int]
) -> None:
    """What is sampled is not the same bit for bit, so other rows may be kept; the order is."""
    run, killed_at = resumed
    assert 1 <= killed_at < STEPS
    sessions = sorted(Path(run.folder, "metrics").glob("session-*.jsonl"))
    last = [json.loads(line)["step"] for line in sessions[-1].read_text().splitlines()]
    assert last == list(range(killed_at + 1, STEPS + 1))
    batches = asked(run)
    assert batches == asked(unbroken)
    questions = [one for batch in batches for one in batch]
    for step, batch in enumerate(batches, start=1):
        for one in (unbroken, run):
            kept = {question_of(row, questions) for row in rows(one, step)}
            assert kept
            assert kept <= set(batch)
