"""Sections that only presets of verl have: a model by name, a pool, an engine, benchmarks."""

from typing import Literal

from pydantic import Field

from rstar2.training.spec import Spec


class PretrainedSpec(Spec):
    """The base model.

    Attributes:
        path: Its name on the Hugging Face Hub, or a folder.
        dtype: In which the forward pass computes; AdamW keeps 32-bit weights.
    """

    path: str = Field(min_length=1)
    dtype: Literal["bfloat16", "float32"]


class DataSpec(Spec):
    """The problems of RL.

    Attributes:
        pool: Folder of the pool, as ``rstar2 data build`` and ``rstar2 data keep`` write it.
        problems: How many of its problems are used.
        sources: Sets that it is built from, as ``rstar2 data sources`` names them.
        against: Benchmarks that it must hold no problem of.
    """

    pool: str = Field(min_length=1)
    problems: int = Field(gt=0)
    sources: tuple[str, ...] = Field(min_length=1)
    against: tuple[str, ...] = Field(min_length=1)


class ColdStartSpec(Spec):
    """The non-reasoning SFT (paper, section 4.1).

    Attributes:
        mix: The conversations, as ``rstar2 data sft-mix`` writes them.
        epochs: How often each is seen.
        learning_rate: Peak rate of AdamW.
        warmup_share: Share of the steps with linear warm-up.
        schedule: What the rate does after it, down to zero.
        batch_size: Conversations per step.
        max_tokens: Longer conversations are left out of the mix.
        adam_betas: Of AdamW.
        weight_decay: Of AdamW.
        grad_clip: Largest norm of the gradient.
        micro_batch_tokens: Most tokens of one forward pass on one GPU.
        checkpoint_every: Steps between checkpoints.
    """

    mix: str = Field(min_length=1)
    epochs: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    warmup_share: float = Field(ge=0, le=1)
    schedule: Literal["cosine", "linear", "constant"]
    batch_size: int = Field(gt=0)
    max_tokens: int = Field(gt=0)
    adam_betas: tuple[float, float]
    weight_decay: float = Field(ge=0)
    grad_clip: float = Field(gt=0)
    micro_batch_tokens: int = Field(gt=0)
    checkpoint_every: int = Field(gt=0)


class EngineSpec(Spec):
    """The inference servers that sample rollouts on the trainer's own GPUs.

    Attributes:
        name: Which server.
        gpu_memory_utilization: Share of a GPU's memory for weights and KV cache.
        kv_tokens: Tokens that the KV cache of one server holds then; the router fills it.
        tensor_parallel: GPUs of one server.
        max_model_len: Most tokens of prompt and response; not above the model's positions.
        top_p: Nucleus of the sampling; 1 for the whole distribution.
        offload: Whether weights and optimizer states of the trainer rest in main memory
            while rollouts are sampled.
    """

    name: Literal["vllm"]
    gpu_memory_utilization: float = Field(gt=0, lt=1)
    kv_tokens: int = Field(gt=0)
    tensor_parallel: int = Field(gt=0)
    max_model_len: int = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    offload: bool


class BenchmarkSpec(Spec):
    """How a checkpoint is measured on benchmarks.

    Attributes:
        benchmarks: Their names.
        samples: Rollouts a problem.
        temperature: Sampling temperature.
        max_response_tokens: Response budget, tool tokens counted.
        max_turns: The paper's T.
    """

    benchmarks: tuple[str, ...] = Field(min_length=1)
    samples: int = Field(gt=0)
    temperature: float = Field(ge=0)
    max_response_tokens: int = Field(gt=0)
    max_turns: int = Field(gt=0)
