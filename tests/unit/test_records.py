"""A run's folder can be read after any interruption; the same run gives the same bytes."""

import json
import math
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rstar2
from rstar2.errors import UserError
from rstar2.experiments import laptop
from rstar2.records import (
    Hardware,
    MetricsLog,
    Provenance,
    RecordError,
    RunFolder,
    RunState,
    Worker,
    append_json_line,
    atomic_write,
    deciding_sources,
    provenance,
    read_json_lines,
    run_id,
)
from rstar2.records.sources import DECIDING_ROOMS

ORIGIN = Provenance(
    commit="a" * 40,
    dirty=False,
    hardware=Hardware(cpu="Test CPU", cores=2, memory_gib=8.0),
    versions={"python": "3.11.7", "torch": "2.13.0", "transformers": "5.10.4"},
)


def begin(path: Path, **facts: object) -> RunFolder:
    return RunFolder.create(
        path, {"seed": 1}, name="laptop", run_id="0123456789", provenance=ORIGIN, **facts
    )


# --- files -------------------------------------------------------------------------------


def test_atomic_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        atomic_write(tmp_path / "run.json", data)
    assert (tmp_path / "run.json").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_atomic_write_survives_a_temporary_file_left_by_a_kill(tmp_path: Path) -> None:
    (tmp_path / ".run.json.tmp").write_bytes(b"half of it")
    atomic_write(tmp_path / "run.json", b"new")
    assert (tmp_path / "run.json").read_bytes() == b"new"


def test_what_cannot_be_written_is_one_line_for_the_user(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    attempts: list[Callable[[], object]] = [
        lambda: atomic_write(blocker / "run.json", b""),
        lambda: append_json_line(blocker / "timing.jsonl", {"step": 1}),
        lambda: MetricsLog(tmp_path / "absent" / "metrics.jsonl").append({"step": 1}),
        lambda: begin(blocker / "run"),
    ]
    for attempt in attempts:
        with pytest.raises(UserError) as caught:
            attempt()
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_torn_last_line_is_not_read_and_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    append_json_line(path, {"step": 1, "note": "é"})
    with path.open("ab") as file:
        file.write(b'{"step": 2, "no')
    assert read_json_lines(path) == [{"step": 1, "note": "é"}]
    with pytest.raises(RecordError, match="torn line"):
        append_json_line(path, {"step": 3})


def test_a_broken_whole_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    path.write_text('{"step": 1}\nnonsense\n')
    with pytest.raises(RecordError, match=r"timing\.jsonl, line 2"):
        read_json_lines(path)


# --- metrics -----------------------------------------------------------------------------

VALUES = st.floats() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
NUMBERS = st.dictionaries(st.sampled_from("abcd"), st.floats() | st.integers(-9, 9))


@given(row=st.dictionaries(st.text(max_size=5), VALUES), step=st.integers(0, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_row_is_read_back_exactly(tmp_path: Path, row: dict[str, float], step: int) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({**row, "step": step})
    (read,) = log.rows()[-1:]
    assert repr(read) == repr({**row, "step": step})


@given(
    steps=st.lists(NUMBERS, max_size=6),
    torn=st.binary(max_size=9).filter(lambda b: b"\n" not in b),
    cut=st.integers(-1, 7),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_resuming_from_a_checkpoint_gives_the_bytes_of_an_unbroken_run(
    tmp_path: Path, steps: list[dict[str, float]], torn: bytes, cut: int
) -> None:
    unbroken, killed = tmp_path / "unbroken.jsonl", tmp_path / "killed.jsonl"
    unbroken.unlink(missing_ok=True)
    killed.unlink(missing_ok=True)
    for step, row in enumerate(steps):
        MetricsLog(unbroken).append({"step": step, **row})
        MetricsLog(killed).append({"step": step, **row})
    with killed.open("ab") as file:
        file.write(torn)

    MetricsLog(killed).truncate_after(cut)
    for step, row in enumerate(steps):
        if step > cut:
            MetricsLog(killed).append({"step": step, **row})

    assert killed.read_bytes() == (unbroken.read_bytes() if steps else b"")


def test_truncating_before_the_first_row_was_written_is_fine(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.truncate_after(0)
    assert log.rows() == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"loss": 0.5}, "lacks an int 'step'"),
        ({"step": 1.0}, "lacks an int 'step'"),
        ({"step": True}, "lacks an int 'step'"),
        ({"step": 1, "kept": True}, "'kept' is a bool"),
        ({"step": 1, "loss": None}, "'loss' is a NoneType"),
        ({"step": 1, "loss": [0.5]}, "'loss' is a list"),
    ],
)
def test_a_row_that_is_not_numbers_and_text_is_refused(
    tmp_path: Path, row: dict[str, float], reason: str
) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(RecordError, match=reason):
        log.append(row)
    assert log.rows() == []


def test_parquet_has_fixed_columns_and_types(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"step": 0, "stage": "one", "loss": 1, "groups": 3})
    log.append({"loss": math.nan, "accuracy": 0.5, "step": 1, "stage": "two", "groups": 4})
    log.to_parquet(tmp_path / "metrics.parquet")

    table = pq.read_table(tmp_path / "metrics.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types.items()) == [
        ("step", "int64"),
        ("accuracy", "double"),
        ("groups", "int64"),
        ("loss", "double"),
        ("stage", "string"),
    ]
    assert table["accuracy"].to_pylist() == [None, 0.5]
    assert table["groups"].to_pylist() == [3, 4]


