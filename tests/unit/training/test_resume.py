"""A run repeats to the last bit: twice, under load, with slow tools, killed or stopped and gone on
with, in one run or stage by stage.

The runs are those of the package, in processes of their own; their problems have one of four
answers, so that a model of seconds gets mixed groups and every step moves the weights.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rstar2.records import read_json_lines

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[3]
SFT_STEPS = 120
RL_STEPS = 6

PRESET: dict[str, Any] = {
    "pretrain": {"examples": 80, "batch_size": 8, "checkpoint_every": 4},
    "sft": {
        "examples": 4 * SFT_STEPS,
        "batch_size": 4,
        "matrix_lr": 0.03,
        "other_lr": 0.01,
        "checkpoint_every": 40,
    },
    "noise": {"direct": 0.2, "wrong_program": 0.0, "slip": 0.4, "verify": 0.3},
    "limits": {"max_tool_tokens": 24},
    "stages": [
        {"steps": 4},
        {"steps": 2, "data": "mined", "mine_problems": 4, "reset_optimizer": True},
    ],
    "rl": {
        "problems_per_step": 4,
        "group_size": 4,
        "oversample": 8,
        "minibatches": 2,
        "learning_rate": 1e-3,
        "mining_samples": 4,
        "refill": False,
        "checkpoint_every": 3,
    },
    "evaluation": {
        "book": {"problems": 4, "samples": 4, "max_response_tokens": 90, "max_turns": 3}
    },
}

SLOW = """
import asyncio, random
class Sandbox(laptop.Sandbox):
    delays = random.Random(SEED)
    async def run(self, *arguments, **options):
        await asyncio.sleep(self.delays.uniform(0, 0.05))
        result = await super().run(*arguments, **options)
        await asyncio.sleep(self.delays.uniform(0, 0.05))
        return result
laptop.Sandbox = Sandbox
"""

DEADLY = """
import os, signal
class ProgressFile(laptop.ProgressFile):
    phase = ""
    def report(self, phase, done, total, **told):
        super().report(phase, done, total, **told)
        ProgressFile.phase = phase
        if (phase, done) == WHEN:
            os.kill(os.getpid(), signal.SIGKILL)
