"""The canary: records of real, small runs, repeated with the code as it is and with other code."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import rstar2.problems.laptop
from rstar2.cli.rerun import rerun
from rstar2.errors import UserError
from rstar2.experiments import planner, worker
from rstar2.experiments.canary import (
    Canary,
    CanaryError,
    Difference,
    Finding,
    Verdict,
    choose,
    first_difference,
)
from rstar2.experiments.conditions import ConditionError
from rstar2.experiments.publish import publish, results_folder
from rstar2.experiments.report import NoRecordsError, committed_records
from rstar2.experiments.sweeps import load_sweep
from rstar2.records import Hardware, provenance
from rstar2.training import supervised

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]


SWEEP = """
preset: test
seeds: [0]
arms: [grpo, grpo-roc]
runs:
  - {notebook: 10_run_sft, with: {evaluation: book}}
  - {notebook: 11_run_rl, with: {evaluation: book}}
keep_weights: [sft]
"""
RECORDS = Path("results", "laptop-test")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout with the records of one seed, made by real runs of preset test."""
    root = tmp_path_factory.mktemp("published") / "checkout"
    for name in ("presets", "notebooks"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "sweeps").mkdir()
    (root / "sweeps" / "laptop-test.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        quick(patch)
        clean = replace(provenance(), commit="a" * 40, dirty=False)
        patch.setattr(worker, "provenance", lambda: clean)
        sweep = load_sweep("laptop-test")
        for plan in sweep.plans:
            worker.make(plan, lambda: False)
        publish(sweep, results_folder(sweep))
        shutil.rmtree(root / "runs")
        yield root


@pytest.fixture(autouse=True)
def checkout(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it, in which the test stands; at the end nothing but the test's own is new."""
    root = tmp_path / "checkout"
    shutil.copytree(published, root)
    monkeypatch.chdir(root)
    quick(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield root
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (root / "runs").exists()


def quick(patch: pytest.MonkeyPatch) -> None:
    """Fewer sources to hash, fewer problems to learn guessing from."""
    patch.setattr(planner, "deciding_sources", lambda entry, _others: [entry])
    patch.setattr(rstar2.problems.laptop, "BASELINE_DRAWS", 50)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def findings(steps: int = 3, only: tuple[str, ...] = ()) -> dict[str, Finding]:
    """What is found of each record, by its arm."""
    records = committed_records()
    checks = Canary(records, steps)
    return {record.arm: checks.repeat(record) for record in choose(records, only)}


def test_what_this_code_makes_is_the_same() -> None:
    found = findings()
    assert {arm: one.verdict for arm, one in found.items()} == {
        "sft": Verdict.SAME,
        "grpo": Verdict.SAME,
        "grpo-roc": Verdict.SAME,
    }
    for one in found.values():
        assert one.steps == 3
        assert one.run_id == one.planned_id
        assert not one.is_stale
        assert one.difference is None


def test_a_record_that_has_fewer_steps_is_repeated_whole() -> None:
    found = findings(steps=1000)
    assert {arm: (one.verdict, one.steps) for arm, one in found.items()} == {
        "sft": (Verdict.SAME, 16),
        "grpo": (Verdict.SAME, 3),
        "grpo-roc": (Verdict.SAME, 3),
    }


def test_another_rate_shows_in_the_step_after_it_acted_and_in_the_id(checkout: Path) -> None:
    edit(checkout / "presets" / "test.yaml", "other_lr: 0.004", "other_lr: 0.005")
    found = findings(only=("arm=sft",))["sft"]
    assert found.verdict is Verdict.DIFFERS
    assert found.is_stale
    assert found.difference is not None
    assert (found.difference.metric, found.difference.step) == ("loss", 2)
    assert found.run_id != found.planned_id


def test_other_code_shows_in_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = supervised.next_token_loss
    monkeypatch.setattr(supervised, "next_token_loss", lambda *given: honest(*given) * 2)
    found = findings(only=("arm=sft",))["sft"]
    assert found.verdict is Verdict.DIFFERS
    assert found.run_id == found.planned_id, "a patch of the running code is not in its sources"
    assert found.difference is not None
    assert (found.difference.metric, found.difference.step) == ("loss", 1)
    assert found.difference.repeated == 2 * found.difference.recorded  # type: ignore[operator]  # both are numbers
    assert found.difference.largest == pytest.approx(0.5, abs=0.1)


def test_an_arm_is_judged_alone_it_starts_from_the_weights_of_the_record(checkout: Path) -> None:
    edit(checkout / "presets" / "test.yaml", "other_lr: 0.002", "other_lr: 0.001")
    found = findings(only=("arm=grpo-roc",))["grpo-roc"]
    assert found.verdict is Verdict.SAME
    assert found.run_id != found.planned_id
    edit(checkout / "presets" / "test.yaml", "oversample: 4", "oversample: 6")
    found = findings(only=("arm=grpo-roc",))["grpo-roc"]
    assert found.verdict is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        ({"hardware": {"cpu": "another"}}, "processor "),
        ({"versions": {"torch": "1.0"}}, "torch "),
    ],
)
def test_a_difference_on_another_machine_is_expected(
    here: dict[str, Any], reason: str, checkout: Path
) -> None:
    edit(checkout / "presets" / "test.yaml", "other_lr: 0.004", "other_lr: 0.005")
    records = committed_records()
    mine = provenance()
    hardware = replace(mine.hardware, **here.get("hardware", {}))
    other = replace(mine, hardware=hardware, versions=mine.versions | here.get("versions", {}))
    (sft,) = choose(records, ["arm=sft"])
    found = Canary(records, 2, other).repeat(sft)
    assert found.verdict is Verdict.UNLIKE
    assert found.reason.startswith(reason)
    assert found.difference is not None
    assert not found.is_stale


def test_more_cores_or_memory_excuse_nothing(checkout: Path) -> None:
    edit(checkout / "presets" / "test.yaml", "other_lr: 0.004", "other_lr: 0.005")
    records = committed_records()
    mine = provenance()
    other = replace(mine, hardware=Hardware(mine.hardware.cpu, 64, 512.0))
    (sft,) = choose(records, ["arm=sft"])
    assert Canary(records, 2, other).repeat(sft).verdict is Verdict.DIFFERS


def forget_checkpoint(checkout: Path) -> None:
    shutil.rmtree(checkout / RECORDS / "sft-seed0" / "checkpoint")


def forget_sft(checkout: Path) -> None:
    shutil.rmtree(checkout / RECORDS / "sft-seed0")


def forget_preset(checkout: Path) -> None:
    (checkout / "presets" / "test.yaml").unlink()


def forget_parameter(checkout: Path) -> None:
    params = checkout / RECORDS / "grpo-seed0" / "params.json"
    params.write_text(json.dumps({**json.loads(params.read_text()), "gone": 1}))


def forget_notebook(checkout: Path) -> None:
    run = checkout / RECORDS / "grpo-seed0" / "run.json"
    run.write_text(
        json.dumps({k: v for k, v in json.loads(run.read_text()).items() if k != "notebook"})
    )


@pytest.mark.parametrize(
    ("forget", "reason"),
    [
        (forget_sft, "it starts from test-seed0-sft, of which there is no record"),
        (forget_preset, "there is no preset 'test'"),
        (forget_parameter, "11_run_rl.ipynb has no parameter 'gone'"),
        (forget_notebook, "its run.json names no notebook"),
    ],
)
def test_what_cannot_be_repeated_is_told_as_missing(
    forget: Any, reason: str, checkout: Path
) -> None:
    forget(checkout)
    found = findings(only=("arm=grpo",))["grpo"]
    assert found.verdict is Verdict.MISSING
    assert found.is_stale
    assert found.reason.startswith(reason)
    assert found.steps == 0


def test_an_arm_whose_start_keeps_no_weights_is_not_tried_and_not_stale(checkout: Path) -> None:
    forget_checkpoint(checkout)
    found = findings(only=("arm=grpo",))["grpo"]
    assert found.verdict is Verdict.NOT_TRIED
    assert not found.is_stale
    assert found.reason.startswith("it starts from test-seed0-sft, whose record holds no check")
    assert found.steps == 0


def test_a_damaged_record_is_named(checkout: Path) -> None:
    (checkout / RECORDS / "sft-seed0" / "metrics.parquet").write_bytes(b"x")
    with pytest.raises(CanaryError, match=r"sft-seed0/metrics.parquet cannot be read: "):
        findings(only=("arm=sft",))


def test_no_temporary_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(
        CanaryError, match=r"cannot repeat test-seed0-sft: .*; TMPDIR names another"
    ):
        findings(only=("arm=sft",))


# --- choosing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "arms"),
    [
        ([], {"sft", "grpo", "grpo-roc"}),
        (["seed=0"], {"sft", "grpo", "grpo-roc"}),
        (["arm=sft"], {"sft"}),
        (["stage=0", "arm=grpo"], {"grpo"}),
    ],
)
def test_records_are_chosen_by_what_their_runs_are(only: list[str], arms: set[str]) -> None:
    assert {record.arm for record in choose(committed_records(), only)} == arms


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["seed"], "--only seed: give name=value, the names: arm, changes, evaluation, "),
        (["colour=red"], "--only colour=red: give name=value, the names: arm, "),
        (["seed=1"], "--only seed=1: no record has it; seed is 0"),
        (["arm=sft", "stage=0"], "no record is of arm=sft and stage=0"),
    ],
)
def test_a_condition_that_chooses_nothing_is_refused(only: list[str], message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        choose(committed_records(), only)


# --- comparing ----------------------------------------------------------------------------

NUMBERS = st.one_of(st.floats(), st.integers(-(2**50), 2**50), st.text(), st.none())
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), NUMBERS), max_size=4)


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": step, **row} for step, row in enumerate(rows, start=1)]


