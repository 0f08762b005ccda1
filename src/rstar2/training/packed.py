"""Log-probs of many sequences in one row without padding, by ``Qwen3ForCausalLM`` itself.

A row is a list of pieces. Sequences with the same prompt share its piece: its tokens go
through the layers once, and each continuation attends to the prompt and to itself. Only
the positions whose next token is counted reach ``lm_head``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, Qwen3ForCausalLM

from rstar2.training.examples import Example

_ATTENTION = "rstar2_packed"


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids and, for each, whether its log-prob is wanted.

    Attributes:
        ids: The ids.
        mask: 1 for a counted token. The first token follows nothing and never counts.
        prompt_length: Leading tokens that are computed once for all sequences of a
            row that begin with the same ones.
    """

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    prompt_length: int = 0

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.mask):
            raise ValueError(f"{len(self.ids)} ids, {len(self.mask)} places in the mask")
        if not 0 <= self.prompt_length <= len(self.ids):
            raise ValueError(f"a prompt of {self.prompt_length} among {len(self.ids)} ids")

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids that can be shared."""
        return self.ids[: self.prompt_length]

    @property
    def counted(self) -> list[int]:
        """Places of the counted tokens."""
        return [place for place in range(1, len(self.ids)) if self.mask[place]]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """How a packed row is attended.

    Attributes:
        lengths: Tokens of each piece.
        prompts: For each piece the number of the piece before it in its sequence.
        bias: 0 where a query may look and -inf elsewhere, for the longest continuation
            (rows) after the longest prompt (columns left of ``bias.shape[1] - rows``).
    """

    lengths: list[int]
    prompts: list[int | None]
    bias: Tensor


def token_log_probs(
    model: Qwen3ForCausalLM, sequences: Sequence[TokenSequence], temperature: float
) -> Tensor:
    """Log-probs of the counted tokens, with gradient.

    Args:
        model: The model; its attention setting is the same afterwards.
        sequences: Sequences of any lengths.
        temperature: What the logits are divided by.

    Returns:
        ``[counted tokens]``: sequence after sequence, each in order; empty and without
        a gradient if no token counts.
    """
    row = _Row()
    for sequence in sequences:
        row.add(sequence)
    if not row.targets:
        return torch.zeros(0, dtype=model.dtype)
    with _packed_attention(model):
        hidden = model.model(
            input_ids=torch.tensor([row.ids]),
            position_ids=torch.tensor([row.positions]),
            use_cache=False,
            pieces=row.pieces(model.dtype),
        ).last_hidden_state[0]
    wanted = hidden.index_select(0, torch.tensor(row.sources)) / temperature
    targets = torch.tensor(row.targets)
    return -F.cross_entropy(model.lm_head(wanted), targets, reduction="none")


def next_token_loss(model: Qwen3ForCausalLM, batch: Sequence[Example]) -> Tensor:
    """Mean negative log-likelihood of the counted tokens of a batch, in nats.

    Raises:
        ValueError: If no token counts.
    """
    log_probs = token_log_probs(model, [TokenSequence(one.ids, one.mask) for one in batch], 1.0)
    if not len(log_probs):
        raise ValueError(f"no counted token in a batch of {len(batch)} examples")
    return -log_probs.mean()


def micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> Iterator[slice]:
    """Cuts sequences, in their order, into packed rows of at most ``max_tokens``.

    A sequence that is longer is a row of its own. Prompts are shared inside a row only,
    so sequences of one prompt belong side by side.
    """
    start, row = 0, _Row()
    for number, sequence in enumerate(sequences):
        if number > start and len(row.ids) + row.growth(sequence) > max_tokens:
            yield slice(start, number)
            start, row = number, _Row()
        row.add(sequence)
    if sequences:
        yield slice(start, len(sequences))


class _Row:
    """A packed row while it is filled."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.sources: list[int] = []
        self.targets: list[int] = []
        self._lengths: list[int] = []
        self._prompts: list[int | None] = []
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}

    def growth(self, sequence: TokenSequence) -> int:
        """Tokens that adding a sequence would add."""
        counted = sequence.counted
        if not counted:
            return 0
        prompt = sequence.prompt_length
        return max(0, counted[-1] - prompt) + (0 if sequence.prompt in self._known else prompt)

    def add(self, sequence: TokenSequence) -> None:
        """Adds a sequence as far as its last counted token needs it."""
        counted = sequence.counted
        if not counted:
            return
        prompt = sequence.prompt
        length, piece, prompt_start = len(prompt), None, 0
        if prompt:
            if prompt not in self._known:
                self._known[prompt] = self._append(prompt, 0, None)
            piece, prompt_start = self._known[prompt]
        _, start = self._append(sequence.ids[length : counted[-1]], length, piece)
        for place in counted:
            before = place - 1
            self.sources.append(
                prompt_start + before if before < length else start + before - length
            )
            self.targets.append(sequence.ids[place])

    def _append(self, ids: tuple[int, ...], position: int, prompt: int | None) -> tuple[int, int]:
        """Adds a piece; returns its number and where it starts."""
        start = len(self.ids)
        if ids:
            self.ids += ids
            self.positions += range(position, position + len(ids))
            self._lengths.append(len(ids))
            self._prompts.append(prompt)
        return len(self._lengths) - 1, start

    def pieces(self, dtype: torch.dtype) -> _Pieces:
        """The pieces, with a bias that fits each of them."""
        pairs = list(zip(self._lengths, self._prompts, strict=True))
        longest = max((length for length, prompt in pairs if prompt is not None), default=0)
        before = max((self._lengths[p] for _, p in pairs if p is not None), default=0)
        hidden = torch.ones(longest, before + longest, dtype=torch.bool).triu(before + 1)
        bias = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, float("-inf"))
        return _Pieces(self._lengths, self._prompts, bias)


