"""The replica ``torch_cpu``: transformers behind the contract of verl's rollout servers.

For tests (``cpu_platform.py``). A batch takes the requests that wait when it begins, and ends
with the last of them.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

_GATHER_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request.

    Attributes:
        prompt_ids: Context.
        max_tokens: Most tokens to sample.
        temperature: Above 0.
        stops: Tokens after which it ends.
        answer: Becomes ids and log-probs.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    stops: frozenset[int]
    answer: "asyncio.Future[tuple[list[int], list[float]]]"


@torch.no_grad()
def sample(
    model: PreTrainedModel, batch: Sequence[Wanted], generator: torch.Generator
) -> list[tuple[list[int], list[float]]]:
    """Continues a batch of contexts, padded on the left, with a KV cache.

    Returns:
        Ids of each, and their log-probs under the distribution that they were drawn from.
    """
    widest = max(len(one.prompt_ids) for one in batch)
    ids = torch.tensor([[0] * (widest - len(w.prompt_ids)) + [*w.prompt_ids] for w in batch])
    mask = torch.tensor(
        [[0] * (widest - len(w.prompt_ids)) + [1] * len(w.prompt_ids) for w in batch]
    )
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    temperatures = torch.tensor([[one.temperature] for one in batch])
    drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in batch]
    open_rows, cache = set(range(len(batch))), None
    while open_rows:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        log_probs = torch.log_softmax(output.logits[:, -1].float() / temperatures, -1)
        ids = torch.multinomial(log_probs.exp(), 1, generator=generator)
        for row in tuple(open_rows):
            token, (tokens, probs) = int(ids[row]), drawn[row]
            tokens.append(token)
            probs.append(float(log_probs[row, token]))
            if token in batch[row].stops or len(tokens) == batch[row].max_tokens:
                open_rows.remove(row)
        mask = torch.cat([mask, mask.new_ones(len(batch), 1)], 1)
        positions = positions[:, -1:] + 1
    return drawn


class TorchServer:
    """One model and its queue; becomes a Ray actor."""

    def __init__(self, path: str, seats: int, seed: int) -> None:
        """Loads a model in 32 bits.

        Args:
            path: Folder as ``transformers`` reads it.
            seats: Most requests of a batch.
            seed: Of the sampling.
        """
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._seats = seats
        self._generator = torch.Generator().manual_seed(seed)
        self._waiting: asyncio.Queue[Wanted] = asyncio.Queue()
        self._step: int | None = None
        self._worker: asyncio.Task[None] | None = None

    async def generate(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        **_: Any,
    ) -> TokenOutput:
        """Samples one turn.

        Raises:
            ValueError: If it is to sample from a part of the distribution.
        """
        if sampling_params.get("top_p", 1.0) != 1.0 or sampling_params.get("top_k", -1) > 0:
            raise ValueError(f"{request_id}: torch_cpu samples from the whole distribution only")
        self._worker = self._worker or asyncio.create_task(self._serve())
        answer: asyncio.Future[tuple[list[int], list[float]]] = (
            asyncio.get_running_loop().create_future()
        )
        wanted = Wanted(
            tuple(prompt_ids),
            sampling_params["max_tokens"],
            sampling_params["temperature"],
            frozenset(sampling_params["stop_token_ids"]),
            answer,
        )
        self._waiting.put_nowait(wanted)
        ids, log_probs = await answer
        return TokenOutput(
            token_ids=ids,
            log_probs=log_probs,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self._step},
        )

    async def load(self, weights: Mapping[str, Tensor], step: int | None) -> None:
        """Takes the weights of a step; verl asks for it while nothing is sampled."""
        self._model.load_state_dict(weights, strict=False)
        self._model.tie_weights()
        self._step = step

    async def wake_up(self, tags: Sequence[str] = ()) -> None:
        """It never sleeps."""

    async def sleep(self) -> None:
        """Nothing is freed."""

    async def clear_kv_cache(self) -> None:
        """A cache lives as long as its batch."""

    async def release_kv_cache(self) -> None:
        """As above."""

    async def resume_kv_cache(self) -> None:
        """As above."""

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Nothing is aborted in mode ``sync``."""

    async def resume_generation(self) -> None:
        """As above."""

    async def _serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(_GATHER_SECONDS)
            while len(batch) < self._seats and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                drawn = await asyncio.to_thread(sample, self._model, batch, self._generator)
            except Exception as error:
                for one in batch:
                    one.answer.set_exception(error)
                continue
            for one, answer in zip(batch, drawn, strict=True):
                one.answer.set_result(answer)


class TorchReplica(RolloutReplica):
    """One ``TorchServer`` for each rank of the trainer."""

    async def launch_servers(self) -> None:
        """Starts the actor, whose name the trainer's side knows."""
        server = (
            ray.remote(TorchServer)
            .options(name=_name(self.replica_rank), num_cpus=1, max_concurrency=1000)
            .remote(
                self.model_config.path,
                self.config.max_num_seqs,
                self.config.seed + self.replica_rank,
            )
        )
        await server.sleep.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = _name(self.replica_rank)


class TorchAdapter(BaseRollout):
    """The trainer's side: a rank sends its weights to its own server."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self._rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank

    async def resume(self, tags: Sequence[str]) -> None:
        """Nothing was freed."""

    async def release(self) -> None:
        """Nothing is freed."""

    async def update_weights(
        self, weights: Iterable[tuple[str, Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Sends a copy of all weights, as they are to be in step ``global_steps``."""
        copied = {name: weight.detach().float().clone() for name, weight in weights}
        server = ray.get_actor(_name(self._rank))
        await server.load.remote(copied, global_steps)


def _name(rank: int) -> str:
    return f"torch_cpu_{rank}"
