"""Policies on disk: the library's own format, safetensors only, never a pickle.

A folder is written under a temporary name and renamed, so that what stands there under
its real name is whole.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rstar2.errors import UserError
from rstar2.protocol import Manifest, TokenTemplate

_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_OPTIMIZER = "optimizer.safetensors"


class CheckpointError(UserError):
    """A checkpoint is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer and the template of its preset."""

    model: Qwen3ForCausalLM
    tokenizer: PreTrainedTokenizerFast
    template: TokenTemplate


def save_policy(policy: Policy, path: Path, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Writes weights, configuration and tokenizer, and the optimizer's state if given."""
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    policy.model.save_pretrained(partial)
    policy.tokenizer.save_pretrained(partial)
    if optimizer is not None:
        save_file(_flat_state(optimizer), partial / _OPTIMIZER)
    if path.exists():
        old = path.with_name(path.name + ".old")
        os.replace(path, old)
        os.replace(partial, path)
        shutil.rmtree(old)
    else:
        os.replace(partial, path)


def load_policy(path: Path, manifest: Manifest) -> Policy:
    """Reads what ``save_policy`` wrote.

    Raises:
        CheckpointError: If the folder is missing, incomplete or damaged.
    """
    for name in (_WEIGHTS, _TOKENIZER, "config.json"):
        if not (path / name).is_file():
            raise CheckpointError(f"no checkpoint at {path}: {name} is missing there")
    try:
        model = Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the checkpoint at {path} cannot be read: {error}") from error
    return Policy(model, tokenizer, TokenTemplate(tokenizer, manifest))


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Restores the state that ``save_policy`` wrote for an optimizer over one group.

    Raises:
        CheckpointError: If the checkpoint holds no optimizer.
    """
    file = path / _OPTIMIZER
    if not file.is_file():
        raise CheckpointError(f"the checkpoint at {path} holds no optimizer: {file} is missing")
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in load_file(file).items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _flat_state(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{key}": value.contiguous()
        for number, entry in state.items()
        for key, value in entry.items()
    }
