"""``TorchEngine``: continuous batching on one machine, the same run for the same seed.

1. Rows join and leave at *logical* steps. A row whose turn ended waits a fixed number
   of steps for its tool; at that step the engine waits for the answer, however long it
   takes, and never takes it earlier. So the batches depend on token counts alone.
2. Random numbers are counted per (seed, request, position).
3. Tokens that are already known (tool responses) are fed through the batch one a step.
4. Rows with the same prompt share one prefill.
5. When no conversation is open, the next one begins an empty batch: rows that ended a
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

_REPACK_BELOW = 0.7


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    WAITING = auto()
    """Its turn ended; the agent loop has not said what comes next."""
    CONTINUED = auto()
    ENDED = auto()


@dataclass(eq=False, slots=True)
class _Row:
    request_id: str
    tokens: list[int]
    uniforms: np.random.Generator
    reply: "asyncio.Future[TokenOutput]"
    params: SamplingParams
    fed: int = 0
    turn_start: int = 0
    log_probs: list[float] = field(default_factory=list)
    state: _State = _State.QUEUED
    wake: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def samples_next(self) -> bool:
        return self.state is _State.RUNNING and self.fed + 1 == len(self.tokens)


class TorchEngine:
    """Samples with a ``Qwen3ForCausalLM`` on the CPU, in float32.

    Args:
        model: The policy; ``load`` takes its weights again after an update.
        end_id: Id of ``<|im_end|>``.
        seed: Seed of all sampling.
        max_rows: Most conversations in the batch; the others queue.
        tool_steps: Logical steps for which a row waits for its tool.
    """

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        *,
        end_id: int,
        seed: int,
        max_rows: int = 256,
        tool_steps: int = 8,
    ) -> None:
        self._end_id = end_id
        self._seed = seed
        self._max_rows = max_rows
        self._tool_steps = tool_steps
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
            ValueError: If the conversation does not continue what the engine has seen,
                or would pass the model's last position.
        """
        longest = len(prompt_ids) + sampling_params["max_tokens"]
        if longest > self._model.max_positions:
            limit = self._model.max_positions
            raise ValueError(f"{request_id}: {longest} tokens, but the model has {limit} positions")
        reply: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        row = self._sessions.get(request_id)
        if row is None:
            if not self._sessions:
                self._empty_batch()
            rng = _uniforms(self._seed, request_id)
            row = _Row(request_id, list(prompt_ids), rng, reply, sampling_params)
            row.fed = len(prompt_ids) - 1
            self._sessions[request_id] = row
            self._queue.append(row)
        else:
            known = len(row.tokens)
            if list(prompt_ids[:known]) != row.tokens or row.state is not _State.WAITING:
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
                await self._settle()
                self._admit()
                if any(row.state is _State.RUNNING for row in self._batch):
                    self._advance()
                    self._step += 1
                elif self._batch:
                    self._step = min(row.wake for row in self._batch if row.wake > self._step)
                await asyncio.sleep(0)
        except BaseException as error:
            for row in self._sessions.values():
                if not row.reply.done():
                    stopped = RuntimeError(f"the engine stopped: {error!r}")
                    stopped.__cause__ = error
                    row.reply.set_exception(stopped)
            self._sessions = {}
            self._empty_batch()
            raise

    async def _settle(self) -> None:
        """Rows whose waiting time is over go on or leave; others keep waiting."""
        for row in self._batch:
            if row.wake > self._step:
                continue
            if row.state is _State.WAITING:
                await row.answered.wait()
            row.answered.clear()
            if row.state is _State.CONTINUED:
                row.state = _State.RUNNING
        alive = [
            i
            for i, row in enumerate(self._batch)
            if row.state is not _State.ENDED or row.wake > self._step
        ]
        if len(alive) <= _REPACK_BELOW * len(self._batch) or not alive:
            self._cache.keep(alive)
            self._batch = [self._batch[i] for i in alive]
        if not self._batch:
            self._cache = self._model.new_cache()

    def _admit(self) -> None:
        """Rows from the queue join the batch with one prefill per distinct prompt."""
        self._queue = deque(row for row in self._queue if row.state is _State.QUEUED)
        room = self._max_rows - len(self._batch)
        new = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        if not new:
            return
        prompts = list(dict.fromkeys(tuple(row.tokens) for row in new))
        length = max(map(len, prompts))
        ids = torch.zeros(len(prompts), length, dtype=torch.long)
        for number, prompt in enumerate(prompts):
            ids[number, : len(prompt)] = torch.tensor(prompt)
        keys, values = self._model.prefill(ids)
        place = {prompt: number for number, prompt in enumerate(prompts)}
        source = torch.tensor([place[tuple(row.tokens)] for row in new])
        self._cache.append([k[source] for k in keys], [v[source] for v in values])
        for row in new:
            row.state = _State.RUNNING
        self._batch.extend(new)

    def _advance(self) -> None:
        """One logical step: every running row is fed one token; some sample the next."""
        batch = self._batch
        tokens = torch.tensor([row.tokens[row.fed] for row in batch])
        positions = torch.tensor([row.fed for row in batch])
        self._cache.reserve(int(positions.max()) + 1)
        logits = self._model.step(tokens, positions, self._cache)
        sampling = [i for i, row in enumerate(batch) if row.samples_next]
        for row in batch:
            if row.state is _State.RUNNING and not row.samples_next:
                row.fed += 1
        if not sampling:
            return
        rows = [batch[i] for i in sampling]
        chosen, log_probs = _sample(logits[sampling], rows)
        for row, token, log_prob in zip(rows, chosen, log_probs, strict=True):
            row.fed += 1
            row.tokens.append(token)
            row.log_probs.append(log_prob)
            if token == self._end_id or len(row.log_probs) >= row.params["max_tokens"]:
                self._finish_turn(row)

    def _finish_turn(self, row: _Row) -> None:
        row.wake = self._step + self._tool_steps
        row.state = _State.WAITING
        if not row.reply.done():
            ids = tuple(row.tokens[row.turn_start :])
            row.reply.set_result(TokenOutput(ids, tuple(row.log_probs)))


def _uniforms(seed: int, request_id: str) -> np.random.Generator:
    digest = hashlib.blake2b(f"{seed}\0{request_id}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def _sample(logits: Tensor, rows: list[_Row]) -> tuple[list[int], list[float]]:
    """Inverse-CDF sampling at each row's temperature, greedy where it is 0."""
    temperature = torch.tensor([row.params["temperature"] for row in rows])
    greedy = temperature == 0
    scaled = logits / torch.where(greedy, 1.0, temperature)[:, None]
    log_probs = torch.log_softmax(scaled, dim=-1)
    cumulative = log_probs.exp().cumsum(dim=-1)
    uniform = torch.tensor([row.uniforms.random(dtype=np.float32) for row in rows])
    target = uniform[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, target, right=True)[:, 0]
    drawn = drawn.clamp_max(logits.shape[-1] - 1)
    chosen = torch.where(greedy, logits.argmax(dim=-1), drawn)
    picked = log_probs.gather(1, chosen[:, None])[:, 0]
    return chosen.tolist(), picked.tolist()
