"""The rollout scheduler: what holds for every rule, and what each rule promises."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.rollout.admission import (
    KAdmission,
    KVPeak,
    LeastInFlight,
    StaticSplit,
    future_peak,
)
from rstar2.rollout.schedule import Scheduler
from rstar2.rollout.schedule_types import Admission, Placement, ScheduleError

LONGEST = 1000
RULES: dict[str, Callable[[random.Random], Admission]] = {
    "static": lambda rng: StaticSplit(rng.randint(1, 60)),
    "least in flight": lambda _rng: LeastInFlight(),
    "K": lambda _rng: KAdmission(LONGEST),
    "KV peak": lambda rng: KVPeak(
        LONGEST, tuple(sorted(rng.randint(10, LONGEST) for _ in range(rng.choice((0, 50)))))
    ),
}
WAITING_RULES = ("K", "KV peak")
rules = st.sampled_from(sorted(RULES))
seeds = st.integers(0, 2**32)
few = settings(max_examples=25)


@dataclass
class World:
    """Trajectories that arrive at once, grow at random, call tools and end, and what is known."""

    rule: str
    seed: int
    failures: bool = False
    placements: list[Placement] = field(default_factory=list)
    firsts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        capacities = {f"s{i}": rng.randint(LONGEST, 6 * LONGEST) for i in range(rng.randint(1, 4))}
        self.scheduler = Scheduler(capacities, RULES[self.rule](rng))
        self.size = {f"t{i}": rng.randint(10, 50) for i in range(rng.randint(1, 40))}
        self.wants, self.runs, self.tools = list(self.size), list[str](), list[str]()
        self.ended: set[str] = set()
        self.now = 0.0
        for trajectory, tokens in self.size.items():
            self.scheduler.arrive(trajectory, tokens, self.now)

    def run(self, check: Callable[["World", list[Placement]], None] = lambda *_: None) -> "World":
        """Until every trajectory has ended; ``check`` after each placement."""
        while len(self.ended) < len(self.size):
            placed = self.scheduler.place(self.now)
            for one in placed:
                self.wants.remove(one.trajectory)
                self.runs.append(one.trajectory)
                if one.trajectory not in self.firsts:
                    self.firsts.append(one.trajectory)
            self.placements += placed
            check(self, placed)
            assert self.runs or self.tools, "nothing runs and something waits"
            self.now += self.rng.random()
            self._event()
        return self

    def _event(self) -> None:
        rng, scheduler = self.rng, self.scheduler
        if self.failures and rng.random() < 0.15:
            self._failure()
        elif self.tools and (not self.runs or rng.random() < 0.5):
            trajectory = self.tools.pop(rng.randrange(len(self.tools)))
            self.size[trajectory] += rng.randint(0, min(20, LONGEST - self.size[trajectory]))
            scheduler.arrive(trajectory, self.size[trajectory], self.now)
            self.wants.append(trajectory)
        elif self.runs:
            trajectory = self.runs.pop(rng.randrange(len(self.runs)))
            grown = min(LONGEST, self.size[trajectory] + rng.randint(1, 300))
            self.size[trajectory] = grown
            known = grown if rng.random() < 0.7 else None
            assert scheduler.finish(trajectory, self.now, known)
            if grown == LONGEST or rng.random() < 0.4:
                self._end(trajectory)
            else:
                self.tools.append(trajectory)

    def _end(self, trajectory: str) -> None:
        assert self.scheduler.end(trajectory, self.size[trajectory])
        assert not self.scheduler.end(trajectory, self.size[trajectory]), "the second end does it"
        assert not self.scheduler.finish(trajectory, self.now), "a late answer changes nothing"
        self.ended.add(trajectory)

    def _failure(self) -> None:
        """A trajectory is given up wherever it is, a server goes, or one comes."""
        rng, scheduler = self.rng, self.scheduler
        kind = rng.choice(("give up", "lose", "gain"))
        if kind == "give up":
            trajectory = rng.choice([t for t in self.size if t not in self.ended])
            for queue in (self.wants, self.runs, self.tools):
                if trajectory in queue:
                    queue.remove(trajectory)
            self._end(trajectory)
        elif kind == "gain":
            name = f"s{len(scheduler.servers)}-{self.now}"
            scheduler.add_server(name, rng.randint(LONGEST, 6 * LONGEST))
        elif len(scheduler.servers) > 1:
            gone = rng.choice(scheduler.servers)
            lost = [t for t, resident in gone.residents.items() if resident.generates]
            scheduler.remove_server(gone.name)
            for trajectory in lost:  # its client asks again
                assert not scheduler.finish(trajectory, self.now)
                self.runs.remove(trajectory)
                scheduler.arrive(trajectory, self.size[trajectory], self.now)
                self.wants.append(trajectory)


# --- what holds for every rule --------------------------------------------------------------


@few
@given(rules, seeds, st.booleans())
def test_every_trajectory_is_in_one_place_and_all_is_empty_at_the_end(
    rule: str, seed: int, failures: bool
) -> None:
    def check(world: World, _placed: list[Placement]) -> None:
        scheduler = world.scheduler
        homes = [t for server in scheduler.servers for t in server.residents]
        assert len(homes) == len(set(homes)) == scheduler.residents
        for server in scheduler.servers:
            assert server.in_flight == sum(r.generates for r in server.residents.values())
            finals = [r.final_tokens for r in server.residents.values()]
            assert server.final_tokens == sum(finals)
        started = {t for t in world.firsts if t not in world.ended}
        assert set(homes) <= started
        assert sum(server.in_flight for server in scheduler.servers) == len(world.runs)
        assert scheduler.waiting == len(world.wants)

    world = World(rule, seed, failures).run(check)
    scheduler = world.scheduler
    assert (scheduler.waiting, scheduler.residents) == (0, 0)
    assert not any(server.residents or server.in_flight for server in scheduler.servers)
    assert sorted(scheduler.lengths) == sorted(world.size.values())


@few
@given(rules, seeds, st.booleans())
def test_only_what_was_waiting_is_placed_and_no_later_request_waits(
    rule: str, seed: int, failures: bool
) -> None:
    def check(world: World, placed: list[Placement]) -> None:
        names = [one.trajectory for one in placed]
        assert len(names) == len(set(names))
        assert all(one.waited >= 0 for one in placed)
        homes = {t for server in world.scheduler.servers for t in server.residents}
        assert not homes & set(world.wants)

    World(rule, seed, failures).run(check)


@few
@given(rules, seeds)
def test_first_requests_start_in_the_order_in_which_they_came(rule: str, seed: int) -> None:
    world = World(rule, seed).run()
    assert world.firsts == list(world.size)


@few
@given(rules, seeds, st.booleans())
def test_the_same_events_give_the_same_placements(rule: str, seed: int, failures: bool) -> None:
    one, other = (World(rule, seed, failures).run() for _ in range(2))
    assert one.placements == other.placements


@few
@given(rules, seeds)
def test_who_has_lost_a_server_comes_before_all_who_are_new(rule: str, seed: int) -> None:
    rng = random.Random(seed)
    scheduler = Scheduler({"a": 2 * LONGEST, "b": 2 * LONGEST}, RULES[rule](rng))
    for number in range(12):
        scheduler.arrive(f"t{number}", 10, 0.0)
    scheduler.place(0.0)
    gone, kept = scheduler.servers
    lost = list(gone.residents)
    scheduler.remove_server(gone.name)
    for trajectory in lost:
        scheduler.arrive(trajectory, 20, 1.0)
    for trajectory in list(kept.residents):
        scheduler.end(trajectory)
    placed = [one.trajectory for one in scheduler.place(2.0)]
    assert placed[: len(lost)] == lost[: len(placed)]
    assert placed


# --- what the rules promise -----------------------------------------------------------------


@few
@given(seeds, st.booleans())
def test_k_admission_never_holds_more_than_there_is(seed: int, failures: bool) -> None:
    """Whatever the lengths, the pace, and the time that tools take."""

    def check(world: World, _placed: list[Placement]) -> None:
        for server in world.scheduler.servers:
            assert sum(world.size[t] for t in server.residents) <= server.capacity

    World("K", seed, failures).run(check)


@few
@given(seeds)
def test_kv_peak_admits_only_what_is_predicted_to_fit(seed: int) -> None:
    world = World("KV peak", seed)
    rule = world.scheduler.admission
    assert isinstance(rule, KVPeak)
    admit, move = rule.admit, rule.move

    @dataclass
    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(rule, name)

        def admit(self, request, servers, waiting, now):
            server = admit(request, servers, waiting, now)
            inside = sum(len(one.residents) for one in servers)
            share = rule.last_share if waiting <= rule.last * inside else rule.share
            if server is None:
                assert all(one.residents for one in sorted(servers, key=_fullness)[:2])
            elif server.residents:
                assert rule.peak(request, server, now) <= share * server.capacity
            return server

        def move(self, request, home, servers, waiting, now):
            server = move(request, home, servers, waiting, now)
            if server is not home:
                assert waiting == 0
                assert rule.peak(request, server, now) <= rule.last_share * server.capacity
            return server

    world.scheduler.admission = Watched()
    world.run()


def _fullness(server) -> float:
    return server.final_tokens / server.capacity


@few
@given(st.sampled_from(sorted(set(RULES) - set(WAITING_RULES))), seeds, st.booleans())
def test_the_rules_of_the_engines_never_let_anybody_wait(
    rule: str, seed: int, failures: bool
) -> None:
    def check(world: World, _placed: list[Placement]) -> None:
        assert world.scheduler.waiting == 0

    World(rule, seed, failures).run(check)


@few
@given(st.sampled_from(sorted(set(RULES) - {"KV peak"})), seeds)
def test_only_kv_peak_moves(rule: str, seed: int) -> None:
    homes: dict[str, str] = {}
    for one in World(rule, seed).run().placements:
        assert homes.setdefault(one.trajectory, one.server) == one.server


def test_kv_peak_moves_a_later_request_off_a_crowded_server() -> None:
    scheduler = Scheduler({"a": 10 * LONGEST}, KVPeak(LONGEST, (100,) * 9))
    for number in range(8):
        scheduler.arrive(f"t{number}", 10, 0.0)
    assert {one.server for one in scheduler.place(0.0)} == {"a"}
    scheduler.add_server("b", 10 * LONGEST)
    assert scheduler.finish("t0", 1.0, 60)
    scheduler.arrive("t0", 70, 2.0)
    assert scheduler.place(2.0) == [Placement("t0", "b", 0.0)]


def test_a_static_split_puts_neighbours_on_one_server() -> None:
    scheduler = Scheduler(dict.fromkeys("abc", LONGEST), StaticSplit(6))
    for number in range(6):
        scheduler.arrive(f"t{number}", 10, 0.0)
    assert [one.server for one in scheduler.place(0.0)] == ["a", "a", "b", "b", "c", "c"]


def test_least_in_flight_counts_requests_and_not_who_runs_a_tool() -> None:
    scheduler = Scheduler(dict.fromkeys("ab", LONGEST), LeastInFlight())
    for name in ("t0", "t1", "t2"):
        scheduler.arrive(name, 10, 0.0)
    assert [one.server for one in scheduler.place(0.0)] == ["a", "b", "a"]
    scheduler.finish("t0", 1.0)
    scheduler.finish("t2", 1.0)
    scheduler.arrive("t3", 10, 2.0)
    assert [one.server for one in scheduler.place(2.0)] == ["a"]


# --- the prediction -------------------------------------------------------------------------


def naive_peak(course: list[tuple[int, int]]) -> int:
    """Step by step: all grow by one token, and who has no more to come leaves."""
    most, live = 0, [[left, holds] for left, holds in course]
    while live:
        most = max(most, sum(holds for _, holds in live))
        live = [[left - 1, holds + 1] for left, holds in live if left > 0]
    return most


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=12))
def test_the_future_peak_is_that_of_the_naive_course(course: list[tuple[int, int]]) -> None:
    assert future_peak(course) == naive_peak(course)


def test_the_lengths_of_a_step_are_the_prediction_of_the_next() -> None:
    scheduler = Scheduler({"a": 10 * LONGEST}, KVPeak(LONGEST))
    for number, tokens in enumerate((300, 100, 200)):
        scheduler.arrive(f"t{number}", 10, 0.0)
        scheduler.place(0.0)
        scheduler.end(f"t{number}", tokens)
    scheduler.next_step()
    assert scheduler.admission == KVPeak(LONGEST, (100, 200, 300))
    assert scheduler.lengths == []
    scheduler.next_step()
    assert scheduler.admission == KVPeak(LONGEST, (100, 200, 300)), "an empty step teaches nothing"


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=30), st.integers(1, LONGEST - 1))
def test_a_trajectory_is_predicted_to_grow_and_not_beyond_the_longest(
    lengths: list[int], tokens: int
) -> None:
    scheduler = Scheduler({"a": 10**6}, KVPeak(LONGEST, tuple(sorted(lengths)), share=100.0))
    for number in range(50):
        scheduler.arrive(f"t{number}", tokens, 0.0)
    scheduler.place(0.0)
    finals = [one.final_tokens for one in scheduler.servers[0].residents.values()]
    assert len(finals) == 50
    assert all(tokens < final <= LONGEST for final in finals)
    longer = {length for length in lengths if length > tokens}
    assert set(finals) <= (longer or {LONGEST})


def test_the_predictions_are_spread_like_the_lengths() -> None:
    lengths = tuple(range(10, 1010, 10))
    scheduler = Scheduler({"a": 10**6}, KVPeak(LONGEST, lengths, share=100.0))
    for number in range(1000):
        scheduler.arrive(f"t{number}", 5, 0.0)
    scheduler.place(0.0)
    finals = sorted(one.final_tokens for one in scheduler.servers[0].residents.values())
    assert finals[::10] == pytest.approx(lengths, abs=20)


def test_the_pace_of_a_server_is_measured() -> None:
    scheduler = Scheduler({"a": LONGEST}, LeastInFlight(), pace=60.0)
    scheduler.arrive("t", 10, 0.0)
    scheduler.place(0.0)
    scheduler.finish("t", 2.0, 210)
    assert scheduler.servers[0].pace == pytest.approx(60 + 0.1 * (100 - 60))
    scheduler.arrive("t", 210, 3.0)
    scheduler.place(3.0)
    scheduler.finish("t", 3.0, 500)
    assert scheduler.servers[0].pace == pytest.approx(64), "no time has passed"


# --- what is refused ------------------------------------------------------------------------


def test_a_second_request_of_a_trajectory_is_refused() -> None:
    scheduler = Scheduler({"a": LONGEST}, KAdmission(LONGEST))
    for number in range(2):
        scheduler.arrive(f"t{number}", 10, 0.0)
    scheduler.place(0.0)
    for trajectory in ("t0", "t1"):
        with pytest.raises(ScheduleError, match=f"trajectory '{trajectory}' has a request already"):
            scheduler.arrive(trajectory, 10, 1.0)


def test_servers_that_cannot_be_are_refused() -> None:
    with pytest.raises(ScheduleError, match="server 'a' has a capacity of 0: give KV tokens"):
        Scheduler({"a": 0}, LeastInFlight())
    scheduler = Scheduler({"a": 1}, LeastInFlight())
    with pytest.raises(ScheduleError, match="server 'a' is there already"):
        scheduler.add_server("a", 1)
    with pytest.raises(ScheduleError, match="there is no server 'b'"):
        scheduler.remove_server("b")


def test_servers_too_small_for_the_longest_trajectory_are_refused() -> None:
    scheduler = Scheduler({"a": LONGEST - 1, "b": 5}, KAdmission(LONGEST))
    scheduler.arrive("t", 10, 0.0)
    message = "no server can hold 1000 tokens, the longest trajectory .the largest holds 999."
    with pytest.raises(ScheduleError, match=message):
        scheduler.place(0.0)


def test_without_a_server_everybody_waits_until_one_comes() -> None:
    scheduler = Scheduler({}, LeastInFlight())
    scheduler.arrive("t", 10, 0.0)
    assert scheduler.place(0.0) == []
    scheduler.add_server("a", LONGEST)
    assert scheduler.place(1.5) == [Placement("t", "a", 1.5)]
