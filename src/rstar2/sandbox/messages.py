"""What travels between a sandbox client and a sandbox node, as JSON that ``curl`` can write.

A request is one batch, ``{"calls": [{"id": 0, "code": "print(1)"}, …]}``. Its answer is a
line for each call, in the order in which they end: ``{"id": 0, "result": {…}}`` or
``{"id": 0, "error": {"kind": "bad_call", "message": "…"}}``. An empty line means "still
here". A request that is refused as a whole is answered by ``{"error": "…"}`` and a status:
429 if the queue is full, 503 if the node is stopping.

msgspec reads and writes all of it. It refuses lone surrogates, which programs of a model do
contain: such texts, and numbers that only Python's reader knows (``NaN``), go through the
standard library, some ten times slower. A high surrogate before a low one arrives as the
character that the two stand for, as in all JSON.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec

from rstar2.protocol.types import ToolResult
from rstar2.sandbox.limits import SandboxUnavailable

MAX_CALLS = 64
"""Calls in a batch."""
BODY_BYTES = 32 << 20
"""Longest request."""
LINE_BYTES = 8 << 20
"""Longest line of an answer."""
_SHOWN = 200
_LONGEST_REST = 60.0

Message = TypeVar("Message")


class MessageError(ValueError):
    """A request or an answer that is none; the message says where and why."""


class NodeTrouble(Exception):
    """A node failed, not a program.

    Attributes:
        ill: Whether it speaks against the node.
        lost: Whether the node had taken the calls, so that one of them may be the reason.
        rest: Seconds for which the node asks to be left alone.
    """

    def __init__(
        self, reason: str, *, ill: bool = True, lost: bool = True, rest: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.ill = ill
        self.lost = lost
        self.rest = rest


class FaultKind(StrEnum):
    """Why a call has no result."""

    BAD_CALL = "bad_call"
    """The caller's mistake: the same call will be refused again."""
    UNAVAILABLE = "unavailable"
    """The node failed, not the program: the call may be sent again."""


class Fault(msgspec.Struct, frozen=True):
    """A call that was not run, or whose end is not known."""

    kind: FaultKind
    message: str


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call; its values are checked where it runs, so that a bad one stops no other.

    Attributes:
        id: Names the call within its batch.
        code: The program, a string.
        stdin: Its standard input, a string.
        timeout: Seconds; the node's default if None.
    """

    id: int | str
    code: Any = None
    stdin: Any = ""
    timeout: Any = None


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls that are sent together."""

    calls: Annotated[list[Call], msgspec.Meta(min_length=1, max_length=MAX_CALLS)]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one call: a result or an error, never both."""

    id: int | str
    result: ToolResult | None = None
    error: Fault | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was refused as a whole, and what to do."""

    error: str


_ENCODER = msgspec.json.Encoder()
_BATCH = msgspec.json.Decoder(Batch)
_ANSWER = msgspec.json.Decoder(Answer)
_REFUSAL = msgspec.json.Decoder(Refusal)


def encode(message: msgspec.Struct) -> bytes:
    """The message as JSON on one line, without the line's end."""
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message)).encode()


def encode_batch(calls: Iterable[Call]) -> bytes:
    """A request; one call with lone surrogates does not slow the others down."""
    return b'{"calls":[' + b",".join(map(encode, calls)) + b"]}"


def decode_batch(body: bytes) -> list[Call]:
    """The calls of a request.

    Raises:
        MessageError: If it is no batch of 1 to ``MAX_CALLS`` calls, each with its own id.
    """
    calls = _decode(_BATCH, body, Batch).calls
    if len({call.id for call in calls}) != len(calls):
        raise MessageError("two calls have the same id: give each its own")
    return calls


def decode_answers(lines: bytes) -> list[Answer]:
    """The answers in whole lines.

    Raises:
        MessageError: If a line is no answer.
    """
    try:
        return _ANSWER.decode_lines(lines)
    except msgspec.DecodeError:
        return [_decode(_ANSWER, line, Answer) for line in lines.split(b"\n") if line]


async def read_answers(chunks: AsyncIterable[bytes]) -> AsyncIterator[list[Answer]]:
    """The answers of a stream, as soon as their lines are whole.

    Raises:
        MessageError: If a line is no answer, or longer than ``LINE_BYTES``.
    """
    start: list[bytes] = []
    async for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield decode_answers(b"".join([*start, chunk[:end]]))
            start.clear()
        start.append(chunk[end:])
        if sum(map(len, start)) > LINE_BYTES:
            raise MessageError(f"a line of the answer is longer than {LINE_BYTES} bytes")


def refusal(status: int, retry_after: str | None, body: bytes) -> Exception:
    """What it means that a request was refused as a whole.

    Returns:
        ``NodeTrouble``, or ``SandboxUnavailable`` if the node is well and will not take what
        this client sends, as without its token.
    """
    try:
        said = f"{status}: {_decode(_REFUSAL, body, Refusal).error}"
    except MessageError:  # of a proxy, perhaps
        said = f"{status}: {' '.join(body.decode(errors='replace').split())[:_SHOWN]}"
    rest = 0.0
    if retry_after is not None and retry_after.isdecimal():
        rest = min(float(retry_after), _LONGEST_REST)
    if status == 429:
        return NodeTrouble(said, ill=False, lost=False, rest=rest or 1.0)
    if status == 503:
        return NodeTrouble(said, lost=False, rest=rest)
    return NodeTrouble(said) if status >= 500 else SandboxUnavailable(said)


def _decode(decoder: msgspec.json.Decoder[Message], data: bytes, kind: type[Message]) -> Message:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(data), kind)
    except msgspec.ValidationError as error:
        raise MessageError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise MessageError(f"this is not JSON: {error}") from error
