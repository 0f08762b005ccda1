"""Keys and values of conversations: a prompt's once, each conversation's own after it.

The rows of a group begin with the same prompt. Its keys and values are stored once and read
once a step for all of its rows: one product of matrices instead of one a row. What a row adds
stands in the row's own strip, which begins behind the prompt, so that rows with prompts of
different lengths still fill the same columns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_GROWTH = 128


class KVCache:
    """Keys and values of all layers for the rows of a batch.

    A place is a position counted from behind the row's prompt.

    Attributes:
        prompt_keys: A layer's ``[prompts * kv_heads, head_dim, longest prompt]``.
        prompt_values: A layer's ``[prompts * kv_heads, longest prompt, head_dim]``.
        prompt_lengths: ``[prompts]`` tokens of each prompt.
        prompt_of: ``[rows]`` the prompt of each row.
        seats: Rows of the prompt that has the most. The grid has as many for every prompt, so
            it is cheap for groups of like size and dear for one large group among many rows.
        cell_of_unit: ``[rows * kv_heads]`` where a KV head of a row stands in the grid
            ``[prompts, kv_heads, seats]``.
        unit_of_cell: The reverse; an empty seat repeats the first row.
    """

    def __init__(self, num_layers: int, num_kv: int, head_dim: int) -> None:
        self._num_kv = num_kv
        self._head_dim = head_dim
        self.prompt_keys = [torch.zeros(0, head_dim, 0) for _ in range(num_layers)]
        self.prompt_values = [torch.zeros(0, 0, head_dim) for _ in range(num_layers)]
        self._own = [torch.zeros(2, 0, num_kv, 0, head_dim) for _ in range(num_layers)]
        self.prompt_lengths = torch.zeros(0, dtype=torch.long)
        self.prompt_of = torch.zeros(0, dtype=torch.long)
        self._seat()

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt."""
        return self.prompt_keys[0].shape[2]

    @property
    def capacity(self) -> int:
        """Places of a row."""
        return self._own[0].shape[3]

    def strips(self, layer: int, span: int) -> tuple[Tensor, Tensor]:
        """Own keys and values of all rows, ``[rows * kv_heads, span, head_dim]`` each."""
        units = len(self.prompt_of) * self._num_kv
        keys, values = self._own[layer].flatten(1, 2)
        return keys[:units, :span], values[:units, :span]

    def whole(self, layer: int, rows: Tensor, span: int) -> tuple[Tensor, Tensor]:
        """Keys and values of some rows, the prompt's first: ``[n, kv_heads, length, head_dim]``.

        ``length`` is ``longest_prompt + span``.
        """
        own = self._own[layer][:, rows, :, :span]
        prompts = self.prompt_of[rows]
        keys = self.prompt_keys[layer].transpose(1, 2).unflatten(0, (-1, self._num_kv))
        values = self.prompt_values[layer].unflatten(0, (-1, self._num_kv))
        return (
            torch.cat([keys[prompts], own[0]], dim=2),
            torch.cat([values[prompts], own[1]], dim=2),
        )

    def slots(self, rows: Tensor, places: Tensor) -> Tensor:
        """Where :meth:`write` puts the keys and values of tokens.

        Args:
            rows: ``[tokens]`` row of each.
            places: ``[tokens]`` place of each.

        Returns:
            ``[tokens * 2 * kv_heads]`` numbers of vectors in a layer.
        """
        strips = torch.arange(2)[:, None] * self._own[0].shape[1]
        units = (strips + rows[:, None, None]) * self._num_kv + torch.arange(self._num_kv)
        return (units * self.capacity + places[:, None, None]).flatten()

    def write(self, layer: int, slots: Tensor, added: Tensor) -> None:
        """Stores keys and values.

        Args:
            layer: The layer.
            slots: From :meth:`slots`.
            added: ``[tokens, 2 * kv_heads, head_dim]``: keys, then values.
        """
        vectors = self._own[layer].view(-1, self._head_dim)
        vectors.index_copy_(0, slots, added.reshape(-1, self._head_dim))

    def reserve(self, places: int) -> None:
        """Makes room for that many places, at least half as many again as before."""
        if places > self.capacity:
            wanted = max(places, self.capacity * 3 // 2)
            self._resize(self._own[0].shape[1], -(-wanted // _GROWTH) * _GROWTH)

    def append(
        self, keys: Sequence[Tensor], values: Sequence[Tensor], lengths: Tensor, prompt_of: Tensor
    ) -> None:
        """Adds prompts, and rows that begin with them.

        Args:
            keys: A layer's ``[prompts, kv_heads, length, head_dim]``, right-padded.
            values: Likewise.
            lengths: ``[prompts]`` tokens of each prompt.
            prompt_of: ``[rows]`` which of these prompts each new row begins with.
        """
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            key = key.flatten(0, 1).transpose(1, 2)
            self.prompt_keys[layer] = _stack(self.prompt_keys[layer], key)
            self.prompt_values[layer] = _stack(self.prompt_values[layer], value.flatten(0, 1))
        self.prompt_of = torch.cat([self.prompt_of, prompt_of + len(self.prompt_lengths)])
        self.prompt_lengths = torch.cat([self.prompt_lengths, lengths])
        self._resize(max(len(self.prompt_of), self._own[0].shape[1]), self.capacity)
        self._seat()

    def remove(self, rows: Sequence[int]) -> list[int]:
        """Removes rows, and prompts that no row is left of; the last rows fill the gaps.

        Returns:
            The former number of each row that is left, in its new order.
        """
        left = len(self.prompt_of) - len(rows)
        gaps = [row for row in sorted(rows) if row < left]
        movers = sorted(set(range(left, len(self.prompt_of))) - set(rows))
        order = list(range(left))
        for gap, mover in zip(gaps, movers, strict=True):
            order[gap] = mover
        if gaps:
            for own in self._own:
                own[:, gaps] = own[:, movers]
        used, self.prompt_of = torch.unique(
            self.prompt_of[torch.tensor(order, dtype=torch.long)], return_inverse=True
        )
        if len(used) < len(self.prompt_lengths):
            self._keep_prompts(used)
        self._seat()
        return order

    def _keep_prompts(self, prompts: Tensor) -> None:
        self.prompt_lengths = self.prompt_lengths[prompts]
        longest = max(1, *self.prompt_lengths.tolist()) if len(prompts) else 0
        heads = (prompts[:, None] * self._num_kv + torch.arange(self._num_kv)).flatten()
        self.prompt_keys = [block[heads, :, :longest] for block in self.prompt_keys]
        self.prompt_values = [block[heads, :longest] for block in self.prompt_values]

    def _resize(self, rows: int, places: int) -> None:
        """Room for more rows or places."""
        if (rows, places) == (self._own[0].shape[1], self.capacity):
            return
        for layer, own in enumerate(self._own):
            new = own.new_empty(2, rows, self._num_kv, places, self._head_dim)
            new[:, : own.shape[1], :, : own.shape[3]] = own
            # Zeros: what no row has written meets a weight of 0, and 0 times NaN would be NaN.
            new[:, : own.shape[1], :, own.shape[3] :] = 0.0
            new[:, own.shape[1] :] = 0.0
            self._own[layer] = new

    def _seat(self) -> None:
        """Gives every row a seat of its prompt."""
        prompts, rows = len(self.prompt_lengths), len(self.prompt_of)
        taken = torch.bincount(self.prompt_of, minlength=1)
        order = torch.argsort(self.prompt_of, stable=True)
        first = torch.cumsum(taken, 0) - taken
        seat = torch.empty(rows, dtype=torch.long)
        seat[order] = torch.arange(rows) - first[self.prompt_of[order]]
        self.seats = int(taken.max())
        heads = self.prompt_of[:, None] * self._num_kv + torch.arange(self._num_kv)
        self.cell_of_unit = (heads * self.seats + seat[:, None]).flatten()
        self.unit_of_cell = torch.zeros(prompts * self._num_kv * self.seats, dtype=torch.long)
        self.unit_of_cell[self.cell_of_unit] = torch.arange(rows * self._num_kv)


def _stack(block: Tensor, new: Tensor) -> Tensor:
    """The two, one behind the other, padded with zeros to one size."""
    sizes = [max(a, b) for a, b in zip(block.shape[1:], new.shape[1:], strict=True)]
    out = new.new_zeros(len(block) + len(new), *sizes)
    out[: len(block), : block.shape[1], : block.shape[2]] = block
    out[len(block) :, : new.shape[1], : new.shape[2]] = new
    return out
