"""The grades of a run: counted as they are given, and examined when the run is done."""

import asyncio
import copy
import dataclasses
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.experiments.grading_report import (
    ALARM_SHARE,
    MALFORMED,
    Comparison,
    GradingReport,
    alarm,
    as_json,
    compare_graders,
    grading_report,
    phase_reports,
    training_parts,
)
from rstar2.experiments.presets import load_torch_preset
from rstar2.grading import Reason, Verdict, grade
from rstar2.grading.expression import Outcome
from rstar2.protocol import TokenTemplate
from rstar2.records import Hardware, Provenance, RecordError, RunFolder
from rstar2.records.grades import (
    Grade,
    Phase,
    append_grades,
    count_grades,
    decimal,
    load_grades,
    read_grades,
    write_grades,
)
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy
from rstar2.training.curriculum import RLRun, train_rl
from rstar2.training.spec import Arm

PRESET = load_torch_preset("test")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
grades = st.builds(
    Grade,
    phase=st.sampled_from(Phase),
    gold=st.integers().map(str),
    box=texts,
    reason=st.sampled_from(Reason),
    value=st.one_of(st.just(""), st.integers().map(str)),
)
tallies = st.dictionaries(grades, st.integers(1, 10**6), max_size=8).map(Counter)


def verdicts(*boxes: str, gold: int = 42, times: int = 1) -> list[tuple[int, Verdict]]:
    """What the reward says of rollouts whose last turn answers with these boxes."""
    written = [f"So.</reason><answer>\\boxed{{{box}}}</answer>" for box in boxes]
    return [(gold, grade(text, gold)) for text in written for _ in range(times)]


def run_folder(path: Path) -> RunFolder:
    origin = Provenance("0" * 40, False, Hardware("cpu", 1, 1.0), {})
    return RunFolder.create(path, {}, name="test-run", run_id="0", provenance=origin)


# --- counted as they are given ------------------------------------------------------------


def test_rollouts_of_one_box_are_counted_together() -> None:
    counted = count_grades(Phase.RL, [*verdicts("42", "41", times=3), *verdicts("x^2")])
    assert counted == {
        Grade(Phase.RL, "42", "42", Reason.CORRECT, "42"): 3,
        Grade(Phase.RL, "42", "41", Reason.MISMATCH, "41"): 3,
        Grade(Phase.RL, "42", "x^2", Reason.NOT_INTEGER, ""): 1,
    }


@given(st.one_of(st.integers(), st.integers(0, 60_000).map(lambda bits: -(1 << bits))))
def test_an_integer_of_any_size_is_written_in_decimal(value: int) -> None:
    text = decimal(value)
    assert text.removeprefix("-").isdigit()
    digits = len(text.removeprefix("-"))
    assert 10 ** (digits - 1) <= max(1, abs(value)) < 10**digits
    if digits <= 4_300:
        assert text == str(value)


