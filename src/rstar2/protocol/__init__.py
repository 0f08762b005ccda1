"""The conversation protocol: prompt, tool calls, responses, tokens, records."""

from rstar2.protocol.calls import (
    MalformedCall,
    MalformedKind,
    ProgramCall,
    outside_calls,
    parse_calls,
)
from rstar2.protocol.manifest import LAPTOP, MANIFESTS, PAPER, Manifest
from rstar2.protocol.responses import answered_call, refused_call, response_text
from rstar2.protocol.template import CHAT_TEMPLATE, Part, TokenTemplate
from rstar2.protocol.types import (
    CallStatus,
    RunStatus,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

__all__ = [
    "CHAT_TEMPLATE",
    "LAPTOP",
    "MANIFESTS",
    "PAPER",
    "CallStatus",
    "MalformedCall",
    "MalformedKind",
    "Manifest",
    "Part",
    "ProgramCall",
    "RunStatus",
    "StopReason",
    "TokenTemplate",
    "ToolCall",
    "ToolResult",
    "Trajectory",
    "Turn",
    "answered_call",
    "outside_calls",
    "parse_calls",
    "refused_call",
    "response_text",
]
