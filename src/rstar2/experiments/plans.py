"""What a planned run is: its work, its parameters, its folder, and the run that it needs."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rstar2.experiments.checkout import project_root
from rstar2.experiments.notebook_files import NotebookFile
from rstar2.experiments.presets import Preset
from rstar2.records import RecordError, RunFolder, RunState
from rstar2.training.spec import Arm

SFT_ARM = "sft"
"""What ``run.json`` calls the run that the RL arms start from."""

NOT_EVALUATED = "none"
"""The size of the evaluation of a run that another evaluates."""

RESULTS_SIZE = "results"
"""The size of the evaluation that records are reported on."""

RECORD_SWEEPS = "laptop-*"
"""The sweeps whose runs are committed: ``sweeps/laptop-*.yaml`` and ``results/laptop-*/``."""

NATURAL_SWEEP = "laptop-natural"
"""The record sweep of the families of the laptop, which the README draws."""

BOOK_SEED = 21
"""Seed of the run that ``make book`` makes: the first of the natural sweep."""

BOOK_ARMS = (Arm.GRPO, Arm.GRPO_ROC)
"""The arms that ``make book`` trains."""


class Kind(StrEnum):
    """What the work of a run is."""

    SFT = "sft"
    """Pretraining and SFT."""
    RL = "rl"
    """RL of all stages, or of one."""
    MINING = "mining"
    """The hard problems of a stage."""
    EVALUATION = "evaluation"
    """A policy on the held-out sets."""
    NOTEBOOK = "notebook"
    """Whatever the cells of a notebook do."""


NOTEBOOKS = {
    "10_run_sft.ipynb": Kind.SFT,
    "11_run_rl.ipynb": Kind.RL,
    "12_run_mining.ipynb": Kind.MINING,
    "13_run_evaluation.ipynb": Kind.EVALUATION,
}
"""The run notebooks, whose work a process of its own does; any other is its own work."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run that is to be.

    Attributes:
        kind: What its work is.
        name: What people call the run.
        notebook: What papermill executes.
        params: The notebook's parameters that decide the run.
        run_id: Hash of all that decides the numbers.
        folder: Where the run lives.
        preset: The preset; None for a notebook that is its own work.
        needs: The run that must be done before, whose checkpoint this one starts from.
    """

    kind: Kind
    name: str
    notebook: Path
    params: dict[str, Any]
    run_id: str
    folder: Path
    preset: Preset | None = None
    needs: "Plan | None" = None

    @property
    def arm(self) -> str:
        """``sft``, the RL arm, or empty."""
        return SFT_ARM if self.kind is Kind.SFT else str(self.params.get("arm", ""))

    @property
    def is_done(self) -> bool:
        """Whether the run has ended well."""
        try:
            return RunFolder.open(self.folder).state is RunState.DONE
        except RecordError:
            return False

    @property
    def chain(self) -> list["Plan"]:
        """All that must be done for it in turn, itself the last."""
        return [*(self.needs.chain if self.needs else []), self]

    @property
    def wave(self) -> int:
        """How many runs must be done before it, one after the other."""
        return len(self.chain) - 1

    @property
    def out(self) -> str:
        """The folder of its folder, as a notebook is told: below the checkout if it lies there."""
        root = project_root()
        parent = self.folder.parent
        return str(parent.relative_to(root) if parent.is_relative_to(root) else parent)

    @property
    def notebook_params(self) -> dict[str, Any]:
        """What papermill injects."""
        if self.kind is Kind.NOTEBOOK:
            declared = NotebookFile(self.notebook).parameters
            return self.params | ({"run_dir": str(self.folder)} if "run_dir" in declared else {})
        return {**self.params, "out": self.out}
