"""Lessons as texts and as token ids: documents, and conversations whose calls are run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rstar2.protocol import (
    Manifest,
    ProgramCall,
    TokenTemplate,
    ToolCall,
    answered_call,
    parse_calls,
    refused_call,
)
from rstar2.rollout import ToolRunner
from rstar2.training.examples import Example


@dataclass(frozen=True, slots=True)
class Document:
    """A problem and what is learnt from it: a plan and a right solution."""

    question: str
    solution: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A conversation: assistant turns without their prime, and the answers between them."""

    question: str
    turns: tuple[str, ...]
    responses: tuple[str, ...]


def encode_demonstration(
    demonstration: Demonstration, template: TokenTemplate, max_tool_tokens: int
) -> Example:
    """Ids of a conversation as the agent loop would have made them; loss on model tokens."""
    ids = template.prompt_ids(demonstration.question)
    mask = [0] * len(ids)
    for number, turn in enumerate(demonstration.turns):
        written = [*template.encode(turn), template.end_id]
        ids += written
        mask += [1] * len(written)
        if number < len(demonstration.responses):
            between = template.tool_turn_ids([demonstration.responses[number]], max_tool_tokens)
            ids += between
            mask += [0] * len(between)
    return Example(tuple(ids), tuple(mask))


def encode_document(document: Document, template: TokenTemplate, end_of_text: int) -> Example:
    """Ids of a document; loss on the solution, since nobody can guess the question."""
    question = template.encode(document.question)
    solution = [*template.encode(document.solution), end_of_text]
    return Example((*question, *solution), (*[0] * len(question), *[1] * len(solution)))


class ConversationWriter:
    """Writes the turns of a conversation; each call in it is run, its real answer follows.

    Args:
        sandbox: Runs programs.
        manifest: Names the tool and words its answers.
        timeout: CPU seconds of a program.
    """

    def __init__(self, sandbox: ToolRunner, manifest: Manifest, timeout: float) -> None:
        self._turns: list[str] = []
        self._responses: list[str] = []
        self._sandbox, self._manifest, self._timeout = sandbox, manifest, timeout

    async def call(self, thought: str, body: str) -> ToolCall:
        """Adds a turn with one call and its answer; returns the record of the call."""
        turn = f"{thought}</reason><tool_call>{body}</tool_call>"
        (call,) = parse_calls(turn, self._manifest)
        if isinstance(call, ProgramCall):
            result = await self._sandbox.run(call.code, call.stdin, self._timeout)
            record = answered_call(call, result, self._manifest)
        else:
            record = refused_call(call)
        self._turns.append(turn)
        self._responses.append(record.response)
        return record

    def answered(self, question: str, last: str) -> Demonstration:
        """The whole conversation, ended by a last turn."""
        return Demonstration(question, (*self._turns, last), tuple(self._responses))


def answer_block(value: str) -> str:
    """The answer as the grader reads it."""
    return f"<answer>\\boxed{{{value}}}</answer>"


def texts_of_demonstrations(
    demonstrations: Iterable[Demonstration], manifest: Manifest
) -> Iterator[str]:
    """The texts of conversations, roles of the turns included, for a tokenizer to learn."""
    for one in demonstrations:
        turns = "".join(f"assistant\n{turn}" for turn in one.turns)
        answers = "".join(f"user\n{response}\n" for response in one.responses)
        yield f"system\n{manifest.system_text()}user\n{one.question}{turns}{answers}"
