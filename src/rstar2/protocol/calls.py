"""Finds the tool calls in a model turn (paper, section 2.1).

Every ``<tool_call>`` that the model opens is a call. One that cannot be run becomes
a ``MalformedCall`` with the message that the model will read; it is never ignored.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from rstar2.protocol.manifest import CALL_CLOSE, CALL_OPEN, Manifest


class MalformedKind(StrEnum):
    """Why a call could not be run."""

    UNCLOSED = "unclosed"
    """``<tool_call>`` without ``</tool_call>``."""
    BAD_JSON = "bad_json"
    """The body is not JSON."""
    NOT_AN_OBJECT = "not_an_object"
    """The body, or its arguments, is JSON but no object."""
    MISSING_KEY = "missing_key"
    """``name``, ``arguments``, ``code`` or a required ``input`` is missing."""
    UNKNOWN_TOOL = "unknown_tool"
    """The name is not that of the tool."""
    WRONG_TYPE = "wrong_type"
    """``code`` or ``input`` is not a string."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call that can be run."""

    raw: str
    code: str
    stdin: str


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """A call that cannot be run, and what the model is told."""

    raw: str
    kind: MalformedKind
    message: str


def parse_calls(text: str, manifest: Manifest) -> tuple[ProgramCall | MalformedCall, ...]:
    """All calls of a turn, in order.

    Args:
        text: The decoded model tokens of one assistant turn.
        manifest: Names the tool and says whether ``input`` is required.
    """
    calls: list[ProgramCall | MalformedCall] = []
    pieces = text.split(CALL_OPEN)[1:]
    for piece in pieces:
        raw, closed, _ = piece.partition(CALL_CLOSE)
        if closed:
            calls.append(_parse_body(raw, manifest))
        else:
            message = "the call was opened and never closed"
            calls.append(MalformedCall(raw, MalformedKind.UNCLOSED, message))
    return tuple(calls)


def outside_calls(text: str) -> str:
    """The text without its calls: a tag inside a program is not the model's own."""
    first, *pieces = text.split(CALL_OPEN)
    return first + "".join(piece.partition(CALL_CLOSE)[2] for piece in pieces)


def _parse_body(raw: str, manifest: Manifest) -> ProgramCall | MalformedCall:
    def malformed(kind: MalformedKind, message: str) -> MalformedCall:
        return MalformedCall(raw, kind, message)

    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        detail = str(error) if isinstance(error, ValueError) else "nested too deeply"
        ending = f": {detail}" if manifest.error_detail else ""
        return malformed(MalformedKind.BAD_JSON, f"the call is not valid JSON{ending}")
    if not isinstance(body, dict):
        return malformed(MalformedKind.NOT_AN_OBJECT, "the call is not a JSON object")
    for key in ("name", "arguments"):
        if key not in body:
            return malformed(MalformedKind.MISSING_KEY, f"the call has no '{key}'")
    if not manifest.tool_name or body["name"] != manifest.tool_name:
        known = f"; the tool is {manifest.tool_name}" if manifest.tool_name else ""
        message = f"there is no tool {json.dumps(body['name'])}{known}"
        return malformed(MalformedKind.UNKNOWN_TOOL, message)
    arguments = body["arguments"]
    if not isinstance(arguments, dict):
        return malformed(MalformedKind.NOT_AN_OBJECT, "'arguments' is not a JSON object")
    for key in ("code", "input") if manifest.stdin_required else ("code",):
        if key not in arguments:
            return malformed(MalformedKind.MISSING_KEY, f"'arguments' has no '{key}'")
    for key in ("code", "input"):
        if not isinstance(arguments.get(key, ""), str):
            return malformed(MalformedKind.WRONG_TYPE, f"'{key}' is not a string")
    return ProgramCall(raw, arguments["code"], arguments.get("input", ""))
