"""One template, twice: as Jinja for tokenizers and SFT tools, as tokens for the loop.

The loop is token in, token out: the model's tokens are kept as they were sampled and
the environment's turns are encoded and appended. The separators are those of the
template, so the ids of a finished conversation equal the template's ids.

Text that the model did not write (question, tool output) is encoded with the names of
added tokens *split*: a program that prints ``<|im_end|>`` changes nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rstar2.protocol.manifest import (
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    TURN_CLOSE,
    TURN_OPEN,
    Manifest,
)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}"
    "{{ '<|im_start|>user' }}"
    "{%- endif -%}"
    "{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}"
    "{{ '<|im_end|>\n' }}"
    "{%- endif -%}"
    "{%- else -%}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\n<reason>' }}"
    "{%- endif -%}"
)
"""ChatML as Qwen writes it; consecutive tool messages share one user turn."""

_CUT_MARK = "\n[...]\n"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a conversation: the template's own, or foreign (question, tool output)."""

    text: str
    trusted: bool = True


class TokenTemplate:
    """Builds the ids of everything in a conversation that the model does not write.

    Args:
        tokenizer: A ``transformers`` fast tokenizer that has ``<|im_start|>`` and
            ``<|im_end|>`` as single tokens.
        manifest: The texts of the preset.

    Raises:
        ValueError: If the tokenizer lacks one of the two turn tokens.
    """

    def __init__(self, tokenizer: Any, manifest: Manifest) -> None:
        self.tokenizer = tokenizer
        self.manifest = manifest
        self._added: dict[str, int] = dict(tokenizer.get_added_vocab())
        for token in (TURN_OPEN, TURN_CLOSE):
            if token not in self._added:
                raise ValueError(f"the tokenizer has no single token {token}")
        names = sorted(self._added, key=len, reverse=True)
        self._names = re.compile("|".join(re.escape(name) for name in names))
        self.end_id = self._added[TURN_CLOSE]

    def encode(self, text: str) -> list[int]:
        """Ids of trusted text: names of added tokens become those tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """Ids of trusted and foreign texts joined.

        No added token arises from foreign text, nor across its borders. Where foreign
        text holds no such name, the ids are those of the joined string.
        """
        whole = "".join(part.text for part in parts)
        trusted = bytearray()
        for part in parts:
            trusted += bytes([part.trusted]) * len(part.text)
        ids: list[int] = []
        start = 0
        while match := self._names.search(whole, start):
            keep = all(trusted[match.start() : match.end()])
            end = match.end() if keep else match.start() + 1
            ids += self.encode(whole[start:end])
            start = end
        return ids + self.encode(whole[start:])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens shown."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def prompt_ids(self, question: str) -> list[int]:
        """Ids of the system and user turns and the primed start of the first answer."""
        manifest = self.manifest
        before, after = manifest.question.split("{question}")
        system = f"{TURN_OPEN}system\n{manifest.system_text()}{TURN_CLOSE}\n"
        opening = f"{system}{TURN_OPEN}user\n{before}"
        closing = f"{after}{TURN_CLOSE}\n{TURN_OPEN}assistant\n{manifest.prime}"
        return self.encode_parts([Part(opening), Part(question, False), Part(closing)])

    def tool_turn_ids(self, responses: Sequence[str], max_tool_tokens: int) -> list[int]:
        """Ids between the end of a model turn and its next first token.

        Args:
            responses: The texts of the turn's calls, in order.
            max_tool_tokens: Limit of each text, in tokens; head and tail are kept.

        Returns:
            Separator after ``<|im_end|>``, one user turn with all responses, and the
            primed start of the next assistant turn.
        """
        parts = [Part(f"\n{TURN_OPEN}user")]
        for response in responses:
            parts.append(Part(f"\n{RESPONSE_OPEN}\n"))
            parts.append(Part(self.cut(response, max_tool_tokens), trusted=False))
            parts.append(Part(f"\n{RESPONSE_CLOSE}"))
        parts.append(Part(f"{TURN_CLOSE}\n{TURN_OPEN}assistant\n{self.manifest.prime}"))
        return self.encode_parts(parts)

    def cut(self, text: str, max_tokens: int) -> str:
        """Text of at most ``max_tokens`` tokens: its head and its tail.

        Raises:
            ValueError: If the limit leaves no room for the mark of the cut.
        """
        ids = self.encode_parts([Part(text, False)])
        if len(ids) <= max_tokens:
            return text
        room = max_tokens - len(self.encode(_CUT_MARK))
        if room < 2:
            raise ValueError(f"max_tool_tokens = {max_tokens} is too small to cut a text to")
        while True:
            head, tail = ids[: room - room // 2], ids[len(ids) - room // 2 :]
            kept_head = self.decode(head).rstrip("\ufffd")
            kept_tail = self.decode(tail).lstrip("\ufffd")
            kept = f"{kept_head}{_CUT_MARK}{kept_tail}"
            if len(self.encode_parts([Part(kept, False)])) <= max_tokens:
                return kept
            room -= 1
