"""What flows through the system: calls, turns, trajectories, and how they end.

Every fact is recorded here when it happens and never read again from text:
a tool call carries its status, a token knows whether the model wrote it,
a rollout ends with a named reason (paper, section 2.1).
"""

from dataclasses import dataclass
from enum import StrEnum


class RunStatus(StrEnum):
    """How a program ended in the sandbox."""

    OK = "ok"
    """It ran to its end; it may have printed nothing."""
    ERROR = "error"
    """It raised, exited with a code, or was killed for memory or output."""
    TIMEOUT = "timeout"
    """It was valid Python and did not finish within its limit."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the sandbox says of one program. Infrastructure faults are exceptions, never this.

    Attributes:
        status: How the program ended.
        stdout: What it printed, also before an error (decoded, possibly cut).
        stderr: What it wrote to standard error, then the traceback of an error with the
            program's own frames; free of machine paths.
        value: The last expression's value as IPython shows it, when the program's
            last statement is an expression that is not None; empty otherwise.
        error_type: Name of the exception class, as ``ZeroDivisionError``; empty if none.
        duration: Seconds from start to end of the program.
        cpu: CPU seconds of the program.
        truncated: Whether one of the texts was cut at the output limit.
    """

    status: RunStatus
    stdout: str = ""
    stderr: str = ""
    value: str = ""
    error_type: str = ""
    duration: float = 0.0
    cpu: float = 0.0
    truncated: bool = False


class CallStatus(StrEnum):
    """What became of a tool call that the model wrote."""

    OK = "ok"
    """It ran to its end."""
    ERROR = "error"
    """It ran and raised."""
    TIMEOUT = "timeout"
    """It ran out of time."""
    MALFORMED = "malformed"
    """It never ran: bad JSON, unknown tool, missing key, wrong type, unclosed tag."""

    @property
    def is_error(self) -> bool:
        """Whether the call counts in ``p_err`` (paper, Eq. 4)."""
        return self is not CallStatus.OK


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call and its answer, recorded when it happened.

    Attributes:
        raw: The text between the tags as the model wrote it.
        status: What became of it.
        code: The program; empty if the call was malformed.
        stdin: Its standard input.
        response: The text given back to the model, before the token limit.
        error_type: Exception class or kind of malformed call (``bad_json`` …); empty if none.
    """

    raw: str
    status: CallStatus
    code: str = ""
    stdin: str = ""
    response: str = ""
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant turn.

    Attributes:
        text: The decoded model tokens of the turn, for people and the grader; the
            primed ``<reason>`` is part of it, ``<|im_end|>`` is not.
        num_tokens: Model tokens in the turn, ``<|im_end|>`` counted if sampled.
        calls: Its tool calls in order.
        answer_tags: Number of ``<answer>`` tags that the model wrote outside its calls.
    """

    text: str
    num_tokens: int
    calls: tuple[ToolCall, ...] = ()
    answer_tags: int = 0

    @property
    def is_void(self) -> bool:
        """Whether it holds neither a call that was run or refused nor an answer tag."""
        return not self.calls and not self.answer_tags


class StopReason(StrEnum):
    """Every way a rollout can end."""

    ANSWERED = "answered"
    """The last turn closed with an answer block and no tool call."""
    NO_CALL = "no_call"
    """The last turn closed with neither a tool call nor an answer."""
    MAX_TURNS = "max_turns"
    """The turn limit T was used up while the model still called tools."""
    MAX_TOKENS = "max_tokens"
    """The response budget was used up; the answer, if any, does not count."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt left no room for a response."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox or engine failed for good: the rollout must be replaced."""

    @property
    def is_truncated(self) -> bool:
        """Whether a limit, not the model, ended the rollout."""
        return self in (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.PROMPT_TOO_LONG)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished rollout.

    Attributes:
        request_id: Names the rollout; random numbers are counted by it.
        prompt_ids: Token ids up to and with the primed ``<reason>``.
        response_ids: All later ids: model tokens, separators and tool responses.
        response_mask: 1 where the model wrote the token, 0 where the environment did.
        log_probs: Log-probability of each response token when sampled; 0.0 at mask 0.
        turns: The assistant turns in order.
        stop: How it ended.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    log_probs: tuple[float, ...]
    turns: tuple[Turn, ...]
    stop: StopReason

    def __post_init__(self) -> None:
        lengths = {len(self.response_ids), len(self.response_mask), len(self.log_probs)}
        if len(lengths) != 1:
            raise ValueError(
                f"trajectory {self.request_id}: ids, mask and log_probs differ in length: "
                f"{len(self.response_ids)}, {len(self.response_mask)}, {len(self.log_probs)}"
            )

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All tool calls in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def num_errors(self) -> int:
        """Tool calls that count as errors (paper, Eq. 4)."""
        return sum(call.status.is_error for call in self.calls)

    @property
    def answer_tags(self) -> int:
        """``<answer>`` tags that the model wrote (paper, Eq. 5)."""
        return sum(turn.answer_tags for turn in self.turns)

    @property
    def num_model_tokens(self) -> int:
        """Tokens that the model wrote."""
        return sum(self.response_mask)
