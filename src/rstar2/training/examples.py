"""Encoded examples of the supervised phases, and their file.

They are kept on disk, so that a run that goes on need not run every program and encode every
text again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from rstar2.records import RecordError, atomic_write


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids and, for each, whether its loss counts."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]


def save_examples(path: Path, examples: Mapping[str, Sequence[Example]]) -> None:
    """Writes the encoded examples of each phase, by its name.

    Raises:
        RecordError: The file cannot be written.
    """
    tensors = {}
    for name, some in examples.items():
        tensors[f"{name}.lengths"] = torch.tensor([len(one.ids) for one in some])
        tensors[f"{name}.ids"] = torch.tensor(
            [token for one in some for token in one.ids], dtype=torch.int32
        )
        tensors[f"{name}.mask"] = torch.tensor(
            [bit for one in some for bit in one.mask], dtype=torch.uint8
        )
    atomic_write(path, save(tensors))


def load_examples(path: Path, name: str) -> list[Example]:
    """The examples of a phase that ``save_examples`` wrote.

    Raises:
        RecordError: The file is missing or damaged.
    """
    try:
        tensors = load_file(path)
        ids, mask = tensors[f"{name}.ids"].tolist(), tensors[f"{name}.mask"].tolist()
        lengths = tensors[f"{name}.lengths"].tolist()
    except (OSError, SafetensorError, KeyError) as error:
        raise RecordError(
            f"the examples in {path} cannot be read: {error}; remove {path.parent} and run again"
        ) from error
    edges = pairwise(accumulate(lengths, initial=0))
    return [Example(tuple(ids[start:end]), tuple(mask[start:end])) for start, end in edges]
