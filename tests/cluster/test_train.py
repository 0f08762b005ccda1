"""The entry of a Ray job: it refuses what cannot train, before anything is started."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import verl
from typer.testing import CliRunner

from rstar2.errors import UserError
from rstar2.experiments.cluster.job import RecipeError
from rstar2.experiments.cluster.recipe import VERL
from rstar2.experiments.pool_files import PoolError
from rstar2.experiments.presets import PresetError
from rstar2.verl_plugin import train

ROOT = Path(__file__).resolve().parents[2]
ASK = """
import ray
from rstar2.verl_plugin.train import refuse_nodes_without_plugin
with ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False):
    refuse_nodes_without_plugin()
print("every node has it")
"""


def asked(installed: Path, plugins: str) -> "subprocess.CompletedProcess[str]":
    """A cluster of one node, in whose processes ``installed`` holds what pip writes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = installed / f"rstar2-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: rstar2\nVersion: {project['version']}\n")
    entry = project["entry-points"]["verl.plugins"]["rstar2"]
    (folder / "entry_points.txt").write_text(f"[verl.plugins]\nrstar2 = {entry}\n")
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", str(ROOT / "src"))])
    environment = {"PYTHONPATH": path, "VERL_USE_EXTERNAL_PLUGINS": plugins}
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_node_is_asked(tmp_path: Path) -> None:
    done = asked(tmp_path, "auto")
    assert done.stdout.strip().splitlines()[-1:] == ["every node has it"], done.stderr


def test_a_node_on_which_verl_loads_no_plugin_stops_the_run(tmp_path: Path) -> None:
    done = asked(tmp_path, "none")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "PluginMissing: node " in last
    assert "verl did not load the plugin of rstar2: install the package on every node" in last


def test_the_recipe_is_for_the_version_that_is_tested() -> None:
    assert verl.__version__ == VERL


def test_another_version_of_verl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl, "__version__", "0.9.0")
    with pytest.raises(UserError, match=r"the recipe is for verl 0.9.1, here is 0.9.0"):
        train.composed("ppo_trainer", {})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--preset", "laptop", "--arm", "grpo"], PresetError),
        (["--preset", "mi300x-64-32b", "--arm", "sft"], RecipeError),
        (["--preset", "one-gpu", "--arm", "grpo", "--stage", "4"], RecipeError),
        (["--preset", "one-gpu", "--arm", "dapo"], RecipeError),
        (["--preset", "one-gpu", "--arm", "grpo", "--before", "nowhere"], RecipeError),
        (["--preset", "one-gpu", "--arm", "grpo", "--pool", "nowhere"], PoolError),
        (["--preset", "one-gpu", "--arm", "grpo", "--changes", '{"rl.x": 1}'], PresetError),
    ],
)
def test_what_cannot_be_trained_is_refused(
    words: list[str], error: type[UserError], tmp_path: Path
) -> None:
    done = CliRunner().invoke(train.app, [*words, "--out", str(tmp_path)])
    assert isinstance(done.exception, error)
    assert not list(tmp_path.iterdir())
