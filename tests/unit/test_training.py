"""Training: what is measured, that it repeats, what an update does, what is learnt from.

The policy here is a *guesser*: a tiny model taught in seconds to call the tool, to slip as
the noise says, and to answer one of four numbers. Its problems have such answers, so that
groups of unequal reward exist.
"""

# ruff: noqa: ARG002 - test doubles take what the protocols give

import asyncio
import copy
import dataclasses
import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import Qwen3ForCausalLM

from rstar2.algorithm.weights import Normaliser
from rstar2.experiments.presets import load_torch_preset
from rstar2.problems import Problem, ProblemSet, Split, WorkedProblem, draw_mixed
from rstar2.protocol import (
    LAPTOP,
    CallStatus,
    MalformedCall,
    StopReason,
    TokenTemplate,
    ToolResult,
    Trajectory,
    answered_call,
    parse_calls,
)
from rstar2.records import Hardware, Provenance, RunFolder
from rstar2.records.grades import Phase
from rstar2.rollout import (
    RolloutLimits,
    SamplingParams,
    TokenOutput,
    TorchEngine,
    run_rollout,
)
from rstar2.sandbox import Sandbox, SandboxUnavailable
from rstar2.training import family_world
from rstar2.training.checkpoint import (
    CheckpointError,
    Policy,
    find_step,
    load_optimizers,
    load_policy,
    save_policy,
)
from rstar2.training.collect import Batch, RolloutsLostError, collect
from rstar2.training.curriculum import RLRun, train_rl
from rstar2.training.demonstrations import demonstrate, write_document
from rstar2.training.evaluate import evaluate
from rstar2.training.examples import Example
from rstar2.training.family_world import FamilyWorld, family_sets, laptop_tokenizer
from rstar2.training.grpo import (
    NonFiniteGradientError,
    UpdateRow,
    update,
    update_rows,
)
from rstar2.training.metrics import rollout_metrics, step_metrics, update_metrics
from rstar2.training.mining import Mined, mine_hard_problems
from rstar2.training.model import new_model
from rstar2.training.packed import TokenSequence, next_token_loss, token_log_probs
from rstar2.training.selection import Group
from rstar2.training.slips import slipped_call
from rstar2.training.spec import Arm, Demonstrations, FamilyStageSpec, RLSpec
from rstar2.training.supervised import _batches, train_supervised
from rstar2.training.traces import (
    Demonstration,
    Document,
    encode_demonstration,
    encode_document,
)

PRESET = load_torch_preset("test")
NOISE = PRESET.noise.model_copy(update={"direct": 0.2, "wrong_program": 0.0, "verify": 0.3})
RL = PRESET.rl.model_copy(
    update={
        "problems_per_step": 4,
        "group_size": 4,
        "oversample": 8,
        "refill": False,
        "minibatches": 2,
        "learning_rate": 1e-3,
        "checkpoint_every": 2,
    }
)
LIMITS = RolloutLimits(
    max_prompt_tokens=250,
    max_response_tokens=90,
    max_turns=3,
    max_tool_tokens=24,
    tool_timeout=1.0,
)
DEMONSTRATIONS = 120
GUESSES = {0, 4, 12, 18}
"""The only answers that the guesser knows; the problems here have one of them."""


def stage(steps: int, data: str = "all") -> FamilyStageSpec:
    mined = data == "mined"
    return FamilyStageSpec(
        steps=steps,
        max_response_tokens=LIMITS.max_response_tokens,
        max_turns=LIMITS.max_turns,
        composition_share=1.0,
        data="mined" if mined else "all",
        mine_problems=4 if mined else 0,
        reset_optimizer=mined,
    )


def world(stages: Sequence[FamilyStageSpec]) -> FamilyWorld:
    """The families, in other stages."""
    return dataclasses.replace(PRESET.world, stages=tuple(stages))


def draw_guessable(split: Split, seed: int, index: int, share: float) -> WorkedProblem:
    """The first problem from a place on whose answer the guesser knows."""
    places = range(1000 * index, 1000 * (index + 1))
    drawn = (draw_mixed(split, seed, place, share) for place in places)
    return next(worked for worked in drawn if worked.problem.answer in GUESSES)


def problem(index: int) -> Problem:
    return draw_guessable(Split.TRAIN, 3, index, 1.0).problem


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def demonstrations() -> list[Demonstration]:
    """Conversations in which somebody guesses."""

    async def write(index: int, sandbox: Sandbox) -> Demonstration:
        posed = problem(1000 + index)
        programs = (f"print({posed.answer})", f"n={posed.answer}\nfor i in [n]:\n  print(i)")
        worked = WorkedProblem(posed, "guess", programs, programs, (f"{posed.answer}.",))
        rng = random.Random(index)
        return await demonstrate(
            worked,
            rng,
            NOISE,
            Demonstrations.TOOL,
            sandbox=sandbox,
            manifest=LAPTOP,
            timeout=1.0,
        )

    async def write_all() -> list[Demonstration]:
        async with Sandbox() as sandbox:
            return list(await asyncio.gather(*(write(i, sandbox) for i in range(DEMONSTRATIONS))))

    return asyncio.run(write_all())


