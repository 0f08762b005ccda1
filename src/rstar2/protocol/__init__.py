"""The conversation protocol: prompt, tool calls, responses, tokens, records."""

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
    "CallStatus",
    "RunStatus",
    "StopReason",
    "ToolCall",
    "ToolResult",
    "Trajectory",
    "Turn",
]
