"""The collapse monitor: when it warns, when it is silent, and when the reward has fallen."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.training.monitor import (
    Alarm,
    MonitorError,
    MonitorSettings,
    Signal,
    alarms,
    fall_of_reward,
)

ROOT = Path(__file__).resolve().parents[3]
HEALTHY = {
    Signal.REWARD: 0.8,
    Signal.ENTROPY: 0.05,
    Signal.TRUNCATION: 0.02,
    Signal.CALLS: 1.1,
    Signal.VOID_TURNS: 0.01,
}
WINDOW = MonitorSettings().window
Row = dict[str, float]


def row(step: int, stage: int = 1, **changed: float) -> Row:
    healthy = {signal.value: value for signal, value in HEALTHY.items()}
    return {"step": step, "stage": stage, **healthy, **changed}


def log(signal: Signal, values: Iterable[float]) -> list[Row]:
    """A healthy log, but for one signal."""
    return [row(step, **{signal: value}) for step, value in enumerate(values, 1)]


def accuracies(values: Iterable[float]) -> list[Row]:
    return [{"step": step, "accuracy": value} for step, value in enumerate(values, 1)]


# --- what sounds --------------------------------------------------------------------------


JUST_OVER = {
    "fewer right": (Signal.REWARD, 0.8 - 0.081),
    "unsure": (Signal.ENTROPY, 0.05 * 1.41),
    "more truncated": (Signal.TRUNCATION, 0.02 + 0.061),
    "more calls": (Signal.CALLS, 1.1 + 0.251),
    "fewer calls": (Signal.CALLS, 1.1 - 0.251),
    "more void turns": (Signal.VOID_TURNS, 0.01 + 0.036),
}
JUST_UNDER = {
    "fewer right": (Signal.REWARD, 0.8 - 0.079),
    "unsure": (Signal.ENTROPY, 0.05 * 1.39),
    "more truncated": (Signal.TRUNCATION, 0.02 + 0.059),
    "more calls": (Signal.CALLS, 1.1 + 0.249),
    "fewer calls": (Signal.CALLS, 1.1 - 0.249),
    "more void turns": (Signal.VOID_TURNS, 0.01 + 0.034),
}


@pytest.mark.parametrize(("signal", "value"), JUST_OVER.values(), ids=JUST_OVER)
def test_a_mean_beyond_its_limit_sounds(signal: Signal, value: float) -> None:
    (alarm,) = alarms(log(signal, [HEALTHY[signal]] * WINDOW + [value] * WINDOW))
    assert alarm.signal is signal
    assert alarm.step == 2 * WINDOW  # the mean crosses with its last step
    assert alarm.value == pytest.approx(value)
    assert alarm.baseline == pytest.approx(HEALTHY[signal])
    assert alarm.message.startswith(f"step {2 * WINDOW}: ")


@pytest.mark.parametrize(("signal", "value"), JUST_UNDER.values(), ids=JUST_UNDER)
def test_a_mean_within_its_limit_is_silent(signal: Signal, value: float) -> None:
    assert alarms(log(signal, [HEALTHY[signal]] * WINDOW + [value] * WINDOW)) == ()


IMPROVING = {
    "more right": (Signal.REWARD, 0.2, 1.0),
    "surer": (Signal.ENTROPY, 0.12, 0.0),
    "fewer truncated": (Signal.TRUNCATION, 0.3, 0.0),
    "fewer void turns": (Signal.VOID_TURNS, 0.2, 0.0),
}


@pytest.mark.parametrize(("signal", "first", "last"), IMPROVING.values(), ids=IMPROVING)
def test_what_healthy_training_does_is_silent(signal: Signal, first: float, last: float) -> None:
    steps = [first + (last - first) * step / 59 for step in range(60)]
    assert alarms(log(signal, steps)) == ()


def test_the_best_of_the_stage_is_what_counts_not_its_start() -> None:
    risen = [0.5] * WINDOW + [0.9] * WINDOW
    (alarm,) = alarms(log(Signal.REWARD, risen + [0.7] * WINDOW))
    assert alarm.baseline == pytest.approx(0.9)
    assert alarm.value > 0.8


@pytest.mark.parametrize("signal", [Signal.ENTROPY, Signal.TRUNCATION, Signal.VOID_TURNS])
def test_a_relapse_to_where_the_stage_began_sounds(signal: Signal) -> None:
    alarm, *_ = alarms(log(signal, [0.2] * WINDOW + [0.05] * WINDOW + [0.2] * WINDOW))
    assert alarm.baseline == pytest.approx(0.05)
    assert alarm.value < 0.2


def test_nothing_is_a_mean_before_the_window_is_full() -> None:
    assert alarms(log(Signal.TRUNCATION, [0.0] * (WINDOW - 1) + [1.0])) == ()


def test_an_alarm_sounds_once_and_again_when_it_had_come_back() -> None:
    good, bad = [0.0] * 2 * WINDOW, [0.5] * 2 * WINDOW
    found = alarms(log(Signal.TRUNCATION, good + bad + good + bad))
    assert [alarm.step for alarm in found] == [2 * WINDOW + 2, 6 * WINDOW + 2]


def test_signals_of_one_step_sound_together_the_reward_first() -> None:
    worst = {"accuracy": 0.0, "entropy": 3.0, "truncated": 1.0, "calls": 20.0, "void_turns": 1.0}
    rows = [row(step) for step in range(1, WINDOW + 1)]
    found = alarms([*rows, row(WINDOW + 1, **worst)])
    assert [alarm.signal for alarm in found] == list(Signal)
    assert {alarm.step for alarm in found} == {WINDOW + 1}


def test_sentences_give_value_and_baseline() -> None:
    found = alarms(log(Signal.TRUNCATION, [0.02] * WINDOW + [0.1] * WINDOW))
    assert found[0].message == "step 18: 8.4% of the rollouts hit a limit, 2.0% at the fewest"


def test_limits_can_be_set() -> None:
    rows = log(Signal.CALLS, [1.0, 1.0, 3.0])
    assert alarms(rows) == ()
    (alarm,) = alarms(rows, MonitorSettings(window=2, calls_change=0.9))
    assert (alarm.step, alarm.value, alarm.baseline) == (3, 2.0, 1.0)


@pytest.mark.parametrize("name", ["window", "reward_drop", "entropy_ratio", "void_rise"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(MonitorError, match=f"{name} of the monitor is {value}: give more than 0"):
        MonitorSettings(**{name: value})  # type: ignore[arg-type]  # a window that is no int


# --- stages -------------------------------------------------------------------------------


def test_a_new_stage_is_held_against_itself() -> None:
    first = [row(step, 1, accuracy=0.9, truncated=0.0) for step in range(1, 31)]
    harder = [row(step, 2, accuracy=0.5, truncated=0.3, calls=3.0) for step in range(31, 61)]
    assert alarms([*first, *harder]) == ()


def test_a_stage_is_silent_until_it_fills_a_window() -> None:
    def second(changed: float) -> list[Row]:
        stage = [row(step, 2, truncated=0.0) for step in range(31, 30 + WINDOW)]
        return [*stage, row(30 + WINDOW, 2), row(31 + WINDOW, 2, truncated=changed)]

    first = [row(step) for step in range(1, 31)]
    assert alarms([*first, *second(0.0)]) == ()
    assert [alarm.step for alarm in alarms([*first, *second(1.0)])] == [31 + WINDOW]


def test_a_log_without_stages_is_one_stage() -> None:
    rows = log(Signal.VOID_TURNS, [0.0] * WINDOW + [0.5] * WINDOW)
    bare = [{name: value for name, value in each.items() if name != "stage"} for each in rows]
    assert alarms(bare) == alarms(rows) != ()


# --- logs that are not whole --------------------------------------------------------------


@pytest.mark.parametrize("read", [alarms, fall_of_reward])
def test_no_rows_say_nothing(read: Callable[[list[Row]], object]) -> None:
    assert not read([])


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), float("-inf"), None, "", "absent"])
def test_a_value_that_is_none_is_left_out(hole: object) -> None:
    values = [0.0] * WINDOW + [0.5] * WINDOW
    whole = alarms(log(Signal.TRUNCATION, values))
    rows: list[dict[str, object]] = []
    for each in log(Signal.TRUNCATION, values):
        step = int(each["step"])
        rows += [{**each, "step": 2 * step}, {**each, "step": 2 * step + 1, "truncated": hole}]
        if hole == "absent":
            del rows[-1]["truncated"]
    holed = alarms(rows)
    assert [alarm.step for alarm in holed] == [2 * alarm.step for alarm in whole]
    assert [alarm.value for alarm in holed] == [alarm.value for alarm in whole]


def test_an_arm_without_a_tool_is_silent_about_calls() -> None:
    assert alarms(log(Signal.CALLS, [0.0] * 30 + [0.1] + [0.0] * 30)) == ()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([1, 2, 2], "step 2 follows step 2"),
        ([1, 3, 2], "step 2 follows step 3"),
        ([1, None], "has the step None"),
        ([float("nan")], "has the step nan"),
        ([1.5], r"has the step 1\.5"),
        (["1"], "has the step '1'"),
    ],
)
@pytest.mark.parametrize("read", [alarms, fall_of_reward])
def test_rows_that_are_no_log_are_refused(
    read: Callable[[list[dict[str, object]]], object], steps: list[object], message: str
) -> None:
    with pytest.raises(MonitorError, match=message):
        read([{"step": step} for step in steps])


def test_a_row_without_a_step_is_refused() -> None:
    with pytest.raises(MonitorError, match="has the step None"):
        alarms([{"accuracy": 0.5}])


# --- invariants ---------------------------------------------------------------------------

shares = st.floats(0, 1)
metrics = st.fixed_dictionaries(
    {
        "stage": st.integers(1, 2),
        "accuracy": shares,
        "entropy": st.one_of(st.just(float("nan")), st.floats(0, 5)),
        "truncated": shares,
        "calls": st.floats(0, 20),
    },
    optional={"void_turns": shares},
)
logs = st.lists(metrics, max_size=40).map(
    lambda rows: [{**each, "step": step} for step, each in enumerate(rows, 1)]
)
QUICK = MonitorSettings(window=2)


@given(logs, st.integers(0, 40))
def test_an_alarm_depends_on_no_later_row(rows: list[Row], known: int) -> None:
    sounded = tuple(alarm for alarm in alarms(rows, QUICK) if alarm.step <= known)
    assert alarms(rows[:known], QUICK) == sounded


@given(metrics, st.integers(1, 60))
def test_a_policy_that_stands_still_is_silent(values: Row, steps: int) -> None:
    assert alarms([{**values, "step": step} for step in range(1, steps + 1)]) == ()


@given(st.lists(shares, max_size=60).map(sorted))
def test_a_reward_that_only_rises_never_falls(values: list[float]) -> None:
    assert fall_of_reward(accuracies(values), window=2, depth=0.01) is None
    assert alarms(accuracies(values), QUICK) == ()


@given(st.lists(shares, max_size=60))
def test_a_fall_stays_below_what_came_before(values: list[float]) -> None:
    step = fall_of_reward(accuracies(values), window=1, depth=0.2)
    if step is None:
        assert not values or values[-1] > max(values) - 0.2
    else:
        before, after = values[: step - 1], values[step - 1 :]
        assert max(after) <= max(before) - 0.2
        assert step == 2 or values[step - 2] > max(values[: step - 1]) - 0.2


# --- the fall of the reward ---------------------------------------------------------------


def test_the_fall_is_where_the_mean_has_left_its_peak_for_good() -> None:
    rows = accuracies([0.5] * 10 + [0.8] * 20 + [0.29] * 30)
    assert fall_of_reward(rows) == 34  # the mean loses .051 a step from 31 on: .596 at 34


def test_a_dip_that_heals_is_no_fall() -> None:
    healed = [0.8] * 20 + [0.29] * 20 + [0.8] * 20
    assert fall_of_reward(accuracies(healed)) is None
    assert fall_of_reward(accuracies([*healed, *[0.29] * 30])) == 64


def test_a_fall_must_last_for_a_window() -> None:
    rows = accuracies([0.8] * 20 + [0.29] * 30)
    assert fall_of_reward(rows[:32]) is None
    assert fall_of_reward(rows[:33]) == 24
    assert fall_of_reward(rows) == 24


def test_the_depth_is_asked_for() -> None:
    rows = accuracies([0.8] * 20 + [0.65] * 30)
    assert fall_of_reward(rows) is None
    assert fall_of_reward(rows, depth=0.1) == 27


def test_a_short_log_has_not_fallen() -> None:
    assert fall_of_reward(accuracies([1.0] * 9 + [0.0] * 9)) is None


def test_a_policy_that_never_rose_has_not_fallen() -> None:
    assert fall_of_reward(accuracies([0.1] * 80)) is None


# --- real runs ----------------------------------------------------------------------------

RECORDS = sorted(
    record
    for arm in ("grpo", "grpo-roc", "roc-uniform")
    for record in (ROOT / "results" / "laptop-natural").glob(f"{arm}-seed*/metrics.parquet")
)


def test_there_are_records_of_healthy_runs() -> None:
    assert RECORDS


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.parent.name)
def test_a_healthy_run_of_three_stages_is_silent(record: Path) -> None:
    rows = pd.read_parquet(record).to_dict("records")
    assert {each["stage"] for each in rows} == {1, 2, 3}
    assert alarms(rows) == ()
    assert fall_of_reward(rows) is None


def test_the_monitor_warns_before_a_slow_collapse() -> None:
    """A collapse as the laptop preset has it: what the model does frays before the reward falls."""
    rows: list[Row] = [row(step) for step in range(1, 41)]
    for step in range(41, 101):
        frayed = min(1.0, (step - 40) / 30)
        worse = {"truncated": 0.02 + 0.4 * frayed, "void_turns": 0.01 + 0.1 * frayed}
        rows.append(row(step, accuracy=0.8 - 0.6 * max(0.0, frayed - 0.2), **worse))
    fall = fall_of_reward(rows)
    assert fall is not None
    first: Alarm = alarms(rows)[0]
    assert first.signal in {Signal.TRUNCATION, Signal.VOID_TURNS}
    assert first.step < fall


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_scaled_limits_lie_as_many_times_as_far(factor: float) -> None:
    limits, scaled = MonitorSettings(), MonitorSettings().scaled(factor)
    assert scaled.window == limits.window
    assert scaled.reward_drop == factor * limits.reward_drop
    assert scaled.calls_change == factor * limits.calls_change
    assert scaled.entropy_ratio - 1 == pytest.approx(factor * (limits.entropy_ratio - 1))
    assert limits.scaled(1.0) == limits