@pytest.fixture(scope="module")
def guesser(demonstrations: list[Demonstration], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the guesser's checkpoint."""
    tokenizer = laptop_tokenizer((), demonstrations, LAPTOP, 600)
    template = TokenTemplate(tokenizer, LAPTOP)
    model = new_model(PRESET.model, vocab_size=len(tokenizer), end_id=template.end_id, seed=0)
    examples = [encode_demonstration(one, template, 24) for one in demonstrations]
    spec = PRESET.sft.model_copy(update={"batch_size": 4, "matrix_lr": 0.03, "other_lr": 0.01})
    train_supervised(model, examples * 5, spec, seed=0, on_step=lambda *_: None)
    folder = tmp_path_factory.mktemp("guesser") / "checkpoint"
    save_policy(Policy(model, tokenizer, template), folder)
    return folder


@pytest.fixture
def policy(guesser: Path) -> Policy:
    """A guesser that a test may change."""
    return load_policy(guesser, LAPTOP)


@pytest.fixture(scope="module")
def batch(guesser: Path) -> Batch:
    """Groups that the guesser rolled out; some have both right and wrong rollouts."""
    return _collect(load_policy(guesser, LAPTOP), RL.model_copy(update={"problems_per_step": 16}))


def _collect(
    policy: Policy,
    spec: RLSpec,
    *,
    arm: Arm = Arm.GRPO_ROC,
    source: Callable[[int, int], Problem] = lambda _step, place: problem(place),
    limits: RolloutLimits = LIMITS,
    sandbox: "LostSandbox | None" = None,
) -> Batch:
    async def run() -> Batch:
        async with Sandbox() as real:
            return await collect(
                source,
                0,
                arm,
                spec,
                seed=0,
                engine=TorchEngine(policy.model, end_id=policy.template.end_id, seed=0),
                sandbox=sandbox or real,
                template=policy.template,
                limits=limits,
            )

    return asyncio.run(run())


class LostSandbox:
    """A sandbox that is gone for good."""

    async def run(self, code: str, stdin: str = "", timeout: float = 1.0) -> ToolResult:
        raise SandboxUnavailable("gone")


def weights(model: Qwen3ForCausalLM) -> torch.Tensor:
    return torch.cat([w.detach().flatten() for w in model.parameters()])


# --- runs: measured over all, repeatable, resumable ---------------------------------------


class Killed(Exception):
    pass


def train(
    guesser: Path,
    path: Path,
    stages: Sequence[FamilyStageSpec],
    *,
    arm: Arm = Arm.GRPO_ROC,
    spec: RLSpec = RL,
    kill_after: int | None = None,
    on_mining: Callable[[int, int], None] = lambda _done, _problems: None,
) -> tuple[RunFolder, Policy]:
    """Trains in a folder, or goes on there; all that is in memory is made anew."""
    if not (path / "run.json").exists():
        origin = Provenance("0" * 40, False, Hardware("cpu", 1, 1.0), {})
        RunFolder.create(path, {}, name="test", run_id="0", provenance=origin)
    folder = RunFolder.open(path)
    policy = load_policy(guesser, LAPTOP)
    run = RLRun(arm, spec, world(stages), PRESET.limits, seed=0)

    def on_step(step: int, steps: int, metrics: dict[str, float]) -> None:
        if step == kill_after:
            raise Killed

    async def go() -> Policy:
        async with Sandbox() as sandbox:
            return await train_rl(policy, run, folder, sandbox, on_step, on_mining=on_mining)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family_world, "draw_mixed", draw_guessable)
        trained = asyncio.run(go())
    folder.metrics.to_parquet(folder.metrics_parquet)
    return folder, trained


def test_a_run_killed_inside_a_mined_stage_keeps_what_was_mined(
    guesser: Path, tmp_path: Path
) -> None:
    spec = RL.model_copy(update={"mining_samples": 1})
    stages = [stage(1), stage(4, "mined").model_copy(update={"mine_problems": 8})]
    whole, first = train(guesser, tmp_path / "whole", stages, spec=spec)
    with pytest.raises(Killed):
        train(guesser, tmp_path / "killed", stages, spec=spec, kill_after=3)
    found = find_step(tmp_path / "killed" / "checkpoints")
    assert found is not None
    assert found[0] == 2, "inside the mined stage"
    mined = (tmp_path / "killed" / "mined-2.json").read_bytes()
    assert 0 < len(json.loads(mined)["problems"]) < 8, "so another choice would be seen"
    killed, resumed = train(guesser, tmp_path / "killed", stages, spec=spec)
    assert (killed.path / "mined-2.json").read_bytes() == mined
    assert killed.metrics_parquet.read_bytes() == whole.metrics_parquet.read_bytes()
    assert torch.equal(weights(resumed.model), weights(first.model))


