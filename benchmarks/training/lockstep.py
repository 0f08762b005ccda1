"""TRL's generation as an engine, all open conversations in step, and the script they follow.

Each row must write what ours wrote, or the two would not do the same work. So sampling is real
(softmax and a draw from it), but a last logits processor has left one token to draw. Its CPU is
counted, so that it need not be charged.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from rstar2.rollout import SamplingParams, TokenOutput


class Script(LogitsProcessor):
    """Leaves one token of each row: the next of its turn, then the end token.

    Attributes:
        cpu: CPU seconds that this took.
    """

    def __init__(self, end_id: int) -> None:
        self.cpu = 0.0
        self._end_id = end_id

    def begin(self, turns: Sequence[Sequence[int]]) -> None:
        """Take the turns of the rows that are generated next."""
        start = time.process_time()
        longest = max(map(len, turns))
        padded = [[*turn, *[self._end_id] * (longest + 1 - len(turn))] for turn in turns]
        self._tokens = torch.tensor(padded).T.contiguous()
        self._at = 0
        self.cpu += time.process_time() - start

    def __call__(self, _input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask all other tokens in place."""
        start = time.process_time()
        tokens = self._tokens[min(self._at, len(self._tokens) - 1)][:, None]
        kept = scores.gather(1, tokens)
        scores.fill_(-torch.inf).scatter_(1, tokens, kept)
        self._at += 1
        self.cpu += time.process_time() - start
        return scores


class Lockstep:
    """TRL's generation as an engine: a batch runs when every open conversation waits for it."""

    def __init__(self, trainer: Any, script: Script, turns: dict[str, list[list[int]]]) -> None:
        self._trainer, self._script, self._turns = trainer, script, turns
        self._begun: dict[str, int] = {}
        self._waiting: dict[str, tuple[list[int], int, asyncio.Future[TokenOutput]]] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        """Join the next batch."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[TokenOutput] = loop.create_future()
        self._begun.setdefault(request_id, 0)
        self._waiting[request_id] = (list(prompt_ids), sampling_params["max_tokens"], reply)
        loop.call_soon(self._run_if_all_wait)
        return await reply

    async def end(self, request_id: str) -> None:
        """Leave."""
        del self._begun[request_id]
        asyncio.get_running_loop().call_soon(self._run_if_all_wait)

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < len(self._begun):
            return
        waiting, self._waiting = self._waiting, {}
        self._script.begin([self._turns[name][self._begun[name]] for name in waiting])
        rows = [prompt for prompt, _, _ in waiting.values()]
        made, _ = self._trainer._generate_single_turn(rows, None, {}, 1)
        for (name, (_, most, reply)), ids in zip(waiting.items(), made, strict=True):
            self._begun[name] += 1
            cut = tuple(ids[:most])
            reply.set_result(TokenOutput(cut, (0.0,) * len(cut)))
