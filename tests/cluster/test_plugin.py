"""What verl loads by our entry point, and what it says when it does not."""

import os
import subprocess
import sys
import tomllib
from importlib import reload
from pathlib import Path

import pytest
import verl
from verl.utils.import_utils import load_class_from_fqn, load_extern_object

from rstar2.verl_plugin import plugin
from rstar2.verl_plugin.replay_buffer import SelectingBuffer

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CANARY = "from rstar2.verl_plugin.canary import loaded; print(loaded())"


def python(program: str, installed: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, in which ``installed`` holds what pip writes of a package."""
    path = os.pathsep.join([str(installed), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The entry points of pyproject.toml, as an installed package has them."""
    folder = tmp_path / f"{PROJECT['name']}-{PROJECT['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {PROJECT['name']}\nVersion: {PROJECT['version']}\n")
    lines = ["[verl.plugins]"]
    lines += [f"{n} = {m}" for n, m in PROJECT["entry-points"]["verl.plugins"].items()]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_verl_finds_the_plugin_by_its_entry_point(installed: Path) -> None:
    done = python(CANARY, installed)
    assert done.stdout.strip().splitlines()[-1:] == ["verl 0.9.1, rstar2 0.1.0"], done.stderr


def test_names_stand_in_the_registries_of_a_process_that_only_imports_verl(
    installed: Path,
) -> None:
    program = (
        "import verl\n"
        "from verl.trainer.ppo import core_algos\n"
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry\n"
        "print(core_algos.get_adv_estimator_fn('rstar2').__name__,\n"
        "      core_algos.get_policy_loss_fn('rstar2').__name__, _agent_loop_registry['rstar2'])\n"
    )
    said = python(program, installed).stdout.strip().splitlines()[-1]
    assert said == (
        "weighted_advantages summed_policy_loss "
        "{'_target_': 'rstar2.verl_plugin.agent_loop.RStarLoop'}"
    )


def test_the_canary_speaks_where_verl_looked_for_no_plugin(installed: Path) -> None:
    done = python(CANARY, installed, VERL_USE_EXTERNAL_PLUGINS="none")
    assert done.returncode != 0
    assert "verl did not load the plugin of rstar2" in done.stderr


def test_the_canary_says_why_the_plugin_cannot_be_imported(installed: Path) -> None:
    """verl names the reason only at level DEBUG."""
    broken = "import sys; sys.modules['rstar2.verl_plugin.objective'] = None"
    done = python(f"{broken}\n{CANARY}", installed)
    assert "ModuleNotFoundError: import of rstar2.verl_plugin.objective" in done.stderr


def test_another_version_of_verl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl, "__version__", "0.10.0")
    with pytest.raises(ImportError, match=r"install verl==0\.9\.1"):
        reload(plugin)


def test_verl_takes_the_buffer_and_the_router_by_the_names_of_the_recipe() -> None:
    found = load_extern_object("pkg://rstar2.verl_plugin.replay_buffer", "SelectingBuffer")
    assert found is SelectingBuffer
    router = load_class_from_fqn("rstar2.verl_plugin.plugin.RouterActor")
    assert router is plugin.RouterActor