def test_a_fixed_policy_with_resample_on_correct_gives_flat_curves(
    guesser: Path, tmp_path: Path
) -> None:
    """The rate is too small to change a float32 weight; only the selection differs."""
    frozen = RL.model_copy(update={"learning_rate": 1e-30})
    stages = [stage(4, "mined")]  # the same problems in every step
    folder, after = train(guesser, tmp_path / "roc", stages, spec=frozen)
    everything = frozen.model_copy(update={"group_size": frozen.oversample})
    other, _ = train(guesser, tmp_path / "all", stages, arm=Arm.GRPO, spec=everything)
    assert torch.equal(weights(after.model), weights(load_policy(guesser, LAPTOP).model))

    roc, plain = (pd.read_parquet(one.metrics_parquet) for one in (folder, other))
    measured = [*rollout_metrics([]), "rollouts", "groups", "groups_used"]
    measured += [name for name in roc if name.startswith("stop/")]
    pd.testing.assert_frame_equal(roc[measured], plain[measured], check_exact=True)
    kept = [name for name in roc if name.startswith("kept/")]
    assert not roc[kept].equals(plain[kept])
    early, late = roc["tool_error"][:2].mean(), roc["tool_error"][2:].mean()
    assert abs(early - late) < 0.2


def test_the_same_seed_gives_the_same_run_also_when_it_is_killed(
    guesser: Path, tmp_path: Path
) -> None:
    stages = [stage(1), stage(3), stage(2, "mined")]
    whole, first = train(guesser, tmp_path / "whole", stages)
    again, second = train(guesser, tmp_path / "again", stages)
    with pytest.raises(Killed):
        train(guesser, tmp_path / "killed", stages, kill_after=3)
    killed = RunFolder.open(tmp_path / "killed")
    assert [row["step"] for row in killed.metrics.rows()] == [1, 2, 3]
    assert [path.name for path in killed.checkpoints.iterdir()] == ["step-000002"]
    with killed.metrics.path.open("a") as file:
        file.write('{"step": 4, "accur')
    _, resumed = train(guesser, tmp_path / "killed", stages)

    assert not torch.equal(weights(first.model), weights(load_policy(guesser, LAPTOP).model))
    for folder, policy in ((again, second), (killed, resumed)):
        assert folder.metrics_parquet.read_bytes() == whole.metrics_parquet.read_bytes()
        assert folder.trajectories.read_bytes() == whole.trajectories.read_bytes()
        assert torch.equal(weights(policy.model), weights(first.model))
        saved = load_policy(folder.checkpoints / "final", LAPTOP)
        assert torch.equal(weights(saved.model), weights(first.model))


def test_a_run_killed_between_mining_and_its_stage_mines_once(
    guesser: Path, tmp_path: Path
) -> None:
    """The last step of the stage before has a checkpoint, whose weights are those that mined."""
    stages = [stage(3), stage(1, "mined")]
    whole, first = train(guesser, tmp_path / "whole", stages)
    told: list[tuple[int, int]] = []

    def on_mining(done: int, problems: int) -> None:
        told.append((done, problems))
        if done == problems:
            raise Killed

    with pytest.raises(Killed):
        train(guesser, tmp_path / "killed", stages, on_mining=on_mining)
    killed = RunFolder.open(tmp_path / "killed")
    assert [path.name for path in killed.checkpoints.iterdir()] == ["step-000003"]
    _, resumed = train(guesser, tmp_path / "killed", stages, on_mining=on_mining)
    assert told == [(0, 4), (4, 4)]
    assert torch.equal(weights(resumed.model), weights(first.model))
    assert killed.metrics_parquet.read_bytes() == whole.metrics_parquet.read_bytes()


def test_a_run_whose_training_is_over_only_loads_its_policy(guesser: Path, tmp_path: Path) -> None:
    folder, trained = train(guesser, tmp_path, [stage(1)])
    log = folder.metrics.path.read_bytes()
    _, loaded = train(guesser, tmp_path, [stage(1)], kill_after=1)
    assert torch.equal(weights(loaded.model), weights(trained.model))
    assert folder.metrics.path.read_bytes() == log


def test_a_mined_stage_trains_on_what_was_mined_and_on_nothing_else(
    guesser: Path, tmp_path: Path
) -> None:
    folder, _ = train(guesser, tmp_path, [stage(0), stage(1, "mined")])
    mined = set(json.loads((tmp_path / "mined-2.json").read_bytes())["problems"])
    candidates = {problem(-1 - index).problem_id for index in range(4)}
    (row,) = folder.metrics.rows()
    lines = folder.trajectories.read_text().splitlines()
    trained_on = {json.loads(line)["problem"]["problem_id"] for line in lines}
    assert row["stage"] == 2
    assert trained_on <= mined <= candidates


def test_mining_drops_what_is_solved_every_time(policy: Policy) -> None:
    greedy = dataclasses.replace(LIMITS, temperature=0.0)
    rolled = _collect(policy, RL, limits=greedy).groups
    answers = {g.rollouts[0].problem: g.rollouts[0].verdict.value for g in rolled}
    known = [(one, value) for one, value in answers.items() if value is not None][:4]
    assert known
    easy = [dataclasses.replace(one, answer=value) for one, value in known]
    hard = [
        dataclasses.replace(one, answer=value + 1, problem_id=f"hard-{one.problem_id}")
        for one, value in known
    ]

    mined = _mine(policy, [*easy, *hard], "mine", greedy)
    assert list(mined.problems) == hard
    assert mined.grades.total() == 8 * len(easy + hard)
    assert {grade.phase for grade in mined.grades} == {Phase.MINING}