def test_the_same_rows_give_the_same_parquet_bytes(tmp_path: Path) -> None:
    written = []
    for keys in (("loss", "accuracy"), ("accuracy", "loss")):
        log = MetricsLog(tmp_path / f"{keys[0]}.jsonl")
        for step in range(3):
            log.append({"step": step, **{key: 1 / (step + len(key)) for key in keys}})
        log.to_parquet(tmp_path / f"{keys[0]}.parquet")
        written.append((tmp_path / f"{keys[0]}.parquet").read_bytes())
    assert written[0] == written[1]


def test_parquet_needs_rows_of_one_kind(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(RecordError, match="no rows"):
        log.to_parquet(tmp_path / "metrics.parquet")
    log.append({"step": 0, "stage": 1})
    log.append({"step": 1, "stage": "two"})
    with pytest.raises(RecordError, match="'stage' is text in one row"):
        log.to_parquet(tmp_path / "metrics.parquet")
    assert not (tmp_path / "metrics.parquet").exists()


# --- the folder --------------------------------------------------------------------------


def test_a_run_says_what_it_is_from_its_first_moment(tmp_path: Path) -> None:
    run = begin(tmp_path / "runs" / "laptop-0123456789", arm="grpo-roc", seed=1)
    found = RunFolder.open(run.path)
    assert found.state is RunState.RUNNING
    assert found.params == {"seed": 1}
    record = found.read()
    assert (record["name"], record["id"], record["arm"]) == ("laptop", "0123456789", "grpo-roc")
    assert record["commit"] == "a" * 40
    assert record["hardware"] == {"cpu": "Test CPU", "cores": 2, "memory_gib": 8.0}
    assert found.checkpoints.is_dir()


def test_facts_are_added_and_survive(tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.update(step=3)
    run.update(state=RunState.FAILED, wall_seconds=1.5)
    record = run.read()
    assert (record["state"], record["step"], record["wall_seconds"]) == ("failed", 3, 1.5)
    assert "ended" in record
    run.update(state=RunState.RUNNING)
    assert "ended" not in run.read()


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.DONE])
def test_the_error_of_a_former_attempt_does_not_outlive_it(tmp_path: Path, state: RunState) -> None:
    run = begin(tmp_path)
    run.metrics.append({"step": 0, "loss": 1.0})
    run.metrics.to_parquet(run.metrics_parquet)
    run.update(RunState.FAILED, error="out of memory")
    run.update(wall_seconds=1.5)
    assert run.read()["error"] == "out of memory"
    run.update(state)
    assert "error" not in run.read()


