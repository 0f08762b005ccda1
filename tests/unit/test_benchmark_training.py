"""The benchmark of training: its arithmetic, its checks of equal work, and what it refuses."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LogitsProcessorList, Qwen3ForCausalLM

from benchmarks import command
from benchmarks.training import __main__ as training
from benchmarks.training import compare, environment, inputs, limits, lockstep, workers
from benchmarks.training.rl_step import model_turns
from benchmarks.training.widened import widened
from rstar2.rollout import SamplingParams
from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec

SMALL = ModelSpec(
    vocab_size=320,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    intermediate_size=48,
    max_positions=128,
)
END = 2


def small_model() -> Qwen3ForCausalLM:
    return new_model(SMALL, vocab_size=SMALL.vocab_size, end_id=END, seed=1).eval()


# --- arithmetic --------------------------------------------------------------------------


def test_a_speed_is_the_ratio_of_medians_and_its_spread_that_of_the_rounds() -> None:
    assert compare.speed_over("faster", [1.0, 2.0, 4.0], [3.0, 4.0, 4.0]) == {
        "faster": 2.0,
        "faster_spread": [1.0, 3.0],
    }


def test_the_share_of_matmul_counts_two_flop_a_parameter_forward_and_six_with_backward() -> None:
    rate = 1e9
    assert compare.share_of_matmul(2, 1_000_000, 100, 0.5, rate) == pytest.approx(0.4)
    assert compare.share_of_matmul(6, 1_000_000, 100, 1.2, rate) == pytest.approx(0.5)


def test_the_first_round_of_a_side_is_not_counted_and_the_sides_take_turns() -> None:
    asked: list[str] = []

    def side(name: str) -> compare.Side:
        def round_() -> compare.Answer:
            asked.append(name)
            return {"cpu_s": len(asked)}

        return round_

    answers = compare.take_turns({"a": side("a"), "b": side("b")}, rounds=2)
    assert "".join(asked) == "ababab"
    assert compare.column(answers["a"], "cpu_s") == [3, 5]


def test_work_that_differs_ends_the_run_and_says_in_what() -> None:
    compare.same_work("step", {"turns": 3}, {"turns": 3})
    with pytest.raises(
        compare.DifferentWorkError, match=r"step: .* kept 4 and None, turns 3 and 2"
    ):
        compare.same_work("step", {"turns": 3, "kept": 4}, {"turns": 2})


def test_gradients_that_differ_end_the_run() -> None:
    compare.same_gradient(0.77443, 0.77429)
    with pytest.raises(compare.DifferentWorkError, match=r"norm is 0\.77, theirs 0\.75"):
        compare.same_gradient(0.77, 0.75)


# --- what limits us ----------------------------------------------------------------------


def test_matmul_has_a_rate() -> None:
    assert limits.matmul_rate() > 1e8


def test_time_outside_every_operator_is_pythons() -> None:
    times = {
        "aten::mm": 1.0,
        "aten::addmm": 2.0,
        "aten::bmm": 1.0,
        "aten::mul_": 2.0,
        "autograd::engine::evaluate_function: MmBackward0": 9.0,
    }
    assert limits.shares(times, spent=10.0) == {
        limits.PYTHON: 0.4,
        "matmul": 0.3,
        limits.ELEMENTWISE: 0.2,
        "attention": 0.1,
    }


def test_the_profile_of_a_product_is_mostly_matmul_and_its_shares_make_one() -> None:
    left, right = torch.rand(512, 512), torch.rand(512, 512)
    parts = limits.profiled(lambda: [left @ right for _ in range(20)])["shares"]
    assert sum(parts.values()) == pytest.approx(1)
    assert max(parts, key=parts.__getitem__) == "matmul"
    told = limits.limit_text({"matmul": 0.5, limits.PYTHON: 0.5}, share_of_matmul=0.25)
    assert told == (
        "of the time: matmul 50%, Python and dispatch 50%; "
        "inside matmul 50% of the rate of large matrices"
    )


# --- the work ----------------------------------------------------------------------------


def test_a_widened_policy_computes_the_same_function() -> None:
    large = SMALL.model_copy(
        update={"hidden_size": 64, "head_dim": 32, "intermediate_size": 80, "num_layers": 3}
    )
    small = small_model()
    wide = widened(small, large, END)
    ids = torch.randint(0, SMALL.vocab_size, (2, 90), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(wide(ids).logits, small(ids).logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="grow by one factor"):
        widened(small, large.model_copy(update={"head_dim": 16}), END)


def test_prompts_are_whole_groups_of_equal_length() -> None:
    rows = inputs.prompts(64)
    assert [rows.count(row) for row in rows] == [inputs.GROUP] * 64
    assert {len(row) for row in rows} == {inputs.PROMPT_TOKENS}
    assert inputs.prompts(32) == rows[:32]
    with pytest.raises(ValueError, match="40 rows do not make groups of 16"):
        inputs.prompts(40)


def test_a_response_is_cut_into_the_turns_that_the_model_wrote() -> None:
    assert model_turns([7, 8, 1, 1, 9], [1, 1, 0, 0, 1]) == [[7, 8], [9]]
    assert model_turns([], []) == []


class Generation:
    """What the engine calls of TRL's trainer: ``generate`` of transformers, cut at the end."""

    def __init__(self, script: lockstep.Script) -> None:
        self.model, self.script, self.batches = small_model(), script, list[int]()

    def _generate_single_turn(
        self, rows: list[list[int]], *_: object
    ) -> tuple[list[list[int]], None]:
        self.batches.append(len(rows))
        width = max(map(len, rows))
        made = self.model.generate(
            input_ids=torch.tensor([[0] * (width - len(row)) + row for row in rows]),
            attention_mask=torch.tensor(
                [[0] * (width - len(row)) + [1] * len(row) for row in rows]
            ),
            max_new_tokens=20,
            do_sample=True,
            eos_token_id=END,
            pad_token_id=0,
            logits_processor=LogitsProcessorList([self.script]),
        )[:, width:].tolist()
        return [row[: row.index(END) + 1] for row in made], None


