"""What a batch says together: one table of all runs, means over seeds, arms compared."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from rstar2.algorithm.statistics import mean_interval
from rstar2.experiments.collect import (
    Collected,
    as_json,
    collect,
    difference_table,
    summary_table,
    write_collected,
)
from rstar2.experiments.curves import by_seed, compare
from rstar2.experiments.finished_runs import CollectError, FinishedRun
from rstar2.experiments.report import Record
from rstar2.experiments.seed_means import SeedMean, Source
from rstar2.records import MetricsLog, RecordError

COUNTS = ("samples", "correct", "calls_in_correct", "errors_in_correct")
TOKENS = ("tokens", "tokens_in_correct", "truncated")


def run(
    folder: Path,
    arm: str = "",
    seed: int | None = 0,
    kind: str = "rl",
    params: Mapping[str, Any] | None = None,
    named: Mapping[str, Sequence[float]] | None = None,
    **metrics: Sequence[float | int | str | None],
) -> FinishedRun:
    """A run on disk; its metrics stand step by step, None where a step lacks one.

    Metrics in ``named`` have names that are parameters of this function too.
    """
    metrics |= named or {}
    given = {"seed": seed, **(params or {})}
    name = "run-" + sha256(json.dumps([kind, arm, given]).encode()).hexdigest()[:10]
    path = folder / name
    path.mkdir()
    log = MetricsLog(path / "metrics.jsonl")
    rows = []
    for step in range(max(map(len, metrics.values()))):
        values = {key: column[step] for key, column in metrics.items()}
        rows.append({"step": step + 1, **{k: v for k, v in values.items() if v is not None}})
    log.path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log.to_parquet(path / "metrics.parquet")
    return FinishedRun(name, name, arm, seed, kind, path, given)


def evaluated(one: FinishedRun, **sets: Sequence[tuple[int, ...]]) -> FinishedRun:
    """Adds an evaluation: of each set the problems with their COUNTS, then their TOKENS."""
    rows = [
        {"problem_set": name, **dict(zip((*COUNTS, *TOKENS), problem, strict=True))}
        for name, problems in sets.items()
        for problem in problems
    ]
    pq.write_table(pa.Table.from_pylist(rows), one.folder / "evaluation.parquet")
    return one


def mean(
    found: Sequence[SeedMean], metric: str, arm: str = "", part: str = "", **setting: Any
) -> SeedMean:
    """The one mean of this metric."""
    (one,) = (
        m
        for m in found
        if (m.subject.metric, m.arm, m.subject.part) == (metric, arm, part)
        and (not setting or dict(m.subject.setting) == setting)
    )
    return one


def shown(table: Table | None, width: int = 100) -> str:
    """A table as a terminal of this width shows it, spaces run together."""
    assert table is not None
    console = Console(file=StringIO(), width=width)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(" ".join(line.split()) for line in capture.get().splitlines())


# --- the table ---------------------------------------------------------------------------


def test_the_table_has_a_row_a_run_and_step_and_says_which_run(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "low", 1, params={"epsilon": 0.1}, accuracy=[0.1, 0.2]),
        run(tmp_path, "high", 2, params={"epsilon": 1}, accuracy=[0.3]),
    ]
    rows = collect(runs).table.to_pylist()
    assert [(row["run"], row["step"], row["accuracy"]) for row in rows] == [
        (runs[0].name, 1, 0.1),
        (runs[0].name, 2, 0.2),
        (runs[1].name, 1, 0.3),
    ]
    assert [row["arm"] for row in rows] == ["low", "low", "high"]
    assert [row["seed"] for row in rows] == [1, 1, 2]
    assert [row["param/epsilon"] for row in rows] == [0.1, 0.1, 1.0]
    assert {row["set"] for row in rows} == {None}


def test_the_folder_of_the_runs_is_no_fact_about_them(tmp_path: Path) -> None:
    one = run(tmp_path, params={"out": str(tmp_path), "changes": {"b": 1, "a": [2]}}, loss=[1.0])
    table = collect([one]).table
    assert "param/out" not in table.column_names
    assert table["param/changes"].to_pylist() == ['{"a": [2], "b": 1}']
    assert str(tmp_path) not in json.dumps(table.to_pylist())


def test_a_column_takes_the_widest_type_and_is_null_where_a_run_has_none(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, seed=0, count=[1, 2], only_here=[5, None]),
        run(tmp_path, seed=1, count=[0.5], phase=["sft"]),
        run(tmp_path, seed=2, count=[3], phase=[7]),
    ]
    table = collect(runs).table
    assert table["count"].to_pylist() == [1.0, 2.0, 0.5, 3.0]
    assert table["only_here"].to_pylist() == [5, None, None, None]
    assert table["phase"].to_pylist() == [None, None, "sft", "7"]
    assert str(table.schema.field("only_here").type) == "int64"


def test_a_metric_may_be_called_like_a_column_of_ours(tmp_path: Path) -> None:
    one = run(tmp_path, "low", 3, named={"seed": [8], "arm": [0.5], "param/x": [1]})
    row = collect([one]).table.to_pylist()[0]
    assert (row["seed"], row["arm"]) == (3, "low")
    assert (row["metric/seed"], row["metric/arm"], row["metric/param/x"]) == (8, 0.5, 1)


def test_equal_runs_give_equal_bytes_and_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    runs = [run(tmp_path, "a", s, loss=[0.5 * s], phase=["x"]) for s in range(3)]
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    write_collected(collect(runs), first)
    write_collected(collect(runs), second)
    assert first.read_bytes() == second.read_bytes()
    assert pq.read_table(first).equals(collect(runs).table)
    with pytest.raises(RecordError, match="no-folder"):
        write_collected(collect(runs), tmp_path / "no-folder" / "all.parquet")
    write_collected(collect(runs[:1]), first)
    assert pq.read_table(first).num_rows == 1, "a second collect replaces the first"
    assert not list(tmp_path.glob(".*"))


@settings(max_examples=25)
@given(st.permutations(range(4)), st.integers(1, 4))
def test_every_step_of_every_run_is_in_the_table_once(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], times: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    runs = [run(folder, seed=seed, loss=[1.0] * (seed + 1)) for seed in order]
    found = collect(runs * times)
    keys = [(row["seed"], row["step"]) for row in found.table.to_pylist()]
    assert keys == [(seed, step) for seed in order for step in range(1, seed + 2)]
    assert found.runs == tuple(runs)


# --- a run's value -----------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "last"), [(1, 1), (9, 1), (10, 1), (20, 2), (39, 3)])
def test_a_runs_value_is_the_mean_over_its_last_tenth(
    tmp_path: Path, steps: int, last: int
) -> None:
    values = [float(step) for step in range(steps)]
    found = collect([run(tmp_path, loss=values)])
    assert mean(found.summary, "loss").values == {0: pytest.approx(sum(values[-last:]) / last)}


def test_each_phase_has_its_own_last_tenth(tmp_path: Path) -> None:
    one = run(
        tmp_path,
        kind="sft",
        phase=["pretrain"] * 20 + ["sft"] * 10,
        loss=[9.0] * 18 + [1.0, 2.0] + [9.0] * 9 + [0.5],
    )
    found = collect([one]).summary
    assert mean(found, "loss", part="pretrain").values == {0: 1.5}
    assert mean(found, "loss", part="sft").values == {0: 0.5}


def test_undefined_steps_are_left_out_and_infinite_ones_are_not(tmp_path: Path) -> None:
    one = run(
        tmp_path,
        some=[9.0] * 18 + [math.nan, 2.0],
        lacks=[9] * 18 + [None, 4],
        never=[1.0] * 18 + [math.nan, math.nan],
        diverged=[1.0] * 19 + [math.inf],
    )
    found = collect([one])
    assert mean(found.summary, "some").values == {0: 2.0}
    assert mean(found.summary, "lacks").values == {0: 4.0}
    assert "never" not in {m.subject.metric for m in found.summary}
    assert mean(found.summary, "diverged").interval.mean == math.inf
    (row,) = (row for row in as_json(found)["summary"] if row["metric"] == "diverged")
    assert (row["mean"], row["low"], row["values"]) == (None, None, [None])


def test_when_a_step_was_is_no_metric(tmp_path: Path) -> None:
    found = collect([run(tmp_path, stage=[1, 2], accuracy=[0.1, 0.2])])
    assert {m.subject.metric for m in found.summary} == {"accuracy"}


def test_a_run_without_a_number_is_in_the_table_and_in_no_mean(tmp_path: Path) -> None:
    found = collect([run(tmp_path, kind="notebook", note=["fine"])])
    assert found.table["note"].to_pylist() == ["fine"]
    assert found.summary == found.differences == ()
    assert "Mean over seeds" in shown(summary_table(found))
    assert difference_table(found) is None
    with pytest.raises(CollectError, match="'loss'; the metrics are: none"):
        summary_table(found, ["loss"])


# --- held-out sets -----------------------------------------------------------------------


def test_a_rate_of_a_set_pools_its_problems(tmp_path: Path) -> None:
    one = evaluated(
        run(tmp_path, kind="evaluation", accuracy=[0.4]),
        easy=[(8, 8, 10, 1, 800, 800, 0), (2, 0, 0, 0, 100, 0, 2)],
        hard=[(4, 0, 0, 0, 40, 0, 1)],
    )
    found = collect([one])
    rows = found.table.to_pylist()
    assert [(row["set"], row["step"], row["accuracy"]) for row in rows] == [
        (None, 1, 0.4),
        ("easy", None, 0.8),
        ("hard", None, 0.0),
    ]
    assert rows[1]["tool_error_in_correct"] == 0.1
    assert rows[1]["tokens"] == 90.0
    assert rows[1]["tokens_in_correct"] == 100.0
    assert rows[1]["truncated"] == 0.2
    assert math.isnan(rows[2]["tool_error_in_correct"]), "there was no right rollout"
    of_sets = [m for m in found.summary if m.subject.source is Source.HELD_OUT]
    assert mean(of_sets, "accuracy", part="easy").values == {0: 0.8}
    undefined = {m.subject.part for m in of_sets if m.subject.metric == "tokens_in_correct"}
    assert undefined == {"easy"}


def test_a_batch_says_of_its_runs_what_the_book_says_of_their_records(tmp_path: Path) -> None:
    right = {("low", 1): 2, ("low", 2): 4, ("high", 1): 7, ("high", 2): 5}
    runs = [
        evaluated(
            run(tmp_path, arm, seed, accuracy=[0.5]),
            easy=[(8, correct, 10, seed, 800, 400, 0), (8, 4, 9, 2, 700, 300, 1)],
            hard=[(8, correct - 1, 5, 1, 900, 100, 3)],
        )
        for (arm, seed), correct in right.items()
    ]
    found = collect(runs)
    records = {
        arm: [Record(one.folder, {"arm": arm, "seed": one.seed}) for one in runs if one.arm == arm]
        for arm in ("low", "high")
    }
    for part in ("easy", "hard"):
        for rate in ("accuracy", "tool_error_in_correct"):
            low, high = (by_seed(records[arm], part, rate) for arm in ("low", "high"))
            assert mean(found.summary, rate, "low", part).values == pytest.approx(low)
            difference = mean(found.differences, rate, "high", part)
            expected = compare(high, low)
            assert difference.minus == "low"
            assert difference.values == pytest.approx(expected.differences)
            assert difference.interval.low == pytest.approx(expected.interval.low)
            assert difference.interval.high == pytest.approx(expected.interval.high)


# --- over seeds --------------------------------------------------------------------------


def test_the_mean_over_seeds_has_the_t_interval(tmp_path: Path) -> None:
    values = {11: 0.5, 12: 0.7, 13: 0.6}
    found = collect([run(tmp_path, "a", seed, accuracy=[v]) for seed, v in values.items()])
    one = mean(found.summary, "accuracy", "a")
    assert one.values == values
    assert one.interval == mean_interval([0.5, 0.7, 0.6])
    assert found.differences == (), "one arm has nothing to be compared with"


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path) -> None:
    found = collect([run(tmp_path, "a", 1, accuracy=[0.5])])
    assert math.isnan(mean(found.summary, "accuracy", "a").interval.low)
    assert "rl accuracy a 0.500 (no interval) 1" in shown(summary_table(found))
    (row,) = as_json(found)["summary"]
    assert (row["mean"], row["low"], row["high"]) == (0.5, None, None)


def test_a_run_without_a_seed_is_collected(tmp_path: Path) -> None:
    found = collect([run(tmp_path, seed=None, kind="08_figure", width=[3])])
    assert found.table["seed"].to_pylist() == [None]
    assert mean(found.summary, "width").values == {None: 3.0}


def test_a_run_of_two_arms_counts_once(tmp_path: Path) -> None:
    one = run(tmp_path, "a", 1, loss=[1.0])
    again = FinishedRun(one.name, one.run_id, "b", 1, one.kind, one.folder, one.params)
    found = collect([one, again, one])
    assert found.table.num_rows == 1
    assert [m.arm for m in found.summary] == ["a"]


def test_what_differs_within_an_arm_is_not_averaged(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, arm, seed, params={"stage": stage, "epsilon": eps}, accuracy=[stage + eps])
        for arm, eps in (("low", 0.1), ("high", 0.5))
        for seed in (1, 2)
        for stage in (1, 2)
    ]
    found = collect(runs)
    told = {m.subject.setting for m in found.summary}
    assert told == {(("stage", 1),), (("stage", 2),)}, "epsilon is what makes the arm"
    assert mean(found.summary, "accuracy", "high", stage=2).values == {1: 2.5, 2: 2.5}
    assert mean(found.differences, "accuracy", "high", stage=1).interval.mean == pytest.approx(0.4)


def test_a_half_done_batch_does_not_compare_one_stage_with_another(tmp_path: Path) -> None:
    found = collect(
        [
            run(tmp_path, "a", 1, params={"stage": 1}, accuracy=[0.1]),
            run(tmp_path, "b", 1, params={"stage": 2}, accuracy=[0.9]),
        ]
    )
    assert found.differences == ()


def test_two_notebooks_are_never_averaged(tmp_path: Path) -> None:
    one = run(tmp_path, kind="notebook", loss=[1.0])
    two = FinishedRun("other", "other", "", 0, "notebook", one.folder, one.params)
    with pytest.raises(CollectError, match=r"other .* two notebooks"):
        collect([one, two])


def test_what_belongs_together_stands_together(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "a", 1, "rl", loss=[1.0]),
        run(tmp_path, "", 1, "sft", loss=[1.0]),
        run(tmp_path, "b", 1, "rl", loss=[1.0]),
        run(tmp_path, "a", 2, "rl", entropy=[1.0]),
    ]
    found = [(m.subject.kind, m.subject.metric, m.arm) for m in collect(runs).summary]
    assert found == [
        ("rl", "loss", "a"),
        ("rl", "loss", "b"),
        ("rl", "entropy", "a"),
        ("sft", "loss", ""),
    ]


# --- arms compared -----------------------------------------------------------------------


def test_arms_are_paired_by_the_seeds_that_both_have(tmp_path: Path) -> None:
    runs = [
        *(run(tmp_path, "base", s, accuracy=[v]) for s, v in {1: 0.2, 2: 0.5, 3: 0.8}.items()),
        *(run(tmp_path, "new", s, accuracy=[v]) for s, v in {2: 0.6, 1: 0.32, 9: 0.0}.items()),
        run(tmp_path, "late", 7, accuracy=[0.1]),
    ]
    (difference,) = collect(runs).differences
    assert (difference.arm, difference.minus) == ("new", "base")
    assert difference.values == pytest.approx({1: 0.12, 2: 0.1})
    assert difference.interval.mean == pytest.approx(0.11)
    text = shown(difference_table(collect(runs)))
    assert "rl accuracy new − base +0.110 [-0.017, +0.237] 2" in text


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=4), st.floats(-1, 1))
def test_what_the_seeds_of_both_arms_share_cancels(
    tmp_path_factory: pytest.TempPathFactory, ground: list[float], shift: float
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        run(folder, arm, seed, loss=[value + more])
        for arm, more in (("base", 0.0), ("new", shift))
        for seed, value in enumerate(ground)
    ]
    (difference,) = collect(runs).differences
    assert difference.interval.mean == pytest.approx(shift)
    assert difference.interval.high - difference.interval.low == pytest.approx(0, abs=1e-6)


# --- what people read --------------------------------------------------------------------


@pytest.fixture
def batch(tmp_path: Path) -> Collected:
    """A whole batch: SFT, two stages of RL in two arms, an evaluation, a notebook."""
    values = random.Random(0)
    rl = ("accuracy", "tool_error_in_correct", "tokens", "truncated", "kept/tokens")
    runs = []
    for seed in (1, 2, 3):
        runs.append(run(tmp_path, "", seed, "sft", phase=["pretrain", "sft"], loss=[2.0, seed]))
        for arm in ("grpo", "grpo-roc"):
            runs += [
                run(
                    tmp_path,
                    arm,
                    seed,
                    params={"stage": stage},
                    **{name: [values.random() * 100] for name in rl},
                )
                for stage in (1, 2)
            ]
            problem = (8, values.randint(0, 8), 9, 3, 900, 400, 1)
            one = run(tmp_path, arm, seed, "evaluation", accuracy=[0.0])
            runs.append(evaluated(one, families=[problem], unseen_families=[problem]))
    runs.append(run(tmp_path, "", None, "08_speed", **{f"x{i}": [i] for i in range(9)}))
    return collect(runs)


def test_the_table_shows_a_short_choice(batch: Collected) -> None:
    lines = shown(summary_table(batch)).splitlines()
    assert lines[0].startswith("Mean over seeds [95% t interval]")
    assert "last tenth of its" in f"{lines[0]} {lines[1]}"
    text = "\n".join(lines)
    assert "sft pretrain loss 2.000 [2.000, 2.000] 3" in text
    assert "rl, stage 1 accuracy grpo " in text
    assert "rl, stage 2 accuracy grpo " in text
    assert "evaluation families accuracy grpo " in text
    assert "kept/tokens" not in text
    assert "x5 5.000 (no interval) 1" in text
    assert "x6" not in text, "of other notebooks the first six"


def test_no_interval_is_broken_at_the_width_of_a_terminal(batch: Collected) -> None:
    for width in (80, 100):
        for table in (summary_table(batch), difference_table(batch)):
            lines = shown(table, width).splitlines()
            assert max(map(len, lines)) <= width
            assert sum("[" in line for line in lines) > 5
            assert all(line.count("[") == line.count("]") for line in lines)


def test_patterns_choose_other_metrics(batch: Collected) -> None:
    text = shown(summary_table(batch, ["kept/*", "loss"]))
    assert "kept/tokens" in text
    assert "pretrain loss" in text
    assert "accuracy" not in text
    assert "kept/tokens" in shown(difference_table(batch, ["kept/*"]))
    assert difference_table(batch, ["loss"]) is None
    with pytest.raises(CollectError, match=r"no metric is called 'acuracy'; .* accuracy, "):
        summary_table(batch, ["loss", "acuracy"])


def test_names_are_shown_as_they_are_written(tmp_path: Path) -> None:
    found = collect([run(tmp_path, "[bold]ε=½[/bold]", 1, kind="[red]", loss=[0.00001234])])
    text = shown(summary_table(found))
    assert "[red] loss [bold]ε=½[/bold] 1.23e-05 (no interval) 1" in text


def test_the_numbers_of_one_row_group_have_equal_digits(tmp_path: Path) -> None:
    runs = [run(tmp_path, arm, 1, tokens=[v]) for arm, v in (("a", 4321.123), ("b", 9.87654))]
    text = shown(summary_table(collect(runs)))
    assert "a 4321 (no interval)" in text
    assert "b 10 (no interval)" in text


def test_json_says_all_and_has_no_nan(batch: Collected) -> None:
    found = json.loads(json.dumps(as_json(batch), allow_nan=False))
    assert found["runs"] == len(batch.runs)
    assert len(found["summary"]) == len(batch.summary)
    first = next(row for row in found["differences"] if row["kind"] == "rl")
    assert (first["arm"], first["minus"]) == ("grpo-roc", "grpo")
    assert first["setting"] == {"stage": 1}
    assert first["seeds"] == [1, 2, 3]
    assert first["mean"] == pytest.approx(sum(first["values"]) / 3)


# --- what cannot be collected ------------------------------------------------------------


def test_nothing_done_says_what_to_do() -> None:
    with pytest.raises(CollectError, match="nothing is done yet: `rstar2 batch run"):
        collect([])


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped", "missing"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    good = run(tmp_path, seed=1, loss=[0.5] * 50)
    bad = run(tmp_path, seed=2, loss=[0.5, 0.25] * 50)
    file = bad.folder / "metrics.parquet"
    data = bytearray(file.read_bytes())
    data[4:60] = bytes(255 - byte for byte in data[4:60])
    match damage:
        case "empty":
            file.write_bytes(b"")
        case "text":
            file.write_bytes(b"\xff\xfe not parquet" * 9)
        case "cut":
            file.write_bytes(file.read_bytes()[:-20])
        case "flipped":
            file.write_bytes(data)
        case "missing":
            file.unlink()
    with pytest.raises(CollectError) as caught:
        collect([good, bad])
    assert str(file) in str(caught.value)
    assert f"remove {bad.folder} and run it again" in str(caught.value)


def test_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    one = run(tmp_path, loss=[0.5])
    text = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"phase": text}), one.folder / "metrics.parquet")
    with pytest.raises(CollectError, match="no whole parquet file"):
        collect([one])


def test_a_column_that_is_no_metric_is_named(tmp_path: Path) -> None:
    one = run(tmp_path, loss=[0.5])
    pq.write_table(pa.table({"step": [1], "curve": [[1, 2]]}), one.folder / "metrics.parquet")
    with pytest.raises(CollectError, match=r"'curve' is list.*a metric is a number or text"):
        collect([one])


def test_an_evaluation_must_be_there_and_whole(tmp_path: Path) -> None:
    one = run(tmp_path, kind="evaluation", accuracy=[0.5])
    with pytest.raises(CollectError, match=r"evaluation\.parquet: it is missing"):
        collect([one])
    pq.write_table(pa.table({"problem_set": ["a"]}), one.folder / "evaluation.parquet")
    with pytest.raises(CollectError, match="it lacks calls_in_correct, correct"):
        collect([one])


def test_an_evaluation_of_no_problem_has_no_rates(tmp_path: Path) -> None:
    one = evaluated(run(tmp_path, kind="evaluation", accuracy=[0.5]), easy=[(1,) * 7])
    whole = pq.read_table(one.folder / "evaluation.parquet")
    pq.write_table(whole.slice(0, 0), one.folder / "evaluation.parquet")
    found = collect([one])
    assert found.table.num_rows == 1
    assert {m.subject.source for m in found.summary} == {Source.LAST_STEPS}


def test_what_the_system_refuses_is_not_called_damaged(tmp_path: Path) -> None:
    one = run(tmp_path, loss=[0.5])
    (one.folder / "metrics.parquet").unlink()
    (one.folder / "metrics.parquet").mkdir()
    with pytest.raises(CollectError, match=r"cannot read .*metrics\.parquet: .* a file of yours"):
        collect([one])


# --- time --------------------------------------------------------------------------------


def test_collecting_loads_no_torch() -> None:
    code = "import sys, rstar2.experiments.collect; print({'torch', 'pandas'} & sys.modules.keys())"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert found.strip() == "set()"
