"""The mix: counts, order, duplicates, benchmarks, files, and runs that stop half way."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rstar2
from rstar2.errors import UserError
from rstar2.protocol import TokenTemplate
from rstar2.records import RecordError, deciding_sources
from rstar2.records.files import read_json_lines
from rstar2.training.sft_mix import (
    PAPER_MIX,
    Decontamination,
    Format,
    MixError,
    MixReport,
    MixSpec,
    Rewrite,
    RewriteStatus,
    RewriteTask,
    Rewriting,
    SourceSpec,
    Usage,
    build_mix,
    encode_conversation,
    from_json,
)
from rstar2.training.sft_mix import build as building
from rstar2.training.sft_mix.report import LENGTH_EDGES, histogram_lines, length_bin

DATA = Path(__file__).parents[1] / "data" / "sft_mix"
FIXTURES = {
    "toolace": DATA / "toolace.json",
    "apigen-mt": DATA / "apigen.json",
    "glaive": DATA / "glaive.json",
    "magicoder": DATA / "magicoder_oss.jsonl",
    "tulu-3-if": DATA / "tulu.jsonl",
    "nemotron-chat": DATA / "nemotron.jsonl",
}


@pytest.fixture(autouse=True)
def one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """One module stands for all that decide a mix: to parse them takes half a second a build."""
    monkeypatch.setattr(building, "deciding_sources", lambda entry: [entry])


def source(name: str, target: int, rewriting: Rewriting = Rewriting.NONE) -> SourceSpec:
    return SourceSpec(
        name=name,
        dataset=f"invented/{name}",
        licence="none",
        format=Format.TULU,
        target=target,
        rewriting=rewriting,
    )


def chat(prompt: str, answer: str = "Certainly.") -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return {"id": prompt, "prompt": prompt, "messages": messages, "constraints": []}


def write_lines(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def chats(path: Path, count: int) -> Path:
    return write_lines(path, [chat(f"Tell me of town {number}.") for number in range(count)])


def report_of(reports: MixReport, name: str) -> Any:
    (found,) = [one for one in reports.sources if one.name == name]
    return found


# --- counts ------------------------------------------------------------------------------


def test_the_papers_mix_has_the_papers_counts() -> None:
    by_name = {one.name: one.target for one in PAPER_MIX.sources}
    calls = ("toolace", "apigen-mt", "glaive", "magicoder")
    assert sum(by_name[name] for name in calls[:3]) == 117_000
    assert sum(by_name[name] for name in calls) == 165_000
    assert (by_name["tulu-3-if"], by_name["nemotron-chat"]) == (30_000, 27_000)


def test_every_record_is_kept_or_refused_or_unused(paper: TokenTemplate, tmp_path: Path) -> None:
    out = tmp_path / "mix.jsonl"
    report = build_mix(PAPER_MIX, FIXTURES, out, paper)
    for one in report.sources:
        assert one.read == one.kept + one.unused + sum(one.refused.values()), one.name
        assert one.missing == one.target - one.kept
    assert report_of(report, "tulu-3-if").refused == {"empty": 1, "maths": 1}
    assert report_of(report, "nemotron-chat").refused["maths"] == 1
    (sample,) = report_of(report, "nemotron-chat").samples["maths"]
    assert sample.record == "nemotron.jsonl, line 6"
    assert sample.detail.startswith("boxed: Find x")


def test_the_output_holds_what_the_report_says(paper: TokenTemplate, tmp_path: Path) -> None:
    out = tmp_path / "mix.jsonl"
    report = build_mix(PAPER_MIX, FIXTURES, out, paper)
    rows = read_json_lines(out)
    assert report.rows == len(rows) == sum(one.kept for one in report.sources)
    assert len({row["id"] for row in rows}) == len(rows)
    assert Counter(row["source"] for row in rows) == {
        one.name: one.kept for one in report.sources if one.kept
    }
    for row in rows:
        example = encode_conversation(from_json(row), paper)
        assert (row["tokens"], row["model_tokens"]) == (len(example.ids), sum(example.mask))
    assert report.tokens == sum(row["tokens"] for row in rows)
    assert report.content_hash == hashlib.sha256(out.read_bytes()).hexdigest()
    lengths = [sum(each) for each in zip(*(one.lengths for one in report.sources), strict=True)]
    assert lengths == [
        sum(length_bin(row["tokens"]) == place for row in rows)
        for place in range(len(LENGTH_EDGES))
    ]
    assert "4 of 101000 wanted, 10 read" in report.text()


def test_a_histogram_has_a_bar_for_each_bin() -> None:
    assert [length_bin(n) for n in (0, 127, 128, 40_000)] == [0, 0, 1, len(LENGTH_EDGES) - 1]
    counts = [0] * len(LENGTH_EDGES)
    counts[1:3] = [10, 5]
    lines = histogram_lines(tuple(counts))
    assert [line.split() for line in lines] == [
        ["0-127", "0"],
        ["128-255", "10", "#" * 40],
        ["256-511", "5", "#" * 20],
    ]
    assert histogram_lines((0,) * len(LENGTH_EDGES)) == []


# --- drawing -----------------------------------------------------------------------------


def drawn(spec: MixSpec, path: Path, out: Path, template: TokenTemplate) -> list[str]:
    build_mix(spec, {"a": path}, out, template)
    return [row["messages"][0]["content"] for row in read_json_lines(out)]


def test_a_seed_draws_the_same_whatever_the_order_of_the_records(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    path = chats(tmp_path / "a.jsonl", 40)
    lines = path.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    shuffled = tmp_path / "b.jsonl"
    shuffled.write_text("".join(lines))
    spec = MixSpec(sources=(source("a", 10),))
    first = drawn(spec, path, tmp_path / "1.jsonl", paper)
    assert drawn(spec, shuffled, tmp_path / "2.jsonl", paper) == first
    assert len(set(first)) == 10
    other = MixSpec(sources=(source("a", 10),), seed=1)
    assert drawn(other, path, tmp_path / "3.jsonl", paper) != first


def test_a_prompt_stands_once_in_the_mix(paper: TokenTemplate, tmp_path: Path) -> None:
    one = write_lines(tmp_path / "1.jsonl", [chat("Tell me more."), chat("tell  me MORE.", "No.")])
    two = write_lines(tmp_path / "2.jsonl", [chat("Tell me more.\n"), chat("Tell me less.")])
    spec = MixSpec(sources=(source("a", 5), source("b", 5)))
    report = build_mix(spec, {"a": one, "b": two}, tmp_path / "mix.jsonl", paper)
    assert [(each.kept, each.refused) for each in report.sources] == [
        (1, {"duplicate": 1}),
        (1, {"duplicate": 1}),
    ]


def test_prompts_of_a_benchmark_are_left_out(paper: TokenTemplate, tmp_path: Path) -> None:
    benchmark = Decontamination(
        "towns v1", lambda prompt: "towns/3" if prompt == "Tell me of town 3." else None
    )
    spec = MixSpec(sources=(source("a", 9),))
    path = chats(tmp_path / "a.jsonl", 9)
    out = tmp_path / "mix.jsonl"
    report = build_mix(spec, {"a": path}, out, paper, decontamination=benchmark)
    assert report.decontaminated == "towns v1"
    assert report.sources[0].refused == {"contaminated": 1}
    assert report.sources[0].samples["contaminated"][0].detail.startswith("towns/3")
    assert "Tell me of town 3." not in out.read_text()


def test_the_problems_of_a_benchmark_are_its_version() -> None:
    towns = {"towns": ["Tell me of town 3.", "Tell me of town 4."]}
    one = Decontamination.of(towns)
    assert one.find("tell me of  town 4.") == "towns/1"
    assert one.find("What is a town?") is None
    assert Decontamination.of(towns).name == one.name
    assert one.name.startswith("towns (")
    assert Decontamination.of({"towns": ["Tell me of town 5."]}).name != one.name


def test_long_conversations_are_replaced_and_never_cut(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    long = [chat(f"Tell a long tale {number}.", "On and on. " * 400) for number in range(20)]
    short = [chat(f"Tell a short tale {number}.") for number in range(4)]
    path = write_lines(tmp_path / "a.jsonl", [*long, *short])
    spec = MixSpec(sources=(source("a", 4),), max_tokens=500)
    report = build_mix(spec, {"a": path}, tmp_path / "mix.jsonl", paper)
    (one,) = report.sources
    assert one.kept == 4
    assert one.refused == {"too_long": 20 - one.unused}
    assert max(row["tokens"] for row in read_json_lines(tmp_path / "mix.jsonl")) <= 500


# --- rewriting ---------------------------------------------------------------------------


class Shouting:
    """Answers the last message in capitals; some tasks in ways that must be refused."""

    model = "shouting-1"

    def __init__(self) -> None:
        self.usage = Usage()
        self.asked: list[str] = []

    async def rewrite(
        self, tasks: Sequence[RewriteTask], on_done: Callable[[int, int], None]
    ) -> tuple[Rewrite, ...]:
        self.asked += [task.text for task in tasks]
        on_done(len(tasks), len(tasks))
        return tuple(self._one(task.text) for task in tasks)

    def _one(self, text: str) -> Rewrite:
        if "town 1." in text:
            return Rewrite(RewriteStatus.EMPTY)
        if "town 2." in text:
            return Rewrite(RewriteStatus.CUT)
        if "town 3." in text:
            return Rewrite(RewriteStatus.OK, "<think>What town?</think> A town.")
        return Rewrite(RewriteStatus.OK, text.rpartition("]\n")[2].upper())


def test_answers_are_rewritten_checked_again_and_replaced(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    spec = MixSpec(sources=(source("a", 6, Rewriting.RESPONSE),))
    path = chats(tmp_path / "a.jsonl", 9)
    out = tmp_path / "mix.jsonl"
    rewriter = Shouting()
    report = build_mix(spec, {"a": path}, out, paper, rewriter=rewriter)
    (one,) = report.sources
    assert (one.kept, one.rewritten, report.rewriter) == (6, 6, "shouting-1")
    assert {row["messages"][1]["content"] for row in read_json_lines(out)} == {"CERTAINLY."}
    assert sum(one.refused.values()) + one.kept == len(rewriter.asked)
    assert one.refused.keys() <= {"rewrite_empty", "rewrite_cut", "thinking"}
    assert all(task.startswith("[user]\nTell me of town") for task in rewriter.asked)


def test_prompts_that_become_the_same_are_kept_once(paper: TokenTemplate, tmp_path: Path) -> None:
    class Dull(Shouting):
        def _one(self, text: str) -> Rewrite:
            return Rewrite(RewriteStatus.OK, text.partition("town")[0][7:] + "a town.")

    spec = MixSpec(sources=(source("a", 9, Rewriting.PROMPT),))
    path = chats(tmp_path / "a.jsonl", 9)
    out = tmp_path / "mix.jsonl"
    report = build_mix(spec, {"a": path}, out, paper, rewriter=Dull())
    assert report.sources[0].refused == {"duplicate": 8}
    (row,) = read_json_lines(out)
    assert row["messages"][0]["content"] == "Tell me of a town."


# --- files and runs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n{"b":\n', r"a\.jsonl.*line 2"),
        ("a.jsonl", b"", r"a\.jsonl holds no records"),
        ("a.json", b'[{"a": 1}', r"a\.json"),
        ("a.parquet", b"PAR1", r"not a Parquet file"),
    ],
)
def test_a_broken_file_is_named_with_the_place(
    paper: TokenTemplate, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    out = tmp_path / "mix.jsonl"
    with pytest.raises(UserError, match=message):
        build_mix(MixSpec(sources=(source("a", 2),)), {"a": path}, out, paper)
    assert not out.exists()


def test_inputs_and_sources_must_match(paper: TokenTemplate, tmp_path: Path) -> None:
    path = chats(tmp_path / "a.jsonl", 2)
    spec = MixSpec(sources=(source("a", 2), source("b", 2)))
    with pytest.raises(MixError, match="no file for b: give one of invented/b"):
        build_mix(spec, {"a": path}, tmp_path / "mix.jsonl", paper)
    with pytest.raises(MixError, match="no source c; the spec has a, b"):
        build_mix(spec, {"a": path, "b": path, "c": path}, tmp_path / "mix.jsonl", paper)
    with pytest.raises(MixError, match=r"cannot read .*no: No such file"):
        build_mix(spec, {"a": path, "b": tmp_path / "no"}, tmp_path / "mix.jsonl", paper)


def test_a_file_of_another_set_is_refused_before_anything_is_converted(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    other = write_lines(tmp_path / "other.jsonl", [{"question": "?", "answer": 1}] * 12)
    out, told = tmp_path / "mix.jsonl", []
    spec = MixSpec(sources=(source("a", 2), source("b", 2)))
    inputs = {"a": chats(tmp_path / "a.jsonl", 600), "b": other}
    with pytest.raises(MixError, match=r"^b: .*other\.jsonl .*expected messages; found question, "):
        build_mix(spec, inputs, out, paper, on_progress=lambda what, *_: told.append(what))
    assert told == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "other.jsonl"]


@pytest.mark.parametrize("schema", Format)
def test_each_set_has_columns_of_its_own(
    paper: TokenTemplate, tmp_path: Path, schema: Format
) -> None:
    one = source("a", 2).model_copy(update={"format": schema})
    other = write_lines(tmp_path / "other.jsonl", [{"prompt": "?", "system": "", "text": ""}])
    with pytest.raises(MixError, match=r"a: .*other\.jsonl .* no record has its columns"):
        build_mix(MixSpec(sources=(one,)), {"a": other}, tmp_path / "mix.jsonl", paper)


def test_a_first_record_of_another_kind_is_only_one_refusal(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"version": 3}, chat("Tell me more.")])
    report = build_mix(
        MixSpec(sources=(source("a", 2),)), {"a": path}, tmp_path / "mix.jsonl", paper
    )
    assert (report.rows, report.sources[0].refused) == (1, {"bad_field": 1})


def test_a_table_without_rows_is_refused(paper: TokenTemplate, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame([chat("Tell me more.")]).head(0).to_parquet(path)
    with pytest.raises(MixError, match=r"a: .*a\.parquet holds no records"):
        build_mix(MixSpec(sources=(source("a", 2),)), {"a": path}, tmp_path / "mix.jsonl", paper)


def test_a_set_of_which_nothing_is_kept_is_refused_with_the_reasons(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    records = [{"messages": "a text"}, {"messages": "b"}, chat("Hi?", " ")]
    path = write_lines(tmp_path / "a.jsonl", records)
    out = tmp_path / "mix.jsonl"
    told = (
        r"a: not one of 3 records is kept: 2 bad_field \(a\.jsonl, line 1: messages: expected "
        r"list, found str\); 1 empty \(a\.jsonl, line 3: "
    )
    with pytest.raises(MixError, match=told):
        build_mix(MixSpec(sources=(source("a", 2),)), {"a": path}, out, paper)
    assert not out.exists()
    assert not (tmp_path / "mix.jsonl.report.json").exists()


@pytest.mark.parametrize("name", ["mix.jsonl", "mix.jsonl.report.json", "mix.jsonl.CARD.md"])
def test_a_folder_in_the_place_of_the_mix_is_refused_first(
    paper: TokenTemplate, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    inputs = {"a": tmp_path / "absent.jsonl"}
    with pytest.raises(MixError, match=rf"{name} is a folder"):
        build_mix(MixSpec(sources=(source("a", 2),)), inputs, tmp_path / "mix.jsonl", paper)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
@pytest.mark.parametrize(
    "name", [".mix.jsonl.tmp", ".mix.jsonl.parts/.a.tsv.tmp", ".mix.jsonl.parts/.a.drawn.jsonl.tmp"]
)
def test_a_full_disk_is_told_with_the_file_and_the_next_run_goes_on(
    paper: TokenTemplate, tmp_path: Path, name: str
) -> None:
    inputs = {"a": chats(tmp_path / "a.jsonl", 40)}
    spec = MixSpec(sources=(source("a", 40),))
    out = tmp_path / "mix.jsonl"
    temporary = tmp_path / name
    temporary.parent.mkdir(exist_ok=True)
    temporary.symlink_to("/dev/full")
    file = temporary.name.removeprefix(".").removesuffix(".tmp")
    with pytest.raises(RecordError, match=rf"cannot write .*{file}: No space left"):
        build_mix(spec, inputs, out, paper)
    assert not out.exists()
    assert not temporary.is_symlink()
    assert build_mix(spec, inputs, out, paper).rows == 40


def test_a_folder_is_read_file_by_file(paper: TokenTemplate, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    chats(folder / "1.jsonl", 2)
    write_lines(folder / "2.jsonl", [chat("Another?")])
    (folder / "README.md").write_text("not data")
    out = tmp_path / "mix.jsonl"
    report = build_mix(MixSpec(sources=(source("a", 5),)), {"a": folder}, out, paper)
    assert (report.rows, list(report.sources[0].files)) == (3, ["1.jsonl", "2.jsonl"])


def test_a_second_run_finds_the_mix_done_and_a_change_is_noticed(
    paper: TokenTemplate, tmp_path: Path
) -> None:
    path = chats(tmp_path / "a.jsonl", 9)
    out = tmp_path / "mix.jsonl"
    spec = MixSpec(sources=(source("a", 3),))
    told: list[str] = []
    first = build_mix(spec, {"a": path}, out, paper)
    again = build_mix(spec, {"a": path}, out, paper, on_progress=lambda what, *_: told.append(what))
    assert again == first
    assert told == []
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "a.jsonl",
        "mix.jsonl",
        "mix.jsonl.CARD.md",
        "mix.jsonl.report.json",
    ]
    whole = out.read_bytes()
    out.write_bytes(whole[:-1])
    assert build_mix(spec, {"a": path}, out, paper) == first
    assert out.read_bytes() == whole
    chats(path, 10)
    assert build_mix(spec, {"a": path}, out, paper).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    "module",
    ["protocol/template.py", "problems/data/formats.py", "problems/data/contamination.py"],
)
def test_other_code_makes_the_mix_anew(
    paper: TokenTemplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    original = Path(rstar2.__file__).resolve().parent / module
    changed = tmp_path / "changed.py"
    changed.write_bytes(original.read_bytes())

    def with_change(entry: Path) -> list[Path]:
        return [changed if path == original else path for path in deciding_sources(entry)]

    monkeypatch.setattr(building, "deciding_sources", with_change)
    inputs = {"a": chats(tmp_path / "a.jsonl", 4)}
    spec = MixSpec(sources=(source("a", 4),))
    first = build_mix(spec, inputs, tmp_path / "mix.jsonl", paper)
    assert build_mix(spec, inputs, tmp_path / "mix.jsonl", paper) == first
    with changed.open("a") as file:
        file.write("\nCHANGED = True\n")
    again = build_mix(spec, inputs, tmp_path / "mix.jsonl", paper)
    assert again.fingerprint != first.fingerprint
    assert again.content_hash == first.content_hash


@pytest.mark.parametrize("seed", [0, 1])
def test_an_interrupted_run_goes_on_with_the_sets_it_had(
    paper: TokenTemplate, tmp_path: Path, seed: int
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(what: str, *_: int) -> None:
        told.append(what)
        if what == "b: convert":
            raise Interrupted

    told: list[str] = []
    inputs = {"a": chats(tmp_path / "a.jsonl", 600), "b": chats(tmp_path / "b.jsonl", 700)}
    spec = MixSpec(sources=(source("a", 300), source("b", 50)))
    then = spec.model_copy(update={"seed": seed})
    straight = build_mix(then, inputs, tmp_path / "straight.jsonl", paper)
    out = tmp_path / "mix.jsonl"
    with pytest.raises(Interrupted):
        build_mix(spec, inputs, out, paper, on_progress=interrupt)
    assert not out.exists()
    assert "a: convert" in told
    told.clear()
    report = build_mix(then, inputs, out, paper, on_progress=lambda what, *_: told.append(what))
    assert report == straight
    assert "a: convert" not in told
    assert "b: convert" in told