def test_the_peers_engine_writes_the_script_in_step() -> None:
    turns = {"a": [[5, 6, END], [7, END]], "b": [[9, 9, 9, 9, END]], "cut": [[4, 4, 4]]}
    script = lockstep.Script(END)
    trainer = Generation(script)
    engine = lockstep.Lockstep(trainer, script, turns)

    async def converse(name: str) -> list[list[int]]:
        ids, written = [10, 11], []
        for turn in turns[name]:
            params = SamplingParams(temperature=1.0, max_tokens=len(turn))
            output = await engine.generate(name, prompt_ids=ids, sampling_params=params)
            written.append(list(output.token_ids))
            ids += [*output.token_ids, 12]
        await engine.end(name)
        return written

    async def all_of_them() -> list[list[list[int]]]:
        return await asyncio.gather(*map(converse, turns))

    assert asyncio.run(all_of_them()) == list(turns.values())
    assert trainer.batches == [3, 1]
    assert script.cpu > 0


# --- what is refused ---------------------------------------------------------------------


def test_no_peer_environment_is_one_line_that_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "find_peers", lambda: environment.find_peers(tmp_path))
    monkeypatch.setattr(sys, "argv", ["benchmarks.training", "--quick"])
    with pytest.raises(SystemExit) as left:
        command.run(training.app, "benchmarks.training")
    assert left.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "benchmarks.training: there is no peer environment in .venv-peers: type `make peers`\n"
    )


def test_an_interrupted_installation_is_no_environment(tmp_path: Path) -> None:
    folder = tmp_path / ".venv-peers"
    folder.mkdir()
    (folder / ".stamp").touch()
    assert environment.find_peers(tmp_path).python == folder / "bin" / "python"
    (folder / ".installing").touch()
    with pytest.raises(environment.NotFoundError, match="make peers"):
        environment.find_peers(tmp_path)


def test_another_version_of_the_peer_is_refused() -> None:
    pinned = {name: pins("requirements-peers.txt")[name] for name in environment.PEER_LIBRARIES}
    environment.check_peers({**pinned, "torch": pinned["torch"] + "+cpu"})
    with pytest.raises(environment.NotFoundError, match=r"has trl 1\.0, .* type `make peers`"):
        environment.check_peers({**pinned, "trl": "1.0"})


def test_a_clone_without_the_first_code_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    refused = pytest.raises(environment.NotFoundError, match="git fetch --unshallow")
    with refused, environment.first_code(tmp_path):
        pass


def test_a_worker_that_ends_leaves_its_last_words() -> None:
    dies = pytest.raises(
        workers.WorkerDied, match=r"(?s)worker no_such_worker ended with 1:.*No module"
    )
    with workers.worker("no_such_worker", runtime=workers.Runtime()) as worker, dies:
        worker.ask("generation")


# --- pins --------------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (workers.ROOT / name).read_text().splitlines() if line[0] != "#"]
    loose = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\d.a-z]+", line)]
    assert not loose, f"not an exact version without a local suffix: {loose}"
    return {key.lower(): value for key, value in (line.split("==") for line in lines)}


def test_both_sides_compute_and_run_tools_with_the_same_libraries() -> None:
    base, peers = pins("requirements.txt"), pins("requirements-peers.txt")
    shared = ("torch", "numpy", "scipy", "sympy", "mpmath", "msgspec", "pyseccomp", "safetensors")
    assert {name: peers[name] for name in shared} == {name: base[name] for name in shared}
    assert peers["trl"] == "1.16.0"
