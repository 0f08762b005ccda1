"""``rstar2 data sample``: samples of a policy on a pool, for the label check and for mining."""

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)

from rstar2.cli.policy import find_checkpoint, rollout_limits
from rstar2.cli.progress import progress_bar
from rstar2.errors import UserError
from rstar2.protocol.types import StopReason

if TYPE_CHECKING:
    from rstar2.problems import Problem
    from rstar2.training.checkpoint import Policy
    from rstar2.training.samples import SamplingSettings


class SampleError(UserError):
    """The policy cannot be sampled on this machine."""


def sample(
    pool: Annotated[Path, typer.Option(help="A build folder or its pool.parquet.")],
    out: Annotated[Path, typer.Option(help="The record of samples, JSON lines.")],
    samples: Annotated[
        int, typer.Option(min=1, help="Of each problem: 16 for a label check, 8 for mining.")
    ] = 8,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder of the policy; the committed one of grpo-roc if not given."),
    ] = None,
    preset: Annotated[str, typer.Option(help="Gives the texts and limits.")] = "laptop",
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling.")] = 0,
) -> None:
    """Let a policy solve each problem of a pool several times, and record every answer.

    An interrupted run goes on where it stopped. `rstar2 data keep` reads the record.
    """
    from rstar2.experiments.pool_files import read_pool
    from rstar2.experiments.presets import load_torch_preset
    from rstar2.training.checkpoint import load_policy
    from rstar2.training.label_check import pass_counts
    from rstar2.training.samples import SamplingSettings, read_samples

    problems = read_pool(pool)
    settings = load_torch_preset(preset)
    folder = find_checkpoint(checkpoint)
    policy = load_policy(folder, settings.texts)
    limits = rollout_limits(settings, policy, None)
    with (folder / "model.safetensors").open("rb") as weights:
        name = f"weights {hashlib.file_digest(weights, 'sha256').hexdigest()[:16]}, torch"
    asyncio.run(_sample(out, problems, SamplingSettings(name, samples, limits, seed), policy))
    record = read_samples(out)
    counts = pass_counts(record)
    too_long = {s.problem_id for s in record.samples if s.stop is StopReason.PROMPT_TOO_LONG}
    always = sum(0 < count.samples == count.correct for count in counts)
    never = sum(count.samples > 0 == count.correct for count in counts)
    typer.echo(
        f"{out}: {len(counts)} problems, {samples} samples each; "
        f"{always} solved every time, {never} never"
    )
    if too_long:
        typer.echo(
            f"{len(too_long)} problems were not tried: their prompts have more than "
            f"{limits.max_prompt_tokens} tokens"
        )


async def _sample(
    out: Path, problems: "list[Problem]", settings: "SamplingSettings", policy: "Policy"
) -> None:
    import torch

    from rstar2.rollout import TorchEngine
    from rstar2.sandbox import Sandbox, SandboxUnsupported
    from rstar2.training.samples import sample_problems

    torch.set_num_threads(1)
    engine = TorchEngine(policy.model, end_id=policy.template.end_id, seed=settings.seed)
    columns = (
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("problems"),
        TimeRemainingColumn(),
    )
    try:
        with progress_bar(*columns) as progress:
            task = progress.add_task("sampling", total=len(problems))
            async with Sandbox() as sandbox:
                await sample_problems(
                    out,
                    problems,
                    settings,
                    engine=engine,
                    sandbox=sandbox,
                    template=policy.template,
                    on_problems=lambda done, total: progress.update(
                        task, completed=done, total=total
                    ),
                )
    except SandboxUnsupported as error:
        raise SampleError(f"no program can run here: {error}") from error
