"""The benchmark's own claims: what a program answers, what is counted."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def benchmark() -> Any:
    """Give a module of the benchmark by its name."""
    return lambda name: importlib.import_module(f"benchmarks.sandbox.{name}")


def test_descriptors_are_held_against_the_slots(benchmark):
    bar = next(bar for bar in benchmark("bars").bars(4) if bar.key == "pending_fds")
    assert bar.limit == 80


@pytest.mark.parametrize("name", ["print_line", "eigenvalues", "solve"])
def test_every_program_gives_its_answer_and_no_two_calls_are_alike(benchmark, name):
    program = getattr(benchmark("programs"), name)
    assert program(3).run_cold() > 0
    assert len({program(n).code for n in range(20)}) == 20


def test_a_wrong_answer_ends_the_run(benchmark):
    programs = benchmark("programs")
    with pytest.raises(programs.WrongAnswer, match="printed '1\\\\n', not '2'"):
        programs.Program("print(1)", "2").run_cold()


def test_an_orphan_is_still_counted_among_the_descendants(benchmark):
    kernel = benchmark("kernel")
    with kernel.adopting_orphans():
        said = subprocess.run(
            ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
        )
        orphan = int(said.stdout)
        try:
            assert orphan in {process.pid for process in kernel.descendants(os.getpid())}
        finally:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def test_the_cpu_of_finished_grandchildren_is_counted(benchmark):
    kernel = benchmark("kernel")
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    before = kernel.cpu_seconds()
    command = [sys.executable, "-c", parent + "print(flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 0.25 <= kernel.cpu_seconds() - before < 2
        process.communicate(b"\n")


def test_a_missing_code_judge_is_one_line_before_anything_is_measured(tmp_path):
    command = [sys.executable, "-m", "benchmarks.sandbox", "--code-judge", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "run_workers.py is missing" in done.stderr
