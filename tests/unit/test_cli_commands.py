"""The commands that train, solve, report and publish: bad input is one line and exit code 2."""

# ruff: noqa: ARG002 - the scripted engine takes what the protocol gives

import asyncio
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from command_line import Typed
from made_runs import CLEAN, all_finished, finished, quick
from rich.console import Console
from transformers import PreTrainedTokenizerFast

from rstar2.book import build
from rstar2.book.build import BookBuildError
from rstar2.cli.solve import Screen, ShownEngine, ShownTools
from rstar2.experiments import publish
from rstar2.experiments.plans import NATURAL_SWEEP
from rstar2.experiments.presets import load_torch_preset
from rstar2.experiments.publish import record_plans
from rstar2.experiments.report import committed_records, laptop_report
from rstar2.experiments.sweeps import Sweep, load_sweep
from rstar2.problems import ProblemSet
from rstar2.protocol import LAPTOP, TokenTemplate, Trajectory
from rstar2.records import Hardware, Provenance
from rstar2.rollout import RolloutLimits, SamplingParams, TokenOutput, run_rollout
from rstar2.sandbox import Sandbox
from rstar2.training.checkpoint import Policy, save_policy
from rstar2.training.model import new_model
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
        (["train", "--preset", "nope"], "no preset 'nope'; presets/ has: lab"),
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


def natural_sweep(checkout: Path) -> Sweep:
    """The natural sweep, on the preset test, the only one of the checkout."""
    for path in (checkout / "sweeps").glob("laptop-*.yaml"):
        path.unlink()
    sized = {"evaluation": "results"}
    content = {
        "description": "Two arms.",
        "preset": "test",
        "seeds": [0, 1],
        "arms": {
            "grpo": {"arm": "grpo"},
            "grpo-roc": {"arm": "grpo-roc"},
            "dapo-cot": {
                "arm": "grpo",
                "changes": {"manifest": "laptop-no-tool", "demonstrations": "by-hand"},
            },
        },
        "runs": [
            {"notebook": "10_run_sft", "with": sized},
            {"notebook": "11_run_rl", "with": sized},
        ],
        "keep_weights": ["sft"],
    }
    path = checkout / "sweeps" / f"{NATURAL_SWEEP}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_sweep(NATURAL_SWEEP)


