"""What the benchmark is held against and must find: the peer's environment, our first code."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.training.workers import ROOT, Runtime
from rstar2.errors import UserError

FIRST = "7213e7b77dde0772cab076f1b477ccc3e415b0b3"
"""The last commit of the first issue."""

PEER_LIBRARIES = ("trl", "torch", "transformers", "accelerate")


class NotFoundError(UserError):
    """Something to compare with is missing; the message says what to type."""


def find_peers(root: Path = ROOT) -> Runtime:
    """Look for the environment that ``make peers`` makes in a checkout.

    Raises:
        NotFoundError: It is missing, or its installation was interrupted.
    """
    folder = root / ".venv-peers"
    if not (folder / ".stamp").is_file() or (folder / ".installing").exists():
        raise NotFoundError(f"there is no peer environment in {folder.name}: type `make peers`")
    return Runtime(python=folder / "bin" / "python")


def check_peers(found: Mapping[str, str], root: Path = ROOT) -> None:
    """Compare the versions that the peer reports with the pins.

    Raises:
        NotFoundError: One is another.
    """
    text = (root / "requirements-peers.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    for name in PEER_LIBRARIES:
        if found[name].split("+")[0] != pins[name]:
            told = f"{name} {found[name]}, requirements-peers.txt asks for {pins[name]}"
            raise NotFoundError(f"the peer environment has {told}: type `make peers`")


@contextmanager
def first_code(root: Path = ROOT) -> Iterator[Runtime]:
    """Our code as the first issue left it, in a folder that goes with the block.

    Raises:
        NotFoundError: The clone does not hold the commit.
    """
    known = subprocess.run(["git", "cat-file", "-e", f"{FIRST}^{{commit}}"], cwd=root, stderr=-3)
    if known.returncode:
        raise NotFoundError(
            f"commit {FIRST[:7]} is not in this clone: type `git fetch --unshallow`"
        )
    with TemporaryDirectory() as folder:
        names = ["src", "presets", "pyproject.toml"]
        archive = subprocess.run(
            ["git", "archive", FIRST, *names], cwd=root, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
        yield Runtime(source=Path(folder, "src"), folder=Path(folder))
