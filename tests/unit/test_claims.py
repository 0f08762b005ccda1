"""Claims: what a file may say, which runs a claim is held against, and its verdict."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rstar2.algorithm.statistics import Interval, mean_interval
from rstar2.book.claims_view import count_verdicts, show_claims
from rstar2.experiments.claims import (
    Claim,
    ClaimsError,
    Expectation,
    HeldOutRate,
    LogMeasure,
    Verdict,
    load_claims,
    load_reasons,
)
from rstar2.experiments.finished_runs import pooled_rates
from rstar2.experiments.outcomes import Outcome, outcomes
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.publish import record_arm
from rstar2.experiments.report import Record
from rstar2.experiments.sweeps import load_sweep
from rstar2.training.monitor import alarms, fall_of_reward

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "sweeps" / "claims.yaml"
SAMPLES = 100


def claim(**changes: Any) -> Claim:
    """Errors of arm ``roc`` minus those of ``grpo`` on one held-out set."""
    said = {
        "id": "a-claim",
        "claim": "roc leaves fewer errors",
        "paper": "no table",
        "sweep": "laptop-x",
        "arm": "roc",
        "minus": "grpo",
        "metric": "accuracy",
        "population": {"held_out": "families"},
        "expect": {"below": 0},
        "exclusions": "none",
    }
    return Claim.model_validate({**said, **changes})


def record(folder: Path, arm: str, seed: int, right: float, steps: Sequence[float] = ()) -> Record:
    """A run on disk: the share that is right on a held-out set, and in its last steps."""
    path = folder / f"{arm}-seed{seed}"
    path.mkdir(parents=True, exist_ok=True)
    row = {
        "problem_set": "families",
        "samples": SAMPLES,
        "correct": round(right * SAMPLES),
        "calls_in_correct": 0,
        "errors_in_correct": 0,
        "tokens": 80,
        "tokens_in_correct": 30,
        "truncated": 0,
    }
    pd.DataFrame([row]).to_parquet(path / "evaluation.parquet")
    log = {"step": range(1, len(steps) + 1), "accuracy": list(steps)}
    pd.DataFrame(log).to_parquet(path / "metrics.parquet")
    run = {"arm": "grpo", "sweep_arm": arm, "seed": seed, "kind": "rl", "evaluation": "results"}
    return Record(path, run)


def arms(folder: Path, **right: Sequence[float]) -> list[Record]:
    """Records of arms, a share for each seed from 0."""
    return [
        record(folder, arm, seed, value)
        for arm, values in right.items()
        for seed, value in enumerate(values)
    ]


def outcome(one: Claim, records: Sequence[Record], **others: Sequence[Record]) -> Outcome:
    (found,) = outcomes([one], {"laptop-x": records, **others}, {})
    return found


# --- the claims of the checkout -----------------------------------------------------------


@pytest.mark.thorough
def test_every_claim_speaks_of_arms_sets_and_seeds_of_its_sweep() -> None:
    claims = load_claims(CLAIMS)
    load_reasons(CLAIMS.with_name("verdicts.yaml"), claims)
    names = {one.sweep for one in claims} | {one.minus_sweep for one in claims if one.minus_sweep}
    sweeps = {name: load_sweep(str(CLAIMS.with_name(f"{name}.yaml"))) for name in names}
    trained = {
        name: {(record_arm(task), task.seed) for task in sweep.tasks}
        for name, sweep in sweeps.items()
    }
    for one in claims:
        seeds = {seed for arm, seed in trained[one.sweep] if arm == one.arm}
        assert len(seeds) >= 3, one.id
        if one.minus is not None:
            other = trained[one.minus_sweep or one.sweep]
            assert seeds <= {seed for arm, seed in other if arm == one.minus}, one.id
        preset = load_torch_preset(sweeps[one.sweep].spec.preset or "")
        if one.population.held_out is not None:
            sets = preset.world.held_out(0, 1, None)
            assert one.population.held_out in sets, one.id


def test_the_claims_that_the_report_is_asked_for_are_there() -> None:
    """The laboratory's have at least 8 seeds; each is that arm subtracted from grpo-roc."""
    claims = {one.id: one for one in load_claims(CLAIMS)}
    for name, minus in (
        ("lab-calm-grpo", "calm-grpo"),
        ("lab-calm-grpo-2g", "calm-grpo-2g"),
        ("lab-cost-grpo", "cost-grpo"),
    ):
        assert (claims[name].minus, claims[name].metric) == (minus, "tool_error_in_correct")
        assert claims[name].arm.endswith("-grpo-roc")
    uniform = claims["lab-uniform"]
    assert (uniform.arm, uniform.minus) == ("calm-roc-uniform", "calm-grpo")


