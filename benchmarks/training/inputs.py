"""The work that all sides do, written once into a folder that all read."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.training.widened import widened
from benchmarks.training.workers import ROOT
from rstar2.experiments.presets import load_torch_preset
from rstar2.training.checkpoint import load_policy
from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec

SHAPE = ModelSpec(
    vocab_size=1024,
    hidden_size=256,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=704,
    max_positions=4096,
)
"""The model of the benchmark: 3.2 million parameters."""

TOKENS = 100
"""New tokens of each completion."""
GROUP = 16
"""Completions of each prompt."""
PROMPT_TOKENS = 23
TRAINED = ROOT / "results" / "laptop-natural" / "grpo-roc-seed21" / "checkpoint"
"""A committed policy that calls its tool."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files of one run.

    Attributes:
        folder: Where they are.
    """

    folder: Path

    @property
    def model(self) -> Path:
        """Random weights of the shape, for work whose size is fixed."""
        return self.folder / "model"

    @property
    def policy(self) -> Path:
        """The trained policy in the same shape, for conversations."""
        return self.folder / "policy"

    @property
    def trajectories(self) -> Path:
        """64 completions with their log-probs, for the update."""
        return self.folder / "trajectories.json"

    @property
    def script(self) -> Path:
        """The model's turns of one RL step, by the name of the rollout."""
        return self.folder / "script.json"

    def task(self, name: str, **task: object) -> Path:
        """Write the task of an RL step."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(task))
        return path


def write_inputs(folder: Path) -> Inputs:
    """Write the two models; the other files are made by workers."""
    disable_progress_bar()
    inputs = Inputs(folder)
    trained = load_policy(TRAINED, load_torch_preset("laptop").texts)
    end_id = trained.template.end_id
    model = new_model(SHAPE, vocab_size=SHAPE.vocab_size, end_id=end_id, seed=0)
    for path, weights in (
        (inputs.model, model),
        (inputs.policy, widened(trained.model, SHAPE, end_id)),
    ):
        weights.save_pretrained(path)
        trained.tokenizer.save_pretrained(path)
    return inputs


def prompts(rows: int) -> list[list[int]]:
    """So many prompts as ids, each repeated for its group.

    Raises:
        ValueError: The rows do not make whole groups.
    """
    if rows % GROUP:
        raise ValueError(f"{rows} rows do not make groups of {GROUP}")
    rng = random.Random(0)
    drawn = [rng.choices(range(8, 600), k=PROMPT_TOKENS) for _ in range(rows // GROUP)]
    return [prompt for prompt in drawn for _ in range(GROUP)]