def test_mining_keeps_what_is_solved_only_sometimes(policy: Policy, batch: Batch) -> None:
    """The batch's names make its rollouts again, so what was solved is known."""
    found = _mine(policy, [group.rollouts[0].problem for group in batch.groups], "0/0", LIMITS)
    solved = {
        group.rollouts[0].problem: sum(rollout.reward for rollout in group.rollouts)
        for group in batch.groups
    }
    hard = tuple(one for one, right in solved.items() if right < RL.oversample)
    assert found.problems == hard
    assert any(solved[one] > 0 for one in hard)


def _mine(policy: Policy, candidates: Sequence[Problem], name: str, limits: RolloutLimits) -> Mined:
    async def mine() -> Mined:
        async with Sandbox() as sandbox:
            return await mine_hard_problems(
                candidates,
                8,
                name=name,
                engine=TorchEngine(policy.model, end_id=policy.template.end_id, seed=0),
                policy=policy,
                limits=limits,
                sandbox=sandbox,
            )

    return asyncio.run(mine())


def test_the_steps_of_a_run_belong_to_its_stages() -> None:
    run = RLRun(Arm.GRPO, RL, world((stage(2), stage(0), stage(3))), PRESET.limits, seed=0)
    assert run.total_steps == 5
    assert [run.stage_of(step) for step in range(5)] == [(0, 0), (0, 0), (2, 2), (2, 2), (2, 2)]
    with pytest.raises(ValueError, match="step 5 lies beyond the 5 steps"):
        run.stage_of(5)


# --- what is measured ---------------------------------------------------------------------


def test_metrics_count_every_rollout_sampled(batch: Batch) -> None:
    metrics = step_metrics(batch.groups, batch.used)
    rollouts = [rollout for group in batch.groups for rollout in group.rollouts]
    right = [r.trajectory for r in rollouts if r.verdict.correct]
    calls = [call for path in right for call in path.calls]
    assert metrics["rollouts"] == len(rollouts) == len(batch.groups) * RL.oversample
    assert metrics["accuracy"] == len(right) / len(rollouts)
    assert metrics["tool_error_in_correct"] == sum(c.status.is_error for c in calls) / len(calls)
    stops = [value for name, value in metrics.items() if name.startswith("stop/")]
    assert sum(stops) == pytest.approx(1.0)
    kept = [rollout for group in batch.used for rollout in group.kept]
    assert len(kept) == RL.group_size * metrics["groups_used"]
    assert metrics["kept/accuracy"] == sum(r.reward for r in kept) / len(kept)


def test_what_is_measured_in_the_update_says_so_in_its_name(policy: Policy, batch: Batch) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters())
    report = update(policy.model, optimizer, batch.used, RL, seed=(0, 0))
    metrics = update_metrics(report)
    assert all(name.startswith(("kept/", "update/")) for name in metrics)
    assert metrics.keys().isdisjoint(step_metrics(batch.groups, batch.used))
    assert metrics["update/optimizer_steps"] == RL.minibatches


def test_entropy_is_that_of_the_sampled_tokens_of_every_rollout(batch: Batch) -> None:
    metrics = step_metrics(batch.groups, batch.used)
    everyone = [rollout for group in batch.groups for rollout in group.rollouts]
    kept = [rollout for group in batch.used for rollout in group.kept]
    for rollouts, name in ((everyone, "entropy"), (kept, "kept/entropy")):
        nats = -sum(sum(one.trajectory.log_probs) for one in rollouts)
        tokens = sum(one.trajectory.num_model_tokens for one in rollouts)
        assert metrics[name] == pytest.approx(nats / tokens)


def test_a_mean_over_nothing_is_nan() -> None:
    assert all(math.isnan(value) for value in rollout_metrics([]).values())


# --- collecting: refills ------------------------------------------------------------------


def test_dropped_groups_are_replaced_by_further_problems(policy: Policy) -> None:
    asked: list[int] = []

    def source(_step: int, place: int) -> Problem:
        asked.append(place)
        return problems[place]

    # Nobody solves the first, whatever the processor makes of the random numbers.
    problems = [dataclasses.replace(problem(0), answer=-1), *map(problem, range(1, 9))]
    spec = RL.model_copy(update={"problems_per_step": 3, "refill": True, "max_refills": 2})
    batch = _collect(policy, spec, source=source)
    assert len(batch.used) <= 3 < len(batch.groups) <= 9
    assert asked == list(range(len(batch.groups)))
    assert [g.rollouts[0].problem for g in batch.groups] == [problems[place] for place in asked]
    assert set(map(id, batch.used)) == {id(g) for g in batch.groups if not g.selection.dropped}


def test_without_refill_the_batch_shrinks(policy: Policy) -> None:
    def source(_step: int, place: int) -> Problem:
        return problem(place) if place % 2 else dataclasses.replace(problem(place), answer=-1)

    batch = _collect(policy, RL, source=source)
    assert len(batch.groups) == RL.problems_per_step
    assert all(group.selection.dropped for group in batch.groups[::2])