@contextmanager
def _packed_attention(model: Qwen3ForCausalLM) -> Iterator[None]:
    """Lets the model attend inside the pieces, for the duration of a forward pass."""
    usual = model.config._attn_implementation
    model.set_attn_implementation(_ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _attend(
    _layer: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    scaling: float,
    dropout: float,
    pieces: _Pieces,
    **_: object,
) -> tuple[Tensor, None]:
    """The library's SDPA, piece by piece.

    Args:
        _layer: The attention layer.
        query: ``[1, heads, tokens, head_dim]``.
        key: ``[1, kv_heads, tokens, head_dim]``.
        value: As ``key``.
        _mask: None, since no mask is registered under our name.
        scaling: What the scores are multiplied by.
        dropout: Share of the attention weights that is dropped.
        pieces: The pieces of the row.

    Returns:
        ``[1, tokens, heads, head_dim]`` and None for the weights.
    """
    # One split and one concatenation: the gradient of a slice is as large as the row.
    keys, values = key.split(pieces.lengths, 2), value.split(pieces.lengths, 2)
    attended = []
    for number, own in enumerate(query.split(pieces.lengths, 2)):
        seen, carried, prompt, bias = keys[number], values[number], pieces.prompts[number], None
        if prompt is not None:
            length, own_start = own.shape[2], pieces.bias.shape[1] - pieces.bias.shape[0]
            bias = pieces.bias[:length, own_start - keys[prompt].shape[2] : own_start + length]
            seen = torch.cat((keys[prompt], seen), 2)
            carried = torch.cat((values[prompt], carried), 2)
        attended.append(
            F.scaled_dot_product_attention(
                own,
                seen,
                carried,
                attn_mask=bias,
                dropout_p=dropout,
                is_causal=bias is None,
                scale=scaling,
                enable_gqa=True,
            ).transpose(1, 2)
        )
    return torch.cat(attended, 1), None


AttentionInterface.register(_ATTENTION, _attend)
