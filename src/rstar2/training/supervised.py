"""Training on fixed examples: ``pretrain`` and ``sft`` both run this loop.

Muon moves the matrices of the layers, AdamW the embeddings and norms; both rates warm
up and decay linearly to zero. Batches of like length come first and purely random ones
last: with like lengths alone the share of short, tool-free answers is never learnt.

The order of the batches is a function of the seed alone, so a run that was killed goes on
from its last checkpoint as if nothing had happened.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import Qwen3ForCausalLM

from rstar2.errors import UserError
from rstar2.protocol import Manifest
from rstar2.records import RunFolder, Session
from rstar2.training.checkpoint import (
    CheckpointError,
    Policy,
    find_step,
    load_optimizers,
    load_policy,
    save_final,
    save_step,
)
from rstar2.training.examples import Example
from rstar2.training.packed import next_token_loss
from rstar2.training.spec import SupervisedSpec

_BUCKET = 20
_LAP = 10
"""Steps of a row in ``timing.jsonl``."""

Optimizers = tuple[torch.optim.Optimizer, torch.optim.Optimizer]
"""Muon over the matrices of the layers, AdamW over the rest."""


class NonFiniteLossError(UserError):
    """A loss or its gradient is infinite or not a number; the weights are as before it."""


@dataclass(frozen=True, slots=True)
class SupervisedPhase:
    """One pass over examples.

    Attributes:
        name: ``pretrain`` or ``sft``.
        examples: What is learnt from.
        spec: Settings.
    """

    name: str
    examples: Sequence[Example]
    spec: SupervisedSpec

    @property
    def steps(self) -> int:
        """Its batches."""
        return len(self.examples) // self.spec.batch_size


def train_phases(
    phases: Sequence[SupervisedPhase],
    folder: RunFolder,
    manifest: Manifest,
    *,
    seed: int,
    session: Session,
    on_step: Callable[[str, int, int, float], None],
) -> Policy:
    """Trains through all phases, from the last checkpoint of the run on.

    What was logged after that checkpoint is made again.

    Args:
        phases: In order; each begins with fresh optimizers.
        folder: Holds a checkpoint, at first that of step 0; gets metrics and checkpoints.
        manifest: That of the policy's template.
        seed: Seed of the order.
        session: Times it.
        on_step: Called after every step with the phase, its step (from 1), its number of
            steps and the loss.

    Returns:
        The trained policy; its weights stand in ``checkpoints/final`` too.

    Raises:
        CheckpointError: If the folder holds no checkpoint, or one that cannot be read.
        NonFiniteLossError: As ``train_supervised``.
        RunStoppedError: If the session is asked to stop; the last step has a checkpoint.
    """
    found = find_step(folder.checkpoints)
    if found is None:
        raise CheckpointError(f"{folder.checkpoints} holds no checkpoint: write that of step 0")
    done, latest = found
    policy = load_policy(latest, manifest)
    folder.metrics.truncate_after(done)
    before = 0
    for phase in phases:
        optimizers = new_optimizers(policy.model, phase.spec)
        if before < done < before + phase.steps:
            load_optimizers(latest, *optimizers)

        def log(
            step: int,
            total: int,
            loss: float,
            phase: SupervisedPhase = phase,
            before: int = before,
            optimizers: Optimizers = optimizers,
        ) -> None:
            folder.metrics.append({"step": before + step, "phase": phase.name, "loss": loss})
            if step == total or step % phase.spec.checkpoint_every == 0:
                save_step(policy, folder.checkpoints, before + step, *optimizers)
            if step == total or step % _LAP == 0:
                session.lap(phase.name, step=before + step)
            on_step(phase.name, step, total, loss)
            if session.asked_to_stop():
                save_step(policy, folder.checkpoints, before + step, *optimizers)
                session.stop_if_asked()

        if done < before + phase.steps:
            train_supervised(
                policy.model,
                phase.examples,
                phase.spec,
                seed=seed,
                optimizers=optimizers,
                done=max(0, done - before),
                on_step=log,
            )
        before += phase.steps
    save_final(policy, folder.checkpoints)
    return policy


def new_optimizers(model: Qwen3ForCausalLM, spec: SupervisedSpec) -> Optimizers:
    """Optimizers that have not moved yet."""
    matrices, others = _split_parameters(model)
    return (
        torch.optim.Muon(matrices, lr=spec.matrix_lr, momentum=0.95, weight_decay=0.0),
        torch.optim.AdamW(others, lr=spec.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    )


def train_supervised(
    model: Qwen3ForCausalLM,
    examples: Sequence[Example],
    spec: SupervisedSpec,
    *,
    seed: int,
    on_step: Callable[[int, int, float], None],
    optimizers: Optimizers | None = None,
    done: int = 0,
) -> None:
    """Trains in place, each example once.

    Args:
        model: The model.
        examples: The examples; what does not fill a last batch is left out.
        spec: Settings.
        seed: Seed of the order.
        on_step: Called after every step with the step (from 1), the number of steps
            and the mean loss per counted token in nats.
        optimizers: Of a run that goes on, as the last step left them; else fresh ones.
        done: Steps that the model has taken already.

    Raises:
        NonFiniteLossError: If a loss or the norm of its gradient is not finite.
    """
    muon, adamw = optimizers or new_optimizers(model, spec)
    batches = list(_batches(examples, spec, random.Random(seed)))
    for step, batch in enumerate(batches[done:], start=done):
        warm = min(1.0, (step + 1) / max(1, spec.warmup_steps))
        scale = warm * (1.0 - step / len(batches))
        _set_rate(muon, spec.matrix_lr * scale)
        _set_rate(adamw, spec.other_lr * scale)
        loss = next_token_loss(model, batch)
        loss.backward()
        _refuse_what_is_not_finite(model, loss.item(), f"step {step + 1} of {len(batches)}")
        for optimizer in (muon, adamw):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        on_step(step + 1, len(batches), loss.item())


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _refuse_what_is_not_finite(model: Qwen3ForCausalLM, loss: float, where: str) -> None:
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients).item()
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise NonFiniteLossError(
            f"{where} has loss {loss} and a gradient of norm {norm}: nothing was changed by it; "
            "set lower rates (matrix_lr, other_lr) in the preset"
        )


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
