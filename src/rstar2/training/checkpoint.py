"""Policies on disk: the library's own format, safetensors only, never a pickle.

A folder is written under a temporary name and renamed, so that what stands there under
its real name is whole.
"""

import json
import os
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

_WEIGHTS = "model.safetensors"
_CONFIG = "config.json"
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
    old = path.with_name(path.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(partial, path)
    shutil.rmtree(old, ignore_errors=True)


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


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Restores the state that ``save_policy`` wrote for an optimizer over one group.

    Raises:
        CheckpointError: If the checkpoint holds no optimizer, or a damaged one.
    """
    file = path / _OPTIMIZER
    if not file.is_file():
        raise CheckpointError(f"the checkpoint at {path} holds no optimizer: {file} is missing")
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


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


def _flat_state(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{key}": value.contiguous()
        for number, entry in state.items()
        for key, value in entry.items()
    }
