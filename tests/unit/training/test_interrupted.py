"""What a kill, a full disk or a bad number leaves behind, part by part."""

# ruff: noqa: ARG002 - test doubles take what the protocols give

import asyncio
import math
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from rstar2.experiments.presets import load_torch_preset
from rstar2.problems import Problem, ProblemSet, Split, draw
from rstar2.protocol import LAPTOP, TokenTemplate, ToolResult
from rstar2.records import (
    Hardware,
    Provenance,
    RecordError,
    RunFolder,
    Session,
    append_json_line,
    read_json_lines,
)
from rstar2.records.files import atomic_folder, mend_folders
from rstar2.records.grades import Phase, count_grades
from rstar2.rollout import RolloutLimits
from rstar2.rollout.groups import run_all
from rstar2.training import evaluate as evaluation
from rstar2.training.checkpoint import (
    CheckpointError,
    Policy,
    find_final,
    find_step,
    load_optimizers,
    load_policy,
    save_final,
    save_policy,
    save_step,
)
from rstar2.training.evaluate import Evaluation, evaluate
from rstar2.training.examples import Example, load_examples, save_examples
from rstar2.training.family_world import family_sets
from rstar2.training.mining import Mined, find_mined, load_mined, mined_grades, save_mined
from rstar2.training.model import new_model
from rstar2.training.supervised import (
    NonFiniteLossError,
    SupervisedPhase,
    new_optimizers,
    train_phases,
    train_supervised,
)
from rstar2.training.tokenizer import train_tokenizer

PRESET = load_torch_preset("test")
SPEC = PRESET.sft.model_copy(update={"examples": 40, "batch_size": 4, "checkpoint_every": 3})
LIMITS = RolloutLimits(250, 20, 2, 24, 1.0)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    tokenizer = train_tokenizer(["a b c", LAPTOP.system_text()], 330)
    template = TokenTemplate(tokenizer, LAPTOP)
    model = new_model(PRESET.model, vocab_size=len(tokenizer), end_id=template.end_id, seed=0)
    path = tmp_path_factory.mktemp("fresh") / "policy"
    save_policy(Policy(model, tokenizer, template), path)
    return path


@pytest.fixture
def policy(fresh: Path) -> Policy:
    return load_policy(fresh, LAPTOP)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    origin = Provenance("0" * 40, False, Hardware("cpu", 1, 1.0), {})
    return RunFolder.create(tmp_path / "run", {}, name="test", run_id="0", provenance=origin)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()])


def some_examples(count: int, seed: int = 0) -> list[Example]:
    rng = random.Random(seed)
    lengths = [rng.randrange(4, 30) for _ in range(count)]
    return [Example(tuple(rng.choices(range(3, 260), k=n)), (0, *[1] * (n - 1))) for n in lengths]


# --- folders ------------------------------------------------------------------------------