def test_the_rates_of_a_claim_are_those_of_an_evaluation() -> None:
    names = ("samples", "correct", "calls_in_correct", "errors_in_correct", "tokens")
    totals = dict.fromkeys((*names, "tokens_in_correct", "truncated"), 1.0)
    assert set(HeldOutRate) == pooled_rates(totals).keys()


# --- verdicts -----------------------------------------------------------------------------

BELOW, ABOVE, NEAR = Expectation(below=0), Expectation(above=0), Expectation(within=(-0.1, 0.1))


@pytest.mark.parametrize(
    ("expected", "interval", "verdict"),
    [
        (BELOW, (-0.2, -0.3, -0.1), Verdict.REPRODUCED),
        (BELOW, (-0.2, -0.5, 0.1), Verdict.NOT_AT_THIS_SCALE),
        (BELOW, (-0.2, -0.4, 0.0), Verdict.NOT_AT_THIS_SCALE),
        (BELOW, (0.2, 0.1, 0.3), Verdict.OPPOSITE),
        (ABOVE, (0.2, 0.1, 0.3), Verdict.REPRODUCED),
        (ABOVE, (0.2, -0.1, 0.5), Verdict.NOT_AT_THIS_SCALE),
        (ABOVE, (-0.2, -0.3, -0.1), Verdict.OPPOSITE),
        (NEAR, (0.0, -0.05, 0.05), Verdict.REPRODUCED),
        (NEAR, (0.05, -0.05, 0.15), Verdict.NOT_AT_THIS_SCALE),
        (NEAR, (0.3, 0.2, 0.4), Verdict.OPPOSITE),
        (NEAR, (-0.3, -0.4, -0.2), Verdict.OPPOSITE),
        (BELOW, (-0.2, math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE),
    ],
)
def test_the_whole_interval_of_a_difference_decides(
    expected: Expectation, interval: tuple[float, float, float], verdict: Verdict
) -> None:
    assert expected.verdict(Interval(*interval), is_level=False) is verdict


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.85, 0.75, 0.95), Verdict.REPRODUCED),
        ((0.85, math.nan, math.nan), Verdict.REPRODUCED),
        ((0.75, 0.65, 0.85), Verdict.NOT_AT_THIS_SCALE),
        ((0.75, math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE),
        ((0.65, 0.60, 0.70), Verdict.OPPOSITE),
    ],
)
def test_the_mean_of_a_level_decides(
    interval: tuple[float, float, float], verdict: Verdict
) -> None:
    expected = Expectation(above=0.8)
    assert expected.verdict(Interval(*interval), is_level=True) is verdict


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_below_and_above_are_opposites(values: list[float]) -> None:
    interval = mean_interval(values)
    below = BELOW.verdict(interval, is_level=False)
    above = ABOVE.verdict(interval, is_level=False)
    opposite = {Verdict.REPRODUCED: Verdict.OPPOSITE, Verdict.OPPOSITE: Verdict.REPRODUCED}
    assert above is opposite.get(below, below)


# --- what a claim is held against ---------------------------------------------------------


def test_a_difference_is_paired_by_seed(tmp_path: Path) -> None:
    right = {"roc": [0.2, 0.5, 0.8], "grpo": [0.3, 0.61, 0.9]}
    found = outcome(claim(), arms(tmp_path, **right))
    assert found.values == pytest.approx({0: -0.1, 1: -0.11, 2: -0.1})
    interval = mean_interval([-0.1, -0.11, -0.1])
    assert found.effect == pytest.approx([interval.mean, interval.low, interval.high])
    assert found.verdict is Verdict.REPRODUCED, "what the seeds share cancels"


def test_seeds_without_both_arms_are_left_out(tmp_path: Path) -> None:
    found = outcome(claim(), arms(tmp_path, roc=[0.2, 0.5, 0.8], grpo=[0.3, 0.6]))
    assert sorted(found.values) == [0, 1]


def test_the_other_arm_may_be_of_another_sweep(tmp_path: Path) -> None:
    mine = arms(tmp_path / "x", roc=[0.2, 0.3], grpo=[0.0, 0.0])
    other = arms(tmp_path / "y", grpo=[0.4, 0.6])
    one = claim(minus_sweep="laptop-y")
    assert outcome(one, mine, **{"laptop-y": other}).values == pytest.approx({0: -0.2, 1: -0.3})


