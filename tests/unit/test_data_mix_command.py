"""``rstar2 data sft-mix``: the whole mix of small sets, and what is refused before any work."""

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from rstar2.cli import app
from rstar2.errors import UserError

SETS = Path(__file__).parent / "data" / "sft_mix"
INPUTS = {
    "toolace": SETS / "toolace.json",
    "apigen-mt": SETS / "apigen.json",
    "glaive": SETS / "glaive.json",
    "magicoder": SETS / "magicoder_oss.jsonl",
    "tulu-3-if": SETS / "tulu.jsonl",
    "nemotron-chat": SETS / "nemotron.jsonl",
}


def mix(*arguments: str | Path, inputs: dict[str, Path] | None = None) -> str:
    given = [f"--input={name}={file}" for name, file in (inputs or INPUTS).items()]
    command = ["data", "sft-mix", *given, *map(str, arguments)]
    result = CliRunner().invoke(app, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(path)
    return path


def test_all_sets_become_one_mix_with_its_report(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "mix.jsonl"
    told = mix("--tokenizer", folder, "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["source"] for row in rows} == set(INPUTS)
    assert f"{len(rows)} conversations" in told
    assert "not decontaminated" in told
    assert "length in tokens" in told
    report = json.loads((out.parent / "mix.jsonl.report.json").read_text())
    assert report["rows"] == len(rows)
    card = (out.parent / "mix.jsonl.CARD.md").read_text()
    assert f"sha256:{report['content_hash']}" in card
    assert all(f"`{name}`" in card for name in INPUTS)
    assert "CC-BY-NC-4.0" in card
    assert rows[0]["messages"][-1]["content"][:40] not in card
    assert mix("--tokenizer", folder, "--out", out) == told


def test_a_benchmarks_prompt_is_left_out(folder: Path, tmp_path: Path) -> None:
    inputs = {"glaive": INPUTS["glaive"]}
    mix("--tokenizer", folder, "--out", tmp_path / "a.jsonl", "--partial", inputs=inputs)
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    prompt = next(m["content"] for m in first["messages"] if m["role"] == "user")
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps({"question": prompt, "answer": "1"}) + "\n")
    out = tmp_path / "b.jsonl"
    told = mix("--tokenizer", folder, "--out", out, "--partial", "--against", exam, inputs=inputs)
    assert "decontaminated against exam" in told
    assert first["id"] not in {json.loads(line)["id"] for line in out.read_text().splitlines()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input=toolace"], "give NAME=FILE"),
        (["--input=nobody=x.json"], "no set nobody; the sets are toolace"),
        (["--input=toolace=x", "--input=toolace=y"], "toolace is given twice, as x and y"),
        (["--input=toolace=x.json"], "no --input for apigen-mt, glaive"),
        (["--input=toolace=x.json", "--partial", "--endpoint=http://x"], "go together"),
        (
            ["--input=toolace=x.json", "--partial", "--endpoint=foo", "--model=m"],
            "foo is no address of an endpoint",
        ),
        (["--input=toolace=x.json", "--partial", "--out=."], ". is a folder"),
        (["--input=toolace=x.json", "--partial"], "cannot be used"),
        (["--input=toolace=x.json", "--partial", "--share=0"], "--share is 0"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "mix.jsonl"
    command = ["data", "sft-mix", f"--tokenizer={tmp_path}", f"--out={out}", *arguments]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert not out.exists()


def test_a_file_of_another_set_and_a_benchmark_given_twice_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mix.jsonl"
    options = ("--tokenizer", folder, "--out", out, "--partial")
    wrong = {"tulu-3-if": INPUTS["glaive"]}
    with pytest.raises(UserError, match=r"tulu-3-if: .*glaive\.json .*found .*chat"):
        mix(*options, inputs=wrong)
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps({"question": "What is it?", "answer": "1"}) + "\n")
    with pytest.raises(UserError, match="two benchmarks are called exam: give NAME=FILE"):
        mix(*options, "--against", exam, "--against", exam)
    assert not out.exists()
