"""The benchmark's own claims: what a bar says, what a program answers, what is counted."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a module of the benchmark by its name."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.sandbox.{name}")


def test_a_bar_is_met_on_its_side_only_and_never_unmeasured(benchmark):
    report = benchmark("report")
    most, least = report.Bar("bytes", 1600, ""), report.Bar("rate", 4, "", at_least=True)
    assert [most.verdict({"bytes": figure}) for figure in (1600, 1600.1)] == ["met", "missed"]
    assert [least.verdict({"rate": figure}) for figure in (4, 3.999)] == ["met", "missed"]
    assert most.verdict({}) == "not measured"
    assert least.verdict({"rate": float("nan")}) == "missed"


def test_the_headline_names_what_is_missed_and_what_is_not_measured(benchmark):
    report = benchmark("report")
    bars = (report.Bar("a", 1, ""), report.Bar("b", 1, ""), report.Bar("c", 1, ""))
    headline = report.headline({"a": 0.5, "b": 1.00001, "extra": 3.0}, bars)
    assert headline == {"a": 0.5, "b": 1.0, "missed": ["b"], "not_measured": ["c"]}


def test_a_record_is_json_with_one_key_on_each_line(benchmark):
    record = {"rate": 4.0, "latency_ms": [1.0, 2.5], "provenance": {"commit": None}}
    written = benchmark("report").as_json(record)
    assert json.loads(written) == record
    assert written.count(b"\n") == len(record) + 2


def test_descriptors_are_held_against_the_slots(benchmark):
    bar = next(bar for bar in benchmark("report").bars(4) if bar.key == "pending_fds")
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
