"""``rstar2 solve "…"``: one rollout, shown turn by turn as it happens.

The agent loop is that of training; what it is given to sample with and to run programs in
is wrapped, so that each turn and each answer is shown when it is there.
"""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from rstar2.cli.policy import find_checkpoint, rollout_limits
from rstar2.errors import UserError
from rstar2.grading.answer import read_answer
from rstar2.protocol import (
    CallStatus,
    ProgramCall,
    StopReason,
    TokenTemplate,
    ToolCall,
    ToolResult,
    Trajectory,
    answered_call,
    parse_calls,
    refused_call,
)
from rstar2.protocol.manifest import CALL_CLOSE, CALL_OPEN, Manifest

if TYPE_CHECKING:
    from rstar2.rollout import Engine, RolloutLimits, SamplingParams, TokenOutput, ToolRunner
    from rstar2.training.checkpoint import Policy


class SolveError(UserError):
    """The question, the policy or the machine does not allow a rollout."""


def solve(
    question: Annotated[str, typer.Argument(help="A problem whose answer is an integer.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder of the policy; the committed one of grpo-roc if not given."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0 is greedy; the preset's if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling.")] = 0,
    preset: Annotated[str, typer.Option(help="Gives the texts and limits.")] = "laptop",
) -> None:
    """Let the policy solve a problem: its thoughts, its programs, what they print, its answer."""
    from rstar2.experiments.presets import load_torch_preset
    from rstar2.training.checkpoint import load_policy

    _refuse_no_text(question)
    if temperature is not None and not math.isfinite(temperature):
        raise SolveError(f"temperature is {temperature}: give a number from 0")
    settings = load_torch_preset(preset)
    policy = load_policy(find_checkpoint(checkpoint), settings.texts)
    limits = rollout_limits(settings, policy, temperature)
    _refuse_too_long(question, policy.template, limits)
    screen = Screen(Console(highlight=False), limits.max_turns)
    trajectory = asyncio.run(_roll_out(question, policy, limits, seed, screen))
    screen.ending(trajectory)


class Screen:
    """Prints what happens in a rollout; every piece has a label, so colour is not needed.

    Args:
        console: Where to.
        max_turns: The calls of the last turn are not run.
    """

    def __init__(self, console: Console, max_turns: int) -> None:
        self._console = console
        self._max_turns = max_turns
        self._turns = 0

    def turn(self, text: str, manifest: Manifest, closed: bool) -> None:
        """Shows what the model wrote in a turn, its programs as programs."""
        self._turns += 1
        calls = parse_calls(text, manifest) if closed else ()
        if not calls:
            self._piece(f"turn {self._turns}, model", "blue", text)
            return
        before, *pieces = text.split(CALL_OPEN)
        self._piece(f"turn {self._turns}, model", "blue", before)
        last = self._turns == self._max_turns
        for call, piece in zip(calls, pieces, strict=True):
            if isinstance(call, ProgramCall):
                code = call.code if not call.stdin else f"{call.code}\n# input: {call.stdin!r}"
                self._piece("tool call" + ", not run" * last, "cyan", code)
            else:
                self._piece("malformed call", "magenta", call.raw)
                if not last:
                    self.answer(refused_call(call))
            self._piece("model", "blue", piece.partition(CALL_CLOSE)[2])

    def answer(self, call: ToolCall) -> None:
        """Shows what the model reads after a call."""
        if call.status is CallStatus.OK:
            self._piece("tool response", "green", call.response)
        else:
            self._piece(f"tool error ({call.status.value})", "bold red", call.response)

    def ending(self, trajectory: Trajectory) -> None:
        """Shows the final answer and why the rollout ended."""
        stop = trajectory.stop
        found = read_answer(trajectory.turns[-1].text) if trajectory.turns else None
        if isinstance(found, int) and not stop.is_truncated:
            self._piece("answer", "bold green", str(found))
        else:
            self._piece("answer", "bold yellow", "none")
        counts = f"{len(trajectory.turns)} turns, {trajectory.num_model_tokens} tokens"
        self._piece("stop", "dim", f"{stop.value}; {counts}")

    def _piece(self, label: str, style: str, text: str) -> None:
        if not text.strip():
            return
        self._console.print(Text(f"[{label}]", style=f"{style} reverse"))
        shown = "\n".join(f"  {line}" for line in _printable(text.strip("\n")).split("\n"))
        self._console.print(Text(shown, style=style), soft_wrap=True)


class ShownEngine:
    """Samples with another engine and shows each turn when it is whole."""

    def __init__(self, engine: "Engine", template: TokenTemplate, screen: Screen) -> None:
        self._engine = engine
        self._template = template
        self._screen = screen

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: "SamplingParams"
    ) -> "TokenOutput":
        """Samples one turn; see ``Engine``."""
        output = await self._engine.generate(
            request_id, prompt_ids=prompt_ids, sampling_params=sampling_params
        )
        closed = output.token_ids[-1] == self._template.end_id
        text = self._template.decode(output.token_ids[: len(output.token_ids) - closed])
        self._screen.turn(text, self._template.manifest, closed)
        return output

    async def end(self, request_id: str) -> None:
        """Ends the conversation; see ``Engine``."""
        await self._engine.end(request_id)


class ShownTools:
    """Runs programs in another sandbox and shows each answer as the model will read it."""

    def __init__(self, sandbox: "ToolRunner", manifest: Manifest, screen: Screen) -> None:
        self._sandbox = sandbox
        self._manifest = manifest
        self._screen = screen

    async def run(self, code: str, stdin: str = "", timeout: float = 1.0) -> ToolResult:
        """Runs one program; see ``ToolRunner``."""
        result = await self._sandbox.run(code, stdin, timeout)
        self._screen.answer(answered_call(ProgramCall("", code, stdin), result, self._manifest))
        return result


def _refuse_no_text(question: str) -> None:
    if not question.strip():
        raise SolveError("the question is empty: give a problem as text")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise SolveError("the question is not UTF-8 text") from error


def _refuse_too_long(question: str, template: TokenTemplate, limits: "RolloutLimits") -> None:
    length = len(template.prompt_ids(question))
    if length > limits.max_prompt_tokens:
        raise SolveError(
            f"the question is too long: its prompt has {length} tokens, "
            f"the limit is {limits.max_prompt_tokens}"
        )


async def _roll_out(
    question: str, policy: "Policy", limits: "RolloutLimits", seed: int, screen: Screen
) -> Trajectory:
    import torch

    from rstar2.rollout import TorchEngine, run_rollout
    from rstar2.sandbox import Sandbox, SandboxUnavailable, SandboxUnsupported

    torch.set_num_threads(1)
    template = policy.template
    engine = TorchEngine(policy.model, end_id=template.end_id, seed=seed)
    try:
        async with Sandbox() as sandbox:
            trajectory = await run_rollout(
                "solve",
                question,
                engine=ShownEngine(engine, template, screen),
                sandbox=ShownTools(sandbox, template.manifest, screen),
                template=template,
                limits=limits,
            )
    except (SandboxUnavailable, SandboxUnsupported) as error:
        raise SolveError(f"no program can run here: {error}") from error
    if trajectory.stop is StopReason.INFRASTRUCTURE:
        raise SolveError("the sandbox failed during the rollout: `rstar2 doctor` looks at it")
    return trajectory


def _printable(text: str) -> str:
    """Text without control characters, which would steer the terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)
