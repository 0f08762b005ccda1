"""verl's own vLLM server on the CPU build of vLLM: another way to take new weights.

For tests (``cpu_platform.py``). The CPU build packs the weights of a layer when it has loaded
them, the output layer's too. So new ones go through vLLM's ``reload_weights``, which packs again,
and not into the parameters in place. A model with tied embeddings has no output layer of its own
in what the trainer sends; without one vLLM would keep the packed copy of the old.
"""

from collections.abc import Mapping
from typing import Any

import ray
import torch
from torch import Tensor
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


def with_head(weights: Mapping[str, Tensor], *, tied: bool) -> dict[str, Tensor]:
    """Weights that name the output layer, also where it is the embedding.

    Args:
        weights: By name, as the trainer has them.
        tied: Whether the embeddings are tied.
    """
    head = {"lm_head.weight": weights["model.embed_tokens.weight"]} if tied else {}
    return {**weights, **head}


class ReloadingWorker(vLLMColocateWorkerExtension):
    """What vLLM's worker also can."""

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receives all weights, then reloads them."""
        del peft_config, base_sync_done
        received: dict[str, Tensor] = {}
        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(
            lambda bucket, _: received.update((name, one.clone()) for name, one in bucket)
        )
        config = self.model_runner.vllm_config.model_config.hf_config
        weights = with_head(received, tied=config.tie_word_embeddings)
        self.reload_weights(weights_iterator=iter(weights.items()))


class CpuVllmServer(vLLMHttpServer):
    """verl's server with our worker."""

    def _get_worker_extension_cls(self) -> str:
        return f"{ReloadingWorker.__module__}.{ReloadingWorker.__qualname__}"


class CpuVllmReplica(vLLMReplica):
    """verl's replica with our server."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.server_class = ray.remote(CpuVllmServer)
