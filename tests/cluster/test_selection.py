"""The replay buffer: of a step's rows it keeps those that ``select_group`` keeps."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from made_steps import SPEC, buffer, changed, made_groups, put_prompts, put_rows

from rstar2.errors import UserError
from rstar2.experiments.cluster.plugin_spec import PluginSpec
from rstar2.rollout.groups import Rollout
from rstar2.training.collect import RolloutsLostError
from rstar2.training.metrics import step_metrics
from rstar2.training.selection import Group, select_group
from rstar2.training.spec import Arm


@pytest.fixture
def empty(queue: Any) -> Iterator[Any]:
    """The queue, without rows before and after."""
    yield queue
    if left := rows_in(queue):
        queue.kv_clear(keys=left, partition_id="train")


def rows_in(queue: Any) -> list[str]:
    return list(queue.kv_list("train").get("train", {}))


def ours(groups: Sequence[Sequence[Rollout]], spec: PluginSpec, step: int) -> list[Group]:
    """What the laptop selects in its step, which it counts from 0."""
    return [
        select_group(rollouts, spec.arm, spec.rl, (spec.seed, step - 1, place))
        for place, rollouts in enumerate(groups)
    ]


def used(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.selection.dropped is None]


@pytest.mark.parametrize("arm", list(Arm))
def test_the_rows_and_metrics_of_a_step_are_those_of_the_laptop(empty: Any, arm: Arm) -> None:
    spec = SPEC.model_copy(update={"arm": arm})
    groups = made_groups(4, seed=1)
    groups = [group[: arm.samples(spec.rl)] for group in groups]
    uids = put_prompts(empty, 4, step=5)
    put_rows(empty, uids, groups, step=5)
    expected = ours(groups, spec, step=5)

    batch, metrics = buffer(spec).sample(5, "train", 4)

    assert batch.keys == [
        f"{uid}_{rollout.sample}_0"
        for uid, group in zip(uids, expected, strict=True)
        for rollout in group.kept
    ]
    assert metrics == pytest.approx(step_metrics(expected, used(expected)), abs=0, nan_ok=True)
    assert sorted(rows_in(empty)) == sorted(batch.keys)
    assert 1 < metrics["groups_used"] < 4


def test_a_resumed_run_selects_the_same_and_another_step_does_not(empty: Any) -> None:
    groups = made_groups(4, seed=2)
    kept = []
    for step in (7, 7, 8):
        uids = put_prompts(empty, 4, step)
        put_rows(empty, uids, groups, step)
        batch, _ = buffer().sample(step, "train", 4)
        kept.append([(uids.index(key.split("_")[0]), key.split("_")[1]) for key in batch.keys])
        empty.kv_clear(keys=batch.keys, partition_id="train")
    assert kept[0] == kept[1] != kept[2]


def test_it_waits_for_the_last_group(empty: Any) -> None:
    groups = made_groups(3, seed=3)
    uids = put_prompts(empty, 3, step=1)
    put_rows(empty, uids[:2], groups[:2], step=1)

    def later() -> None:
        time.sleep(0.5)
        put_rows(empty, uids[2:], groups[2:], step=1)

    late = threading.Thread(target=later)
    late.start()
    _, metrics = buffer().sample(1, "train", 3)
    late.join()
    assert metrics["rollouts"] == 24


def test_a_group_that_lost_a_rollout_is_dropped(empty: Any) -> None:
    groups = made_groups(4, seed=4, lost=1)
    uids = put_prompts(empty, 4, step=1)
    put_rows(empty, uids, groups, step=1)
    batch, metrics = buffer().sample(1, "train", 4)
    assert not [key for key in batch.keys if key.startswith(uids[0])]
    assert metrics["rollouts"] == 31


def test_dropped_groups_are_replaced_as_on_the_laptop(empty: Any) -> None:
    """Two of four places stay empty in the first round, and are filled in the second."""
    spec = changed(refill=True, max_refills=3)
    first = made_groups(4, seed=5, lost=1)
    second = made_groups(3, seed=6)[:2]
    asked: list[int] = []
    uids = put_prompts(empty, 4, step=2)
    put_rows(empty, uids, first, step=2)

    def refill(number: int) -> None:
        asked.append(number)
        more = put_prompts(empty, number, step=2)
        put_rows(empty, more, second, step=2)

    batch, metrics = buffer(spec, refill_fn=refill).sample(2, "train", 4)
    expected = ours(first + second, spec, step=2)
    assert asked == [2]
    assert metrics == pytest.approx(step_metrics(expected, used(expected)), abs=0, nan_ok=True)
    assert len(batch) == 16
    assert sorted(rows_in(empty)) == sorted(batch.keys)


def test_rounds_of_replacement_end(empty: Any) -> None:
    spec = changed(refill=True, max_refills=2)
    asked: list[int] = []

    def refill(number: int) -> None:
        asked.append(number)
        put_rows(empty, put_prompts(empty, number, step=1), made_groups(1, seed=7), step=1)

    put_rows(empty, put_prompts(empty, 2, step=1), made_groups(2, seed=8), step=1)
    _, metrics = buffer(spec, refill_fn=refill).sample(1, "train", 2)
    assert asked == [1, 1]
    assert (metrics["groups"], metrics["groups_used"]) == (4, 1)


def test_of_a_step_without_a_gradient_one_row_stays(empty: Any) -> None:
    groups = made_groups(1, seed=9)
    uids = put_prompts(empty, 1, step=1)
    put_rows(empty, uids, groups, step=1)
    batch, metrics = buffer().sample(1, "train", 1)
    assert len(batch) == 1
    assert rows_in(empty) == batch.keys
    assert metrics["groups_used"] == 0


def test_a_step_that_was_lost_whole_stops_the_run(empty: Any) -> None:
    put_rows(empty, put_prompts(empty, 2, step=1), [[], []], step=1)
    with pytest.raises(RolloutsLostError, match="every rollout of step 1 was lost"):
        buffer().sample(1, "train", 2)


def test_validation_keeps_every_row(empty: Any) -> None:
    groups = made_groups(2, seed=14)
    uids = put_prompts(empty, 2, step=1, partition="val")
    put_rows(empty, uids, groups, step=1, partition="val")
    batch, metrics = buffer().sample(1, "val", 2)
    assert (len(batch), metrics) == (16, {})
    empty.kv_clear(keys=batch.keys, partition_id="val")


def test_a_trainer_that_is_not_on_policy_is_refused() -> None:
    with pytest.raises(UserError, match="set it to sync"):
        buffer(trainer_mode="colocate_async")
