"""A conversation with tools, and why a raw record did not become one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rstar2.protocol.manifest import TAGS, TURN_CLOSE, TURN_OPEN

RESERVED = (*TAGS, TURN_OPEN, TURN_CLOSE)
"""Names with a meaning in the template; an assistant text that holds one is refused."""

_THINKING = ("<think>", "</think>")


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Refusal(StrEnum):
    """Why a record does not reach the mix."""

    BAD_TEXT = "bad_text"
    """It holds half a surrogate pair or an infinite number, which UTF-8 and JSON cannot."""
    EMPTY = "empty"
    """A user or assistant message, or the whole record, is blank."""
    BAD_FIELD = "bad_field"
    """A field is missing or of the wrong type: another set, or another version of it."""
    BAD_TOOLS = "bad_tools"
    """The tool definitions cannot be read."""
    UNPARSABLE_CALL = "unparsable_call"
    """A call cannot be read, or has arguments without names."""
    UNKNOWN_TOOL = "unknown_tool"
    """A call names a tool that was not offered."""
    ORPHAN_RESPONSE = "orphan_response"
    """A tool answers although nothing was called."""
    RESPONSE_COUNT = "response_count"
    """A turn has not as many answers as calls."""
    WRONG_ORDER = "wrong_order"
    """Roles do not take turns."""
    UNANSWERED = "unanswered"
    """The last word is not the assistant's."""
    RESERVED_TAG = "reserved_tag"
    """An assistant text holds a tag of the template, as ``<tool_call>``."""
    THINKING = "thinking"
    """It holds a ``<think>`` block, or is marked as reasoning."""
    CATEGORY = "category"
    """Its set files it under mathematics, science or code."""
    NOT_PYTHON = "not_python"
    """The program is in another language, or Python cannot compile it."""
    NO_PROGRAM = "no_program"
    """The solution holds no code block."""
    SEVERAL_PROGRAMS = "several_programs"
    """The solution holds several code blocks."""
    MATHS = "maths"
    """It solves a mathematics problem."""
    DUPLICATE = "duplicate"
    """The same prompts with the same tools stand elsewhere in the mix."""
    CONTAMINATED = "contaminated"
    """A prompt is one of a benchmark."""
    TOO_LONG = "too_long"
    """More tokens than the mix allows; nothing is ever cut."""
    REWRITE_EMPTY = "rewrite_empty"
    """The rewriting model gave no text."""
    REWRITE_CUT = "rewrite_cut"
    """The rewriting model ran into its limit of tokens."""


