"""Glaive (``glaiveai/glaive-function-calling-v2``): conversations as one text.

A record has ``system`` (``SYSTEM: ... functions. Use them if required -`` and JSON objects,
one after the other) and ``chat``, whose turns begin with ``USER:``, ``ASSISTANT:`` or
``FUNCTION RESPONSE:``. A call is ``<functioncall> {"name": "f", "arguments": '{"a": 1}'}``:
JSON but for the single quotes round the arguments.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from rstar2.training.sft_mix.apigen import call_of
from rstar2.training.sft_mix.messages import (
    Call,
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    conversation,
    field,
    parse_json,
)
from rstar2.training.sft_mix.tools import function_schemas

_CALL = "<functioncall>"
_END = "<|endoftext|>"
_ROLES = {"USER": Role.USER, "ASSISTANT": Role.ASSISTANT, "FUNCTION RESPONSE": Role.TOOL}
_TURN = re.compile(r"(?:^|\n|<\|endoftext\|>)\s*(USER|ASSISTANT|FUNCTION RESPONSE):")
_QUOTED = re.compile(r'^\{\s*"name"\s*:\s*"([^"]+)"\s*,\s*"arguments"\s*:\s*\'(.*)\'\s*\}$', re.S)
_ESCAPED = re.compile(r"((?<!\\)(?:\\\\)*)\\'")
_SYSTEM = re.compile(r"^\s*SYSTEM:\s*")
_OFFER = re.compile(r",? with (?:no )?access to .*", re.S)


def convert_glaive(record: Mapping[str, Any]) -> Conversation:
    """A Glaive record as a conversation.

    Raises:
        Refused: It cannot become one.
    """
    system = _SYSTEM.sub("", field(record, "system", str)).strip()
    before = system.partition("{")[0].strip()
    tools = function_schemas(_objects(system[len(before) :]))
    own = _OFFER.sub(".", before).strip()
    messages = [Message(Role.SYSTEM, own)] if own else []
    chat = field(record, "chat", str)
    pieces = _TURN.split(chat)
    if pieces[0].strip():
        raise Refused(Refusal.WRONG_ORDER, f"text before the first turn: {pieces[0][:80]}")
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        text = text.replace(_END, "").strip()
        messages.append(_assistant(text) if name == "ASSISTANT" else Message(_ROLES[name], text))
    return conversation(messages, tools)


def parse_glaive_call(body: str) -> Call:
    """The call of the text after ``<functioncall>``.

    Raises:
        Refused: ``UNPARSABLE_CALL``.
    """
    body = body.strip()
    quoted = _QUOTED.match(body)
    if quoted is None:
        return call_of(parse_json(body, Refusal.UNPARSABLE_CALL))
    name, inner = quoted.groups()
    # An apostrophe inside is sometimes escaped for the single quotes; JSON knows no such escape.
    return call_of({"name": name, "arguments": _ESCAPED.sub(r"\1'", inner)})


def _assistant(text: str) -> Message:
    spoken, *bodies = text.split(_CALL)
    calls = tuple(parse_glaive_call(body.replace("</functioncall>", "")) for body in bodies)
    return Message(Role.ASSISTANT, spoken.strip(), calls)


def _objects(text: str) -> list[Any]:
    """JSON objects that stand one after the other."""
    decoder = json.JSONDecoder(strict=False)
    objects, at = [], 0
    while at < len(text):
        if text[at].isspace() or text[at] == ",":
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Refused(Refusal.BAD_TOOLS, f"{error}: {text[at : at + 80]}") from error
        objects.append(value)
    return objects
