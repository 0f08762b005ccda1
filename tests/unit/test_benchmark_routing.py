"""benchmarks.vllm_routing: its work is too much for a static split and fits the strict mode."""

import asyncio
from collections import Counter

from benchmarks.vllm_routing import (
    BLOCK,
    CAPACITY,
    LONGEST,
    PROMPT,
    TOOL_TOKENS,
    TRAJECTORIES,
    Gate,
    Turns,
    work,
)
from rstar2.rollout.admission import KAdmission, StaticSplit
from rstar2.rollout.schedule_types import Admission

URLS = ("a", "b")


def final(turns: Turns) -> int:
    """Tokens of a trajectory at its end, in whole blocks."""
    tokens = PROMPT + sum(turns) + TOOL_TOKENS * len(turns)
    return BLOCK * -(-tokens // BLOCK)


def most_held(rule: Admission, jobs: list[Turns]) -> dict[str, int]:
    """What servers that answer at once would hold at most, each trajectory at its full length."""
    gate, held, peak = Gate(URLS, rule), Counter[str](), Counter[str]()

    async def trajectory(number: int, turns: Turns) -> None:
        url = ""
        for turn, tokens in enumerate(turns):
            url = await gate.enter(f"t{number}", PROMPT + tokens * turn)
            held[url] += 0 if turn else final(turns)
            peak[url] = max(peak[url], held[url])
            await asyncio.sleep(0)
            gate.leave(f"t{number}", PROMPT + tokens * (turn + 1))
        held[url] -= final(turns)
        gate.end(f"t{number}", final(turns))

    async def run() -> None:
        await asyncio.gather(*(trajectory(number, one) for number, one in enumerate(jobs)))

    asyncio.run(run())
    assert not +held
    return dict(peak)


def test_a_static_split_gives_a_server_more_than_it_can_hold() -> None:
    jobs = work(TRAJECTORIES)
    peak = most_held(StaticSplit(len(jobs)), jobs)
    assert peak["a"] > 3 * CAPACITY
    assert peak["a"] > 3 * peak["b"]


def test_the_strict_mode_gives_none_more_and_uses_both() -> None:
    jobs = work(TRAJECTORIES)
    assert max(map(final, jobs)) <= LONGEST <= CAPACITY
    peak = most_held(KAdmission(LONGEST), jobs)
    assert set(peak) == set(URLS)
    assert max(peak.values()) <= CAPACITY


def test_the_same_work_is_sent_every_time() -> None:
    assert work(TRAJECTORIES) == work(TRAJECTORIES)
