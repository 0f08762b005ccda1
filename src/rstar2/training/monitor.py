"""The collapse monitor: warns, from the metrics log alone, before the reward falls for good.

RL ran into a collapse of policy and reward after its last stage, and nothing that was tried
after that cured it (paper, section 5.3). A monitor is worth what its warning leaves time for:
to stop, and to go on from a checkpoint that is still good.

Every signal is one rule: the moving mean over the last ``window`` steps of a stage, against the
best (or first) such mean of *the same stage*. A new stage brings new budgets and new problems,
so its baselines start anew; the monitor is silent until the stage has ``window`` steps.

Where the fall itself is, only the whole log can say: :func:`fall_of_reward`.
"""

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from numbers import Real

from rstar2.errors import UserError


class MonitorError(UserError):
    """Rows are no metrics log: a step is missing, is no number, or does not follow the last."""


class Signal(StrEnum):
    """What the monitor watches, over every rollout sampled; the value is the metric's name."""

    REWARD = "accuracy"
    """The share of right rollouts has come down from the best of its stage."""
    ENTROPY = "entropy"
    """The policy has become much less sure of its tokens than it was in this stage.
    A falling entropy is no warning: it falls in every healthy run."""
    TRUNCATION = "truncated"
    """More rollouts run into a limit than at the best of the stage."""
    CALLS = "calls"
    """A rollout calls the tool more often, or less often, than as the stage began."""
    VOID_TURNS = "void_turns"
    """More turns hold neither a tool call nor an answer than at the best of the stage."""


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How far a moving mean may go before it is an alarm.

    The defaults were chosen on nine development runs of the laptop preset: no mean of the six
    healthy ones went half as far, and all three that collapsed were warned of. Healthy runs of
    other seeds have come within a tenth of a limit since. Another model, or another preset, needs
    limits from healthy runs of its own.

    Attributes:
        window: Steps of a moving mean.
        reward_drop: Most that accuracy may lie below its best mean.
        entropy_ratio: Most that entropy may be, in times its lowest mean.
        truncated_rise: Most that the truncated share may lie above its lowest mean.
        calls_change: Most that calls a rollout may differ from their first mean.
        void_rise: Most that the share of void turns may lie above its lowest mean.
    """

    window: int = 10
    reward_drop: float = 0.08
    entropy_ratio: float = 1.4
    truncated_rise: float = 0.06
    calls_change: float = 0.25
    void_rise: float = 0.035

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise MonitorError(
                    f"{field.name} of the monitor is {getattr(self, field.name)}: give more than 0"
                )

    def scaled(self, factor: float) -> "MonitorSettings":
        """The same window with every limit as many times as far."""
        return replace(
            self,
            reward_drop=factor * self.reward_drop,
            entropy_ratio=1 + factor * (self.entropy_ratio - 1),
            truncated_rise=factor * self.truncated_rise,
            calls_change=factor * self.calls_change,
            void_rise=factor * self.void_rise,
        )


@dataclass(frozen=True, slots=True)
class Alarm:
    """A signal has crossed its limit; it can sound again once it has come back.

    Attributes:
        step: The step after which it sounds.
        signal: Which signal.
        value: The moving mean at that step.
        baseline: What it is held against.
        message: The same as a sentence for people.
    """

    step: int
    signal: Signal
    value: float
    baseline: float
    message: str


def alarms(
    rows: Iterable[Mapping[str, object]], settings: MonitorSettings | None = None
) -> tuple[Alarm, ...]:
    """All warnings of a metrics log, in the order in which they sound.

    Those of a step depend on no later row, so that a log may be read as it grows. A value that
    is missing or not finite is left out of its mean; a signal that the log lacks is silent.

    Args:
        rows: ``step``, ``stage`` (one stage if there is none) and the metrics named by
            :class:`Signal`, in the order of the steps.
        settings: Limits.

    Raises:
        MonitorError: If the rows are not those of a metrics log.
    """
    limits = settings or MonitorSettings()
    found: list[Alarm] = []
    for _, stage in itertools.groupby(
        _in_order(rows), key=lambda row: _finite(row[1].get("stage"))
    ):
        watches = {signal: _Watch(signal, limits) for signal in Signal}
        for step, row in stage:
            for signal, watch in watches.items():
                value = _finite(row.get(signal))
                if value is not None and (alarm := watch.add(step, value)):
                    found.append(alarm)
    return tuple(found)


def fall_of_reward(
    rows: Iterable[Mapping[str, object]], *, depth: float = 0.2, window: int = 10
) -> int | None:
    """The step at which the reward has fallen for good; None if it never does.

    That is the first step from which on, to the end of the log and for ``window`` steps at
    least, the moving mean of accuracy stays ``depth`` or more below the highest that it had
    before. The peak is taken over all stages.

    Args:
        rows: A whole metrics log.
        depth: The least fall, a share.
        window: Steps of the moving mean; rows without an accuracy do not count.

    Raises:
        MonitorError: If the rows are not those of a metrics log.
    """
    means: list[tuple[int, float]] = []
    last: deque[float] = deque(maxlen=window)
    for step, row in _in_order(rows):
        if (value := _finite(row.get(Signal.REWARD))) is not None:
            last.append(value)
            if len(last) == window:
                means.append((step, math.fsum(last) / window))
    peak, fallen = -math.inf, list[int]()
    for step, mean in means:
        peak = max(peak, mean)
        if mean <= peak - depth:
            fallen.append(step)
        else:
            fallen.clear()
    return fallen[0] if len(fallen) >= window else None


class _Watch:
    """One signal through one stage."""

    def __init__(self, signal: Signal, settings: MonitorSettings) -> None:
        self._signal = signal
        self._settings = settings
        self._last: deque[float] = deque(maxlen=settings.window)
        self._baseline: float | None = None
        self._sounds = False

    def add(self, step: int, value: float) -> Alarm | None:
        """Takes the value of a step; an alarm if the signal crosses its limit there."""
        self._last.append(value)
        if len(self._last) < self._settings.window:
            return None
        mean = math.fsum(self._last) / len(self._last)
        baseline = self._baseline = _baseline(self._signal, self._baseline, mean)
        sounded, self._sounds = self._sounds, _crosses(self._signal, mean, baseline, self._settings)
        if sounded or not self._sounds:
            return None
        message = f"step {step}: {_SENTENCES[self._signal].format(mean=mean, baseline=baseline)}"
        return Alarm(step, self._signal, mean, baseline, message)


def _baseline(signal: Signal, before: float | None, mean: float) -> float:
    """What a mean is held against: itself and those before it in the stage."""
    if before is None:
        return mean
    match signal:
        case Signal.REWARD:
            return max(before, mean)
        case Signal.CALLS:
            return before
        case Signal.ENTROPY | Signal.TRUNCATION | Signal.VOID_TURNS:
            return min(before, mean)


def _crosses(signal: Signal, mean: float, baseline: float, settings: MonitorSettings) -> bool:
    match signal:
        case Signal.REWARD:
            return baseline - mean > settings.reward_drop
        case Signal.ENTROPY:
            return mean > settings.entropy_ratio * baseline
        case Signal.TRUNCATION:
            return mean - baseline > settings.truncated_rise
        case Signal.CALLS:
            return abs(mean - baseline) > settings.calls_change
        case Signal.VOID_TURNS:
            return mean - baseline > settings.void_rise


_SENTENCES = {
    Signal.REWARD: "{mean:.1%} of the rollouts are right, {baseline:.1%} at the best of the stage",
    Signal.ENTROPY: "the entropy is {mean:.3f} nats a token, {baseline:.3f} at its lowest",
    Signal.TRUNCATION: "{mean:.1%} of the rollouts hit a limit, {baseline:.1%} at the fewest",
    Signal.CALLS: "{mean:.2f} calls a rollout, {baseline:.2f} as the stage began",
    Signal.VOID_TURNS: "{mean:.1%} of the turns are void, {baseline:.1%} at the fewest",
}


def _in_order(
    rows: Iterable[Mapping[str, object]],
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The rows with their steps.

    Raises:
        MonitorError: If a step is missing, is no whole number, or does not come after the last.
    """
    last: int | None = None
    for row in rows:
        step = _finite(row.get("step"))
        if step is None or not step.is_integer():
            raise MonitorError(
                f"a row has the step {row.get('step')!r}, no whole number: give a metrics log"
            )
        if last is not None and step <= last:
            raise MonitorError(f"step {step:.0f} follows step {last}: give a run's rows in order")
        last = int(step)
        yield last, row


def _finite(value: object) -> float | None:
    """The value as a number; None for what is missing, NaN or infinite."""
    number = float(value) if isinstance(value, Real) else math.nan
    return number if math.isfinite(number) else None
