"""The agent loop: one problem, several turns, a Python tool (paper, section 2.1).

The same function runs in the laptop trainer, in evaluation and in ``rstar2 solve``. It
knows only the engine protocol and the sandbox's ``run``; the protocol has the shape of
verl's server client, so that the loop can run on verl's servers later.
"""

from dataclasses import dataclass
from typing import Protocol

from rstar2.protocol import (
    MalformedCall,
    ProgramCall,
    StopReason,
    TokenTemplate,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    answered_call,
    outside_calls,
    parse_calls,
    refused_call,
)
from rstar2.protocol.manifest import ANSWER_CLOSE, ANSWER_OPEN
from rstar2.rollout.engine import Engine, SamplingParams, TokenOutput
from rstar2.sandbox import SandboxUnavailable


class ToolRunner(Protocol):
    """What the loop needs of a sandbox."""

    async def run(self, code: str, stdin: str = "", timeout: float = ...) -> ToolResult:
        """Runs one program; raises ``SandboxUnavailable`` on an infrastructure fault."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Limits of one rollout.

    Attributes:
        max_prompt_tokens: Longest prompt.
        max_response_tokens: Budget of model and tool tokens together.
        max_turns: Most assistant turns, the paper's T.
        max_tool_tokens: Longest response of one call; head and tail are kept.
        tool_timeout: CPU seconds of one program.
        temperature: Sampling temperature.
    """

    max_prompt_tokens: int
    max_response_tokens: int
    max_turns: int
    max_tool_tokens: int
    tool_timeout: float
    temperature: float = 1.0


class _Recorder:
    """Accumulates the ids of a conversation and who wrote them."""

    def __init__(self, request_id: str, prompt_ids: list[int]) -> None:
        self.request_id = request_id
        self.prompt_ids = prompt_ids
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.log_probs: list[float] = []
        self.turns: list[Turn] = []

    def add_model(self, output: TokenOutput) -> None:
        self.ids += output.token_ids
        self.mask += [1] * len(output.token_ids)
        self.log_probs += output.log_probs

    def add_environment(self, ids: list[int]) -> None:
        self.ids += ids
        self.mask += [0] * len(ids)
        self.log_probs += [0.0] * len(ids)

    def trajectory(self, stop: StopReason) -> Trajectory:
        return Trajectory(
            self.request_id,
            tuple(self.prompt_ids),
            tuple(self.ids),
            tuple(self.mask),
            tuple(self.log_probs),
            tuple(self.turns),
            stop,
        )


async def run_rollout(
    request_id: str,
    question: str,
    *,
    engine: Engine,
    sandbox: ToolRunner,
    template: TokenTemplate,
    limits: RolloutLimits,
) -> Trajectory:
    """Rolls out one problem to its end.

    Args:
        request_id: Names the rollout; must be new to the engine.
        question: The problem's text, foreign to the template.
        engine: Samples the turns.
        sandbox: Runs the programs.
        template: Encodes all that the model does not write.
        limits: Budgets.

    Returns:
        The trajectory; a persistent sandbox fault ends it with
        ``StopReason.INFRASTRUCTURE``, for the caller to replace.
    """
    recorder = _Recorder(request_id, template.prompt_ids(question))
    if len(recorder.prompt_ids) > limits.max_prompt_tokens:
        return recorder.trajectory(StopReason.PROMPT_TOO_LONG)
    try:
        stop = await _converse(recorder, engine, sandbox, template, limits)
    except SandboxUnavailable:
        stop = StopReason.INFRASTRUCTURE
    finally:
        await engine.end(request_id)
    return recorder.trajectory(stop)


async def _converse(
    recorder: _Recorder,
    engine: Engine,
    sandbox: ToolRunner,
    template: TokenTemplate,
    limits: RolloutLimits,
) -> StopReason:
    while True:
        room = limits.max_response_tokens - len(recorder.ids)
        output = await engine.generate(
            recorder.request_id,
            prompt_ids=recorder.prompt_ids + recorder.ids,
            sampling_params=SamplingParams(temperature=limits.temperature, max_tokens=room),
        )
        recorder.add_model(output)
        closed = output.token_ids[-1] == template.end_id
        written = output.token_ids[:-1] if closed else output.token_ids
        text = template.decode(written)
        calls: tuple[ToolCall, ...] = ()
        parsed = parse_calls(text, template.manifest) if closed else ()
        last = len(recorder.turns) + 1 == limits.max_turns
        if parsed and not last:
            calls = tuple([await _answer(call, sandbox, template, limits) for call in parsed])
        recorder.turns.append(
            Turn(
                text=template.manifest.prime + text,
                num_tokens=len(output.token_ids),
                calls=calls,
                answer_tags=outside_calls(text).count(ANSWER_OPEN),
            )
        )
        if not closed:
            return StopReason.MAX_TOKENS
        if not parsed:
            answered = ANSWER_CLOSE in text.partition(ANSWER_OPEN)[2]
            return StopReason.ANSWERED if answered else StopReason.NO_CALL
        if last:
            return StopReason.MAX_TURNS
        responses = [call.response for call in calls]
        between = template.tool_turn_ids(responses, limits.max_tool_tokens)
        if len(between) >= limits.max_response_tokens - len(recorder.ids):
            return StopReason.MAX_TOKENS
        recorder.add_environment(between)


async def _answer(
    call: ProgramCall | MalformedCall,
    sandbox: ToolRunner,
    template: TokenTemplate,
    limits: RolloutLimits,
) -> ToolCall:
    if isinstance(call, ProgramCall):
        result = await sandbox.run(call.code, call.stdin, limits.tool_timeout)
        return answered_call(call, result, template.manifest)
    return refused_call(call)