def names(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*"))


@pytest.mark.parametrize("left", ["a.partial", "a.old", "both"])
def test_a_kill_in_a_checkpoint_leaves_the_old_one_or_the_new_one(
    left: str, tmp_path: Path
) -> None:
    """Between the two renames nothing stands under the real name; the old one comes back."""
    real = tmp_path / "a"
    if left != "both":
        real.mkdir()
    for name in ("a.partial", "a.old") if left == "both" else (left,):
        (tmp_path / name).mkdir()
    (tmp_path / ("a.old" if left == "both" else "a") / "whole").touch()
    mend_folders(tmp_path)
    assert names(tmp_path) == ["a", "a/whole"]


def test_a_folder_that_is_given_up_leaves_the_old_one(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a") as new:
        (new / "first").touch()

    def give_up(error: Exception) -> None:
        with atomic_folder(tmp_path / "a") as new:
            (new / "second").touch()
            raise error

    with pytest.raises(ValueError, match="no"):
        give_up(ValueError("no"))
    with pytest.raises(RecordError, match=r"cannot write .*a: No space left.*has space"):
        give_up(OSError(28, "No space left on device"))
    assert names(tmp_path) == ["a", "a/first"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writing more into one file fails meanwhile, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def test_a_full_disk_is_told_and_leaves_the_checkpoint_before(
    policy: Policy, tmp_path: Path
) -> None:
    save_step(policy, tmp_path, 1)
    before = weights(policy)
    with torch.no_grad():
        policy.model.model.norm.weight += 1.0
    for size in (100, 20_000):
        with largest_file(size), pytest.raises((CheckpointError, RecordError), match="space"):
            save_step(policy, tmp_path, 2)
    assert find_step(tmp_path) == (1, tmp_path / "step-000001")
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert torch.equal(weights(load_policy(tmp_path / "step-000001", LAPTOP)), before)


def test_the_last_step_is_found_and_stands_alone(policy: Policy, tmp_path: Path) -> None:
    assert find_step(tmp_path / "nowhere") is None
    save_step(policy, tmp_path, 9)
    save_step(policy, tmp_path, 10)
    for left in ("step-000011.partial", "step-000008", "step-x"):
        (tmp_path / left).mkdir()
    assert find_step(tmp_path) == (10, tmp_path / "step-000010")
    assert find_final(tmp_path) is None
    save_final(policy, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert find_final(tmp_path) == tmp_path / "final"


def test_the_states_of_both_optimizers_come_back(policy: Policy, tmp_path: Path) -> None:
    optimizers = new_optimizers(policy.model, SPEC)
    train_supervised(
        policy.model,
        some_examples(20),
        SPEC,
        seed=0,
        on_step=lambda *_: None,
        optimizers=optimizers,
    )
    save_step(policy, tmp_path, 5, *optimizers)
    restored = load_policy(tmp_path / "step-000005", LAPTOP)
    others = new_optimizers(restored.model, SPEC)
    load_optimizers(tmp_path / "step-000005", *others)
    for one, other in zip(optimizers, others, strict=True):
        kept, found = one.state_dict()["state"], other.state_dict()["state"]
        assert kept.keys() == found.keys()
        for number, state in kept.items():
            assert all(torch.equal(state[key], found[number][key]) for key in state)
    with pytest.raises(CheckpointError, match="holds more than 1 optimizers"):
        load_optimizers(tmp_path / "step-000005", others[0])
    with pytest.raises(CheckpointError, match="an optimizer over other parameters"):
        load_optimizers(tmp_path / "step-000005", others[1], torch.optim.SGD([torch.zeros(1)]))


# --- supervised training ------------------------------------------------------------------


class Killed(Exception):
    pass


def test_phases_that_were_killed_anywhere_give_the_same_weights(
    policy: Policy, tmp_path: Path
) -> None:
    """Two phases of ten steps, a checkpoint every third; a run for each moment of a kill."""
    phases = [
        SupervisedPhase(name, some_examples(40, seed), SPEC)
        for seed, name in enumerate(("pretrain", "sft"))
    ]

    def train(path: Path, kill: tuple[str, int] | None) -> tuple[bytes, torch.Tensor]:
        folder = RunFolder(path)
        if not path.exists():
            path.mkdir()
            save_step(policy, folder.checkpoints, 0)

        def on_step(phase: str, step: int, total: int, loss: float) -> None:
            if (phase, step) == kill:
                raise Killed

        trained = train_phases(
            phases, folder, LAPTOP, seed=0, session=Session(folder), on_step=on_step
        )
        return folder.metrics.path.read_bytes(), weights(trained)

    log, whole = train(tmp_path / "whole", None)
    assert log.count(b"\n") == 20
    assert not torch.equal(whole, weights(policy))
    for name, step in [(name, step) for name in ("pretrain", "sft") for step in (1, 3, 4, 10)]:
        path = tmp_path / f"{name}-{step}"
        with pytest.raises(Killed):
            train(path, (name, step))
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 3, "lo')
        again, resumed = train(path, None)
        assert again == log
        assert torch.equal(resumed, whole)
        made = [row["step"] for row in read_json_lines(path / "timing.jsonl")]
        assert made.count(10) <= 1 + (name == "pretrain"), "a finished pretrain is not run again"


def test_a_run_without_a_checkpoint_of_step_0_is_refused(folder: RunFolder) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint: write that of step 0"):
        train_phases([], folder, LAPTOP, seed=0, session=Session(folder), on_step=lambda *_: None)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_stops_before_the_weights(policy: Policy, bad: float) -> None:
    seen: list[int] = []

    def on_step(step: int, total: int, loss: float) -> None:
        seen.append(step)
        with torch.no_grad():
            policy.model.model.norm.weight[0] = bad
        seen.append(weights(policy).nan_to_num().sum().item())

    optimizers = new_optimizers(policy.model, SPEC)
    with pytest.raises(NonFiniteLossError, match=r"step 2 of 10 has loss nan .*lower rates"):
        train_supervised(
            policy.model, some_examples(40), SPEC, seed=0, on_step=on_step, optimizers=optimizers
        )
    assert seen == [1, weights(policy).nan_to_num().sum().item()]


def test_examples_come_back_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "examples.safetensors"
    made = {"pretrain": some_examples(7), "sft": [Example((1,), (1,))], "none": []}
    save_examples(path, made)
    assert {name: load_examples(path, name) for name in made} == made
    path.write_bytes(path.read_bytes()[:50])
    for name in ("pretrain", "other"):
        with pytest.raises(RecordError, match=r"cannot be read: .*; remove .* and run again"):
            load_examples(path, name)
    with pytest.raises(RecordError, match="cannot be read"):
        load_examples(tmp_path / "nowhere", "sft")


# --- evaluation and mining ----------------------------------------------------------------


def evaluated(policy: Policy, chunks: Path, seen: list[int]) -> Evaluation:
    return asyncio.run(
        evaluate(
            policy,
            2,
            LIMITS,
            family_sets(Split.HELD_OUT, 1, 3),
            seed=1,
            sandbox=NoSandbox(),
            on_problems=lambda done, _total: seen.append(done),
            chunks=chunks,
        )
    )


class NoSandbox:
    async def run(self, code: str, stdin: str = "", timeout: float = 1.0) -> ToolResult:
        raise AssertionError("a fresh policy calls no tool")


def test_an_evaluation_goes_on_after_its_last_whole_chunk(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_CHUNK", 4)  # two chunks a set
    path, seen = tmp_path / "evaluation.jsonl", list[int]()
    whole = evaluated(policy, path, seen)
    assert seen == [2, 3, 5, 6, 8, 9, 11, 12]
    assert len(whole.scores) == 3 * len(ProblemSet)
    assert whole.grades.total() == 6 * len(ProblemSet)
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines) + 1):
        path.write_bytes(b"".join(lines[:kept]) + b'{"key": "torn')
        seen.clear()
        assert evaluated(policy, path, seen) == whole
        assert seen == [2, 3, 5, 6, 8, 9, 11, 12]
        assert path.read_bytes() == b"".join(lines)


def test_an_evaluation_takes_no_chunk_of_other_weights(policy: Policy, tmp_path: Path) -> None:
    path, seen = tmp_path / "evaluation.jsonl", list[int]()
    evaluated(policy, path, seen)
    with torch.no_grad():
        policy.model.model.norm.weight += 1e-3
    evaluated(policy, path, seen)
    assert seen == 2 * [3, 6, 9, 12]
    assert len(read_json_lines(path)) == 4


def candidates(count: int) -> list[Problem]:
    return [draw(ProblemSet.FAMILIES, Split.TRAIN, 0, index).problem for index in range(count)]


def test_what_was_mined_belongs_to_the_weights_that_rolled_it_out(
    policy: Policy, tmp_path: Path
) -> None:
    path, problems = tmp_path / "mined-2.json", candidates(4)
    assert find_mined(path, problems, policy) is None
    with pytest.raises(RecordError, match=r"mined-2.json cannot be read"):
        load_mined(path, problems)
    assert not mined_grades([])
    mined = Mined((problems[1], problems[3]), count_grades(Phase.MINING, []))
    save_mined(path, mined, policy)
    assert find_mined(path, problems, policy) == mined == load_mined(path, problems)
    with torch.no_grad():
        policy.model.model.norm.weight[0] += 1e-6
    assert find_mined(path, problems, policy) is None
    assert load_mined(path, problems) == mined
    for content in (b"{", b"[1]", b'{"weights": ""}', b"\xff"):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"mined-2.json .*begin the run again"):
            find_mined(path, problems, policy)


# --- time ---------------------------------------------------------------------------------


def test_laps_add_up_over_sessions_and_a_torn_one_is_cut(folder: RunFolder) -> None:
    first = Session(folder)
    first.lap("data")
    first.lap("rl", step=1, rollout_seconds=0.5)
    with folder.timing.open("a") as file:
        file.write('{"session": 1, "ph')
    second = Session(folder)
    second.lap("rl", step=1)
    rows = read_json_lines(folder.timing)
    assert [(row["session"], row["phase"]) for row in rows] == [(1, "data"), (1, "rl"), (2, "rl")]
    assert all(row["seconds"] > 0 and row["cpu_seconds"] >= 0 for row in rows)
    assert second.total_seconds() == sum(row["seconds"] for row in rows)
    assert second.total_seconds() < 5


# --- at once ------------------------------------------------------------------------------


def test_the_first_failure_ends_the_others_and_is_what_is_raised() -> None:
    cause, ended = KeyError("why"), list[str]()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("first") from cause

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("waits")

    async def fails_when_cancelled() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("second")

    with pytest.raises(LookupError, match="first") as raised:
        asyncio.run(run_all([waits(), fails(), fails_when_cancelled()]))
    assert raised.value.__cause__ is cause
    assert ended == ["waits"]


def test_results_come_in_order() -> None:
    async def give(number: int) -> int:
        await asyncio.sleep(0.001 * (5 - number))
        return number

    assert asyncio.run(run_all(give(number) for number in range(5))) == [*range(5)]
    assert asyncio.run(run_all([])) == []


def test_a_row_with_a_lone_surrogate_is_kept(tmp_path: Path) -> None:
    """A model may write one into its program, as JSON allows."""
    rows = [{"code": "print('\ud800')"}, {"code": "é"}]
    for row in rows:
        append_json_line(tmp_path / "rows.jsonl", row)
    assert read_json_lines(tmp_path / "rows.jsonl") == rows
    assert "é".encode() in (tmp_path / "rows.jsonl").read_bytes()