@pytest.fixture
def natural(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Its records, with scores that differ by seed; one run is not done."""
    quick(monkeypatch)
    sweep = natural_sweep(checkout)
    for task in sweep.tasks[:-1]:
        finished(task.plan, correct=2 + (task.seed or 0))
    publish.publish(sweep, publish.results_folder(sweep))
    claims = yaml.safe_load((checkout / "sweeps" / "claims.yaml").read_text())
    kept = [claim for claim in claims if claim["sweep"] == NATURAL_SWEEP][:4]
    kept[2]["population"] = {"held_out": "families"}
    (checkout / "sweeps" / "claims.yaml").write_text(yaml.safe_dump(kept))
    (checkout / "sweeps" / "verdicts.yaml").write_text(f"{kept[0]['id']}: Because.")
    return sweep


@pytest.mark.usefixtures("natural")
def test_the_report_tells_of_every_arm_every_claim_and_what_is_missing(type_: Typed) -> None:
    code, out, err = type_("report", "laptop", "--json", "report.json")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "laptop-natural: Two arms." in lines
    assert "1 of 10 records are missing: dapo-cot-seed1" in lines
    for name in ("sft", "grpo", "grpo-roc", "dapo-cot-sft"):
        rows = [line for line in lines if line.startswith(f"{name} 2 0.62 ")]
        assert len(rows) == len(ProblemSet), name
    assert sum(line.startswith("dapo-cot 1 0.50 0.167 50 50") for line in lines) == 4
    assert sum(line.startswith("guessing 0.") for line in lines) == 4
    told = json.loads(Path("report.json").read_text())
    assert list(told) == ["arms", "claims"]
    assert list(told["arms"]) == ["grpo", "grpo-roc", "dapo-cot"]
    assert told["arms"] == laptop_report(committed_records())["arms"]
    names = {"id", "claim", "paper", "effect", "seeds", "verdict", "why"}
    assert [set(one) for one in told["claims"]] == [names] * 4
    assert [one["why"] for one in told["claims"]] == ["Because.", "", "", ""]
    (claim,) = [line for line in lines if line.startswith(f"{told['claims'][0]['id']}: ")]
    assert out.count("Why: Because.") == 1
    assert claim.startswith(f"{told['claims'][0]['id']}: {told['claims'][0]['claim'][:20]}")


@pytest.mark.usefixtures("natural")
def test_a_claim_that_cannot_be_read_is_one_line(type_: Typed, checkout: Path) -> None:
    (checkout / "sweeps" / "claims.yaml").write_text("[{id: x}]")
    assert "claims.yaml: 0.claim: Field required" in type_.refused("report", "laptop")


@pytest.mark.usefixtures("natural")
def test_the_picture_is_a_png_of_the_arms(type_: Typed) -> None:
    code, _, err = type_("report", "laptop", "--figure", "picture.png")
    assert (code, err) == (0, "")
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_no_arm_is_one_line(
    type_: Typed, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    sweep = natural_sweep(checkout)
    finished(sweep.plans[0])
    publish.publish(sweep, publish.results_folder(sweep))
    (checkout / "sweeps" / "claims.yaml").write_text("[]")
    (checkout / "sweeps" / "verdicts.yaml").unlink()
    line = type_.refused("report", "laptop", "--figure", "picture.png")
    assert "no record of grpo or grpo-roc to draw" in line
    assert not Path("picture.png").exists()


def test_results_are_published_as_runs_finish(
    type_: Typed, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    sweep = natural_sweep(checkout)
    finished(sweep.plans[0])
    code, out, err = type_("results", "publish")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"results/{NATURAL_SWEEP}/sft-seed0"
    assert lines[1] == f"missing: {NATURAL_SWEEP}/grpo-seed0"
    assert lines[-1] == f"{NATURAL_SWEEP}: 1 of {len(sweep.tasks)} records"
    assert len(lines) == len(sweep.tasks) + 1
    assert type_("results", "publish", NATURAL_SWEEP)[1].splitlines() == lines[1:]
    (checkout / "results" / NATURAL_SWEEP / "old").mkdir()
    (checkout / "results" / NATURAL_SWEEP / "old" / "run.json").write_text("{}")
    assert "of no run of the sweep: laptop-natural/old" in type_("results", "publish")[1]


@pytest.mark.parametrize("words", [["publish", "test"], ["remake", "--only", "test"]])
def test_only_record_sweeps_are_published(
    words: list[str], type_: Typed, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "provenance", lambda: CLEAN)
    natural_sweep(checkout)
    line = type_.refused("results", *words)
    assert "'test' is no record sweep; they are: laptop-natural" in line


def test_remaking_what_is_done_publishes_and_draws_it(
    type_: Typed, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(publish, "provenance", lambda: CLEAN)
    sweep = natural_sweep(checkout)
    all_finished(sweep.plans)
    (checkout / "book" / "_static").mkdir(parents=True)
    code, out, err = type_("results", "remake", "--only", NATURAL_SWEEP)
    assert (code, err) == (0, f"{NATURAL_SWEEP}\n")
    lines = out.splitlines()
    assert lines[:-3] == [f"results/{NATURAL_SWEEP}/{one.name}" for one in record_plans(sweep)]
    assert lines[-3] == f"{NATURAL_SWEEP}: 10 of 10 records"
    assert lines[-2:] == ["book/_static/laptop-run.png", "Commit results/ and the picture now."]
    assert (checkout / lines[-2]).read_bytes().startswith(b"\x89PNG")


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
