"""The command line: quick to answer, one line for what a user can mend."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rstar2.cli
from rstar2.cli.doctor import BROWSERS, Verdict, chromium_command, examine, find_chromium
from rstar2.errors import UserError


def rstar2_(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    code = "from rstar2.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_the_command_line_leaves_what_is_heavy_alone() -> None:
    code = "import sys, rstar2.cli; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"torch", "transformers", "pandas", "pyarrow", "matplotlib", "IPython", "scipy"}
    assert not heavy & set(answer.stdout.split())


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["doctor", "--jsn"], ["doctor", "--json"], ["doctor", "extra"]]
)
def test_a_wrong_command_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    answer = rstar2_(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("rstar2: ")
    assert answer.stderr.count("\n") == 1


def test_without_a_command_it_lists_them() -> None:
    answer = rstar2_()
    assert "doctor" in answer.stdout + answer.stderr
    assert "rstar2: " not in answer.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("there is no preset 'x'"), 2, "rstar2: there is no preset 'x'\n"),
        (UserError("two\nlines"), 2, "rstar2: two lines\n"),
        (KeyboardInterrupt(), 130, "rstar2: interrupted\n"),
    ],
)
def test_what_a_user_can_mend_has_no_traceback(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(rstar2.cli, "app", fail)
    with pytest.raises(SystemExit) as caught:
        rstar2.cli.main()
    assert caught.value.code == code
    assert capsys.readouterr().err == said


def test_an_interrupt_within_a_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rstar2.cli.data.Console", interrupt)
    monkeypatch.setattr(sys, "argv", ["rstar2", "data", "sources"])
    with pytest.raises(SystemExit) as caught:
        rstar2.cli.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "rstar2: interrupted\n"


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rstar2.cli, "app", fail)
    with pytest.raises(ZeroDivisionError):
        rstar2.cli.main()


# --- doctor ------------------------------------------------------------------------------


def test_the_doctor_reports_this_machine(tmp_path: Path) -> None:
    answer = rstar2_("doctor", "--json", str(tmp_path / "report.json"), cwd=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    found = {finding["subject"]: finding for finding in report["findings"]}
    assert (answer.returncode, report["healthy"]) == (0, True), answer.stdout
    assert {"Python", "torch", "commit", "sandbox", "Chromium", "runs/"} <= found.keys()
    assert found["sandbox"]["value"].split(":")[0] in ("strict", "portable")
    assert all(finding["advice"] for finding in found.values() if finding["verdict"] != "ok")


def test_the_doctor_cannot_write_its_report(tmp_path: Path) -> None:
    answer = rstar2_("doctor", "--json", str(tmp_path / "absent" / "report.json"))
    assert answer.returncode == 2
    assert answer.stderr.startswith("rstar2: cannot write")


def test_a_missing_chromium_is_a_note_with_the_command_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() is None
    (finding,) = [f for f in examine() if f.subject == "Chromium"]
    assert finding.verdict is Verdict.NOTE
    assert chromium_command() in finding.advice
    assert "apt-get install --yes chromium" in chromium_command()
    apt.unlink()
    assert "package manager" in chromium_command()


def test_a_place_for_runs_that_cannot_be_written_is_told_by_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "presets").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "runs").touch()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    (finding,) = [f for f in examine() if f.subject == "runs/"]
    assert finding.verdict is Verdict.MISSING
    assert str(tmp_path / "runs") in finding.advice


@pytest.mark.parametrize("name", BROWSERS)
def test_chromium_is_found_by_any_of_its_names(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() == tmp_path / name


def test_the_doctor_looks_also_from_within_an_event_loop() -> None:
    async def inside() -> list[str]:
        return [finding.value for finding in examine() if finding.subject == "sandbox"]

    (found,) = asyncio.run(inside())
    assert found.startswith(("strict", "portable"))