def test_a_step_without_one_finished_rollout_stops_the_run(policy: Policy) -> None:
    greedy = dataclasses.replace(LIMITS, temperature=0.0)
    with pytest.raises(RolloutsLostError, match="every rollout of step 1"):
        _collect(policy, RL, limits=greedy, sandbox=LostSandbox())


# --- the update ---------------------------------------------------------------------------


def off_policy(groups: Sequence[Group]) -> list[Group]:
    """The groups with old log-probs moved, so that ratios differ from 1 and clips act."""
    rng = np.random.default_rng(0)
    moved = []
    for group in groups:
        rollouts = []
        for rollout in group.rollouts:
            path = rollout.trajectory
            shift = rng.normal(0, 0.3, len(path.log_probs)) * np.array(path.response_mask)
            logs = tuple((np.array(path.log_probs) + shift).tolist())
            path = dataclasses.replace(path, log_probs=logs)
            rollouts.append(dataclasses.replace(rollout, trajectory=path))
        moved.append(dataclasses.replace(group, rollouts=tuple(rollouts)))
    return moved


def as_sequences(paths: Sequence[Trajectory]) -> list[TokenSequence]:
    return [UpdateRow(path, 0.0, 0.0).sequence for path in paths]


def after_update(policy: Policy, groups: Sequence[Group], spec: RLSpec) -> torch.Tensor:
    model = copy.deepcopy(policy.model)
    update(model, torch.optim.SGD(model.parameters(), lr=0.5), groups, spec, seed=(7, 3))
    return weights(model)


def reference_step(model: Qwen3ForCausalLM, groups: Sequence[Group], spec: RLSpec) -> None:
    """One optimiser step as the design writes it: float64, row by row, token by token."""
    totals = [sum(r.trajectory.num_model_tokens for r in group.kept) for group in groups]
    loss = torch.zeros((), dtype=torch.float64)
    for group, tokens in zip(groups, totals, strict=True):
        rewards = [rollout.reward for rollout in group.kept]
        mean = sum(rewards) / len(rewards)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
        share = 1 / sum(totals) if spec.normaliser == "batch" else 1 / (len(groups) * tokens)
        for rollout in group.kept:
            path = rollout.trajectory
            advantage = (rollout.reward - mean) / (deviation + 1e-6)
            ids = torch.tensor([path.prompt_ids + path.response_ids])
            logs = torch.log_softmax(model(ids).logits[0] / spec.temperature, dim=-1)
            for place, written in enumerate(path.response_mask):
                if written:
                    at = len(path.prompt_ids) + place
                    ratio = (logs[at - 1, ids[0, at]] - path.log_probs[place]).exp()
                    bounded = ratio.clamp(1 - spec.clip_low, 1 + spec.clip_high)
                    loss = loss - share * torch.minimum(ratio * advantage, bounded * advantage)
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            assert weight.grad is not None
            weight -= 0.5 * weight.grad
            weight.grad = None


@pytest.mark.parametrize("normaliser", list(Normaliser))
@pytest.mark.parametrize("minibatches", [1, 2])
def test_an_update_equals_the_float64_reference(
    policy: Policy, batch: Batch, normaliser: Normaliser, minibatches: int
) -> None:
    groups = off_policy(batch.used[:3])
    changed = {"normaliser": normaliser, "minibatches": minibatches, "grad_clip": 1e9}
    spec = RL.model_copy(update=changed)
    model = copy.deepcopy(policy.model).double()
    order = list(groups)
    random.Random("minibatches:7:3").shuffle(order)
    for number in range(minibatches):
        reference_step(model, order[number::minibatches], spec)
    moved = weights(model) - weights(policy.model)
    assert moved.norm() > 1e-3
    error = after_update(policy, groups, spec) - weights(policy.model) - moved
    assert error.norm() < 1e-4 * moved.norm()


def test_the_cut_into_micro_batches_does_not_matter(policy: Policy, batch: Batch) -> None:
    groups = off_policy(batch.used[:4])
    cut = [
        after_update(policy, groups, RL.model_copy(update={"micro_batch_tokens": tokens}))
        for tokens in (1, 700, 10**6)
    ]
    moved = (cut[0] - weights(policy.model)).norm()
    assert all((one - cut[0]).norm() < 1e-4 * moved for one in cut[1:])


def test_the_minibatches_of_a_step_depend_on_the_seed_of_the_run_and_on_the_step(
    policy: Policy, batch: Batch
) -> None:
    def moved(seed: tuple[int, int]) -> torch.Tensor:
        model = copy.deepcopy(policy.model)
        update(model, torch.optim.SGD(model.parameters(), lr=0.5), batch.used[:6], RL, seed=seed)
        return weights(model)

    assert torch.equal(moved((1, 2)), moved((1, 2)))
    assert len({moved(seed).numpy().tobytes() for seed in ((1, 2), (2, 1), (1, 3), (3, 2))}) > 2


def test_a_rollout_without_a_model_token_adds_nothing(policy: Policy, batch: Batch) -> None:
    group = batch.used[0]
    (first, *others) = group.kept
    silent = dataclasses.replace(
        first.trajectory, response_ids=(), response_mask=(), log_probs=(), turns=()
    )
    rollouts = (dataclasses.replace(first, trajectory=silent), *others)
    groups = [dataclasses.replace(group, rollouts=rollouts)]
    one = RL.model_copy(update={"minibatches": 1, "grad_clip": 1e9})
    model = copy.deepcopy(policy.model).double()
    reference_step(model, groups, one)
    moved = weights(model) - weights(policy.model)
    error = after_update(policy, groups, one) - weights(policy.model) - moved
    assert error.norm() < 1e-4 * moved.norm()