def test_a_level_is_of_one_arm(tmp_path: Path) -> None:
    one = claim(minus=None, expect={"above": 0.8})
    found = outcome(one, arms(tmp_path, roc=[0.7, 0.95], grpo=[0.0, 0.0]))
    assert found.values == {0: 0.7, 1: 0.95}
    assert found.verdict is Verdict.REPRODUCED


def test_the_last_sampled_steps_are_a_mean_over_steps_that_have_a_value(tmp_path: Path) -> None:
    steps = [0.9, 0.2, math.nan, 0.4]
    one = claim(minus=None, population={"sampled_last": 3}, expect={"below": 0.5})
    found = outcome(one, [record(tmp_path, "roc", 7, 0.0, steps)])
    assert found.values == pytest.approx({7: 0.3})


def test_a_log_whose_stages_are_runs_of_their_own_is_one_log(tmp_path: Path) -> None:
    first = record(tmp_path / "1", "roc", 7, 0.0, [0.1, 0.2, 0.3])
    second = record(tmp_path / "2", "roc", 7, 0.0, [0.4, 0.5])
    moved = second.metrics.assign(step=[4, 5])
    moved.to_parquet(second.path / "metrics.parquet")
    one = claim(minus=None, population={"sampled_last": 3}, expect={"below": 0.5})
    for records in ([first, second], [second, first]):
        assert outcome(one, records).values == pytest.approx({7: 0.4})


RISES = [0.1 + 0.02 * step for step in range(30)]
FALLS = [*RISES, *(0.6 - 0.02 * step for step in range(30))]


def monitored(measure: LogMeasure, folder: Path, *logs: Sequence[float]) -> dict[int, float]:
    one = claim(minus=None, metric=measure, population={"log": "whole"}, expect={"above": 0})
    records = [record(folder, "roc", seed, 0.0, log) for seed, log in enumerate(logs)]
    return dict(outcome(one, records).values)


def test_a_whole_log_is_what_the_monitor_makes_of_it(tmp_path: Path) -> None:
    rows = [{"step": step, "accuracy": value} for step, value in enumerate(FALLS, 1)]
    fall, (warning, *_) = fall_of_reward(rows), alarms(rows)
    assert fall is not None
    lead = monitored(LogMeasure.WARNING_LEAD, tmp_path / "lead", FALLS, RISES)
    assert lead == {0: fall - warning.step}, "the second never falls"
    assert lead[0] > 0
    other = monitored(LogMeasure.OTHER_WARNING_LEAD, tmp_path / "other", FALLS, RISES)
    assert other == {0: fall - len(FALLS)}, "no other signal is in the log"
    assert monitored(LogMeasure.WARNINGS, tmp_path / "n", FALLS, RISES) == {0: 1, 1: 0}


def test_a_fall_that_was_never_warned_of_has_no_lead(tmp_path: Path) -> None:
    run = record(tmp_path, "roc", 0, 0.0, [0.8] * 20 + [0.3] * 20)
    in_stages = run.metrics.assign(stage=[1] * 20 + [2] * 20)
    in_stages.to_parquet(run.path / "metrics.parquet")
    assert alarms(in_stages.to_dict("records")) == (), "each stage is held against itself"
    measure = {"metric": LogMeasure.WARNING_LEAD, "population": {"log": "whole"}}
    (lead,) = outcome(claim(minus=None, **measure), [run]).values.values()
    assert lead < 0


def test_without_records_nothing_is_measured() -> None:
    for one in (claim(), claim(minus=None)):
        (found,) = outcomes([one], {}, {"a-claim": "No run yet."})
        assert found.verdict is Verdict.NOT_MEASURED
        assert found.as_json() == {
            "id": "a-claim",
            "claim": "roc leaves fewer errors",
            "paper": "no table",
            "effect": [None, None, None],
            "seeds": 0,
            "verdict": "not measured",
            "why": "No run yet.",
        }


def test_a_rate_that_no_seed_has_is_not_measured(tmp_path: Path) -> None:
    one = claim(metric="tool_error_in_correct")
    found = outcome(one, arms(tmp_path, roc=[0.2, 0.5], grpo=[0.3, 0.6]))
    assert found.verdict is Verdict.NOT_MEASURED, "nobody called the tool"


