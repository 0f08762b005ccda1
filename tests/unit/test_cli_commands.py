"""The commands that train, solve, report and publish: bad input is one line and exit code 2."""

# ruff: noqa: ARG002 - the scripted engine takes what the protocol gives

import asyncio
import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from command_line import Typed
from rich.console import Console
from transformers import PreTrainedTokenizerFast

import rstar2.cli
import rstar2.problems.laptop
from rstar2.book import build
from rstar2.book.build import BookBuildError
from rstar2.cli.solve import Screen, ShownEngine, ShownTools
from rstar2.experiments import publish
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.report import Record, committed_records, laptop_report
from rstar2.problems import ProblemSet
from rstar2.protocol import LAPTOP, TokenTemplate, Trajectory
from rstar2.records import Hardware, Provenance
from rstar2.rollout import RolloutLimits, SamplingParams, TokenOutput, run_rollout
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy, save_policy
from rstar2.training.model import new_model
from rstar2.training.spec import Arm
from rstar2.training.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
DIRTY = Provenance("a" * 40, True, Hardware("cpu", 2, 4.0), {})


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["What is 6 times 7? print(6*7)"], 320)


@pytest.fixture(scope="module")
def checkpoint(
    tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A policy with fresh weights."""
    template = TokenTemplate(tokenizer, LAPTOP)
    shape = load_torch_preset("test").model
    model = new_model(shape, vocab_size=len(tokenizer), end_id=template.end_id, seed=0)
    folder = tmp_path_factory.mktemp("policy") / "checkpoint"
    save_policy(Policy(model, tokenizer, template), folder)
    return folder


@pytest.fixture(autouse=True)
def checkout(own_checkout: Path) -> Path:
    """A checkout without runs and records, in which the commands are typed."""
    return own_checkout


@pytest.fixture
def type_(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capfd)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--preset", "nope"], "no preset 'nope'; presets/ has: laptop, "),
        (
            ["train", "--preset", "test", "--evaluation", "big"],
            "evaluation is 'big': give one of none, book, results",
        ),
        (["train", "--seed", "-1"], "--seed"),
        (["train", "--seed", "one"], "--seed"),
        (["train", "--workers", "0"], "--workers"),
        (["train", "--arm", "ppo"], "--arm"),
        (["solve"], "question"),
        (["solve", ""], "the question is empty"),
        (["solve", " \n"], "the question is empty"),
        (["solve", "\udcff"], "not UTF-8 text"),
        (["solve", "1+1?", "--preset", "nope"], "no preset 'nope'"),
        (["solve", "1+1?", "--temperature", "nan"], "--temperature"),
        (["solve", "1+1?", "--temperature", "inf"], "temperature is inf"),
        (["solve", "1+1?"], "there is no checkpoint at"),
        (["solve", "1+1?", "--checkpoint", "absent"], "there is no checkpoint at absent"),
        (["solve", "1+1?", "--checkpoint", "presets"], "model.safetensors is missing there"),
        (["report", "laptop"], "`make results` makes them"),
        (["report", "laptop", "--json", "report.json"], "`make results` makes them"),
        (["report", "tablet"], "tablet"),
        (["results", "remake", "--workers", "0"], "--workers"),
        (["book", "build", "--bogus"], "--bogus"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    words: list[str], message: str, type_: Typed, checkout: Path
) -> None:
    before = sorted(checkout.rglob("*"))
    assert message in type_.refused(*words)
    assert sorted(checkout.rglob("*")) == before


@pytest.mark.parametrize("command", [["train"], ["solve", "1+1?"]])
def test_an_invalid_preset_is_one_line_with_the_place(
    command: list[str], type_: Typed, checkout: Path
) -> None:
    path = checkout / "presets" / "test.yaml"
    path.write_text(path.read_text().replace("epsilon:", "epsilonn:"))
    line = type_.refused(*command, "--preset", "test")
    assert ": rl.epsilonn: there is no such setting; did you mean epsilon?" in line
    path.write_text("name: [")
    assert "presets/test.yaml:1: not YAML" in type_.refused(*command, "--preset", "test")
    assert not (checkout / "runs").exists()


def test_a_place_for_runs_that_cannot_be_written_is_one_line(type_: Typed, checkout: Path) -> None:
    (checkout / "runs").write_text("a file")
    assert "cannot make folder" in type_.refused("train", "--preset", "test")
    assert (checkout / "runs").read_text() == "a file"


def test_results_are_not_remade_from_a_tree_with_changes(
    type_: Typed, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "provenance", lambda: DIRTY)
    assert "the tree has changes: commit" in type_.refused("results", "remake")
    assert not (checkout / "runs").exists()


# --- the book and the records -------------------------------------------------------------


def test_a_book_that_cannot_be_built_shows_its_log_and_then_one_line(
    type_: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path("requirements.txt")).touch()

    def fail(*_: object, **__: object) -> None:
        raise BookBuildError("jupyter-book stopped with code 1", "x = [1 / 0]\nZeroDivisionError")

    monkeypatch.setattr(build, "build_book", fail)
    code, out, err = type_("book", "build", "--no-train")
    assert (code, out) == (2, "")
    assert err == "x = [1 / 0]\nZeroDivisionError\nrstar2: jupyter-book stopped with code 1\n"


@pytest.fixture
def records(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Two seeds of both arms and their SFT, with scores that differ by seed."""
    monkeypatch.setattr(rstar2.problems.laptop, "BASELINE_DRAWS", 50)
    for arm, seed in itertools.product(("sft", *Arm), (11, 12)):
        folder = checkout / "results" / "laptop" / f"seed{seed}-{arm}"
        folder.mkdir(parents=True)
        facts = {"arm": arm, "seed": seed, "preset": "laptop", "label": "laptop run"}
        run = {
            "format": 1,
            "id": "ab",
            "state": "done",
            "wall_seconds": 60.0,
            **DIRTY.as_dict(),
            **facts,
        }
        (folder / "run.json").write_text(json.dumps({**run, "started": "2026-01-01T00:00:00"}))
        steps = {"step": range(1, 5), "accuracy": 0.5, "tool_error_in_correct": 0.1}
        pd.DataFrame(steps).to_parquet(folder / "metrics.parquet")
        scores = {"samples": 100, "correct": 50 + seed, "calls_in_correct": 100, "truncated": 0}
        scores |= {"errors_in_correct": seed, "tokens": 123456, "tokens_in_correct": 1}
        rows = [{"problem_set": one.value, **scores} for one in ProblemSet]
        pd.DataFrame(rows).to_parquet(folder / "evaluation.parquet")
    return committed_records()


def test_the_report_fits_a_pipe_of_80_columns(type_: Typed, records: list[Record]) -> None:
    code, out, err = type_("report", "laptop", "--json", "report.json")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "Mean over seeds [95% interval]; seeds: grpo 2, grpo-roc 2"
    assert "unseen_composition after SFT grpo grpo-roc" in lines
    assert lines.count(" ".join(["accuracy", *["0.61 [0.55, 0.68]"] * 3])) == 4
    assert sum(line.startswith("accuracy of guessing 0.") for line in lines) == 4
    assert json.loads(Path("report.json").read_text()) == laptop_report(records)


def test_the_picture_is_a_png_of_the_arms(type_: Typed, records: list[Record]) -> None:
    code, _, err = type_("report", "laptop", "--figure", "picture.png")
    assert (code, err) == (0, "")
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


# --- solve --------------------------------------------------------------------------------


def test_a_question_that_is_too_long_is_one_line(type_: Typed, checkpoint: Path) -> None:
    words = ["solve", "x y " * 200, "--preset", "test", "--checkpoint", str(checkpoint)]
    assert "the question is too long: its prompt has" in type_.refused(*words)


def test_a_checkpoint_of_another_preset_is_one_line(
    type_: Typed, checkpoint: Path, checkout: Path
) -> None:
    path = checkout / "presets" / "test.yaml"
    path.write_text(path.read_text().replace("max_positions: 512", "max_positions: 4096"))
    path.write_text(path.read_text().replace("max_response_tokens: 60", "max_response_tokens: 999"))
    words = ["solve", "1+1?", "--preset", "test", "--checkpoint", str(checkpoint)]
    assert "the checkpoint has 512 positions" in type_.refused(*words)


def test_solve_shows_a_rollout_without_colour_in_a_pipe(type_: Typed, checkpoint: Path) -> None:
    words = ["solve", "1+1?", "--preset", "test", "--checkpoint", str(checkpoint)]
    code, out, err = type_(*words, "--seed", "3")
    assert (code, err) == (0, "")
    assert out.startswith("[turn 1, model]\n")
    assert "\x1b" not in out
    assert "[answer]\n" in out
    assert "[stop]\n" in out
    assert type_(*words, "--seed", "3")[1] == out
    assert type_(*words, "--seed", "4")[1] != out


class Script:
    """An engine that writes given turns, and says what stood on the screen before each."""

    def __init__(self, turns: Sequence[str], template: TokenTemplate, screen: io.StringIO) -> None:
        self._turns = iter(turns)
        self._template = template
        self._screen = screen
        self.shown: list[str] = []

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
    ) -> TokenOutput:
        self.shown.append(self._screen.getvalue())
        ids = (*self._template.encode(next(self._turns)), self._template.end_id)
        return TokenOutput(ids, (-1.0,) * len(ids))

    async def end(self, request_id: str) -> None:
        pass