def test_each_minibatch_is_normalised_by_its_own_tokens(batch: Batch) -> None:
    for groups in (batch.used[:1], batch.used[1:3]):
        rows = update_rows(groups, RL)
        tokens = [row.trajectory.num_model_tokens for row in rows]
        assert {row.weight for row in rows} == {1 / sum(tokens)}


def test_tokens_of_the_environment_get_no_gradient(policy: Policy, batch: Batch) -> None:
    def garbled(group: Group) -> Group:
        rollouts = []
        for rollout in group.rollouts:
            path = rollout.trajectory
            pairs = zip(path.log_probs, path.response_mask, strict=True)
            logs = tuple(log if written else -30.0 for log, written in pairs)
            path = dataclasses.replace(path, log_probs=logs)
            rollouts.append(dataclasses.replace(rollout, trajectory=path))
        return dataclasses.replace(group, rollouts=tuple(rollouts))

    used = batch.used[:3]
    assert any(0 in r.trajectory.response_mask for group in used for r in group.kept)
    changed = after_update(policy, [garbled(group) for group in used], RL)
    assert torch.equal(changed, after_update(policy, used, RL))
    paths = [rollout.trajectory for rollout in used[0].kept]
    logits: list[int] = []
    policy.model.lm_head.register_full_backward_hook(lambda *args: logits.append(len(args[2][0])))
    token_log_probs(policy.model, as_sequences(paths), 1.0).sum().backward()
    assert logits == [sum(path.num_model_tokens for path in paths)]


def test_the_trainer_sees_the_log_probs_that_the_engine_recorded(
    policy: Policy, batch: Batch
) -> None:
    paths = [rollout.trajectory for group in batch.used[:4] for rollout in group.rollouts]
    recorded = [
        log
        for path in paths
        for log, written in zip(path.log_probs, path.response_mask, strict=True)
        if written
    ]
    with torch.no_grad():
        computed = token_log_probs(policy.model, as_sequences(paths), RL.temperature)
    assert (computed - torch.tensor(recorded)).abs().max() < 1e-5


def test_a_gradient_that_is_not_finite_stops_before_the_weights(
    policy: Policy, batch: Batch
) -> None:
    with torch.no_grad():
        policy.model.model.norm.weight[0] = math.inf
    before = weights(policy.model)
    optimizer = torch.optim.AdamW(policy.model.parameters())
    with pytest.raises(NonFiniteGradientError, match=r"minibatch 1 of 2 has norm nan .*lower rl"):
        update(policy.model, optimizer, batch.used, RL, seed=(0, 0))
    assert torch.equal(weights(policy.model), before)
    assert not optimizer.state


def test_a_batch_without_a_group_changes_nothing(policy: Policy) -> None:
    before = weights(policy.model)
    optimizer = torch.optim.AdamW(policy.model.parameters())
    report = update(policy.model, optimizer, [], RL, seed=(0, 0))
    assert report.optimizer_steps == 0
    assert math.isnan(report.loss)
    assert torch.equal(weights(policy.model), before)


# --- evaluation ---------------------------------------------------------------------------


def test_an_evaluation_has_a_row_for_each_problem_of_each_set(policy: Policy) -> None:
    told: list[tuple[int, int]] = []

    async def run() -> list[dict[str, str | int]]:
        async with Sandbox() as sandbox:
            result = await evaluate(
                policy,
                2,
                LIMITS,
                family_sets(Split.HELD_OUT, 5, 2),
                seed=5,
                sandbox=sandbox,
                on_problems=lambda done, total: told.append((done, total)),
                examples=1,
            )
        assert len(result.examples) == len(ProblemSet)
        return [score.as_row() for score in result.scores]

    rows = asyncio.run(run())
    assert rows == asyncio.run(run())
    assert [row["problem_set"] for row in rows] == [s.value for s in ProblemSet for _ in range(2)]
    assert told[:4] == [(2, 8), (4, 8), (6, 8), (8, 8)]
    assert all(row["samples"] == 2 and row["errors"] <= row["calls"] for row in rows)


def test_an_evaluation_without_a_sandbox_stops(policy: Policy) -> None:
    greedy = dataclasses.replace(LIMITS, temperature=0.0)
    run = evaluate(
        policy,
        2,
        greedy,
        family_sets(Split.DEV, 0, 2),
        seed=0,
        sandbox=LostSandbox(),
        on_problems=lambda *_: None,
    )
    with pytest.raises(RolloutsLostError, match="a problem of families"):
        asyncio.run(run)


# --- what is learnt from ------------------------------------------------------------------


class Replay:
    """An engine that writes the turns of a demonstration."""

    def __init__(self, demonstration: Demonstration, template: TokenTemplate) -> None:
        self._turns = iter(demonstration.turns)
        self._template = template

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        ids = (*self._template.encode(next(self._turns)), self._template.end_id)
        return TokenOutput(ids, (-1.0,) * len(ids))

    async def end(self, request_id: str) -> None:
        pass


