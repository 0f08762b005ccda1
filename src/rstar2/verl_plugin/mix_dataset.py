"""verl's data set of the cold start: our conversations, encoded with our template and mask."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from rstar2.protocol import PAPER, TokenTemplate
from rstar2.training.sft_mix import encode_conversation, from_json


class MixDataset(Dataset[dict[str, torch.Tensor]]):
    """Named by ``data.custom_cls``; a row is a line of ``rstar2 data sft-mix``.

    verl rolls the mask by one itself, so it stands at the tokens that are predicted.
    """

    def __init__(
        self, parquet_files: Sequence[str], tokenizer: Any, config: Any, **given: Any
    ) -> None:
        """Reads the lines; they are encoded as they are asked for."""
        del config, given
        self._template = TokenTemplate(tokenizer, PAPER)
        self._lines = [
            line for file in parquet_files for line in Path(file).read_bytes().splitlines()
        ]

    def __len__(self) -> int:
        """Conversations."""
        return len(self._lines)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Ids, positions and mask of a conversation, each of its length."""
        one = encode_conversation(from_json(json.loads(self._lines[index])), self._template)
        return {
            "input_ids": torch.tensor(one.ids),
            "position_ids": torch.arange(len(one.ids)),
            "loss_mask": torch.tensor(one.mask),
        }
