"""ToolACE (``Team-ACE/ToolACE``): calls written like Python, ``[Get Weather(city="Oslo")]``.

A record has ``system``, which holds the tools as a JSON list between instructions on that
format, and ``conversations`` of ``from`` (user, assistant, tool) and ``value``. The names
of tools may hold spaces and those of arguments may be Python's own words, so that the list
is split here and only the values are read by Python's parser; nothing is evaluated.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rstar2.training.sft_mix.messages import (
    Call,
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    conversation,
    field,
    turns,
)
from rstar2.training.sft_mix.tools import function_schemas

SYSTEM = (
    "Call functions where they serve the request. If none of them fits, or a required "
    "parameter was not given, say so."
)
"""In place of the set's own instructions, which ask for another format."""

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_NAMES = {"true": True, "false": False, "null": None, "none": None}


def convert_toolace(record: Mapping[str, Any]) -> Conversation:
    """A ToolACE record as a conversation.

    Raises:
        Refused: It cannot become one.
    """
    tools = function_schemas(_tool_list(field(record, "system", str)))
    names = [tool["function"]["name"] for tool in tools]
    messages = [Message(Role.SYSTEM, SYSTEM)]
    for turn in turns(record, "conversations"):
        role = _ROLES.get(str(turn.get("from")))
        value = field(turn, "value", str).strip()
        if role is None:
            raise Refused(Refusal.BAD_FIELD, f"from: {turn.get('from')}")
        if role is Role.TOOL:
            messages += _responses(value, messages[-1].calls)
        elif role is Role.ASSISTANT:
            messages.append(_assistant(value, names))
        else:
            messages.append(Message(role, value))
    return conversation(messages, tools)


def parse_python_calls(text: str, names: Sequence[str] = ()) -> tuple[Call, ...]:
    """The calls of ``[name(key=value, ...), ...]``.

    Args:
        text: The list, brackets included.
        names: Known tools; a name with a bracket in it is only found here.

    Raises:
        Refused: ``UNPARSABLE_CALL`` with the piece that cannot be read.
    """
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        raise _unparsable(text)
    return tuple(_call(piece, names) for piece in _split(inner[1:-1], ","))


def _tool_list(system: str) -> Any:
    decoder = json.JSONDecoder(strict=False)
    for match in re.finditer(r"\[\s*(?=[{\]])", system):
        try:
            return decoder.raw_decode(system, match.start())[0]
        except (ValueError, RecursionError):
            continue
    raise Refused(Refusal.BAD_TOOLS, "no JSON list of tools in the system text")


def _assistant(value: str, names: Sequence[str]) -> Message:
    if value.startswith("[") and value.endswith("]"):
        return Message(Role.ASSISTANT, "", parse_python_calls(value, names))
    if any(re.search(rf"\[\s*{re.escape(name)}\s*\(", value) for name in names):
        raise _unparsable(value)
    return Message(Role.ASSISTANT, value)


def _responses(value: str, calls: Sequence[Call]) -> list[Message]:
    """One message per call: the set answers all calls of a turn in one JSON list."""
    if len(calls) < 2:
        return [Message(Role.TOOL, value)]
    try:
        answers = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        answers = None
    if not isinstance(answers, list) or len(answers) != len(calls):
        raise Refused(Refusal.RESPONSE_COUNT, f"{len(calls)} calls, answered by {value[:80]}")
    return [
        Message(Role.TOOL, each if isinstance(each, str) else json.dumps(each, ensure_ascii=False))
        for each in answers
    ]


def _call(piece: str, names: Sequence[str]) -> Call:
    piece = piece.strip()
    known = [name for name in names if piece.startswith(f"{name}(")]
    name = max(known, key=len) if known else piece.partition("(")[0].strip()
    body = piece[len(name) :].strip()
    if not name or not (body.startswith("(") and body.endswith(")")):
        raise _unparsable(piece)
    arguments: dict[str, Any] = {}
    for pair in _split(body[1:-1], ","):
        key, equals, value = pair.partition("=")
        key = key.strip().strip("\"'")
        if not equals or not key or key in arguments:
            raise _unparsable(piece)
        arguments[key] = _literal(value.strip())
    return Call(name, arguments)


def _split(text: str, separator: str) -> Iterator[str]:
    """Pieces between separators that stand outside quotes and brackets; blank text has none."""
    start, quote, closers, at = 0, "", [], 0
    while at < len(text):
        sign = text[at]
        if quote:
            if sign == "\\":
                at += 1
            elif sign == quote:
                quote = ""
        elif sign in "\"'":
            quote = sign
        elif sign in _PAIRS:
            closers.append(_PAIRS[sign])
        elif sign in _PAIRS.values():
            if not closers or closers.pop() != sign:
                raise _unparsable(text)
        elif sign == separator and not closers:
            yield text[start:at]
            start = at + 1
        at += 1
    if quote or closers:
        raise _unparsable(text)
    if start or text.strip():
        yield text[start:]


def _literal(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a stray backslash in a string is no news here
            node = ast.parse(text, mode="eval").body
        return _value(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unparsable(text) from error


def _value(node: ast.expr) -> Any:
    """The JSON value of a literal; anything else is refused, never run."""
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            if isinstance(value, float) and value - value != 0:
                raise ValueError("not a finite number")
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.Name(id=name) if name.lower() in _NAMES:
            return _NAMES[name.lower()]
    raise ValueError(f"not a literal: {type(node).__name__}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int):
        return str(node.value)
    raise ValueError("a key that is no string")


def _unparsable(text: str) -> Refused:
    return Refused(Refusal.UNPARSABLE_CALL, text.strip()[:120])