def test_done_needs_its_metrics(tmp_path: Path) -> None:
    run = begin(tmp_path)
    with pytest.raises(RecordError, match=r"metrics\.parquet is missing"):
        run.update(state=RunState.DONE)
    assert run.read()["state"] == "running"
    run.metrics.append({"step": 0, "loss": 1.0})
    run.metrics.to_parquet(run.metrics_parquet)
    run.update(state=RunState.DONE)
    assert run.read()["state"] == "done"


def test_a_run_is_not_begun_twice_but_an_interrupted_beginning_is_repeated(tmp_path: Path) -> None:
    run = begin(tmp_path)
    with pytest.raises(RecordError, match="already holds a run"):
        begin(tmp_path)
    (run.path / "run.json").unlink()
    assert begin(tmp_path).state is RunState.RUNNING


def test_what_cannot_be_recorded_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(RecordError, match=r"run\.json is not JSON"):
        begin(path, weights=object())
    with pytest.raises(RecordError, match="commit in"):
        begin(path, commit="b" * 40)
    assert not path.exists()
    run = begin(path)
    before = (path / "run.json").read_bytes()
    with pytest.raises(RecordError, match="is not JSON"):
        run.update(accuracy=math.nan)
    with pytest.raises(RecordError, match="id in"):
        run.update(id="other")
    assert (path / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "not the folder of a run"),
        ('{"format": 0}', "has format 0, this version reads 1"),
        ("{", "cannot be read"),
        ("[]", "expected a JSON object"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RecordError, match=reason) as caught:
        RunFolder.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_timing_stands_apart_from_metrics(tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.append_timing({"step": 0, "seconds": 1.25})
    assert read_json_lines(run.timing) == [{"step": 0, "seconds": 1.25}]
    assert run.metrics.rows() == []


WRITER = """
import sys
from itertools import count
from pathlib import Path
from rstar2.records import RunFolder

run = RunFolder.open(Path(sys.argv[1]))
for step in count():
    run.metrics.append({"step": step, "note": "x" * 5000})
    run.update(step=step)
    print(step, flush=True)
"""


def test_a_killed_run_can_be_opened_and_resumed(tmp_path: Path) -> None:
    run = begin(tmp_path)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while writer.stdout.readline() != "20\n":
            pass
        writer.kill()

    checkpoint = RunFolder.open(tmp_path).read()["step"]
    assert checkpoint >= 20
    run.metrics.truncate_after(checkpoint)
    assert [row["step"] for row in run.metrics.rows()] == list(range(checkpoint + 1))
    run.metrics.append({"step": checkpoint + 1})


HERE = Worker("here", 7, 100.0)


def test_who_works_on_a_run_is_told_while_it_does(tmp_path: Path) -> None:
    run = begin(tmp_path)
    assert run.worker is None
    run.beat(HERE)
    assert run.worker == HERE
    run.update(step=3)
    assert run.worker == HERE, "a fact leaves it there"
    later = Worker("here", 7, 110.0)
    run.beat(later)
    assert run.worker == later
    assert run.read()["state"] == "running"


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED, RunState.DONE])
def test_nobody_works_on_a_run_that_is_over(tmp_path: Path, state: RunState) -> None:
    run = begin(tmp_path)
    run.metrics.append({"step": 0, "loss": 1.0})
    run.metrics.to_parquet(run.metrics_parquet)
    run.beat(HERE)
    run.update(state)
    before = (tmp_path / "run.json").read_bytes()
    assert "worker" not in run.read()
    assert "ended" in run.read()
    run.beat(HERE)
    assert (tmp_path / "run.json").read_bytes() == before, "a late beat says nothing"
    run.update(RunState.RUNNING)
    assert not {"worker", "ended"} & run.read().keys(), "nobody has said yet that it goes on"


def test_a_stopped_run_keeps_its_facts_and_goes_on(tmp_path: Path) -> None:
    run = begin(tmp_path, arm="grpo")
    run.update(step=3)
    run.update(RunState.STOPPED)
    assert RunFolder.open(tmp_path).state is RunState.STOPPED
    record = run.read()
    assert (record["step"], record["arm"]) == (3, "grpo")
    assert "error" not in record
    run.update(RunState.RUNNING)
    assert run.state is RunState.RUNNING


