"""``TorchEngine``: continuous batching on one machine, the same run for the same seed.

1. Time is counted in logical steps: one token for every row. Every ``interval`` steps the
   batch is rearranged, and only then: rows that have ended leave, rows whose tool has answered
   go on, rows that queue join.
2. A row whose turn ended waits one to two intervals for its tool. When they are over the
   engine waits for the answer, however long it takes, and never takes it earlier. So the
   batches depend on token counts alone. Other rows are sampled while tools run. Outside this
   promise is what happens in real time: a conversation that begins while others are open
   (the fresh sample for one that the sandbox lost), or that is ended while it is sampled.
3. Random numbers are counted per (seed, request, position).
4. Rows that join together with the same prompt share its keys and values.
5. Tokens that are already known (tool responses) are fed at once, not one a step.
6. When no conversation is open, the next one begins an empty batch: rows that ended a
   moment ago and have not left yet would tell how fast their tools were.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.rollout.decode import DecodeModel
from rstar2.rollout.engine import SamplingParams, TokenOutput

_NUMBERS = 64
"""Random numbers that are drawn at once."""


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    WAITING = auto()
    """Its turn ended; the agent loop has not said what comes next."""
    CONTINUED = auto()
    ENDED = auto()
    FAILED = auto()
    """The engine stopped while it was open."""


@dataclass(eq=False, slots=True)
class _Row:
    request_id: str
    tokens: list[int]
    generator: np.random.Generator
    reply: "asyncio.Future[TokenOutput]"
    params: SamplingParams
    prompt: tuple[int, ...] = ()
    """Its first tokens, but for the last of them."""
    fed: int = 0
    """Tokens whose keys and values stand in the cache."""
    uniforms: list[float] = field(default_factory=list)
    turn_start: int = 0
    log_probs: list[float] = field(default_factory=list)
    state: _State = _State.QUEUED
    wake: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def ended_by(self, step: int) -> bool:
        """Whether it is to leave the batch."""
        return self.state is _State.ENDED and self.wake <= step

    def goes_on_by(self, step: int) -> bool:
        """Whether it has its tool's answer and has waited as long as it must."""
        return self.state is _State.CONTINUED and self.wake <= step

    def uniform(self) -> float:
        """The next random number: one a sampled token."""
        if not self.uniforms:
            self.uniforms = self.generator.random(_NUMBERS, dtype=np.float32)[::-1].tolist()
        return self.uniforms.pop()


