"""The benchmark's own claims: where a kill falls, that it hit, that one changed byte is told."""

import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = """
import json, os, sys, time
from pathlib import Path
SECONDS = 0.15
for arm, phases in (
    ("sft", ("pretrain 1/9 loss 5.00", "sft 1/9", "evaluation 0/1")),
    ("grpo-roc", ("RL 0/8", "mining 0/40", "RL 5/8 accuracy 0.10", "evaluation 64/256")),
):
    run = Path("runs", f"resume-seed{sys.argv[2]}-{arm}-0123456789")
    run.mkdir(parents=True, exist_ok=True)
    for phase in phases:
        (run / "new").write_text(json.dumps({"phase": phase, "done": 0.0}))
        (run / "new").replace(run / "progress.json")
        time.sleep(SECONDS)
        if phase.startswith("mining"):
            (run / "mined-2.json").touch()
"""
"""Goes through the parts as the runs do, a fraction of a second each."""


@pytest.fixture
def benchmark() -> Any:
    """Give a module of the benchmark by its name."""
    return lambda name: importlib.import_module(f"benchmarks.resume.{name}")


@pytest.fixture
def chain(benchmark: Any, tmp_path: Path) -> Any:
    """Give a chain whose runs are made by a program."""

    def make(program: str) -> Any:
        root = tmp_path / "checkout"
        root.mkdir(exist_ok=True)
        return benchmark("chain").Chain(root, 1, 4, (sys.executable, "-c", program))

    return make


@pytest.mark.parametrize(
    ("progress", "arm", "mined", "part"),
    [
        ("", False, False, None),
        ("starting", False, False, None),
        ("data 0/1", False, False, None),
        ("pretrain 3/9 loss 1.00", False, False, "pretrain"),
        ("sft 9/9", False, False, "sft"),
        ("evaluation 0/1", False, False, "evaluation of the SFT policy"),
        ("RL 0/8", True, False, "RL before mining"),
        ("RL 4/8 accuracy 0.10", True, False, "RL before mining"),
        ("mining 0/40", True, False, "mining"),
        ("mining 0/40", True, True, "mining"),
        ("mining 40/40", True, True, "RL after mining"),
        ("RL 4/8", True, True, "RL after mining"),
        ("RL 3/8", True, True, "RL before mining"),
        ("RL 5/8", True, True, "RL after mining"),
        ("evaluation 64/256", True, True, "evaluation of the arm"),
    ],
)
def test_the_part_of_a_run_is_read_from_its_progress(
    progress: str, arm: bool, mined: bool, part: str | None, benchmark: Any
) -> None:
    assert benchmark("moments").part_of(progress, arm=arm, boundary=4, mined=mined) == part


def test_moments_are_uniform_over_each_phase_and_stand_in_the_order_of_the_runs(
    benchmark: Any,
) -> None:
    moments = benchmark("moments")
    lengths = {part: float(number) for number, part in enumerate(moments.Part, start=1)}
    drawn = [moments.draw_moments(seed, lengths) for seed in range(200)]
    assert drawn == [moments.draw_moments(seed, lengths) for seed in range(200)]
    order = list(moments.Part)
    for chain in drawn:
        assert {one.phase for one in chain} == set(moments.Phase)
        assert [order.index(one.part) for one in chain] == sorted(
            order.index(one.part) for one in chain
        )
        assert all(0 <= one.after < lengths[one.part] for one in chain)
    hit = [one.part for chain in drawn for one in chain]
    assert hit.count("RL before mining") / 200 == pytest.approx(4 / 10, abs=0.1)
    assert hit.count("evaluation of the arm") / 200 == pytest.approx(7 / 10, abs=0.1)


@pytest.mark.thorough
def test_kills_hit_in_every_part(benchmark: Any, chain: Any) -> None:
    moments = benchmark("moments")
    reference = chain(WORKER)
    lengths = reference.undisturbed()
    assert list(lengths) == list(moments.Part)
    assert all(0.1 < seconds < 2 for seconds in lengths.values())
    wanted = [moments.place(phase, random.Random(0).random(), lengths) for phase in moments.Phase]
    kills = chain(WORKER).killed(wanted)
    assert [kill.moment for kill in kills] == wanted
    assert all(kill.lost >= 0 for kill in kills)


@pytest.mark.thorough
def test_a_part_that_is_over_before_the_moment_is_killed_earlier(
    benchmark: Any, chain: Any
) -> None:
    moments = benchmark("moments")
    late = moments.Moment(moments.Phase.SFT, 0.9, moments.Part.SFT, 0.3)
    (kill,) = chain(WORKER).killed([late])
    assert kill.attempts > 1
    assert kill.after < 0.3


def test_a_run_that_is_never_in_the_part_is_not_counted(benchmark: Any, chain: Any) -> None:
    moments = benchmark("moments")
    never = moments.Moment(moments.Phase.MINING, 0.5, moments.Part.MINING, 0.01)
    program = WORKER.replace('"mining 0/40", ', "").replace("SECONDS = 0.15", "SECONDS = 0.01")
    with pytest.raises(benchmark("chain").ResumeError, match="mining was over before it could be"):
        chain(program).killed([never])
    with pytest.raises(benchmark("chain").ResumeError, match="a reference went through pretrain"):
        chain(program).undisturbed()


def test_a_run_that_fails_is_told(benchmark: Any, chain: Any) -> None:
    program = "import sys; sys.exit('no such preset')"
    with pytest.raises(benchmark("chain").ResumeError, match=r"exit code 1\): no such preset"):
        chain(program).undisturbed()


def test_one_byte_that_differs_is_told(benchmark: Any, tmp_path: Path) -> None:
    differences = benchmark("checkout").differences
    runs = [tmp_path / "one", tmp_path / "other"]
    for run in runs:
        (run / "checkpoints" / "final").mkdir(parents=True)
        (run / "metrics.parquet").write_bytes(b"metrics")
        (run / "timing.jsonl").write_text(run.name)
        (run / "checkpoints" / "final" / "model.safetensors").write_bytes(b"weights")
    assert differences(*runs) == []
    (runs[0] / "checkpoints" / "final" / "model.safetensors").write_bytes(b"weighty")
    (runs[1] / "grades.parquet").write_bytes(b"grades")
    assert differences(*runs) == ["checkpoints/final/model.safetensors", "grades.parquet"]


def test_a_bar_needs_every_moment(benchmark: Any) -> None:
    bars = {bar.key: bar for bar in benchmark("__main__").bars(20)}
    assert bars["resume_moments"].verdict({"resume_moments": 20}) == "met"
    assert bars["resume_moments"].verdict({"resume_moments": 19}) == "missed"
    assert bars["resume_differences"].verdict({"resume_differences": 1}) == "missed"
    assert json.dumps(benchmark("__main__").SETTINGS)
