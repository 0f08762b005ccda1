"""The engine protocol: token in, token out. Its shape is that of verl's server client.

The agent loop knows only this. ``TorchEngine``, for one machine, is the only engine today;
the shape is chosen so that a vLLM server, or verl's own, can stand behind it later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict


class SamplingParams(TypedDict):
    """How to sample one turn.

    Keys:
        temperature: 0.0 means greedy.
        max_tokens: Most tokens to sample, ``<|im_end|>`` included.
    """

    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """The sampled tokens of one turn, the end token included when it was sampled.

    Attributes:
        token_ids: Sampled ids.
        log_probs: Their log-probabilities under the sampling distribution; under that of
            temperature 1 where sampling was greedy.
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]


class Engine(Protocol):
    """Samples turns of many conversations at once."""

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: SamplingParams
    ) -> TokenOutput:
        """Continues a conversation by one turn.

        Args:
            request_id: Names the conversation; later turns repeat it.
            prompt_ids: The whole conversation so far.
            sampling_params: How to sample.
        """
        ...

    async def end(self, request_id: str) -> None:
        """Says that the conversation gets no further turn.

        It must be called for every conversation: others wait for one that is open.
        """
        ...
