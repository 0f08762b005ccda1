"""The router as verl runs it: a Ray actor that its own client asks, before real servers of Ray."""

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from omegaconf import OmegaConf
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import get_router_handle

from rstar2.verl_plugin.agent_loop import ServerEngine
from rstar2.verl_plugin.router import tagged

pytestmark = pytest.mark.usefixtures("ray_here")

LONGEST, CAPACITY = 100, 450
TRAJECTORIES, TURNS = 64, 3


@ray.remote(num_cpus=0, max_concurrency=200)
class Server:
    """Answers after a while, and knows which contexts it holds and how much they are at most.

    With ``full_determinism`` verl passes on the id that the router saw, so it can tell whose
    context a request is.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.peak = self.calls = 0

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        trajectory = request_id.split(":", 2)[2]
        new = sampling_params["max_tokens"]
        self.held[trajectory] = len(prompt_ids) + new
        self.peak = max(self.peak, sum(self.held.values()))
        self.calls += 1
        await asyncio.sleep(0.02)
        return TokenOutput(token_ids=[7] * new, log_probs=[0.0] * new)

    async def drop(self, trajectory: str) -> None:
        self.held.pop(trajectory, None)

    async def counts(self) -> tuple[int, int, int]:
        return self.peak, self.calls, len(self.held)


def made(folder: Path, servers: dict[str, Any]) -> Any:
    """A router in strict mode by verl's own loader."""
    file = folder / "router.yaml"
    settings = {"admission": "k", "kv_tokens": CAPACITY, "max_tokens": LONGEST}
    router_class = "rstar2.verl_plugin.plugin.RouterActor"
    file.write_text(yaml.safe_dump({"router_class": router_class, **settings}))
    return get_router_handle(servers=servers, router_config_path=str(file))


def until_waiting(router: Any, number: int) -> None:
    deadline = time.monotonic() + 120
    while (seen := ray.get(router.get_status.remote())["waiting"]) != number:
        assert time.monotonic() < deadline, f"{seen} wait"
        time.sleep(0.1)


def cpu_seconds(router: Any) -> float:
    return ray.get(router.__ray_call__.remote(lambda _: time.process_time()))


def wake_ups(router: Any) -> int:
    """How often the thread of the actor's event loop has slept and been woken."""

    def switches(_: Any) -> int:
        status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
        return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])

    return ray.get(router.__ray_call__.remote(switches))


def test_no_server_ever_holds_more_than_it_can(tmp_path: Path) -> None:
    """64 trajectories of three turns with two servers, each with room for four."""
    servers = {name: Server.remote() for name in ("a", "b")}
    router = made(tmp_path, servers)
    rollout = {"name": "vllm", "full_determinism": True}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
    client = LLMServerClient(config, router)
    rng = random.Random(3)

    async def trajectory(name: str) -> None:
        engine, ids = ServerEngine(client, 2, {}, 1), [7] * rng.randint(5, 25)
        for _ in range(TURNS):
            wanted: Any = {"max_tokens": rng.randint(1, 25), "temperature": 1.0}
            ids += (await engine.generate(name, prompt_ids=ids, sampling_params=wanted)).token_ids
            await asyncio.sleep(rng.random() / 100)  # its tool
        await asyncio.gather(*(server.drop.remote(name) for server in servers.values()))
        await engine.end(name)

    async def run() -> None:
        await asyncio.gather(*(trajectory(f"t{number}") for number in range(TRAJECTORIES)))

    before = cpu_seconds(router)
    asyncio.run(run())
    spent = cpu_seconds(router) - before
    peaks, calls, held = zip(
        *ray.get([server.counts.remote() for server in servers.values()]), strict=True
    )
    assert sum(calls) == TRAJECTORIES * TURNS
    assert min(peaks) > CAPACITY / 3
    assert max(peaks) <= CAPACITY
    assert sum(held) == 0
    status = ray.get(router.get_status.remote())
    assert (status["waiting"], status["total_inflight"]) == (0, 0)
    assert status["residents"] == {"a": 0, "b": 0}
    # Acquire, release and end of 64 x 3 calls; a router that wakes all who wait took 46 s.
    assert spent < 5.0
    print(f"router: peaks {peaks} of {CAPACITY}, {sum(calls)} calls, {spent:.2f} CPU s")


def test_waiting_costs_nothing_and_stops_no_release(tmp_path: Path) -> None:
    """1,500 wait for two servers with room for four; each that ends lets the next one go."""
    router = made(tmp_path, {"a": "handle a", "b": "handle b"})
    names = [f"t{number}" for number in range(1500)]
    asked = [router.acquire_server.remote(request_id=tagged(1, name, 10)) for name in names]
    until_waiting(router, 1492)
    cpu, woken = cpu_seconds(router), wake_ups(router)
    time.sleep(5)
    woken, cpu = wake_ups(router) - woken, cpu_seconds(router) - cpu
    assert woken <= 10
    assert cpu < 0.5
    before = cpu_seconds(router)
    of_ask = dict(zip(asked, names, strict=True))
    while of_ask:  # Ray may deliver calls in another order than they were made in
        ready, _ = ray.wait(list(of_ask), num_returns=1, timeout=60)
        assert ready, f"{len(of_ask)} wait for good"
        name = of_ask.pop(ready[0])
        server, handle = ray.get(ready[0])
        assert handle == f"handle {server}"
        router.release_server.remote(server_id=server, request_id=tagged(1, name, 10))
        router.end.remote(name, 20)
    until_waiting(router, 0)
    status = ray.get(router.get_status.remote())
    assert (status["waiting"], status["residents"]) == (0, {"a": 0, "b": 0})
    spent = cpu_seconds(router) - before
    assert spent < 30
    print(f"router: {woken} wake-ups, {cpu:.2f} CPU s in 5 s of waiting; {spent:.2f} to end all")
