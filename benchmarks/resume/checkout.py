"""A checkout of its own, where runs land, and a preset whose runs take as long as is asked."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from rstar2.experiments.preset_files import read_preset_file

ROOT = Path(__file__).resolve().parents[2]
PRESET = "resume"

_STAGE = {
    "max_response_tokens": 90,
    "max_turns": 3,
    "composition_share": 1.0,
    "data": "all",
    "mine_problems": 0,
    "reset_optimizer": False,
}


def make_checkout(root: Path, **changes: Any) -> Path:
    """Copies what a run reads, and writes the preset ``resume``: the preset ``test``, changed.

    Args:
        root: The folder to be made.
        changes: New values of the preset, by section; of a stage, over common ones.
    """
    for name in ("presets", "notebooks"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root)
    preset = read_preset_file(root / "presets" / "test.yaml", "test.yaml").values
    preset["name"] = PRESET
    for section, values in changes.items():
        if section == "stages":
            preset["stages"] = [{**_STAGE, **stage} for stage in values]
        else:
            preset[section] |= values
    (root / "presets" / f"{PRESET}.yaml").write_text("--- !ours\n" + yaml.safe_dump(preset))
    return root


def differences(one: Path, other: Path) -> list[str]:
    """Files of two runs that are not equal to the last bit: records, and all of the weights."""
    first, second = _outcome(one), _outcome(other)
    names = sorted({*first, *second})
    return [name for name in names if first.get(name) != second.get(name)]


def _outcome(run: Path) -> dict[str, bytes]:
    names = ("metrics.parquet", "evaluation.parquet", "grades.parquet")
    files = [*(run / name for name in names), run / "examples.jsonl", run / "trajectories.jsonl"]
    files += (run / "checkpoints").rglob("*")
    return {str(file.relative_to(run)): file.read_bytes() for file in files if file.is_file()}
