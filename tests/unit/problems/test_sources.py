"""Sources: what is read, how it is recognised, and what is refused with which words."""

import csv
import json
import os
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.problems.data import formats
from rstar2.problems.data.formats import SourceError, open_records
from rstar2.problems.data.registry import SOURCES, Edition, Hub, Role, Source
from rstar2.problems.data.schemas import SCHEMAS
from rstar2.problems.data.sources import Loaded, read, read_file, read_source

FIXTURES = Path(__file__).parents[1] / "data" / "sources"
REAL = os.environ.get("RSTAR2_DATA")
needs_real_files = pytest.mark.skipif(
    not REAL, reason="RSTAR2_DATA does not name a folder with the public data sets"
)


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    """Write records in the kind of file that the name asks for."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(records)), path)
    elif path.suffix == ".json":
        path.write_text("[" + ",\n".join(lines) + "]\n")
    else:
        path.write_text("".join(f"{line}\n" for line in lines))
    return path


def fixture(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]


def pairs(loaded: Loaded) -> list[tuple[str, str, str]]:
    return [(row.row_id, row.question, row.gold) for row in loaded.rows]


def plain(count: int, gold: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"What is {n}?", "answer": str(n + gold)} for n in range(count)]


# --- layouts -----------------------------------------------------------------------------


def test_verl_takes_the_user_message_and_the_ground_truth() -> None:
    loaded = read_file(FIXTURES / "verl.jsonl")
    assert [(row.name, row.gold) for row in loaded.rows] == [
        ("verl/0", "60"),
        ("verl/1", "1"),
        ("verl/2", "61"),
    ]
    assert loaded.rows[0].question.startswith("A crate holds 12 lamps.")
    assert (loaded.report.records, loaded.report.rows, loaded.report.distinct) == (3, 3, 2)


def test_the_processed_dapo_takes_prompt_and_solution_and_keeps_other_scripts() -> None:
    loaded = read_file(FIXTURES / "dapo_processed.jsonl")
    assert pairs(loaded)[1] == ("3f0c-2", "求 $3+4$ 的值。", "7")
    assert not loaded.rows[0].question.startswith("Solve.")


def test_open_math_reasoning_has_one_row_for_each_problem_and_label() -> None:
    loaded = read_file(FIXTURES / "open_math_reasoning.jsonl")
    assert loaded.report.records == 5
    assert [row.gold for row in loaded.rows] == ["8", "6", "3", "2"]
    assert [row.notes["label_from"] for row in loaded.rows] == [
        "extracted",
        "majority",
        "majority",
        "majority",
    ]
    assert [row.notes["agreeing"] for row in loaded.rows] == ["2", "1", "1", "1"]
    assert loaded.rows[0].notes["pass_rate_72b_tir"] == "0.5"
    assert "pass_rate_72b_tir" not in loaded.rows[1].notes, "n/a is no rate"
    assert loaded.rows[2].notes["problem_type"] == "converted_proof"
    assert loaded.report.distinct == 3, "one problem stands there with two labels"


def test_records_that_compare_solutions_are_no_solutions(tmp_path: Path) -> None:
    record = fixture("open_math_reasoning.jsonl")[0] | {"inference_mode": "genselect"}
    with pytest.raises(SourceError, match="take the split cot or tir"):
        read_file(write(tmp_path / "x.jsonl", [record]))


def test_an_unknown_kind_of_label_is_refused(tmp_path: Path) -> None:
    record = fixture("open_math_reasoning.jsonl")[0] | {"problem_type": "guessed"}
    with pytest.raises(SourceError, match="line 1: problem_type 'guessed' is none of"):
        read_file(write(tmp_path / "x.jsonl", [record]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("math500.jsonl", ("test/invented/1.json", "\\frac{3}{2}")),
        ("gsm8k.jsonl", ("1", "1,200")),
        ("ifeval.jsonl", ("7", "")),
        ("boxed.jsonl", ("61", "63")),
    ],
)
def test_benchmarks_in_their_usual_layouts(
    tmp_path: Path, name: str, expected: tuple[str, str]
) -> None:
    row = read_file(write(tmp_path / "x.jsonl", fixture(name))).rows[0]
    assert (row.row_id, row.gold) == expected


def test_the_last_box_of_a_solution_is_the_label() -> None:
    assert read_file(FIXTURES / "boxed.jsonl").rows[1].gold == "5"


@pytest.mark.parametrize("solution", ["It is 5.", "\\boxed{5} or \\boxed{\\frac{1}{2}}"])
def test_a_solution_without_a_plain_last_box_is_refused(tmp_path: Path, solution: str) -> None:
    with pytest.raises(SourceError, match="does not end in"):
        read_file(write(tmp_path / "x.jsonl", [{"problem": "What?", "solution": solution}]))


@pytest.mark.parametrize("question", ["question", "problem", "prompt"])
@pytest.mark.parametrize("answer", ["answer", "gold", "expected_answer"])
def test_a_file_of_ones_own_has_its_own_name(tmp_path: Path, question: str, answer: str) -> None:
    path = write(tmp_path / "mine.jsonl", [{question: "How many?", answer: 7}])
    loaded = read(str(path))
    assert loaded.rows[0].name == "mine/1"
    assert loaded.rows[0].gold == "7"
    assert loaded.role is Role.POOL
    assert "Not known" in loaded.report.licence


def test_unknown_columns_are_listed_with_all_known_layouts(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"text": "a", "label": "b"}])
    with pytest.raises(SourceError) as error:
        read_file(path)
    assert "found text, label" in str(error.value)
    assert all(str(schema) in str(error.value) for schema in SCHEMAS)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"question": "What?"}, "line 2: column answer|gold|expected_answer is missing"),
        ({"question": ["What?"], "answer": "1"}, "line 2: 'question' is list, text or a number"),
        ({"question": "What?", "answer": True}, "line 2: 'answer' is bool"),
        ({"question": "\ud800", "answer": "1"}, "line 2: half a surrogate pair"),
    ],
)
def test_a_bad_record_is_named_by_its_line(
    tmp_path: Path, record: dict[str, Any], words: str
) -> None:
    good = {"question": "What is 1?", "answer": "1"}
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(record)}\n")
    with pytest.raises(SourceError, match=re.escape(words)):
        read_file(path)


def test_a_null_is_nothing_and_left_to_the_filters(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"question": None, "answer": None}])
    assert pairs(read_file(path)) == [("1", "", "")]


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    records = [{"id": 4, "question": f"What is {n}?", "answer": n} for n in range(2)]
    with pytest.raises(SourceError, match="id 4 stands twice, at line 1 and line 2"):
        read_file(write(tmp_path / "x.jsonl", records))


# --- kinds of file -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "json", "jsonl"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"verl.{kind}", fixture("verl.jsonl"))
    assert read_file(path).rows == read_file(FIXTURES / "verl.jsonl").rows


def test_csv_with_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes('\ufeffquestion,answer\r\n"How many, in\nall?",7\r\nWhat?,"8"\r\n'.encode())
    assert [pair[1:] for pair in pairs(read_file(path))] == [
        ("How many, in\nall?", "7"),
        ("What?", "8"),
    ]


@pytest.mark.parametrize(
    "text", ['{"question": "a", "answer": 1}\n\n{"question": "b", "answer": 2}']
)
def test_json_lines_may_be_called_json_and_have_blank_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert [row.gold for row in read_file(path).rows] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.jsonl", b"", "holds no records"),
        ("x.jsonl", b"\n \n", "holds no records"),
        ("x.json", b"[]", "holds no records"),
        ("x.csv", b"question,answer\n", "holds no records"),
        ("x.txt", b"a", "cannot read files with suffix '.txt'"),
        ("x.jsonl", b'{"question": "a", "answer": 1}\n{"q', "line 2: not JSON"),
        ("x.jsonl", b"[1]\n", "line 1: expected an object, found list"),
        ("x.jsonl", b'{"question": "\xff"}\n', "line 1: not UTF-8 at byte 14"),
        ("x.json", b'[{"question": "a", "answer": 1} {"a": 1}]', "expected a comma"),
        ("x.json", b'[{"question": "a", "answer": 1}', "expected a comma or the end"),
        ("x.json", b'[{"question": "a", "answer": 1}, {"que', "element 2: not JSON"),
        ("x.json", b'[{"question": "a", "answer": 1}] 5', "more text after the end"),
        ("x.json", b'[{"question": "\xff"}]', "not UTF-8"),
        ("x.csv", b"question,answer\na\n", "line 2: 2 fields expected"),
        ("x.csv", b"question,answer\na,1,2\n", "line 2: 2 fields expected"),
        ("x.csv", b"question,answer\na,\xff\n", "line 2: not UTF-8"),
        ("x.csv", b'question,answer\n"a,1\n', "not CSV"),
        ("x.jsonl", b"[" * 200_000, "line 1: not JSON: nested too deeply"),
        ("x.jsonl", b'{"a":' * 200_000, "line 1: not JSON: nested too deeply"),
        ("x.json", b"[" * 200_000, "element 1: not JSON: nested too deeply"),
        ("x.parquet", b"PAR1 but no more", "not a Parquet file"),
        ("x.parquet", b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", "damaged: "),
    ],
)
def test_a_damaged_file_is_named_with_the_place(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match=re.escape(words)) as error:
        read_file(path)
    assert str(path) in str(error.value)
    assert "yours" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_label_of_thousands_of_digits_does_not_refuse_the_file(tmp_path: Path, kind: str) -> None:
    records = ['{"question": "a", "answer": %s}' % ("7" * 5_000), '{"question": "b", "answer": 7}']
    path = tmp_path / f"x.{kind}"
    path.write_text("[" + ",".join(records) + "]" if kind == "json" else "\n".join(records))
    assert [row.gold for row in read_file(path).rows] == ["7" * 5_000, "7"]


def test_a_long_field_of_csv_is_read_and_the_limit_of_other_readers_stays(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"question,answer\n{'a' * 200_000},7\nb,8\n")
    limit = csv.field_size_limit()
    records = open_records(tmp_path / "x.csv").records(())
    _, first = next(records)
    assert csv.field_size_limit() == limit, "while the file is being read, too"
    assert len(first["question"]) == 200_000
    assert [record["answer"] for _, record in records] == ["8"]


def test_a_csv_field_without_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_RECORD_BYTES", 2**17)
    (tmp_path / "x.csv").write_text('question,answer\n"' + "a\n" * 2**17)
    with pytest.raises(SourceError, match=rf"field larger than field limit \({2**17}\)"):
        read_file(tmp_path / "x.csv")


def test_a_name_that_is_not_utf_8_is_written_with_escapes(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    path.mkdir()
    write(path / "a.jsonl", plain(1))
    loaded = read(str(path))
    assert loaded.rows[0].name == "caf\\xe9/1"
    assert "caf\\xe9" in loaded.report.what
    loaded.report.what.encode("utf-8")
    other = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.jsonl"))
    other.write_text('{"a": 1}')
    with pytest.raises(SourceError, match=r"/\\xe9\.jsonl: unknown columns") as error:
        read(str(other))
    str(error.value).encode("utf-8")
    other.write_text("{")
    with pytest.raises(SourceError, match=r"/\\xe9\.jsonl, line 1") as error:
        read(str(other))


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*gone\.jsonl: No such file"):
        read(str(tmp_path / "gone.jsonl"))
    with pytest.raises(SourceError, match="has no files with suffix"):
        read(str(tmp_path))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_folder_of_files_is_one_set_in_the_order_of_their_names(
    tmp_path: Path, kind: str
) -> None:
    records = fixture("verl.jsonl")
    write(tmp_path / f"b.{kind}", records[1:])
    write(tmp_path / f"a.{kind}", records[:1])
    (tmp_path / "README.md").write_text("About it.")
    loaded = read_file(tmp_path)
    assert [row.gold for row in loaded.rows] == ["60", "1", "61"]
    assert loaded.report.origin.endswith(" of 2 files")
    write(tmp_path / f"c.{kind}", records[:1])
    with pytest.raises(SourceError, match=rf"id 0 stands twice, at a\.{kind}, .* and c\.{kind}"):
        read_file(tmp_path)


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none(), min_size=1),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["", "\n", " \n\t"]),
)
def test_a_json_array_is_read_as_json_reads_it(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], blank: str
) -> None:
    path = tmp_path_factory.mktemp("array") / "x.json"
    path.write_text(blank + "[" + f"{blank},{blank}".join(map(json.dumps, records)) + blank + "]")
    assert [record for _, record in open_records(path).records(())] == records


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_a_large_file_is_not_held_in_memory(tmp_path: Path, kind: str) -> None:
    solution = "a line of a long solution " * 4_000
    record = fixture("open_math_reasoning.jsonl")[0] | {"generated_solution": solution}
    path = write(tmp_path / f"x.{kind}", [record] * 400)
    tracemalloc.start()
    loaded = read_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (loaded.report.records, loaded.report.rows) == (400, 1)
    assert peak < 12e6, "the file has 40 MB of text"


def test_a_record_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_RECORD_BYTES", 2**21)
    (tmp_path / "x.jsonl").write_bytes(b'{"question": "' + b"a" * 2**22)
    with pytest.raises(SourceError, match="line 1: longer than 2 MiB"):
        read_file(tmp_path / "x.jsonl")
    (tmp_path / "x.json").write_bytes(b'[{"question": "' + b"a" * 2**24)
    with pytest.raises(SourceError, match="element 1: not JSON"):
        read_file(tmp_path / "x.json")


# --- known sets --------------------------------------------------------------------------


def known(records: int = 3, **facts: Any) -> Source:
    """A set of three invented problems, as if it were known."""
    editions = (Edition(records, "each problem once", **facts), Edition(9, "thrice", usable=False))
    return replace(SOURCES["aime24"], name="invented", editions=editions, hub=None)


def test_a_known_set_says_which_copy_was_read(tmp_path: Path) -> None:
    loaded = read_source(known(integers=3, gold_sum=3), write(tmp_path / "x.jsonl", plain(3)))
    assert loaded.report.notes == ("3 records: each problem once.",)
    assert loaded.report.name == loaded.rows[0].source == "invented"
    assert loaded.role is Role.BENCHMARK


def test_a_part_of_a_known_set_must_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", plain(2))
    with pytest.raises(SourceError, match=r"has 2 records, expected 3 .* say so with --subset"):
        read_source(known(), path)
    loaded = read_source(known(), path, subset=True)
    assert loaded.report.notes == ("2 records: a part of the set, as asked for.",)


def test_more_records_than_a_known_set_has_are_never_a_part_of_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has 4 records, expected 3"):
        read_source(known(), write(tmp_path / "x.jsonl", plain(4)), subset=True)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_copy_with_repeats_is_called_by_its_name(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"x.{kind}", plain(3) * 3)
    with pytest.raises(SourceError, match="has 9 records, 3 expected: this is thrice"):
        read_source(known(), path, subset=True)


def test_the_original_dapo_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    copies = pa.table({"prompt": pa.nulls(1_791_700), "reward_model": pa.nulls(1_791_700)})
    pq.write_table(copies, tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"1,791,700 records, .*17,917.* every prompt 100 times"):
        read_source("dapo-17k", tmp_path / "x.parquet")


def test_a_copy_with_repeats_is_recognised_without_a_name(tmp_path: Path) -> None:
    edition = SOURCES["aime24"].editions[1]
    assert (edition.usable, edition.gold_sum) == (False, 280_384)
    records = [{"problem": f"What is {n}?", "answer": 280_384 if n == 0 else 0} for n in range(960)]
    with pytest.raises(SourceError, match="every problem 32 times"):
        read_file(write(tmp_path / "x.jsonl", records))


def test_other_labels_are_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", plain(3, gold=1))
    with pytest.raises(
        SourceError, match=r"sum 6, expected 3 with sum 3\): so labels were changed"
    ):
        read_source(known(integers=3, gold_sum=3), path)


def test_one_known_set_in_place_of_another_is_named(tmp_path: Path) -> None:
    edition = SOURCES["aime25"].editions[0]
    assert edition.gold_sum is not None
    golds = [0] * 29 + [edition.gold_sum]
    records = [{"problem": f"What is {n}?", "answer": gold} for n, gold in enumerate(golds)]
    path = write(tmp_path / "x.jsonl", records)
    with pytest.raises(SourceError, match="they are those of aime25"):
        read_source("aime24", path)
    assert read_file(path).report.name == "aime25", "without a name it is recognised"


def test_a_file_named_like_a_known_set_is_held_to_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"aime24: .* has 3 records, expected 30"):
        read_file(write(tmp_path / "aime24.jsonl", plain(3)))


def test_a_set_that_grows_has_no_count(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", plain(5))
    assert read(f"euler={path}").report.notes == ()


def test_files_of_ones_own_may_be_called_as_one_likes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "math500.jsonl", plain(1))
    first = read(f"mine={tmp_path / 'one' / 'math500.jsonl'}")
    second = read(f"hard-2={tmp_path / 'two' / 'math500.jsonl'}")
    assert (first.rows[0].name, second.rows[0].name) == ("mine/1", "hard-2/1")
    assert (first.report.name, first.role) == ("mine", Role.POOL)
    with pytest.raises(SourceError, match=r"math500: .* has 1 records, expected 500"):
        read(f"math500={tmp_path / 'one' / 'math500.jsonl'}")


def test_a_known_set_is_known_under_any_name(tmp_path: Path) -> None:
    edition = SOURCES["aime25"].editions[0]
    golds = [0] * 29 + [edition.gold_sum]
    records = [{"problem": f"What is {n}?", "answer": gold} for n, gold in enumerate(golds)]
    loaded = read(f"mine={write(tmp_path / 'x.jsonl', records)}")
    assert (loaded.report.name, loaded.role) == ("aime25", Role.BENCHMARK)


def test_a_file_whose_name_has_an_equals_sign_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x=y.jsonl", plain(1))
    assert read("x=y.jsonl").rows[0].name == "x=y/1"
    assert read(str(tmp_path / "x=y.jsonl")).rows[0].name == "x=y/1"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mine=", "mine=: a file is missing"),
        ("my set=x.jsonl", "my set=x.jsonl: the part before '=' cannot name a set"),
        ("=x.jsonl", "=x.jsonl: the part before '=' cannot name a set"),
        ("mine=gone.jsonl", r"cannot read gone\.jsonl: No such file"),
        ("nowhere", "nowhere is neither a file nor a known set: dapo-17k, aops"),
        ("aime24=", "a file is missing"),
        ("euler", "pass its file, as euler=FILE"),
    ],
)
def test_what_is_asked_for_must_exist(spec: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        read(spec)


def test_every_known_set_is_complete() -> None:
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.what.endswith(".")
        assert source.licence.endswith(".")
        assert all(fault.endswith(".") for fault in source.faults)
        counts = [edition.records for edition in source.editions]
        assert len(counts) == len(set(counts)), "a copy is recognised by its count"
        if source.hub:
            assert re.fullmatch("[0-9a-f]{40}", source.hub.revision), "a pinned commit"
            assert any(edition.usable for edition in source.editions)


def test_the_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        SOURCES["x"] = known()  # type: ignore[index]  # that it is refused is what is tested


# --- hub ---------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_data_set_is_read_through_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """A folder is a data set to the library; the Hub differs in where the files lie."""
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "train.parquet", fixture("open_math_reasoning.jsonl"))
    schema = SOURCES["aops"].schemas[0]
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    hub = Hub(str(folder), "0" * 40, "train", "*.parquet", None, schema.columns, streamed)
    source = replace(SOURCES["aops"], editions=(Edition(5, "all"),), hub=hub)
    loaded = read_source(source)
    from_file = read_source(source, folder / "train.parquet")
    assert loaded.rows == from_file.rows
    assert loaded.report.origin == f"{folder}@{'0' * 40} default/train"


def test_without_a_network_the_message_says_what_to_download(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    revision = SOURCES["aops"].hub.revision if SOURCES["aops"].hub else ""
    with pytest.raises(SourceError) as error:
        read_source("aops")
    assert "download data/cot-*.parquet" in str(error.value)
    assert revision in str(error.value)
    assert "pass aops=FILE" in str(error.value)


# --- real files --------------------------------------------------------------------------


@needs_real_files
@pytest.mark.parametrize(
    ("file", "name", "rows", "distinct"),
    [
        ("dapo_math_17k.parquet", "dapo-17k", 17_917, 17_290),
        ("aime24.jsonl", "aime24", 30, 30),
        ("aime25.jsonl", "aime25", 30, 30),
        ("hmmt25.jsonl", "hmmt25", 30, 30),
        ("math500.jsonl", "math500", 500, 500),
        ("gsm8k_test.jsonl", "gsm8k", 1_319, 1_319),
        ("ifeval_prompts.jsonl", "ifeval", 541, 541),
    ],
)
def test_real_files_are_recognised(file: str, name: str, rows: int, distinct: int) -> None:
    report = read_file(Path(REAL or "") / file).report
    assert (report.name, report.rows, report.distinct) == (name, rows, distinct)
