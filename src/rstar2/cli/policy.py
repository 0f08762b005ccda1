"""What several commands need of a policy: where it is, and limits that it can bear."""

from pathlib import Path
from typing import TYPE_CHECKING

from rstar2.errors import UserError

if TYPE_CHECKING:
    from rstar2.experiments.presets import TorchPreset
    from rstar2.rollout import RolloutLimits
    from rstar2.training.checkpoint import Policy


class PolicyError(UserError):
    """There is no such policy, or it does not fit the preset."""


def find_checkpoint(checkpoint: Path | None) -> Path:
    """The folder of a policy; the committed one of grpo-roc if none is named.

    Raises:
        PolicyError: If there is none.
    """
    path = checkpoint or _committed_checkpoint()
    if not path.is_dir():
        raise PolicyError(
            f"there is no checkpoint at {path}: `make results` makes the default one; "
            "--checkpoint names another, as runs/<run>/checkpoints/final"
        )
    return path


def rollout_limits(
    settings: "TorchPreset", policy: "Policy", temperature: float | None
) -> "RolloutLimits":
    """The preset's limits of an evaluation rollout.

    Raises:
        PolicyError: If the checkpoint has fewer positions than they allow tokens.
    """
    from rstar2.training.evaluate import evaluation_limits

    warmth = settings.rl.temperature if temperature is None else temperature
    limits = evaluation_limits(settings.evaluation["book"], settings.limits, warmth)
    longest = limits.max_prompt_tokens + limits.max_response_tokens
    positions = int(policy.model.config.max_position_embeddings)
    if longest > positions:
        raise PolicyError(
            f"preset {settings.name} allows {longest} tokens, the checkpoint has {positions} "
            "positions: name the preset that it was trained with by --preset"
        )
    return limits


def _committed_checkpoint() -> Path:
    from rstar2.experiments.checkout import project_root
    from rstar2.experiments.plans import BOOK_SEED, NATURAL_SWEEP
    from rstar2.training.spec import Arm

    record = f"{Arm.GRPO_ROC}-seed{BOOK_SEED}"
    return project_root() / "results" / NATURAL_SWEEP / record / "checkpoint"