def call(code: str) -> str:
    return f'<tool_call>{{"name": "python", "arguments": {{"code": "{code}"}}}}</tool_call>'


TURNS = (
    "First.</reason>" + call("x = 1\\nprint(y)"),
    "Again.</reason><tool_call>{</tool_call>",
    "Now.</reason>" + call("print('\\u001b[31mred')") + call("6 * 7"),
    "It is [bold]42[/bold].</reason><answer>\\boxed{42}</answer>",
)


def played(
    tokenizer: PreTrainedTokenizerFast, turns: Sequence[str], *, colour: bool = False, most: int = 9
) -> tuple[str, Script, Trajectory]:
    template = TokenTemplate(tokenizer, LAPTOP)
    text = io.StringIO()
    console = Console(file=text, force_terminal=colour, color_system="standard" if colour else None)
    screen = Screen(console, most)
    script = Script(turns, template, text)
    limits = RolloutLimits(300, 5000, most, 48, 1.0)

    async def roll_out() -> Trajectory:
        async with Sandbox(slots=1) as sandbox:
            return await run_rollout(
                "solve",
                "6 times 7?",
                engine=ShownEngine(script, template, screen),
                sandbox=ShownTools(sandbox, LAPTOP, screen),
                template=template,
                limits=limits,
            )

    trajectory = asyncio.run(roll_out())
    screen.ending(trajectory)
    return text.getvalue(), script, trajectory