@given(ROWS)
def test_rows_are_equal_to_what_parquet_gives_back_of_them(rows: list[dict[str, Any]]) -> None:
    """A number that was an int may come back as a float, a metric that is missing as None."""
    told = [
        {name: float(v) if isinstance(v, int) else v for name, v in {"c": None, **row}.items()}
        for row in numbered(rows)
    ]
    assert first_difference(told, numbered(rows)) is None


@given(ROWS, st.data())
def test_one_changed_value_is_found_where_it_is(rows: list[dict[str, Any]], data: Any) -> None:
    rows = numbered([*rows, {"a": 1.0}])
    place = data.draw(st.integers(0, len(rows) - 1))
    other = [dict(row) for row in rows]
    other[place]["b"] = "another"
    if rows[place].get("b") == "another":
        return
    found = first_difference(rows, other)
    assert found == Difference("b", place + 1, rows[place].get("b"), "another", None)


@pytest.mark.parametrize(
    ("recorded", "repeated", "largest"),
    [
        (1.0, math.nextafter(1.0, 2.0), 2**-52),
        (0.0, -0.0, 0.0),
        (1.0, -1.0, 2.0),
        (math.nan, 1.0, None),
        (math.inf, 1.0, None),
        (None, 1.0, None),
        (1.0, None, None),
        ("sft", "pretrain", None),
    ],
)
def test_the_last_bit_counts(recorded: Any, repeated: Any, largest: float | None) -> None:
    found = first_difference([{"step": 7, "x": recorded}], [{"step": 7, "x": repeated}])
    assert found is not None
    assert (found.metric, found.step) == ("x", 7)
    assert found.largest == (None if largest is None else pytest.approx(largest, rel=1e-9))


