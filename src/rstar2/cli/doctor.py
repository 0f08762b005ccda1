"""``rstar2 doctor``: what this machine has, what is missing, and what to type for it."""

import asyncio
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rstar2.records import atomic_write, hardware, working_tree

PACKAGES = ("torch", "transformers", "math-verify", "pyarrow", "papermill", "jupyter-book")
"""The packages whose versions matter most to what a run or the book shows."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Names under which Chromium is installed, the preferred one first."""


class Verdict(StrEnum):
    """What a finding means for the reader."""

    OK = "ok"
    """Nothing to do."""
    NOTE = "note"
    """Something will not be possible; the advice says what, and how to mend it."""
    MISSING = "missing"
    """Nothing works before this is mended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: What was looked at.
        value: What was found.
        verdict: What it means.
        advice: What to type or to know, when there is something.
    """

    subject: str
    value: str
    verdict: Verdict = Verdict.OK
    advice: str = ""


def doctor(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the findings as JSON too.")
    ] = None,
) -> None:
    """Say what this machine has and what is missing; exit code 1 if nothing can work."""
    findings = list(examine())
    healthy = all(finding.verdict is not Verdict.MISSING for finding in findings)
    Console().print(_table(findings))
    if json_file is not None:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        atomic_write(json_file, json.dumps(report, indent=1).encode() + b"\n")
    raise typer.Exit(0 if healthy else 1)


def examine() -> Iterator[Finding]:
    """Look at this machine, thing by thing."""
    yield _python()
    for package in PACKAGES:
        yield _package(package)
    yield _torch()
    machine = hardware()
    yield Finding("processor", f"{machine.cpu}, {machine.cores} cores")
    yield _memory(machine.memory_gib)
    yield _commit()
    yield _sandbox()
    yield _chromium()
    yield _runs_folder()


def find_chromium() -> Path | None:
    """Find the system's Chromium, which the browser tests drive; None if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return Path(found) if found else None


def chromium_command() -> str:
    """Name the command that installs Chromium here."""
    if shutil.which("apt-get") is None:
        return "install Chromium with this system's package manager"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install --yes chromium"


def _python() -> Finding:
    value = platform.python_version()
    if (3, 11) <= sys.version_info < (3, 13):
        return Finding("Python", value)
    return Finding("Python", value, Verdict.MISSING, "needs Python 3.11 or 3.12")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "not installed", Verdict.MISSING, "pip install -r requirements.txt")


def _torch() -> Finding:
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        advice = "pip install --force-reinstall -r requirements.txt"
        return Finding("torch imports", f"no: {error}", Verdict.MISSING, advice)
    device = "GPU" if torch.cuda.is_available() else "CPU"
    return Finding("torch imports", f"yes: {device}, {torch.get_num_threads()} threads")


def _memory(gib: float) -> Finding:
    if gib >= 4:
        return Finding("memory", f"{gib} GiB")
    return Finding("memory", f"{gib} GiB", Verdict.NOTE, "the laptop run is made for 4 GiB or more")


def _commit() -> Finding:
    commit, dirty = working_tree()
    if commit is None:
        return Finding("commit", "unknown", Verdict.NOTE, "runs made here cannot be published")
    if dirty is not False:
        return Finding(
            "commit",
            f"{commit[:10]}, with changes",
            Verdict.NOTE,
            "commit them before a run that is to be published",
        )
    return Finding("commit", commit[:10])


def _sandbox() -> Finding:
    with ThreadPoolExecutor(1) as apart:  # a notebook has a loop running in this thread
        return apart.submit(lambda: asyncio.run(_try_sandbox())).result()


async def _try_sandbox() -> Finding:
    from rstar2.sandbox import Rung, Sandbox, SandboxUnavailable, SandboxUnsupported

    try:
        async with Sandbox(slots=1) as sandbox:
            result = await sandbox.run("import scipy.stats, sympy\nprint(6 * 7)", timeout=30.0)
            isolation = sandbox.isolation
    except (SandboxUnavailable, SandboxUnsupported) as error:
        advice = "no rollout can run before it does"
        return Finding("sandbox", f"no: {error}", Verdict.MISSING, advice)
    if result.stdout.strip() != "42":
        value = f"a program ended as {result.status}: {result.stderr or result.stdout!r}"
        return Finding("sandbox", value, Verdict.MISSING, "this is a defect: please report it")
    if isolation.rung is not Rung.STRICT:
        advice = "programs are held by Landlock and seccomp; user namespaces would add a layer"
        return Finding("sandbox", str(isolation), Verdict.NOTE, advice)
    return Finding("sandbox", str(isolation))


def _chromium() -> Finding:
    found = find_chromium()
    if found is None:
        advice = f"only the browser tests need it: {chromium_command()}"
        return Finding("Chromium", "not found", Verdict.NOTE, advice)
    return Finding("Chromium", str(found))


def _runs_folder() -> Finding:
    """Where runs are written: ``runs/`` of the checkout, or the folder that it would be made in."""
    from rstar2.experiments.checkout import CheckoutError, project_root

    try:
        root = project_root()
    except CheckoutError:
        root = Path.cwd()
    runs = root / "runs"
    folder = runs if runs.exists() else root
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / 2**30
    except OSError as error:
        advice = f"runs are written to {runs}: make it a folder of yours"
        return Finding("runs/", f"{error.strerror}", Verdict.MISSING, advice)
    return Finding("runs/", f"can be written, {free:.0f} GiB free")


def _table(findings: list[Finding]) -> Table:
    styles = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.MISSING: "bold red"}
    table = Table("", "found", "", "what to do", show_edge=False)
    for finding in findings:
        style = styles[finding.verdict]
        verdict = f"[{style}]{finding.verdict}[/]"
        table.add_row(finding.subject, finding.value, verdict, finding.advice)
    return table
