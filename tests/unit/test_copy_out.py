"""Copies of run records: what goes, in which order, what a second call does, what is refused."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rstar2.experiments.copy_out import CopyError, copy_run, without_credentials
from rstar2.records import RecordError, RunFolder, RunState, provenance

RECORD = ["executed.ipynb", "log.txt", "metrics.jsonl", "metrics.parquet", "params.json"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has ended, with weights, a lock and what a kill left of a write."""
    path = tmp_path / "runs" / "laptop-sft-0123456789"
    folder = RunFolder.create(
        path, {"seed": 1}, name="laptop-sft", run_id="0123456789", provenance=provenance()
    )
    for name in RECORD[:-1]:
        (path / name).write_bytes(f"content of {name}".encode())
    (path / ".lock").touch()
    (path / ".params.json.tmp").write_text("half")
    (path / "checkpoints" / "final").mkdir()
    (path / "checkpoints" / "final" / "model.safetensors").write_bytes(b"weights")
    folder.update(RunState.DONE)
    record = json.loads((path / "run.json").read_bytes())
    worker = {"host": "zeus-3", "pid": 4711, "beat": 1.0}
    (path / "run.json").write_text(json.dumps({**record, "worker": worker}))
    return path


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place that is no folder of this machine."""
    yield "memory://bucket/of runs/ä"
    memory = fsspec.filesystem("memory")
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)


def names(target: str) -> set[str]:
    """Names of all files below a target."""
    files, path = fsspec.url_to_fs(target)
    return {name.removeprefix(path).lstrip("/") for name in files.find(path)}


def test_the_record_goes_without_weights_lock_and_half_written_files(
    run: Path, tmp_path: Path
) -> None:
    copied = copy_run(run, str(tmp_path / "out"))
    assert copied == [*RECORD, "run.json"]
    there = tmp_path / "out" / run.name
    assert names(str(there)) == set(copied)
    assert all((there / name).read_bytes() == (run / name).read_bytes() for name in RECORD)


def test_weights_that_lie_at_the_target_stay_there(run: Path, bucket: str) -> None:
    weights = f"{bucket}/{run.name}/checkpoints/final/model.safetensors"
    with fsspec.open(weights, "wb") as file:
        file.write(b"weights")
    copy_run(run, bucket)
    assert f"{run.name}/checkpoints/final/model.safetensors" in names(bucket)


def test_the_copy_does_not_say_which_process_made_the_run(run: Path, bucket: str) -> None:
    copy_run(run, bucket)
    copied = json.loads(fsspec.open(f"{bucket}/{run.name}/run.json").open().read())
    here = json.loads((run / "run.json").read_bytes())
    assert copied == {key: value for key, value in here.items() if key != "worker"}
    assert "worker" in here


@pytest.mark.parametrize("kind", ["local", "file://", "memory://"])
def test_an_unchanged_run_is_not_copied_again(run: Path, bucket: str, kind: str) -> None:
    out = run.parents[1] / "out"
    target = {"local": str(out), "file://": f"file://{out}", "memory://": bucket}[kind]
    assert copy_run(run, target)
    assert copy_run(run, target) == []


def test_a_changed_run_is_copied_again_and_what_it_has_no_more_goes(run: Path, bucket: str) -> None:
    copy_run(run, bucket)
    (run / "log.txt").unlink()
    (run / "metrics.jsonl").write_text("of another size")
    assert copy_run(run, bucket) == ["metrics.jsonl", "run.json"]
    assert names(f"{bucket}/{run.name}") == {*RECORD, "run.json"} - {"log.txt"}


def test_the_same_size_is_no_sign_of_the_same_content_once_the_run_went_on(
    run: Path, bucket: str
) -> None:
    copy_run(run, bucket)
    log = (run / "log.txt").read_bytes()
    (run / "log.txt").write_bytes(log[::-1])
    RunFolder(run).update(note="resumed")
    assert copy_run(run, bucket) == [*RECORD, "run.json"]
    assert fsspec.open(f"{bucket}/{run.name}/log.txt").open().read() == log[::-1]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_an_interrupted_copy_has_no_run_json_and_is_completed(
    run: Path, bucket: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = bucket if kind == "memory" else str(run.parents[1] / "out")
    driver: Any = MemoryFileSystem if kind == "memory" else LocalFileSystem
    copy_run(run, target)
    RunFolder(run).update(note="resumed")
    real = driver.put_file

    def breaks(self: Any, source: str, path: str, **options: Any) -> None:
        if path.endswith("metrics.parquet"):
            raise ConnectionResetError(104, "Connection reset by peer")
        real(self, source, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "put_file", breaks)
        with pytest.raises(CopyError, match=r"Connection reset by peer; .* copy again$"):
            copy_run(run, target)
    assert "run.json" not in names(f"{target}/{run.name}")
    assert copy_run(run, target) == [*RECORD, "run.json"]
    assert names(f"{target}/{run.name}") == {*RECORD, "run.json"}


def test_local_targets_may_be_relative_have_spaces_or_begin_at_home(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for target, place in [
        ("out", "out"),
        ("my results/für später", "my results/für später"),
        ("~/out", "home/out"),
        ("a::b#c?d[e]*", "a::b#c?d[e]*"),
    ]:
        assert copy_run(run, target)
        assert (tmp_path / place / run.name / "run.json").is_file()


def test_a_run_may_be_given_by_a_relative_path(
    run: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    copy_run(Path("."), bucket)
    assert f"{run.name}/run.json" in names(bucket)


def test_a_run_is_never_copied_over_itself(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.parent)
    for target in (run.parent, link, run, run / "checkpoints"):
        for form in (str(target), f"file://{target}"):
            with pytest.raises(CopyError, match="into itself: give another target"):
                copy_run(run, form)
    assert (run / "checkpoints" / "final" / "model.safetensors").is_file()


def test_a_running_run_and_a_folder_of_no_run_are_refused(run: Path, tmp_path: Path) -> None:
    RunFolder(run).update(RunState.RUNNING)
    with pytest.raises(CopyError, match="is running: copy it when it has ended"):
        copy_run(run, str(tmp_path / "out"))
    with pytest.raises(RecordError, match="not the folder of a run"):
        copy_run(tmp_path, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_failed_run_is_copied(run: Path, bucket: str) -> None:
    RunFolder(run).update(RunState.FAILED, error="ValueError: …")
    assert copy_run(run, bucket)[-1] == "run.json"


def test_a_link_to_elsewhere_is_not_followed(run: Path, tmp_path: Path, bucket: str) -> None:
    (tmp_path / "private.txt").write_text("private")
    (run / "private.txt").symlink_to(tmp_path / "private.txt")
    assert "private.txt" not in copy_run(run, bucket)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_target_that_is_a_file_is_one_line(run: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(CopyError) as told:
        copy_run(run, form.format(tmp_path / "taken"))
    assert "\n" not in str(told.value)
    assert str(told.value).endswith("is yours to write, then copy again")
    assert (tmp_path / "taken").read_text() == "a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_target_that_may_not_be_written_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(CopyError, match="Permission denied"):
        copy_run(run, str(tmp_path / "locked"))


def test_an_empty_or_unknown_target_is_one_line(run: Path) -> None:
    with pytest.raises(CopyError, match="the target is empty; give a folder or a URL"):
        copy_run(run, "")
    with pytest.raises(CopyError, match="Protocol not known: nowhere"):
        copy_run(run, "nowhere://x")


def test_a_missing_driver_is_named_and_the_credentials_are_not(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(CopyError) as told:
        copy_run(run, "s3://key:se/cr@et@bucket/runs")
    assert str(told.value) == (
        f"cannot copy {run.name} to s3://bucket/runs: the driver is missing: "
        "Install s3fs to access S3"
    )
    assert told.value.__cause__ is None, "a traceback would show the URL"


def test_no_network_is_one_line_without_the_credentials(run: Path) -> None:
    with pytest.raises(CopyError) as told:
        copy_run(run, "ftp://anna:pass-word@127.0.0.1:1/runs")
    assert "ftp://127.0.0.1:1/runs" in str(told.value)
    assert "pass-word" not in str(told.value)
    assert "anna" not in str(told.value)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/home folder/a@b", "/home folder/a@b"),
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("s3://key:se/cr@et@bucket/runs", "s3://bucket/runs"),
        ("https://host/runs?sig=abc", "https://host/runs"),
    ],
)
def test_a_url_is_shown_without_its_credentials(target: str, shown: str) -> None:
    assert without_credentials(target) == shown
