"""Policies on disk: the library's own format, safetensors only, never a pickle.

A folder is written under a temporary name and renamed, so that what stands there under
its real name is whole. A run keeps its last step, ``step-000150``, with the optimizers,
and at the end ``final`` alone.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rstar2.errors import UserError
from rstar2.protocol import Manifest, TokenTemplate
from rstar2.records.files import atomic_folder, mend_folders

_WEIGHTS = "model.safetensors"
_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_OPTIMIZER = "optimizer.safetensors"
_FINAL = "final"


class CheckpointError(UserError):
    """A checkpoint is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer and the template of its preset."""

    model: Qwen3ForCausalLM
    tokenizer: PreTrainedTokenizerFast
    template: TokenTemplate


def save_policy(policy: Policy, path: Path, *optimizers: torch.optim.Optimizer) -> None:
    """Writes weights, configuration and tokenizer, and the states of the optimizers.

    Raises:
        RecordError: The folder cannot be written; what stood there before still does.
        CheckpointError: The same, told by the library that writes the tensors.
    """
    try:
        with atomic_folder(path) as folder:
            policy.model.save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
            if optimizers:
                save_file(_flat_state(optimizers), folder / _OPTIMIZER)
    except SafetensorError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {path}: {error}; what stood there before still does, "
            "check that there is space"
        ) from error


def load_policy(path: Path, manifest: Manifest) -> Policy:
    """Reads what ``save_policy`` wrote.

    Raises:
        CheckpointError: If the folder is missing, incomplete or damaged.
    """
    for name in (_WEIGHTS, _TOKENIZER, _CONFIG):
        if not (path / name).is_file():
            raise CheckpointError(f"no checkpoint at {path}: {name} is missing there")
    model = _load_model(path)
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
        template = TokenTemplate(tokenizer, manifest)
    except Exception as error:  # the tokenizers library raises no narrower one
        raise CheckpointError(f"the tokenizer at {path} cannot be read: {error}") from error
    return Policy(model, tokenizer, template)


def load_optimizers(path: Path, *optimizers: torch.optim.Optimizer) -> None:
    """Restores the states that ``save_policy`` wrote, of optimizers over one group each.

    Args:
        path: The checkpoint.
        optimizers: Those that were saved, in that order, over the same parameters.

    Raises:
        CheckpointError: If the checkpoint holds no optimizer, others, or a damaged one.
    """
    file = path / _OPTIMIZER
    if not file.is_file():
        raise CheckpointError(f"the checkpoint at {path} holds no optimizer: {file} is missing")
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    states: list[dict[int, dict[str, Any]]] = [{} for _ in optimizers]
    for name, tensor in tensors.items():
        place, number, key = name.split(".", 2)
        if int(place) >= len(states):
            raise CheckpointError(f"{file} holds more than {len(states)} optimizers")
        # A copy, in memory that is aligned as torch aligns its own.
        states[int(place)].setdefault(int(number), {})[key] = tensor.clone()
    for optimizer, state in zip(optimizers, states, strict=True):
        (group,) = optimizer.state_dict()["param_groups"]
        if not state.keys() <= set(group["params"]):  # none before the first update
            raise CheckpointError(f"{file} is of an optimizer over other parameters")
        optimizer.load_state_dict({"state": state, "param_groups": [group]})


def save_step(
    policy: Policy, checkpoints: Path, step: int, *optimizers: torch.optim.Optimizer
) -> None:
    """Writes the checkpoint of a step; the one before it goes when this one stands.

    Raises:
        RecordError: As ``save_policy``.
        CheckpointError: As ``save_policy``.
    """
    newest = checkpoints / f"step-{step:06d}"
    save_policy(policy, newest, *optimizers)
    _remove_steps(checkpoints, but=newest)


def save_final(policy: Policy, checkpoints: Path, *optimizers: torch.optim.Optimizer) -> None:
    """Writes the weights that a run ends with; the checkpoints of its steps go.

    The states of optimizers are written where another run goes on from there.

    Raises:
        RecordError: As ``save_policy``.
        CheckpointError: As ``save_policy``.
    """
    save_policy(policy, checkpoints / _FINAL, *optimizers)
    _remove_steps(checkpoints)


def find_final(checkpoints: Path) -> Path | None:
    """The weights that a run ended with, if it came so far.

    Checkpoints of steps that a kill left beside them are taken away.
    """
    mend_folders(checkpoints)
    path = checkpoints / _FINAL
    if not path.exists():
        return None
    _remove_steps(checkpoints)
    return path


def find_step(checkpoints: Path) -> tuple[int, Path] | None:
    """The last step of which a run has a checkpoint, and the checkpoint.

    What a kill left there half-written is taken away.
    """
    mend_folders(checkpoints)
    found = sorted(path for path in checkpoints.glob("step-*") if path.name[5:].isdigit())
    return (int(found[-1].name[5:]), found[-1]) if found else None


def weights_digest(model: Qwen3ForCausalLM) -> str:
    """Names weights by their bits: what was made with others is not taken for theirs."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(name.encode())
        digest.update(weight.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _load_model(path: Path) -> Qwen3ForCausalLM:
    """The model, every weight from the file: the library's loader only warns of missing ones."""
    try:
        config = json.loads((path / _CONFIG).read_bytes())
        if config["model_type"] != "qwen3":
            raise ValueError(f"model_type is {config['model_type']!r}, not 'qwen3'")
        model = Qwen3ForCausalLM(Qwen3Config.from_dict(config))
        weights = load_file(path / _WEIGHTS)
        names = model.load_state_dict(weights, strict=False)
    except Exception as error:  # each library that reads here raises classes of its own
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"the checkpoint at {path} cannot be read: {reason}") from error
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    if wrong := sorted({*names.missing_keys, *names.unexpected_keys} - tied):
        raise CheckpointError(
            f"{path / _WEIGHTS} does not fit {_CONFIG} beside it: {wrong[0]} is missing or too many"
        )
    model.eval()
    return model


def _flat_state(optimizers: tuple[torch.optim.Optimizer, ...]) -> dict[str, torch.Tensor]:
    return {
        f"{place}.{number}.{key}": value.contiguous()
        for place, optimizer in enumerate(optimizers)
        for number, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }


def _remove_steps(checkpoints: Path, but: Path | None = None) -> None:
    for path in checkpoints.glob("step-*"):
        if path != but:
            shutil.rmtree(path)