def test_one_seed_decides_no_difference(tmp_path: Path) -> None:
    found = outcome(claim(), arms(tmp_path, roc=[0.2], grpo=[0.3]))
    assert found.verdict is Verdict.NOT_AT_THIS_SCALE
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert told["effect"] == [pytest.approx(-0.1), None, None]
    assert told["seeds"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"population": {"held_out": "hidden"}},
            "claim a-claim: roc-seed0 was evaluated on families, not hidden",
        ),
        (
            {"population": {"sampled_last": 3}},
            "claim a-claim: roc-seed0 has 2 steps, less than 3",
        ),
        (
            {"population": {"sampled_last": 1}, "metric": "acuracy"},
            "claim a-claim: roc-seed0 logs no 'acuracy'",
        ),
    ],
)
def test_a_claim_of_what_a_record_lacks_is_refused(
    changes: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClaimsError, match=message):
        outcome(claim(**changes), [record(tmp_path, "roc", 0, 0.5, [0.1, 0.2])])


# --- what the files may say ---------------------------------------------------------------


def said(**changes: Any) -> str:
    told = {**claim().model_dump(exclude_none=True, mode="json"), **changes}
    return yaml.safe_dump([told], allow_unicode=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "claims.yaml: the file: Input should be a valid list"),
        ("a: 1", "claims.yaml: the file: Input should be a valid list"),
        ("[1", "claims.yaml cannot be read: "),
        (b"\xff", "claims.yaml cannot be read: 'utf-8' codec"),
        ("[{id: x}]", "claims.yaml: 0.claim: Field required"),
        (said(mettric="x"), "claims.yaml: 0.mettric: Extra inputs"),
        (said(id=""), "claims.yaml: 0.id: "),
        (said(metric="acuracy"), "metric is 'acuracy'; a held-out set has accuracy, tool"),
        (said(population={}), "0.population: Value error, give one of held_out, sampled_last and"),
        (said(population={"held_out": "x", "sampled_last": 1}), "give one of held_out, sampled_"),
        (said(population={"log": "half"}), "0.population.log: Input should be 'whole'"),
        (said(population={"log": "whole"}), "metric is 'accuracy'; a whole log has warnings, wa"),
        (said(population={"sampled_last": 0}), "0.population.sampled_last: "),
        (said(expect={}), "0.expect: Value error, give one of below, above and within"),
        (said(expect={"below": 0, "above": 1}), "give one of below, above and within"),
        (said(expect={"within": [1, 0]}), r"within is \[1.0, 0.0\]: give the lower end first"),
        (said(expect={"below": math.nan}), "0.expect.below: Input should be a finite number"),
        (said(minus=None, minus_sweep="y"), "minus_sweep without minus: a level is of one arm"),
        (said() + said(), "claims.yaml: a-claim is the id of two claims: rename one"),
    ],
)
def test_what_the_claims_may_not_say(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ClaimsError, match=message):
        load_claims(path)


def test_reasons_may_be_missing_but_not_be_of_no_claim(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.yaml"
    assert load_reasons(path, [claim()]) == {}
    path.write_text("")
    assert load_reasons(path, [claim()]) == {}
    path.write_text("a-claim: Groups stop being mixed — no lever.", encoding="utf-8")
    reasons = load_reasons(path, [claim()])
    (found,) = outcomes([claim()], {}, reasons)
    assert found.why == "Groups stop being mixed — no lever."
    for text, message in (
        ("other: x", "there is no claim 'other'"),
        ("[1]", "give a sentence for each id"),
        ("a-claim: [1]", "give a sentence for each id"),
    ):
        path.write_text(text)
        with pytest.raises(ClaimsError, match=message):
            load_reasons(path, [claim()])


# --- what a page shows --------------------------------------------------------------------


def test_a_page_shows_effect_seeds_verdict_and_why(tmp_path: Path) -> None:
    right = {"roc": [0.2, 0.5, 0.8], "grpo": [0.3, 0.61, 0.9]}
    records = {"laptop-x": arms(tmp_path, **right)}
    tokens = claim(id="b", metric="tokens", claim="roc writes <less>", minus=None)
    found = outcomes([claim(), tokens], records, {"a-claim": "Free errors."})
    shown = show_claims(found)
    assert "-0.103 [-0.118,\u00a0-0.089]" in shown.text
    assert "0.8 [0.8,\u00a00.8]" in shown.text
    assert "Free errors." in shown.text
    assert "roc writes &lt;less&gt;" in shown.html
    assert count_verdicts(found) == "Of 2 claims: 1 reproduced, 1 opposite."
    assert count_verdicts([]) == "Nothing was claimed."