def test_a_beat_of_no_run_is_one_line_for_the_user(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RecordError) as caught:
            RunFolder(folder).beat(HERE)
        assert str(folder / "run.json") in str(caught.value)
        assert "\n" not in str(caught.value)


def test_only_a_beat_says_who_works(tmp_path: Path) -> None:
    run = begin(tmp_path)
    with pytest.raises(RecordError, match="worker in"):
        run.update(worker={"host": "here"})


UPDATER = """
import sys
from pathlib import Path
from rstar2.records import RunFolder, Worker

run = RunFolder(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    run.update(**{f"{sys.argv[2]}{number}": number})
    run.beat(Worker(sys.argv[2], number, 1.0))
"""


def test_who_writes_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    """Two processes and two threads, each with facts of its own; readers see whole files."""
    run, facts = begin(tmp_path), 40
    command = [sys.executable, "-c", UPDATER, str(tmp_path)]
    writers = [
        subprocess.Popen(
            [*command, name, str(facts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]

    def update(name: str) -> None:
        for number in range(facts):
            run.update(**{f"{name}{number}": number})

    threads = [threading.Thread(target=update, args=name) for name in "cd"]
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for thread in threads:
        thread.start()
    while any(one.poll() is None for one in writers):
        assert run.state is RunState.RUNNING
    for thread in threads:
        thread.join()
    for one in writers:
        assert one.communicate() == ("", None)
        assert one.returncode == 0
    record = run.read()
    for name in "abcd":
        assert [record.get(f"{name}{number}") for number in range(facts)] == list(range(facts))
    assert record["worker"]["host"] in "ab"


# --- the id ------------------------------------------------------------------------------

SOURCE = '''"""What it is."""

class Kind(StrEnum):
    """A kind."""

    A = "a"
    """The first."""

def double(x: int) -> int:
    """Double it."""
    return 2 * x  # by two
'''
RETOLD = SOURCE.replace("What it is", "Otherwise").replace("The first", "1").replace("by two", "!")
SPREAD = SOURCE.replace("    return 2 * x", "\n    return (\n        2 * x\n    )")
BARE = 'class Kind(StrEnum):\n  A = "a"\ndef double(x: int) -> int:\n  return 2 * x\n'


def id_of(
    folder: Path, source: str, name: str = "roc.py", params: Mapping[str, int] | None = None
) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(source)
    return run_id("code", {"seed": 1} if params is None else params, [folder / name])


@pytest.mark.parametrize("same", [RETOLD, SPREAD, BARE])
def test_the_id_ignores_docstrings_comments_layout_and_place(tmp_path: Path, same: str) -> None:
    assert id_of(tmp_path / "here", SOURCE) == id_of(tmp_path / "there", same)


@pytest.mark.parametrize(
    "other", [SOURCE.replace("2 *", "3 *"), SOURCE.replace('"a"', '"b"'), SOURCE + "\nx = 'y'\n"]
)
def test_the_id_follows_the_code(tmp_path: Path, other: str) -> None:
    assert id_of(tmp_path, SOURCE) != id_of(tmp_path, other)


def test_the_id_follows_notebook_parameters_names_and_data(tmp_path: Path) -> None:
    reference = id_of(tmp_path, SOURCE)
    others = [
        run_id("other code", {"seed": 1}, [tmp_path / "roc.py"]),
        id_of(tmp_path, SOURCE, params={"seed": 2}),
        id_of(tmp_path, SOURCE, name="loss.py"),
        run_id("code", {"seed": 1}, []),
    ]
    assert reference not in others
    assert id_of(tmp_path, "a # b", name="prompt.txt") != id_of(tmp_path, "a", name="prompt.txt")


def test_the_id_does_not_depend_on_order(tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_text(f"x = '{path.name}'")
    assert run_id("", {"a": 1, "b": 2}, paths) == run_id("", {"b": 2, "a": 1}, paths[::-1])
    assert len(run_id("", {}, [])) == 10


def test_what_cannot_be_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="parameter is not JSON"):
        run_id("", {"path": tmp_path}, [])
    with pytest.raises(RecordError, match=r"absent\.py cannot be read"):
        run_id("", {}, [tmp_path / "absent.py"])
    with pytest.raises(RecordError, match=r"roc\.py cannot be read"):
        id_of(tmp_path, "def")


def names(sources: list[Path]) -> set[str]:
    package = Path(rstar2.__file__).parent
    return {path.relative_to(package).as_posix() for path in sources}


def test_the_deciding_sources_are_what_the_run_reaches_in_the_rooms_that_count() -> None:
    found = names(deciding_sources(Path(laptop.__file__)))
    assert "experiments/laptop.py" in found
    assert {"problems/families/digits.py", "grading/number.py", "algorithm/roc.py"} <= found
    assert {"protocol/__init__.py", "training/curriculum.py", "sandbox/program.py"} <= found
    assert not {"records", "book", "cli"} & {name.split("/")[0] for name in found}
    assert not {name for name in found if name.startswith(("problems/data/", "experiments/plans"))}
    assert len(run_id("", {}, deciding_sources(Path(laptop.__file__)))) == 10


@pytest.mark.thorough
def test_every_module_that_a_run_loads_from_those_rooms_is_among_them() -> None:
    show = "import sys, rstar2.experiments.laptop as entry; print(*sys.modules)"
    command = [sys.executable, "-c", show]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = names(deciding_sources(Path(laptop.__file__)))
    modules = {name.removesuffix(".py").removesuffix("/__init__") for name in found}
    missing = [
        name
        for name in loaded
        if name.startswith(tuple(f"rstar2.{room}" for room in DECIDING_ROOMS))
        and name.removeprefix("rstar2.").replace(".", "/") not in modules
    ]
    assert not missing


def test_imports_are_followed_in_functions_and_through_other_rooms(tmp_path: Path) -> None:
    entry = tmp_path / "entry.py"
    entry.write_text("def later():\n    import rstar2.experiments.execute\n")
    assert "training/grpo.py" in {
        Path(path).relative_to(Path(rstar2.__file__).parent).as_posix()
        for path in deciding_sources(entry)
        if path != entry
    }
    entry.write_text("import json\n")
    assert len(deciding_sources(entry)) == 3


# --- where it comes from -----------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree with one commit."""
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init")
    (root / "code.py").write_text("x = 1\n")
    git(root, "add", "code.py")
    git(root, "commit", "-m", "first")
    return root


def test_a_clean_commit_can_be_published(tree: Path) -> None:
    origin = provenance(tree)
    assert origin.commit == git(tree, "rev-parse", "HEAD")
    assert (origin.dirty, origin.publishable) == (False, True)


@pytest.mark.parametrize("name", ["code.py", "untracked.py"])
def test_a_dirty_tree_cannot_be_published(tree: Path, name: str) -> None:
    (tree / name).write_text("x = 2\n")
    origin = provenance(tree)
    assert origin.commit is not None
    assert (origin.dirty, origin.publishable) == (True, False)


def test_records_being_remade_do_not_make_the_tree_dirty(tree: Path) -> None:
    (tree / "results").mkdir()
    (tree / "results" / "run.json").write_text("{}")
    assert provenance(tree).publishable


def test_an_unknown_commit_is_none_and_cannot_be_published(tmp_path: Path, tree: Path) -> None:
    inside = tree / "site-packages"
    inside.mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init")
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (inside, empty, outside):
        origin = provenance(folder)
        assert (origin.commit, origin.dirty, origin.publishable) == (None, None, False), folder


def test_another_repository_in_the_environment_is_not_asked(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert provenance(tree).commit is not None


def test_provenance_names_the_kind_of_machine_and_nobody() -> None:
    origin = provenance()
    assert origin.hardware.cores >= 1
    assert origin.hardware.memory_gib > 0.1
    assert set(origin.versions) == {"python", "torch", "transformers"}
    text = json.dumps(origin.as_dict())
    assert str(Path.home()) not in text
    assert platform.node() not in text