class TorchEngine:
    """Samples with a ``Qwen3ForCausalLM`` on the CPU, in float32.

    Args:
        model: The policy; ``load`` takes its weights again after an update.
        end_id: Id of ``<|im_end|>``.
        seed: Seed of all sampling.
        max_rows: Most conversations in the batch; the others queue.
        interval: Logical steps between two rearrangements of the batch.
    """

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        *,
        end_id: int,
        seed: int,
        max_rows: int = 256,
        interval: int = 4,
    ) -> None:
        self._end_id = end_id
        self._seed = seed
        self._max_rows = max_rows
        self._interval = interval
        self._queue: deque[_Row] = deque()
        self._batch: list[_Row] = []
        self._sessions: dict[str, _Row] = {}
        self._step = 0
        self._driver: asyncio.Task[None] | None = None
        self.load(model)

    def load(self, model: Qwen3ForCausalLM) -> None:
        """Takes the weights of ``model``.

        Raises:
            RuntimeError: If conversations are open: their caches belong to old weights.
        """
        if self._sessions:
            raise RuntimeError(f"{len(self._sessions)} conversations are open; end them first")
        self._model = DecodeModel(model)
        self._empty_batch()

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        """Samples one turn; see ``Engine``.

        Raises:
            ValueError: If the prompt is empty, does not continue what the engine has seen, or
                would pass the model's last position; if ``max_tokens`` is less than 1, or the
                temperature below 0; if the turn before is still sampled.
            RuntimeError: If the engine stopped while the conversation was open.
        """
        _check(request_id, prompt_ids, sampling_params)
        longest = len(prompt_ids) + sampling_params["max_tokens"]
        if longest > self._model.max_positions:
            limit = self._model.max_positions
            raise ValueError(f"{request_id}: {longest} tokens, but the model has {limit} positions")
        reply: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        row = self._sessions.get(request_id)
        if row is None:
            if not self._sessions:
                self._empty_batch()
            generator = _generator(self._seed, request_id)
            row = _Row(request_id, list(prompt_ids), generator, reply, sampling_params)
            row.prompt, row.fed = tuple(prompt_ids[:-1]), len(prompt_ids) - 1
            self._sessions[request_id] = row
            self._queue.append(row)
        else:
            known = len(row.tokens)
            if row.state is _State.FAILED:
                raise RuntimeError(f"{request_id}: the engine stopped; end the conversation")
            if row.state is not _State.WAITING:
                raise ValueError(f"{request_id}: its turn is still being sampled")
            if list(prompt_ids[:known]) != row.tokens:
                raise ValueError(f"{request_id}: the prompt does not continue the conversation")
            row.tokens.extend(prompt_ids[known:])
            row.reply, row.params, row.state = reply, sampling_params, _State.CONTINUED
            row.answered.set()
        row.turn_start = len(row.tokens)
        row.log_probs = []
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await reply

    async def end(self, request_id: str) -> None:
        """Forgets a conversation; its row leaves the batch at its logical step.

        Who still waits for a turn of it gets a ``RuntimeError``.
        """
        row = self._sessions.pop(request_id, None)
        if row is None:
            return
        row.state = _State.ENDED
        row.answered.set()
        if not row.reply.done():
            row.reply.set_exception(RuntimeError(f"{request_id}: ended while its turn was sampled"))

    def _empty_batch(self) -> None:
        """Drops what is left of conversations that have all ended."""
        self._queue.clear()
        self._batch = []
        self._cache = self._model.new_cache()

    async def _drive(self) -> None:
        try:
            await asyncio.sleep(0)
            while self._queue or self._batch:
                if self._step % self._interval == 0:
                    await self._rearrange()
                if any(row.state is _State.RUNNING for row in self._batch):
                    self._advance()
                    self._step += 1
                else:
                    self._step += self._interval - self._step % self._interval
                await asyncio.sleep(0)
        except BaseException as error:
            waiting = [row for row in self._sessions.values() if not row.reply.done()]
            for row in waiting:
                stopped = RuntimeError(f"the engine stopped: {error!r}")
                stopped.__cause__ = error
                row.reply.set_exception(stopped)
            for row in self._sessions.values():
                row.state = _State.FAILED
            self._empty_batch()
            if not isinstance(error, Exception):  # the loop ends, and with it all conversations
                self._sessions = {}
                raise
            if not waiting:
                raise

    async def _rearrange(self) -> None:
        """Ended rows leave, waiting ones go on, queued ones join."""
        due = [row for row in self._batch if row.wake <= self._step]
        for row in due:
            if row.state is _State.WAITING:
                await row.answered.wait()
            row.answered.clear()
        over = [i for i, row in enumerate(self._batch) if row.ended_by(self._step)]
        if over:
            self._batch = [self._batch[i] for i in self._cache.remove(over)]
        self._go_on([i for i, row in enumerate(self._batch) if row.goes_on_by(self._step)])
        self._admit()

    def _go_on(self, numbers: list[int]) -> None:
        """Rows run again; what their tools said is fed, but for the last token."""
        for i in numbers:
            self._batch[i].state = _State.RUNNING
        rows = [i for i in numbers if self._batch[i].fed + 1 < len(self._batch[i].tokens)]
        if not rows:
            return
        known = [self._batch[i].tokens[self._batch[i].fed : -1] for i in rows]
        starts = torch.tensor([self._batch[i].fed for i in rows])
        for i in rows:
            self._batch[i].fed = len(self._batch[i].tokens) - 1
        self._reserve()
        ids, counts = _padded(known)
        self._model.extend(torch.tensor(rows), ids, counts, starts, self._cache)

    def _admit(self) -> None:
        """Rows from the queue join the batch with one prefill per distinct prompt."""
        self._queue = deque(row for row in self._queue if row.state is _State.QUEUED)
        room = self._max_rows - len(self._batch)
        new = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        if not new:
            return
        number = {prompt: n for n, prompt in enumerate(dict.fromkeys(row.prompt for row in new))}
        ids, lengths = _padded(list(number))
        prompt_of = torch.tensor([number[row.prompt] for row in new])
        self._cache.append(*self._model.prefill(ids), lengths, prompt_of)
        for row in new:
            row.state = _State.RUNNING
        self._batch.extend(new)

    def _reserve(self) -> None:
        self._cache.reserve(1 + max(row.fed - len(row.prompt) for row in self._batch))

    def _advance(self) -> None:
        """One logical step: every row is fed one token, those that run sample the next."""
        batch = self._batch
        tokens = torch.tensor([row.tokens[row.fed] for row in batch])
        positions = torch.tensor([row.fed for row in batch])
        self._reserve()
        logits = self._model.step(tokens, positions, self._cache)
        running = [i for i, row in enumerate(batch) if row.state is _State.RUNNING]
        if len(running) < len(batch):
            logits = logits[running]
        rows = [batch[i] for i in running]
        for row, token, log_prob in zip(rows, *_sample(logits, rows), strict=True):
            row.fed += 1
            row.tokens.append(token)
            row.log_probs.append(log_prob)
            if token == self._end_id or len(row.log_probs) >= row.params["max_tokens"]:
                self._finish_turn(row)

    def _finish_turn(self, row: _Row) -> None:
        row.wake = (self._step // self._interval + 2) * self._interval
        row.state = _State.WAITING
        if not row.reply.done():
            ids = tuple(row.tokens[row.turn_start :])
            row.reply.set_result(TokenOutput(ids, tuple(row.log_probs)))


def _check(request_id: str, prompt_ids: Sequence[int], params: SamplingParams) -> None:
    if not prompt_ids:
        raise ValueError(f"{request_id}: the prompt is empty")
    if params["max_tokens"] < 1:
        raise ValueError(
            f"{request_id}: max_tokens is {params['max_tokens']}: it must be 1 or more"
        )
    if not params["temperature"] >= 0:
        raise ValueError(
            f"{request_id}: temperature is {params['temperature']}: it must be 0 or more"
        )


def _generator(seed: int, request_id: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{seed}\0{request_id}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids ``[rows, longest]``, right-padded with zeros, and the length of each row."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    return ids, lengths


def _sample(logits: Tensor, rows: list[_Row]) -> tuple[list[int], list[float]]:
    """Inverse-CDF sampling at each row's temperature, greedy where it is 0."""
    temperature = torch.tensor([row.params["temperature"] for row in rows])
    greedy = temperature == 0
    scaled = logits / torch.where(greedy, 1.0, temperature)[:, None]
    largest = scaled.amax(dim=-1, keepdim=True)
    cumulative = torch.sub(scaled, largest).exp_().cumsum(dim=-1)
    total = cumulative[:, -1:]
    uniform = torch.tensor([row.uniform() for row in rows])
    chosen = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    if greedy.any():
        chosen = torch.where(greedy[:, None], scaled.argmax(dim=-1, keepdim=True), chosen)
    log_probs = scaled.gather(1, chosen) - largest - total.log()
    return chosen[:, 0].tolist(), log_probs[:, 0].tolist()