@given(steps=st.lists(tallies, max_size=4))
def test_grades_survive_the_log_and_the_parquet_file(
    steps: list[Counter[Grade]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("grades")
    log, table = folder / "grades.jsonl", folder / "grades.parquet"
    for number, counted in enumerate(steps):
        append_grades(log, number, counted)
    total: Counter[Grade] = sum(steps, Counter())
    assert read_grades(log) == total
    write_grades(table, total)
    first = table.read_bytes()
    assert load_grades(table) == total
    write_grades(table, Counter(dict(reversed(total.items()))))
    assert table.read_bytes() == first


@pytest.mark.parametrize(
    "line",
    [
        {"step": 1, "grades": [{"phase": "rl"}]},
        {"step": 1, "grades": [{"phase": "x", "gold": "1", "box": "", "reason": "hedge"}]},
        {"step": 1, "grades": ["rl"]},
    ],
)
def test_a_log_of_something_else_is_refused(line: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "grades.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordError, match="is no row of grades"):
        read_grades(tmp_path / "grades.jsonl")


def test_a_parquet_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "grades.parquet").write_bytes(b"PAR1, or not")
    with pytest.raises(RecordError, match=r"grades\.parquet cannot be read"):
        load_grades(tmp_path / "grades.parquet")


# --- a run that is killed -----------------------------------------------------------------


class Killed(Exception):
    pass


@pytest.fixture
def policy(
    tokenizer: PreTrainedTokenizerFast, laptop: TokenTemplate, tiny_model: Qwen3ForCausalLM
) -> Policy:
    """A policy that has learnt nothing."""
    return Policy(copy.deepcopy(tiny_model), tokenizer, laptop)


def train(policy: Policy, path: Path, kill_after: int | None = None) -> RunFolder:
    """Trains in a folder, or goes on there."""
    folder = RunFolder(path) if (path / "run.json").exists() else run_folder(path)
    limits = PRESET.limits.model_copy(update={"max_prompt_tokens": 400})
    spec = PRESET.rl.model_copy(update={"refill": False, "checkpoint_every": 2})
    stage = PRESET.stages[1].model_copy(update={"steps": 4})
    run = RLRun(
        Arm.GRPO_ROC, spec, dataclasses.replace(PRESET.world, stages=(stage,)), limits, seed=0
    )

    def on_step(step: int, _steps: int, _metrics: dict[str, float]) -> None:
        if step == kill_after:
            raise Killed

    async def go() -> None:
        async with Sandbox() as sandbox:
            await train_rl(copy.deepcopy(policy), run, folder, sandbox, on_step)

    asyncio.run(go())
    return folder


def test_a_killed_run_ends_with_the_grades_of_a_whole_one(policy: Policy, tmp_path: Path) -> None:
    whole = train(policy, tmp_path / "whole")
    with pytest.raises(Killed):
        train(policy, tmp_path / "killed", kill_after=3)
    killed = RunFolder.open(tmp_path / "killed")
    with killed.grades.open("a") as file:
        file.write('{"step": 4, "gra')
    train(policy, killed.path)
    assert killed.grades.read_bytes() == whole.grades.read_bytes()

    rows = pd.DataFrame(whole.metrics.rows())
    graded = read_grades(whole.grades)
    assert graded.total() == rows["rollouts"].sum() > 0
    reasons = [reason for reason in Reason if reason is not Reason.INFRASTRUCTURE]
    for reason in reasons:
        counted = sum(n for one, n in graded.items() if one.reason is reason)
        assert (rows[f"reason/{reason}"] * rows["rollouts"]).sum() == pytest.approx(counted)
    assert rows[[f"reason/{reason}" for reason in reasons]].sum(axis=1).tolist() == [1.0] * 4


# --- examined when it is done -------------------------------------------------------------


@pytest.fixture(scope="module")
def compared() -> Comparison:
    """Both graders on boxes of each kind."""
    counted = count_grades(
        Phase.RL,
        [
            *verdicts("42", times=90),
            *verdicts("41", "x=42", "7^{2}", times=2),
            *verdicts(r"\sum_{k=1}^{6} 2k", times=3),
            *verdicts("9^{9^{9^{9}}}!", times=1),
            *verdicts("", " ", times=5),
        ],
    )
    counted += count_grades(Phase.EVALUATION, verdicts("42", times=10))
    told: list[tuple[int, int]] = []
    result = asyncio.run(
        compare_graders(counted, on_boxes=lambda done, total: told.append((done, total)))
    )
    assert told == [(done, 6) for done in range(1, 7)]
    return result


def test_every_distinct_box_is_compared_once_with_its_rollouts(compared: Comparison) -> None:
    assert compared.boxes == 6
    assert compared.rollouts == 110
    assert sum(compared.outcomes.values()) == 6


def test_what_math_verify_evaluates_for_the_model_is_a_disagreement(compared: Comparison) -> None:
    (one,) = compared.disagreements
    assert (one.gold, one.box, one.rollouts) == ("42", r"\sum_{k=1}^{6} 2k", 3)
    assert (one.reason, one.expression) == (Reason.NOT_INTEGER, Outcome.CORRECT)
    assert compared.share == 3 / 109
    assert compared.alarms


def test_a_timeout_is_no_disagreement_and_is_counted(compared: Comparison) -> None:
    assert compared.undecided == 1
    assert compared.outcomes[Outcome.TIMEOUT] + compared.outcomes.get(Outcome.CRASHED, 0) == 1


def test_a_run_without_boxes_has_nothing_to_compare() -> None:
    nothing = asyncio.run(compare_graders(Counter(), on_boxes=lambda *_: None))
    assert (nothing.boxes, nothing.share, nothing.alarms) == (0, 0.0, False)


@pytest.mark.parametrize(("odd", "alarms"), [(2, False), (3, True)])
def test_the_alarm_is_raised_above_two_in_a_thousand(
    odd: int, alarms: bool, compared: Comparison
) -> None:
    one = dataclasses.replace(compared.disagreements[0], rollouts=odd)
    comparison = dataclasses.replace(compared, rollouts=1_000, undecided=0, disagreements=(one,))
    assert ALARM_SHARE == 0.002
    report = GradingReport("test-run", "0123456789", (), (), comparison)
    assert comparison.alarms == alarms
    assert as_json(report)["alarm"] == alarms
    if alarms:
        assert "ALARM" in str(alarm(report))
        assert "0.30%" in str(alarm(report))
    else:
        assert alarm(report) is None


@given(tallies)
def test_reasons_add_up_in_each_phase(counted: Counter[Grade]) -> None:
    reports = phase_reports(counted)
    assert sum(report.rollouts for report in reports) == counted.total()
    for report in reports:
        assert sum(report.reasons.values()) == report.rollouts > 0


def test_malformed_answers_are_followed_over_the_training() -> None:
    steps = 25
    metrics = pd.DataFrame(
        {
            "step": range(1, steps + 1),
            "rollouts": [100.0] * steps,
            **{f"reason/{reason}": [0.0] * steps for reason in MALFORMED},
        }
    )
    metrics.loc[metrics["step"] > 20, "reason/hedge"] = 0.25
    metrics.loc[metrics["step"] > 20, "reason/no_box"] = 0.25
    parts = training_parts(metrics)
    assert [part.first for part in parts] == [1, 3, 6, 8, 11, 13, 16, 18, 21, 23]
    assert parts[-1].last == steps
    assert sum(part.rollouts for part in parts) == 2_500
    assert [part.malformed for part in parts] == [0.0] * 8 + [0.5] * 2


def test_a_run_without_rl_has_no_training_to_follow() -> None:
    assert training_parts(pd.DataFrame({"step": [1, 2], "loss": [0.5, 0.4]})) == ()


def test_a_finished_run_is_reported(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    reasons = {f"reason/{reason}": 0.5 * (reason is Reason.HEDGE) for reason in MALFORMED}
    folder.metrics.append({"step": 1, "rollouts": 4.0, **reasons})
    folder.metrics.to_parquet(folder.metrics_parquet)
    counted = count_grades(Phase.RL, verdicts("42", "41", times=2))
    write_grades(folder.grades_parquet, counted)
    report = grading_report(folder.path)
    assert report.run == "test-run"
    assert [(one.phase, one.rollouts) for one in report.phases] == [(Phase.RL, 4)]
    (part,) = report.training
    assert (part.first, part.last, part.malformed) == (1, 1, 0.5)
    value = json.loads(json.dumps(as_json(report), allow_nan=False))
    assert value["phases"]["rl"]["reasons"] == {"correct": 0.5, "mismatch": 0.5}
    assert (value["disagreement"], value["alarm"]) == (0.0, False)
    assert value["comparison"]["outcomes"] == {"correct": 1, "wrong": 1}


def test_a_run_without_grades_says_why(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    with pytest.raises(RecordError, match="not finished, or older than the record of grades"):
        grading_report(folder.path)


@pytest.mark.parametrize(
    "row",
    [
        5,
        [{"phase": "rl"}],
        [{"phase": "rl", "gold": None, "box": "", "reason": "correct", "value": "", "rollouts": 1}],
        [{"phase": "rl", "gold": "1", "box": "", "reason": "correct", "value": "", "rollouts": 0}],
        [{"phase": "rl", "gold": "1", "box": "", "reason": "odd", "value": "", "rollouts": 1}],
    ],
)
def test_what_is_no_record_of_grades_is_named(tmp_path: Path, row: object) -> None:
    path = tmp_path / "grades.jsonl"
    path.write_text(json.dumps({"step": 1, "grades": row}) + "\n")
    with pytest.raises(RecordError, match=r"grades\.jsonl: .* is no (row|list) of grades"):
        read_grades(path)


def test_a_box_that_is_no_utf8_can_be_written(tmp_path: Path) -> None:
    grades = count_grades(Phase.RL, [(1, Verdict(False, None, Reason.NOT_INTEGER, "\ud800"))])
    append_grades(tmp_path / "grades.jsonl", 1, grades)
    write_grades(tmp_path / "grades.parquet", grades)
    assert load_grades(tmp_path / "grades.parquet") == grades
    assert read_grades(tmp_path / "grades.jsonl") == grades