class Sandbox(laptop.Sandbox):
    calls = 0
    async def run(self, *arguments, **options):
        self.calls += ProgressFile.phase == WHEN[0]
        if self.calls == WHEN[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().run(*arguments, **options)
laptop.ProgressFile = ProgressFile
if WHEN[0] == "mining":
    laptop.Sandbox = Sandbox
"""


STOP = """
import os, signal
class ProgressFile(laptop.ProgressFile):
    def report(self, phase, done, total, **told):
        super().report(phase, done, total, **told)
        if (phase, done) == WHEN:
            os.kill(os.getpid(), signal.SIGTERM)
laptop.ProgressFile = ProgressFile
"""

WORKER = """
from benchmarks.resume.worker import draw_guessable
from rstar2.experiments.planner import Planner
from rstar2.experiments.worker import _main, words
from rstar2.training import family_world
family_world.draw_mixed = draw_guessable
sys.argv[1:] = [words(Planner().rl("resume", 0, "book", "grpo-roc"))]
_main()
"""

STAGES = {
    **PRESET,
    "stages": [
        {"steps": 3},
        {"steps": 3, "composition_share": 0.5},
        {"steps": 2, "data": "mined", "mine_problems": 4, "reset_optimizer": True},
    ],
}

BOTH_WAYS = """
from benchmarks.resume.worker import draw_guessable
from rstar2.experiments.planner import Planner
from rstar2.experiments.worker import make
from rstar2.training import family_world
family_world.draw_mixed = draw_guessable
for stage in (0, 3):
    make(Planner().rl("resume", 0, "none", "grpo-roc", stage), lambda: False)
"""


@pytest.fixture(scope="module")
def checkout() -> Any:
    return importlib.import_module("benchmarks.resume.checkout")


MAKE = """
from benchmarks.resume.worker import work
work("resume", 0, ["sft", "grpo-roc"])
"""


def session(root: Path, patch: str = "", program: str = MAKE) -> int:
    """One process that makes both runs or goes on with them; gives its exit code."""
    program = f"import sys\nfrom rstar2.experiments import laptop\n{patch}\n{program}"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode


def differences(checkout: Any, *roots: Path) -> list[str]:
    pairs = zip(*map(runs, roots), strict=True)
    return [
        f"{one.name}/{name}" for one, other in pairs for name in checkout.differences(one, other)
    ]


def runs(root: Path) -> list[Path]:
    """The SFT run, then the arm."""
    return sorted((root / "runs").iterdir(), reverse=True)


@pytest.fixture(scope="module")
def reference(checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = checkout.make_checkout(tmp_path_factory.mktemp("reference") / "checkout", **PRESET)
    assert session(root) == 0
    return root


@pytest.fixture
def root(checkout: Any, tmp_path: Path) -> Path:
    return checkout.make_checkout(tmp_path / "checkout", **PRESET)


def test_the_reference_calls_tools_and_learns(reference: Path) -> None:
    """Otherwise what follows would compare nothing."""
    sft, arm = runs(reference)
    metrics = pd.read_parquet(arm / "metrics.parquet")
    assert metrics["update/optimizer_steps"].sum() > 0
    assert metrics["calls"].min() > 0
    weights = [run / "checkpoints" / "final" / "model.safetensors" for run in (sft, arm)]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    phases = set(pd.read_parquet(arm / "grades.parquet")["phase"])
    assert phases == {"rl", "mining", "evaluation"}


def test_a_finished_run_keeps_its_records_and_its_last_weights_alone(reference: Path) -> None:
    for run in runs(reference):
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["final"]
        assert not list(run.glob("examples.safetensors"))
        rows = read_json_lines(run / "timing.jsonl")
        told = json.loads((run / "run.json").read_bytes())["wall_seconds"]
        assert told == pytest.approx(sum(row["seconds"] for row in rows), abs=0.1)
        assert {row["session"] for row in rows} == {1}


def test_the_same_seed_gives_the_same_bytes(checkout: Any, reference: Path, root: Path) -> None:
    assert session(root) == 0
    assert differences(checkout, root, reference) == []


def test_load_changes_nothing(checkout: Any, reference: Path, root: Path) -> None:
    with busy_processes(2):
        assert session(root) == 0
    assert differences(checkout, root, reference) == []


def test_slow_tools_change_nothing(checkout: Any, reference: Path, root: Path) -> None:
    assert session(root, SLOW.replace("SEED", "1")) == 0
    assert differences(checkout, root, reference) == []


def test_a_run_that_is_killed_goes_on_as_if_nothing_had_happened(
    checkout: Any, reference: Path, root: Path
) -> None:
    """Killed in the SFT, in RL, among the tool calls of the mining, and in the evaluation."""
    for when in (("sft", 50), ("RL", 2), ("mining", 3), ("evaluation", 8)):
        assert session(root, DEADLY.replace("WHEN", repr(when))) == -signal.SIGKILL
        if when[0] in ("RL", "mining"):
            tear(runs(root)[1])
    assert session(root) == 0
    assert differences(checkout, root, reference) == []

    sft, arm = (read_json_lines(run / "timing.jsonl") for run in runs(root))
    rows = [row["step"] for row in sft if row["phase"] == "sft"]
    assert rows == [*range(20, 61, 10), *range(60, 131, 10)], "from the checkpoint of step 50"
    assert [row["phase"] for row in sft].count("data") == 1, "it went on, it did not begin again"
    steps = [row["step"] for row in arm if row["phase"] == "rl"]
    assert steps == [1, 2, 1, 2, 3, 4, 5, 6], "from the checkpoint of step 4, where the stage ends"


def test_a_run_that_is_stopped_goes_on_as_if_nothing_had_happened(
    checkout: Any, reference: Path, root: Path
) -> None:
    """Stopped in pretrain, SFT, both evaluations, and in RL between two checkpoints."""
    moments = (("pretrain", 5), ("sft", 50), ("evaluation", 8), ("RL", 2), ("evaluation", 8))
    for count, when in enumerate(moments):
        assert session(root, STOP.replace("WHEN", repr(when)), WORKER) == 128 + signal.SIGTERM
        made = runs(root)
        assert len(made) == (1 if count < 3 else 2)
        record = json.loads((made[-1] / "run.json").read_bytes())
        assert record["state"] == "stopped"
        assert "worker" not in record
    assert session(root, program=WORKER) == 0
    assert differences(checkout, root, reference) == []

    sft, arm = (read_json_lines(run / "timing.jsonl") for run in runs(root))
    assert [row["phase"] for row in sft].count("data") == 1
    steps = [row["step"] for row in arm if row["phase"] == "rl"]
    assert steps == [1, 2, 3, 4, 5, 6], "no step is made twice"
    for one, other in zip(runs(root), runs(reference), strict=True):
        chunks = (one / "evaluation.jsonl").read_bytes()
        assert chunks == (other / "evaluation.jsonl").read_bytes(), "no problem is made twice"


def test_stage_by_stage_gives_what_one_run_gives(checkout: Any, tmp_path: Path) -> None:
    """Stages 1 and 2, the mining and stage 3, each a run of its own that starts from the last."""
    root = checkout.make_checkout(tmp_path / "checkout", **STAGES)
    assert session(root, program=BOTH_WAYS) == 0
    made = {path.name.split("-", 2)[2].rpartition("-")[0]: path for path in runs(root)}
    whole, last = made.pop("grpo-roc"), made["grpo-roc-stage3"]
    assert set(made) == {"sft", "grpo-roc-mining3", *(f"grpo-roc-stage{n}" for n in (1, 2, 3))}
    stages = [made[f"grpo-roc-stage{number}"] for number in (1, 2, 3)]

    table = pd.read_parquet(whole / "metrics.parquet")
    assert table["stage"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3]
    moved = table.groupby("stage")["update/optimizer_steps"].sum()
    assert (moved > 0).all(), "otherwise the chain would hand nothing on"
    for name in ("metrics.jsonl", "grades.jsonl", "trajectories.jsonl"):
        parts = b"".join((run / name).read_bytes() for run in stages)
        assert parts == (whole / name).read_bytes(), name
    mined = (whole / "mined-3.json").read_bytes()
    assert (made["grpo-roc-mining3"] / "mined-3.json").read_bytes() == mined
    weights = Path("checkpoints", "final", "model.safetensors")
    assert (last / weights).read_bytes() == (whole / weights).read_bytes()


def tear(run: Path) -> None:
    """What a kill within an append leaves behind."""
    for name in ("metrics", "timing", "grades", "evaluation"):
        with (run / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"step": 2, "torn')


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
        assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
