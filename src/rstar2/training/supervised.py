"""Training on fixed examples: ``pretrain`` and ``sft`` both run this loop.

Muon moves the matrices of the layers, AdamW the embeddings and norms; both rates warm
up and decay linearly to zero. Batches of like length come first and purely random ones
last: with like lengths alone the share of short, tool-free answers is never learnt.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.training.spec import SupervisedSpec
from rstar2.training.traces import Example

_BUCKET = 20


def train_supervised(
    model: Qwen3ForCausalLM,
    examples: Sequence[Example],
    spec: SupervisedSpec,
    *,
    seed: int,
    on_step: Callable[[int, int, float], None],
) -> None:
    """Trains in place, each example once.

    Args:
        model: The model.
        examples: The examples; what does not fill a last batch is left out.
        spec: Settings.
        seed: Seed of the order.
        on_step: Called after every step with the step (from 1), the number of steps
            and the mean loss per counted token in nats.
    """
    batches = list(_batches(examples, spec, random.Random(seed)))
    matrices, others = _split_parameters(model)
    muon = torch.optim.Muon(matrices, lr=spec.matrix_lr, momentum=0.95, weight_decay=0.0)
    adamw = torch.optim.AdamW(others, lr=spec.other_lr, betas=(0.9, 0.95), weight_decay=0.0)
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [
        (muon, spec.matrix_lr),
        (adamw, spec.other_lr),
    ]
    for step, batch in enumerate(batches):
        warm = min(1.0, (step + 1) / max(1, spec.warmup_steps))
        scale = warm * (1.0 - step / len(batches))
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
        loss = next_token_loss(model, batch)
        loss.backward()
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        on_step(step + 1, len(batches), loss.item())


def next_token_loss(model: Qwen3ForCausalLM, batch: Sequence[Example]) -> Tensor:
    """Mean negative log-likelihood of the counted tokens of a batch, in nats."""
    length = max(len(example.ids) for example in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, example in enumerate(batch):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        mask[row, : len(example.mask)] = torch.tensor(example.mask, dtype=torch.bool)
    counted = mask[:, 1:]
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    return F.cross_entropy(model.lm_head(hidden[counted]), ids[:, 1:][counted])


def _split_parameters(
    model: Qwen3ForCausalLM,
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        is_matrix = weight.dim() == 2 and "embed" not in name
        (matrices if is_matrix else others).append(weight)
    return matrices, others


def _batches(
    examples: Sequence[Example], spec: SupervisedSpec, rng: random.Random
) -> Iterator[list[Example]]:
    order = list(examples)
    rng.shuffle(order)
    size = spec.batch_size
    steps = len(order) // size
    bucketed = round(steps * (1.0 - spec.random_batches)) * size
    batches = []
    for start in range(0, bucketed, size * _BUCKET):
        chunk = order[start : min(start + size * _BUCKET, bucketed)]
        chunk.sort(key=lambda example: len(example.ids))
        batches += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    rng.shuffle(batches)
    yield from batches
    for start in range(bucketed, steps * size, size):
        yield order[start : start + size]
