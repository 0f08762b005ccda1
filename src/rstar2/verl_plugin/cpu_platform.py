"""verl on the CPU, for tests: its released trainer end to end where there is no GPU.

    VERL_PLATFORM=cpu VERL_USE_EXTERNAL_MODULES=rstar2.verl_plugin.cpu_platform python …

verl imports it in every process that has these variables, and no cluster sets them. What is
changed goes through verl's registries, all public: the platform, the FSDP engine for device
``cpu``, the replica ``torch_cpu`` (``cpu_server.py``) and verl's own vLLM server with another
reload of the weights (``cpu_vllm.py``). Two things have no such place:

1. ``verl.utils.distributed.initialize_global_process_group_ray`` is replaced. It names the backend
   ``cpu:gloo,<device>:<backend>``, which on this platform names ``cpu`` twice; torch refuses that.
2. The private dict ``verl.workers.rollout.base._ROLLOUT_REGISTRY`` gets an entry: the trainer's
   side of ``torch_cpu``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import verl.utils.distributed
from torch import Tensor
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry

from rstar2.errors import UserError

NAME = "cpu"
TORCH_REPLICA = "torch_cpu"
"""``rollout.name`` of the replica that samples with transformers."""


class CpuModule(ModuleType):
    """What verl asks of ``torch.cuda``; whatever is not here does nothing."""

    def __getattr__(self, name: str) -> Any:
        """A function that ignores what it is given, and returns None.

        Raises:
            AttributeError: For the names of Python itself.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    @staticmethod
    def is_available() -> bool:
        """There is no accelerator."""
        return False

    @staticmethod
    def get_device_name(*_: Any) -> str:
        """For people."""
        return "CPU"

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        """Free and total main memory, in bytes."""
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")

    @staticmethod
    def memory_allocated(*_: Any) -> int:
        """Nothing is allocated on a device."""
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

    @staticmethod
    def get_rng_state(*_: Any) -> Tensor:
        """Of the CPU's generator; a checkpoint holds it twice."""
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: Tensor, *_: Any) -> None:
        """Of the CPU's generator."""
        torch.set_rng_state(state)


class CpuPlatform(PlatformBase):
    """The platform ``cpu``; Ray is told of GPUs that there are not, for verl counts them."""

    device_name = NAME
    vendor_name = NAME
    device_module = CpuModule("cpu_device")

    def is_available(self) -> bool:
        """Always."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Only if it was asked for."""
        del use_smi_check
        return os.environ.get("VERL_PLATFORM") == NAME

    def current_device(self) -> str:
        """A word that ``Tensor.to`` takes, as it takes a number on a GPU."""
        return NAME

    def device_count(self) -> int:
        """One a process."""
        return 1

    def manual_seed(self, seed: int) -> None:
        """Seeds torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seeds torch."""
        torch.manual_seed(seed)

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """Has none."""
        del device_index
        return None, None

    def communication_backend_name(self) -> str:
        """Of torch.distributed."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Hides GPUs, if there are any."""
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        """By which Ray counts ranks."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """None."""
        return []

    def is_ipc_supported(self) -> bool:
        """Weights go through shared memory."""
        return False

    def set_device(self, device_index: int) -> None:
        """Nothing to select."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing is pending."""

    def set_allocator_settings(self, settings: str) -> None:
        """No allocator."""

    def empty_cache(self) -> None:
        """No cache."""

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """No profiler."""
        del msg
        yield

    def profiler_start(self) -> None:
        """No profiler."""

    def profiler_stop(self) -> None:
        """No profiler."""

    def cudart(self) -> None:
        """None."""


def init_gloo(timeout_second: float | None = None, backend: str | None = None) -> None:
    """In the place of verl's function: the process group of a rank, on gloo alone."""
    del backend
    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        "gloo",
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        timeout=None if timeout_second is None else timedelta(seconds=timeout_second),
        init_method=os.environ.get("DIST_INIT_METHOD"),
    )


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _torch_replica() -> type[Any]:
    from rstar2.verl_plugin.cpu_server import TorchReplica

    return TorchReplica


def _vllm_replica() -> type[Any]:
    from rstar2.verl_plugin.cpu_vllm import CpuVllmReplica

    return CpuVllmReplica


def _register() -> None:
    if os.environ.get("VERL_PLATFORM") != NAME:
        raise UserError(f"{__name__} is for tests: set VERL_PLATFORM=cpu, or do not load it")
    PlatformRegistry.register(platform=NAME)(CpuPlatform)
    verl.utils.distributed.initialize_global_process_group_ray = init_gloo
    base._ROLLOUT_REGISTRY[(TORCH_REPLICA, "async")] = "rstar2.verl_plugin.cpu_server.TorchAdapter"
    RolloutReplicaRegistry.register(TORCH_REPLICA, _torch_replica)
    RolloutReplicaRegistry.register("vllm", _vllm_replica)

    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=[NAME])(
        FSDPEngineWithLMHead
    )


_register()
