"""verl's router: who waits, who goes, and what a lost client leaves behind."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from rstar2.verl_plugin.router import Router, RouterSpec, tagged

LONGEST = 100
STRICT = {"router_class": "x.Y", "admission": "k", "kv_tokens": 400, "max_tokens": LONGEST}


class Clock:
    """Seconds that a test moves on by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def router(config: dict[str, Any] = STRICT, servers: str = "ab", clock: Clock | None = None):
    return Router({name: f"handle {name}" for name in servers}, config, clock or Clock())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_request_goes_to_a_server_and_later_ones_to_the_same() -> None:
    async def run() -> None:
        one = router()
        server, handle = await one.acquire_server(tagged(1, "t", 10))
        assert handle == f"handle {server}"
        await one.release_server(server, tagged(1, "t", 10))
        assert await one.acquire_server(tagged(1, "t", 30)) == (server, handle)
        assert await one.get_total_inflight() == 1
        await one.end("t", 60)
        status = await one.get_status()
        assert status["residents"] == {"a": 0, "b": 0}

    asyncio.run(run())


def test_trajectories_in_strict_mode_never_hold_more_than_there_is() -> None:
    """64 trajectories of three turns each, two servers with room for four."""
    held: Counter[str] = Counter()
    peak: Counter[str] = Counter()

    async def trajectory(one: Router, name: str, rng: random.Random) -> None:
        tokens, server = 10, ""
        for turn in range(3):
            server, _ = await one.acquire_server(tagged(1, name, tokens))
            grown = min(LONGEST, tokens + rng.randint(1, 40))
            held[server] += grown if turn == 0 else grown - tokens
            peak[server] = max(peak[server], held[server])
            await asyncio.sleep(rng.random() / 1000)
            await one.release_server(server, tagged(1, name, tokens))
            tokens = grown
            await asyncio.sleep(rng.random() / 1000)
        held[server] -= tokens
        await one.end(name, tokens)

    async def run() -> None:
        one = router()
        rng = random.Random(7)
        await asyncio.gather(*(trajectory(one, f"t{i}", rng) for i in range(64)))
        assert (await one.get_status())["residents"] == {"a": 0, "b": 0}

    asyncio.run(run())
    assert set(peak) == {"a", "b"}
    assert max(peak.values()) <= STRICT["kv_tokens"]
    assert not +held


def test_waiting_requests_leave_releases_to_be_heard_and_start_in_order() -> None:
    async def run() -> None:
        one = router()
        tasks = [
            asyncio.create_task(one.acquire_server(tagged(1, f"t{i}", 10))) for i in range(1500)
        ]
        await settle()
        assert sum(task.done() for task in tasks) == 8
        assert (await one.get_status())["waiting"] == 1492
        for number in range(1500):
            assert tasks[number].done(), "first come, first served"
            server, _ = tasks[number].result()
            await one.release_server(server, tagged(1, f"t{number}", 10))
            await one.end(f"t{number}", 20)
            await settle()
        assert (await one.get_status())["waiting"] == 0

    asyncio.run(run())


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind() -> None:
    async def run() -> None:
        one = router(servers="a")
        for number in range(4):
            await one.acquire_server(tagged(1, f"t{number}", 10))
        gone, waits = (
            asyncio.create_task(one.acquire_server(tagged(1, name, 10)))
            for name in ("gone", "waits")
        )
        await settle()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await one.end("t0")
        assert await waits == ("a", "handle a")
        assert (await one.get_status())["waiting"] == 0

    asyncio.run(run())


def test_a_client_that_goes_as_it_is_served_gives_its_room_back() -> None:
    async def run() -> None:
        one = router(servers="a")
        for number in range(4):
            await one.acquire_server(tagged(1, f"t{number}", 10))
        gone = asyncio.create_task(one.acquire_server(tagged(1, "gone", 10)))
        await settle()
        gone.cancel()
        await one.end("t0")
        await settle()
        assert gone.cancelled()
        assert (await one.get_status())["residents"] == {"a": 3}

    asyncio.run(run())


def test_a_release_that_comes_after_the_next_request_ends_only_its_own() -> None:
    """verl sends it without waiting, and Ray promises no order among calls of such an actor."""

    async def run() -> None:
        one = router(servers="a")
        await one.acquire_server(tagged(1, "t", 10))
        assert await one.acquire_server(tagged(1, "t", 30)) == ("a", "handle a")
        assert await one.get_total_inflight() == 1
        await one.release_server("a", tagged(1, "t", 10))
        assert await one.get_total_inflight() == 1
        await one.release_server("a", tagged(1, "t", 30))
        assert await one.get_total_inflight() == 0

    asyncio.run(run())


def test_a_trajectory_that_never_ends_is_given_up_after_a_while() -> None:
    async def run() -> None:
        clock = Clock()
        one = router(servers="a", clock=clock)
        for number in range(4):
            await one.acquire_server(tagged(1, f"t{number}", 10))
            await one.release_server("a", tagged(1, f"t{number}", 10))
        clock.now = 601.0
        assert await one.acquire_server(tagged(1, "new", 10)) == ("a", "handle a")
        assert (await one.get_status())["residents"] == {"a": 1}
        await one.release_server("a", tagged(1, "t0", 10))  # too late: nothing happens
        assert await one.get_total_inflight() == 1

    asyncio.run(run())


def test_who_waits_goes_to_a_server_that_comes() -> None:
    async def run() -> None:
        one = router(servers="")
        waits = asyncio.create_task(one.acquire_server(tagged(1, "t", 10)))
        await settle()
        await one.add_servers({"c": "handle c"})
        assert await waits == ("c", "handle c")
        await one.remove_servers(["c"])
        assert await one.get_all_servers() == []
        await one.release_server("c", tagged(1, "t", 10))
        again = asyncio.create_task(one.acquire_server(tagged(1, "t", 10)))
        await one.add_servers({"d": "handle d"})
        assert await again == ("d", "handle d")

    asyncio.run(run())


def test_a_step_that_ends_teaches_the_next() -> None:
    async def run() -> None:
        one = router({**STRICT, "admission": "kv-peak"})
        await one.acquire_server(tagged(1, "t", 10))
        await one.end("t", 77)
        await one.acquire_server(tagged(1, "u", 10))
        assert one._scheduler.admission.lengths == ()
        await one.acquire_server(tagged(2, "v", 10))
        assert one._scheduler.admission.lengths == (77,)
        told = await one.clear_sticky_cache()
        assert told["cleared_entries"] == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"admission": "fifo"}, "admission"),
        ({"kv_tokens": 0}, "kv_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"kv_token": 1}, "kv_token"),
        ({"orphan_seconds": 0}, "orphan_seconds"),
    ],
)
def test_what_the_file_may_not_say(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        router({**STRICT, **changed})


def test_the_rules_have_the_names_of_the_file() -> None:
    names = [
        type(RouterSpec(admission=name, kv_tokens=1, max_tokens=1).rule()).__name__
        for name in ("kv-peak", "k", "least-in-flight")
    ]
    assert names == ["KVPeak", "KAdmission", "LeastInFlight"]
