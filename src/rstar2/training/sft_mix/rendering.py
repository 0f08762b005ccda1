"""Conversations in the house's template: as messages, as text, as token ids.

The system turn offers the tools in the words of the paper's Figure 3, after the
conversation's own system text. A call is JSON between ``<tool_call>`` tags, the answers of
a turn share one user turn. Assistant turns are not primed with ``<reason>``: the cold start
teaches no reasoning (paper, section 4.1).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rstar2.protocol import Part, TokenTemplate
from rstar2.protocol.manifest import (
    CALL_CLOSE,
    CALL_OPEN,
    PAPER,
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    TURN_CLOSE,
    TURN_OPEN,
)
from rstar2.training.examples import Example
from rstar2.training.sft_mix.messages import RESERVED, Call, Conversation, Message, Role

_OFFER = PAPER.system.partition("\n\n")[2]
_BEFORE, _AFTER = _OFFER.split("{tools}")
_RESERVED = re.compile("|".join(re.escape(name) for name in RESERVED))


def call_json(call: Call) -> str:
    """The call as the model must write it; no tag of the template stands in it as such."""
    body = {"name": call.name, "arguments": dict(call.arguments)}
    text = json.dumps(body, ensure_ascii=False)
    # In JSON such a name can only stand inside a string, where its "<" may be escaped.
    return _RESERVED.sub(lambda match: f"\\u003c{match.group()[1:]}", text)


def assistant_text(message: Message) -> str:
    """What an assistant turn says: its text, then its calls, one a line."""
    return "".join(part.text for part in _assistant_parts(message))


def system_text(one: Conversation) -> str:
    """The system turn; empty if the conversation has neither system text nor tools."""
    return "".join(part.text for part in _system_parts(one))


def rendered_messages(one: Conversation) -> list[dict[str, str]]:
    """Messages for ``CHAT_TEMPLATE``: the tools in the system text, the calls as text."""
    rows = [{"role": "system", "content": text}] if (text := system_text(one)) else []
    for message in _turns(one):
        content = assistant_text(message) if message.role is Role.ASSISTANT else message.text
        rows.append({"role": message.role.value, "content": content})
    return rows


def encode_conversation(one: Conversation, template: TokenTemplate) -> Example:
    """Ids of a conversation, and the loss on what the assistant wrote and ended.

    Names of special tokens in any text of the set are split; the tags are the template's.
    The ids are those of ``CHAT_TEMPLATE`` up to the last ``<|im_end|>``.
    """
    ids: list[int] = []
    mask: list[int] = []
    given: list[Part] = []
    system = _system_parts(one)
    if system:
        given += [Part(f"{TURN_OPEN}system\n"), *system, Part(f"{TURN_CLOSE}\n")]
    turns = _turns(one)
    for number, message in enumerate(turns):
        if message.role is Role.ASSISTANT:
            before = template.encode_parts([*given, Part(f"{TURN_OPEN}assistant\n")])
            written = [*template.encode_parts(_assistant_parts(message)), template.end_id]
            ids += [*before, *written]
            mask += [0] * len(before) + [1] * len(written)
            given = [Part("\n")]
        else:
            given += _given_parts(turns, number)
    return Example(tuple(ids), tuple(mask))


def _turns(one: Conversation) -> tuple[Message, ...]:
    return tuple(message for message in one.messages if message.role is not Role.SYSTEM)


def _system_parts(one: Conversation) -> list[Part]:
    parts = [Part(text, False) for text in one.texts(Role.SYSTEM) if text]
    if one.tools:
        schemas = "\n".join(_tool_json(tool) for tool in one.tools)
        start = f"\n\n{_BEFORE}" if parts else _BEFORE
        parts += [Part(start), Part(schemas, False), Part(_AFTER)]
    return parts


def _tool_json(tool: Mapping[str, Any]) -> str:
    return json.dumps(dict(tool), ensure_ascii=False)


def _assistant_parts(message: Message) -> list[Part]:
    parts = [Part(message.text, False)] if message.text else []
    for call in message.calls:
        start = f"\n{CALL_OPEN}" if parts else CALL_OPEN
        parts += [Part(start), Part(call_json(call), False), Part(CALL_CLOSE)]
    return parts


def _given_parts(turns: Sequence[Message], number: int) -> list[Part]:
    """A user turn, or a tool's answer with the turn's borders where it is the first or last."""
    message = turns[number]
    if message.role is Role.USER:
        start, end = Part(f"{TURN_OPEN}user\n"), Part(f"{TURN_CLOSE}\n")
        return [start, Part(message.text, False), end]
    first = turns[number - 1].role is not Role.TOOL
    last = number + 1 == len(turns) or turns[number + 1].role is not Role.TOOL
    return [
        Part(f"{TURN_OPEN}user\n{RESPONSE_OPEN}\n" if first else f"\n{RESPONSE_OPEN}\n"),
        Part(message.text, False),
        Part(f"\n{RESPONSE_CLOSE}{TURN_CLOSE}\n" if last else f"\n{RESPONSE_CLOSE}"),
    ]
