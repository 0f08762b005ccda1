"""The sets without tools: instruction following and chat (paper, section 4.1).

``allenai/tulu-3-sft-personas-instruction-following`` has ``id``, ``prompt``, ``messages``
(role, content) and ``constraints``. ``nvidia/Llama-Nemotron-Post-Training-Dataset`` has
``input`` (a list of role, content), ``output``, ``category``, ``reasoning`` (on, off) and
``system_prompt``.
"""

from collections.abc import Mapping
from typing import Any

from rstar2.training.sft_mix.messages import (
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    conversation,
    field,
    turns,
)

_SWITCH = "detailed thinking"
"""``detailed thinking on`` and ``off`` steer Nemotron models alone."""

_EXCLUDED = ("math", "science", "code", "stem")


def convert_tulu(record: Mapping[str, Any]) -> Conversation:
    """A Tulu 3 record as a conversation.

    Raises:
        Refused: It cannot become one.
    """
    return conversation(_messages(record, "messages"))


def convert_nemotron(record: Mapping[str, Any]) -> Conversation:
    """A Nemotron record as a conversation.

    Raises:
        Refused: It is marked as reasoning, is no chat, or cannot become a conversation.
    """
    category = field(record, "category", str).lower()
    if category in _EXCLUDED:
        raise Refused(Refusal.CATEGORY, category)
    if field(record, "reasoning", str).lower() != "off":
        raise Refused(Refusal.THINKING, f"reasoning: {record['reasoning']}")
    messages = _messages(record, "input")
    system = record.get("system_prompt")
    wanted = isinstance(system, str) and system and not system.lower().startswith(_SWITCH)
    if wanted and (not messages or messages[0].role is not Role.SYSTEM):
        messages.insert(0, Message(Role.SYSTEM, str(system)))
    output = field(record, "output", str).strip()
    return conversation([*messages, Message(Role.ASSISTANT, output)])


def _messages(record: Mapping[str, Any], name: str) -> list[Message]:
    messages = []
    for item in turns(record, name):
        if item.get("role") not in ("system", "user", "assistant"):
            raise Refused(Refusal.BAD_FIELD, f"role: {item.get('role')}")
        role, text = Role(item["role"]), field(item, "content", str).strip()
        if role is Role.SYSTEM and (not text or text.lower().startswith(_SWITCH)):
            continue
        messages.append(Message(role, text))
    return messages