async def real_demonstration(index: int, sandbox: Sandbox) -> Demonstration:
    worked = draw_mixed(Split.TRAIN, 9, index, 0.3)
    noise = PRESET.noise.model_copy(update={"verify": 0.5, "repeat_answer": 0.3})
    rng = random.Random(index)
    return await demonstrate(
        worked,
        rng,
        noise,
        Demonstrations.TOOL,
        sandbox=sandbox,
        manifest=LAPTOP,
        timeout=1.0,
    )


def test_a_demonstration_has_the_ids_of_the_agent_loop_and_of_the_chat_template(
    policy: Policy,
) -> None:
    template = policy.template
    roomy = dataclasses.replace(LIMITS, max_response_tokens=10**4, max_turns=9)

    async def check() -> int:
        turns = 0
        async with Sandbox() as sandbox:
            for one in await asyncio.gather(*(real_demonstration(i, sandbox) for i in range(25))):
                path = await run_rollout(
                    "replay",
                    one.question,
                    engine=Replay(one, template),
                    sandbox=sandbox,
                    template=template,
                    limits=roomy,
                )
                example = encode_demonstration(one, template, roomy.max_tool_tokens)
                assert path.stop is StopReason.ANSWERED
                assert tuple(call.response for call in path.calls) == one.responses
                assert example.ids == path.prompt_ids + path.response_ids
                assert example.mask == (0,) * len(path.prompt_ids) + path.response_mask
                if all(r == template.cut(r, roomy.max_tool_tokens) for r in one.responses):
                    assert list(example.ids) + template.encode("\n") == _by_chat_template(
                        one, template
                    )
                turns += len(path.turns)
        return turns

    assert asyncio.run(check()) > 50


def _by_chat_template(one: Demonstration, template: TokenTemplate) -> list[int]:
    messages = [
        {"role": "system", "content": LAPTOP.system_text()},
        {"role": "user", "content": LAPTOP.question_text(one.question)},
    ]
    for number, turn in enumerate(one.turns):
        messages.append({"role": "assistant", "content": LAPTOP.prime + turn})
        if number < len(one.responses):
            messages.append({"role": "tool", "content": one.responses[number]})
    text = template.tokenizer.apply_chat_template(messages, tokenize=False)
    return template.encode(text)


def test_every_slip_fails_and_every_kind_occurs() -> None:
    async def run() -> set[str]:
        kinds = set()
        async with Sandbox() as sandbox:
            for index in range(150):
                worked, rng = draw_mixed(Split.TRAIN, 4, index, 0.3), random.Random(index)
                code = rng.choice((*worked.right, *worked.wrong))
                body = slipped_call(code, LAPTOP.tool_name, rng)
                (call,) = parse_calls(f"<tool_call>{body}</tool_call>", LAPTOP)
                if isinstance(call, MalformedCall):
                    kinds.add(call.kind.value)
                    continue
                record = answered_call(call, await sandbox.run(call.code, "", 1.0), LAPTOP)
                assert record.status is CallStatus.ERROR, f"this runs:\n{call.code}"
                kinds.add(record.error_type)
                kinds |= {w for w in ("Sum", "rang", "pritn", "maths") if f"{w}(" in call.code}
        return kinds

    wanted = {"bad_json", "unknown_tool", "SyntaxError", "IndentationError", "NameError"}
    assert asyncio.run(run()) >= wanted | {"Sum", "rang", "pritn"}


def test_demonstrations_err_as_often_as_the_noise_says(
    demonstrations: list[Demonstration],
) -> None:
    def share(hits: list[bool], probability: float) -> None:
        error = math.sqrt(probability * (1 - probability) / len(hits))
        assert abs(sum(hits) / len(hits) - probability) < 4 * error

    called = [one for one in demonstrations if one.responses]
    slipped = [not one.responses[0].isdigit() for one in called]
    share([not one.responses for one in demonstrations], NOISE.direct)
    share(slipped, NOISE.slip)
    again = [not one.responses[1].isdigit() for one, s in zip(called, slipped, strict=True) if s]
    share(again, NOISE.slip)
    share([one.turns[-1].count("<answer>") == 2 for one in called], NOISE.repeat_answer)
    share(["Check with another program" in one.turns[-2] for one in called], NOISE.verify)


def test_without_noise_a_demonstration_is_one_right_call_and_its_answer() -> None:
    quiet = NOISE.model_copy(update=dict.fromkeys(type(NOISE).model_fields, 0.0))

    async def run() -> None:
        async with Sandbox() as sandbox:
            for index in range(8):
                worked = draw_mixed(Split.TRAIN, 6, index, 0.3)
                one = await demonstrate(
                    worked,
                    random.Random(index),
                    quiet,
                    Demonstrations.TOOL,
                    sandbox=sandbox,
                    manifest=LAPTOP,
                    timeout=1.0,
                )
                answer = str(worked.problem.answer)
                assert one.responses == (answer,)
                assert one.turns[1].endswith(f"</reason><answer>\\boxed{{{answer}}}</answer>")

    asyncio.run(run())