class Refused(Exception):
    """A record is left out; it carries the reason and what decided it."""

    def __init__(self, reason: Refusal, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its name and its JSON arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message; only the assistant has calls."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that take turns, and the tools that were offered.

    Attributes:
        messages: At most one system message first; then user, assistant and tool messages.
            A turn with calls is followed by one tool message per call, or ends it all.
        tools: JSON schemas, as ``{"type": "function", "function": {...}}``.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools, in order."""
        return tuple(tool["function"]["name"] for tool in self.tools)

    def texts(self, role: Role) -> tuple[str, ...]:
        """The texts of one role, in order."""
        return tuple(message.text for message in self.messages if message.role is role)


def conversation(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> Conversation:
    """A checked conversation; an assistant's text and the calls after it become one message.

    Raises:
        Refused: A rule of :class:`Conversation` is broken.
    """
    checked = Conversation(tuple(_joined(messages)), tuple(tools))
    _check_texts(checked)
    _check_order(checked.messages)
    known = set(checked.tool_names)
    for message in checked.messages:
        for call in message.calls:
            if call.name not in known:
                raise Refused(Refusal.UNKNOWN_TOOL, call.name[:80])
    try:
        json.dumps(to_json(checked), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(Refusal.BAD_TEXT, str(error)[:80]) from error
    return checked


def to_json(one: Conversation) -> dict[str, Any]:
    """The conversation as JSON values, calls as OpenAI's format has them."""
    messages: list[dict[str, Any]] = []
    for message in one.messages:
        row: dict[str, Any] = {"role": message.role.value, "content": message.text}
        if message.calls:
            row["tool_calls"] = [
                {"name": call.name, "arguments": dict(call.arguments)} for call in message.calls
            ]
        messages.append(row)
    return {"messages": messages, "tools": [dict(tool) for tool in one.tools]}


def from_json(row: Mapping[str, Any]) -> Conversation:
    """The conversation that :func:`to_json` wrote."""
    messages = tuple(
        Message(
            Role(message["role"]),
            message["content"],
            tuple(Call(call["name"], call["arguments"]) for call in message.get("tool_calls", ())),
        )
        for message in row["messages"]
    )
    return Conversation(messages, tuple(row["tools"]))


def field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a raw record.

    Raises:
        Refused: It is missing or of another type.
    """
    value = record.get(name)
    if not isinstance(value, kind):
        found = "missing" if name not in record else type(value).__name__
        raise Refused(Refusal.BAD_FIELD, f"{name}: expected {kind.__name__}, found {found}")
    return value


def turns(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of mappings in a raw record.

    Raises:
        Refused: It is none.
    """
    items: list[Any] = field(record, name, list)
    for item in items:
        if not isinstance(item, Mapping):
            raise Refused(Refusal.BAD_FIELD, f"{name}: expected mappings, found {str(item)[:40]}")
    return items


def parse_json(text: str, reason: Refusal) -> Any:
    """JSON of a raw record, line breaks in strings allowed.

    Raises:
        Refused: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise Refused(reason, f"{error}: {text[:80]}") from error


def _joined(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        speaks_on = last is not None and last.role is message.role is Role.ASSISTANT
        if speaks_on and last is not None and not last.calls and message.calls:
            text = "\n".join(filter(None, (last.text, message.text)))
            joined[-1] = Message(Role.ASSISTANT, text, message.calls)
        else:
            joined.append(message)
    return joined


def _check_texts(one: Conversation) -> None:
    if not one.messages:
        raise Refused(Refusal.EMPTY, "no messages")
    for message in one.messages:
        blank = not message.text.strip()
        if blank and not message.calls and message.role in (Role.USER, Role.ASSISTANT):
            raise Refused(Refusal.EMPTY, f"a blank {message.role.value} message")
        if message.role is Role.ASSISTANT:
            lowered = message.text.lower()
            if any(tag in lowered for tag in _THINKING):
                raise Refused(Refusal.THINKING, "a <think> tag")
            for name in RESERVED:
                if name in message.text:
                    raise Refused(Refusal.RESERVED_TAG, name)


def _check_order(messages: Sequence[Message]) -> None:
    turns = messages[1:] if messages[0].role is Role.SYSTEM else messages
    waiting = 0
    before = Role.SYSTEM
    for message in turns:
        if message.role is Role.TOOL:
            if waiting == 0:
                many = before is Role.TOOL
                raise Refused(Refusal.RESPONSE_COUNT if many else Refusal.ORPHAN_RESPONSE)
            waiting -= 1
        elif waiting:
            raise Refused(Refusal.RESPONSE_COUNT, f"{waiting} calls without an answer")
        elif message.role is Role.SYSTEM or message.role is before:
            raise Refused(Refusal.WRONG_ORDER, f"{message.role.value} after {before.value}")
        elif message.role is Role.USER and before is Role.TOOL:
            raise Refused(Refusal.WRONG_ORDER, "user after tool")
        elif message.role is Role.ASSISTANT and before is Role.SYSTEM:
            raise Refused(Refusal.WRONG_ORDER, "the assistant speaks first")
        waiting += len(message.calls)
        before = message.role
    if before is not Role.ASSISTANT:
        raise Refused(Refusal.UNANSWERED, f"it ends with {before.value}")