def test_a_rollout_is_shown_turn_by_turn(tokenizer: PreTrainedTokenizerFast) -> None:
    text, script, trajectory = played(tokenizer, TURNS)
    assert text.splitlines()[:-1] == [
        "[turn 1, model]",
        "  First.</reason>",
        "[tool call]",
        "  x = 1",
        "  print(y)",
        "[tool error (error)]",
        "  NameError: name 'y' is not defined",
        "[turn 2, model]",
        "  Again.</reason>",
        "[malformed call]",
        "  {",
        "[tool error (malformed)]",
        "  Error: the call is not valid JSON",
        "[turn 3, model]",
        "  Now.</reason>",
        "[tool call]",
        "  print('\\x1b[31mred')",
        "[tool call]",
        "  6 * 7",
        "[tool response]",
        "  \\x1b[31mred",
        "[tool response]",
        "  42",
        "[turn 4, model]",
        "  It is [bold]42[/bold].</reason><answer>\\boxed{42}</answer>",
        "[answer]",
        "  42",
        "[stop]",
    ]
    assert text.endswith(f"  answered; 4 turns, {trajectory.num_model_tokens} tokens\n")
    assert [shown.count("\n") for shown in script.shown] == [0, 7, 13, 23], "shown as it happens"


def test_colours_tell_calls_responses_and_errors_apart(tokenizer: PreTrainedTokenizerFast) -> None:
    text, _, _ = played(tokenizer, TURNS, colour=True)
    styles = {
        line.split("m", 1)[0] for line in text.splitlines() if "[tool" in line.replace("\x1b[", "")
    }
    assert len(styles) == 3


def test_calls_of_the_last_turn_are_shown_as_not_run(tokenizer: PreTrainedTokenizerFast) -> None:
    text, _, _ = played(tokenizer, ["Go.</reason>" + call("print(1)")], most=1)
    assert "[tool call, not run]\n  print(1)\n[answer]\n  none\n" in text
    assert "max_turns" in text