def test_a_document_teaches_a_plan_and_a_right_program_but_not_the_question(
    policy: Policy,
) -> None:
    worked = draw_mixed(Split.TRAIN, 1, 0, 0.0)
    document = write_document(worked, random.Random(0), Demonstrations.TOOL)
    plan, program = document.solution.split("\n", 1)
    assert plan == worked.plan
    assert json.loads(program)["code"] in worked.right
    example = encode_document(document, policy.template, end_of_text=0)
    learnt = [i for i, counts in zip(example.ids, example.mask, strict=True) if counts]
    assert policy.template.decode(learnt[:-1]) == document.solution
    assert learnt[-1] == 0
    assert isinstance(document, Document)


# --- supervised training ------------------------------------------------------------------


def some_examples(count: int) -> list[Example]:
    rng = random.Random(0)
    examples = []
    for _ in range(count):
        length = rng.randrange(4, 30)
        mask = [0, *(rng.randrange(2) for _ in range(length - 2)), 1]
        examples.append(Example(tuple(rng.choices(range(3, 300), k=length)), tuple(mask)))
    return examples


def test_the_loss_is_the_mean_over_counted_tokens_alone(policy: Policy) -> None:
    examples = some_examples(5)
    model = copy.deepcopy(policy.model).double()
    losses = []
    with torch.no_grad():
        for example in examples:
            logs = torch.log_softmax(model(torch.tensor([example.ids])).logits[0], dim=-1)
            for place in range(1, len(example.ids)):
                if example.mask[place]:
                    losses.append(-logs[place - 1, example.ids[place]].item())
        loss = next_token_loss(policy.model, examples).item()
    assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_every_example_is_seen_once() -> None:
    spec = PRESET.sft.model_copy(update={"batch_size": 4})
    examples = some_examples(42)
    batches = list(_batches(examples, spec, random.Random(0)))
    seen = [id(example) for batch in batches for example in batch]
    assert [len(batch) for batch in batches] == [4] * 10
    assert len(set(seen)) == 40
    assert set(seen) <= set(map(id, examples))


def test_the_same_seed_trains_the_same_weights(policy: Policy) -> None:
    def trained(seed: int) -> torch.Tensor:
        model = copy.deepcopy(policy.model)
        steps: list[tuple[int, int]] = []
        train_supervised(
            model,
            some_examples(40),
            PRESET.sft,
            seed=seed,
            on_step=lambda step, total, _loss: steps.append((step, total)),
        )
        assert steps == [(step, 5) for step in range(1, 6)]
        return weights(model)

    assert torch.equal(trained(0), trained(0))
    assert not torch.equal(trained(0), trained(1))


# --- checkpoints --------------------------------------------------------------------------


def one_step(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    next_token_loss(policy.model, some_examples(4)).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_checkpoint_gives_back_policy_and_optimizer(policy: Policy, tmp_path: Path) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    one_step(policy, optimizer)
    save_policy(policy, tmp_path / "a", optimizer)
    loaded = load_policy(tmp_path / "a", LAPTOP)
    restored = torch.optim.AdamW(loaded.model.parameters(), lr=1e-3)
    load_optimizers(tmp_path / "a", restored)
    for each, its in ((policy, optimizer), (loaded, restored)):
        one_step(each, its)
    assert torch.equal(weights(policy.model), weights(loaded.model))
    text = "Let me print(3)"
    assert loaded.template.encode(text) == policy.template.encode(text)
    assert loaded.tokenizer.chat_template == policy.tokenizer.chat_template


def test_a_checkpoint_is_replaced_whole_whatever_a_kill_left_there(
    policy: Policy, tmp_path: Path
) -> None:
    for rest in ("a", "a.partial", "a.old"):
        (tmp_path / rest).mkdir()
        (tmp_path / rest / "rubbish").touch()
    save_policy(policy, tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert not (tmp_path / "a" / "rubbish").exists()
    load_policy(tmp_path / "a", LAPTOP)


def _without_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    save_file(tensors, file)


def _with_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no folder": shutil.rmtree,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "no config": lambda folder: (folder / "config.json").unlink(),
    "cut weights": lambda folder: (folder / "model.safetensors").write_bytes(b"abc"),
    "a weight is missing": _without_a_weight,
    "another shape": _with_another_shape,
    "torn config": lambda folder: (folder / "config.json").write_text("{"),
    "another model": lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'),
    "config of a wrong type": lambda folder: (folder / "config.json").write_text(
        '{"model_type": "qwen3", "hidden_size": "big"}'
    ),
    "torn tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_missing_or_damaged_checkpoint_is_one_clear_error(
    damage: str, guesser: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(guesser, folder)
    DAMAGES[damage](folder)
    with pytest.raises(CheckpointError, match=str(folder)):
        load_policy(folder, LAPTOP)


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_a_missing_or_damaged_optimizer_is_one_clear_error(
    damage: str, policy: Policy, tmp_path: Path
) -> None:
    if damage == "torn":
        (tmp_path / "optimizer.safetensors").write_bytes(b"abc")
    optimizer = torch.optim.AdamW(policy.model.parameters())
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors"):
        load_optimizers(tmp_path, optimizer)