def test_the_largest_relative_difference_is_that_of_all_steps() -> None:
    found = first_difference(
        [{"step": 1, "a": 1.0, "b": 4.0}, {"step": 2, "a": 1.0, "b": 4.0}],
        [{"step": 1, "a": 1.0, "b": 3.0}, {"step": 2, "a": 2.0, "b": 4.0}],
    )
    assert found == Difference("b", 1, 4.0, 3.0, 0.5)


@pytest.mark.parametrize("value", [math.nan, None])
def test_nan_equals_nan_and_nothing_equals_nothing(value: float | None) -> None:
    assert first_difference([{"step": 1, "a": value}], [{"step": 1, "a": value}]) is None


# --- the command --------------------------------------------------------------------------


def type_(*words: str) -> int:
    """Types ``rstar2 rerun …`` in this process; gives the exit code."""
    app = typer.Typer()
    app.command()(rerun)
    return int(app(list(words), standalone_mode=False) or 0)


def test_the_command_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert type_("--canary") == 0
    said = capsys.readouterr()
    assert [line.split()[:3] for line in said.out.splitlines()[1:4]] == [
        ["grpo-roc-seed0", "same", "3"],
        ["grpo-seed0", "same", "3"],
        ["sft-seed0", "same", "3"],
    ]
    assert said.out.splitlines()[4].startswith("stale records: 0 of 3 (")
    lines = said.err.splitlines()
    assert len(lines) == 3, "a line a record, and no bar of a library"
    assert lines[2].startswith("3/3 sft-seed0: its data and tokenizer first, half a minute")


def test_a_stale_record_is_exit_code_1_a_line_and_json(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(checkout / "presets" / "test.yaml", "other_lr: 0.004", "other_lr: 0.005")
    assert type_("--canary", "--only", "arm=sft", "--json", "new/found.json") == 1
    out = " ".join(capsys.readouterr().out.split())
    told = json.loads((checkout / "new" / "found.json").read_text())
    (found,) = told["records"]
    assert (told["stale"], found["verdict"], found["stale"]) == (1, "differs", True)
    assert found["planned_id"] != found["run_id"]
    assert found["difference"]["metric"] == "loss"
    assert f"loss at step 2: {found['difference']['recorded']} in the record, " in out
    assert f"its id is {found['run_id']}, now it would be {found['planned_id']}" in out
    assert "stale records: 1 of 1 (" in out
    assert "`make results` makes them again" in out


def test_what_is_no_number_is_null_in_json() -> None:
    difference = Difference("x", 1, math.nan, math.inf, None)
    told = Finding("r", "a", "a", Verdict.DIFFERS, 1, difference).as_json()
    assert json.loads(json.dumps(told, allow_nan=False))["difference"]["recorded"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --canary, which repeats"),
        (["--canary", "--json", "presets"], "--json presets is a folder"),
        (["--canary", "--only", "seed=1"], "no record has it; seed is 0"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        type_(*words)


def test_no_records_are_one_line(checkout: Path) -> None:
    shutil.rmtree(checkout / "results")
    with pytest.raises(NoRecordsError, match=r"there are no records in .*: `make results` makes"):
        type_("--canary")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(
    number: signal.Signals, checkout: Path, tmp_path: Path
) -> None:
    edit(checkout / "presets" / "test.yaml", "  examples: 64", "  examples: 64000")
    before = sorted(checkout.rglob("*"))
    program = (
        "import typer; from rstar2.cli.rerun import rerun; app = typer.Typer(); "
        "app.command()(rerun); app(['--canary', '--only', 'arm=sft'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    ) as process:
        while not list((tmp_path / "temporary").glob("*/*/progress.json")):
            assert process.poll() is None, "it ended before it could be interrupted"
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(checkout.rglob("*")) == before
