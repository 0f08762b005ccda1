"""Writes the texts that the laptop model learns from before RL.

``write_document`` writes for the stand-in for a base model: a problem, a plan, a right
program. ``demonstrate`` writes a conversation of the non-reasoning SFT:
format, calls and recovery after an error, with mistakes on purpose (``NoiseSpec``), and
every tool response in it is what the real sandbox answered.
"""

import json
import random
from dataclasses import dataclass

from rstar2.problems import WorkedProblem
from rstar2.protocol import (
    Manifest,
    ProgramCall,
    TokenTemplate,
    answered_call,
    parse_calls,
    refused_call,
)
from rstar2.rollout import ToolRunner
from rstar2.training.slips import program_call, slipped_call
from rstar2.training.spec import NoiseSpec

_MAX_SLIPS = 2


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids and, for each, whether its loss counts."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A problem and what is learnt from it: a plan and a right program."""

    question: str
    solution: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A conversation: assistant turns without their prime, and the answers between them."""

    question: str
    turns: tuple[str, ...]
    responses: tuple[str, ...]


def write_document(worked: WorkedProblem, rng: random.Random) -> Document:
    """A document about a problem, its program written as JSON holds it."""
    code = json.dumps({"code": rng.choice(worked.right)})
    return Document(f"{worked.problem.question}\n", f"{worked.plan}\n{code}")


async def demonstrate(
    worked: WorkedProblem,
    rng: random.Random,
    noise: NoiseSpec,
    *,
    sandbox: ToolRunner,
    manifest: Manifest,
    timeout: float,
) -> Demonstration:
    """Writes one noisy conversation about a problem, running its programs for real."""
    if rng.random() < noise.direct:
        thought = rng.choice(_DIRECT)
        turn = f"{thought}</reason>{_answer_block(str(worked.problem.answer))}"
        return Demonstration(worked.problem.question, (turn,), ())
    writer = _Writer(sandbox, manifest, timeout)
    right = rng.randrange(len(worked.right))
    code = rng.choice(worked.wrong) if rng.random() < noise.wrong_program else worked.right[right]
    thought = rng.choice(_PLANS).replace("{plan}", worked.plan)
    for _ in range(_MAX_SLIPS):
        if rng.random() >= noise.slip:
            break
        await writer.call(thought, slipped_call(code, manifest.tool_name, rng))
        thought = rng.choice(_REPAIRS)
    output = await writer.call(thought, program_call(code, manifest.tool_name))
    if rng.random() < noise.verify and len(worked.right) > 1:
        other = worked.right[1 - right if right < 2 else 0]
        output = await writer.call(_CHECK, program_call(other, manifest.tool_name))
    result = output.rsplit("\n", 1)[-1]
    ending = rng.choice(_ENDINGS).replace("{output}", result)
    last = f"{ending}</reason>{_answer_block(result)}"
    if rng.random() < noise.repeat_answer:
        last += f"<reason>{_AGAIN}</reason>{_answer_block(result)}"
    return Demonstration(worked.problem.question, (*writer.turns, last), tuple(writer.responses))


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


class _Writer:
    def __init__(self, sandbox: ToolRunner, manifest: Manifest, timeout: float) -> None:
        self.turns: list[str] = []
        self.responses: list[str] = []
        self._sandbox, self._manifest, self._timeout = sandbox, manifest, timeout

    async def call(self, thought: str, body: str) -> str:
        """Adds a turn with one call and the sandbox's answer; returns the answer."""
        turn = f"{thought}</reason><tool_call>{body}</tool_call>"
        (call,) = parse_calls(turn, self._manifest)
        if isinstance(call, ProgramCall):
            result = await self._sandbox.run(call.code, call.stdin, self._timeout)
            record = answered_call(call, result, self._manifest)
        else:
            record = refused_call(call)
        self.turns.append(turn)
        self.responses.append(record.response)
        return record.response


def _answer_block(value: str) -> str:
    return f"<answer>\\boxed{{{value}}}</answer>"


_DIRECT = ("I can do this directly.", "Estimate it by hand.", "This is short.")
_PLANS = ("Let me {plan}.", "I will {plan}.", "Plan: {plan}.")
_REPAIRS = ("Fix the error.", "There is a mistake.", "The call failed.")
_CHECK = "Check with another program."
_ENDINGS = ("The output is {output}.", "So the answer is {output}.", "Done.")
_AGAIN = "Let me state it again."
