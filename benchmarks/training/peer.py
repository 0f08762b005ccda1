"""A worker of the peer: TRL's own generation, and its update.

``peer FOLDER generation``: ``GRPOTrainer._generate_single_turn``, its path through ``transformers``
from lists of ids to lists of ids, on so many rows at once. It keeps no log-probs there; the update
computes them anew. ``min_new_tokens`` keeps rows from ending early and costs it 0.4 % of its time.

``peer FOLDER update ROWS``: a step of its training loop on given completions, so many rows at a
time. What it is charged with is forward, backward, clipping and the optimizer's step; decoding,
rewards and advantages are not in it.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.training.inputs import GROUP, TOKENS, Inputs, prompts
from benchmarks.training.peer_trainer import OnRequest, make_trainer, versions
from benchmarks.training.workers import Channel, Stopwatch

QUESTIONS = ["one", "two", "three", "four"]
"""Prompts that name the groups; the ids come from the inputs."""


def generation(inputs: Inputs, channel: Channel, scratch: Path) -> None:
    """Answers with the times of one batch."""
    trainer = make_trainer(
        inputs.model,
        scratch,
        rollout=None,
        questions=QUESTIONS,
        micro_rows=GROUP * len(QUESTIONS),
        tokens=TOKENS,
        generation={"min_new_tokens": TOKENS},
        callbacks=[],
    )
    trainer.model.train()
    while (request := channel.receive()) is not None:
        given = prompts(request["rows"])
        watch = Stopwatch()
        made, _ = trainer._generate_single_turn(given, None, {}, GROUP)
        spent = watch.read()
        channel.reply({**spent, "tokens": sum(map(len, made)), "libraries": versions()})


def update(inputs: Inputs, channel: Channel, scratch: Path, micro_rows: int) -> None:
    """Answers with the times of one update."""
    rows = json.loads(inputs.trajectories.read_text())
    tokens = sum(len(prompt) + len(response) for prompt, response in rows)

    def given(_: list[Any], __: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [prompt for prompt, _ in rows],
            "completion_ids": [response for _, response in rows],
            "logprobs": None,
            "score": [float(number % 2 == 0) for number in range(len(rows))],
        }

    asked = OnRequest(channel, time.process_time, lambda: {"tokens": tokens, "rows": len(rows)})
    asked.trainer = make_trainer(
        inputs.model,
        scratch,
        rollout=given,
        questions=QUESTIONS,
        micro_rows=micro_rows,
        tokens=TOKENS,
        generation={},
        callbacks=[asked],
    )
    asked.trainer.train()


def main(folder: Path, work: str, *details: str) -> None:
    """Serves until the asker is done."""
    torch.set_num_threads(1)
    channel = Channel()
    with tempfile.TemporaryDirectory() as scratch:
        if work == "generation":
            generation(Inputs(folder), channel, Path(scratch))
        else:
            update(Inputs(folder), channel, Path(scratch), int(details[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
