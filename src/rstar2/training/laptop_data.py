"""What the laptop model reads before RL: documents, demonstrations, and their tokenizer.

The encoded examples are kept on disk, so that a run that goes on need not run every program
and encode every text again.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from transformers import PreTrainedTokenizerFast

from rstar2.problems import Split, draw_mixed
from rstar2.protocol import Manifest
from rstar2.records import RecordError, atomic_write
from rstar2.rollout import ToolRunner
from rstar2.rollout.groups import run_all
from rstar2.training.spec import LimitsSpec, NoiseSpec, SupervisedSpec
from rstar2.training.tokenizer import train_tokenizer
from rstar2.training.traces import (
    Demonstration,
    Document,
    Example,
    demonstrate,
    write_document,
)

_DOCUMENT_STREAM = 1
_DEMONSTRATION_STREAM = 2
RL_STREAM = 3
"""Seeds of the problem streams: ``10 * seed + stream``, so that no two stages share one."""

_TOKENIZER_TEXTS = 4000


@dataclass(frozen=True, slots=True)
class LaptopData:
    """Texts for ``pretrain`` and conversations for ``sft``."""

    documents: tuple[Document, ...]
    demonstrations: tuple[Demonstration, ...]


def stream_seed(seed: int, stream: int) -> int:
    """Seed of one problem stream of a run."""
    return 10 * seed + stream


async def make_laptop_data(
    pretrain: SupervisedSpec,
    sft: SupervisedSpec,
    noise: NoiseSpec,
    limits: LimitsSpec,
    *,
    seed: int,
    sandbox: ToolRunner,
    manifest: Manifest,
) -> LaptopData:
    """Draws the problems of both stages and writes their texts; programs run for real.

    Demonstrations are written all at once: the sandbox bounds how many programs run.

    Raises:
        Exception: What writing a demonstration raised; the others are cancelled first.
    """
    stream = stream_seed(seed, _DOCUMENT_STREAM)
    documents = tuple(
        write_document(
            draw_mixed(Split.TRAIN, stream, index, pretrain.composition_share),
            random.Random(f"document:{stream}:{index}"),
        )
        for index in range(pretrain.examples)
    )
    stream = stream_seed(seed, _DEMONSTRATION_STREAM)
    demonstrations = await run_all(
        demonstrate(
            draw_mixed(Split.TRAIN, stream, index, sft.composition_share),
            random.Random(f"demonstration:{stream}:{index}"),
            noise,
            sandbox=sandbox,
            manifest=manifest,
            timeout=limits.tool_timeout,
        )
        for index in range(sft.examples)
    )
    return LaptopData(documents, tuple(demonstrations))


def laptop_tokenizer(
    data: LaptopData, manifest: Manifest, vocab_size: int
) -> PreTrainedTokenizerFast:
    """A tokenizer trained on both kinds of text, roles of the turns included."""

    def texts() -> Iterator[str]:
        for document in data.documents[:_TOKENIZER_TEXTS]:
            yield document.question + document.solution
        for one in data.demonstrations[:_TOKENIZER_TEXTS]:
            turns = "".join(f"assistant\n{turn}" for turn in one.turns)
            answers = "".join(f"user\n{response}\n" for response in one.responses)
            yield f"system\n{manifest.system_text()}user\n{one.question}{turns}{answers}"

    return train_tokenizer(texts(), vocab_size)


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
