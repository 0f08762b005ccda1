"""Writes the lessons of the families: documents for ``pretrain``, conversations for the SFT.

``write_document`` writes for the stand-in for a base model: a problem, a plan, a solution.
``demonstrate`` writes a conversation. That of the non-reasoning SFT teaches format, calls and
recovery after an error, with mistakes on purpose (``NoiseSpec``), and every tool response in it
is what the real sandbox answered.
"""

import json
import random

from rstar2.problems import WorkedProblem
from rstar2.protocol import Manifest
from rstar2.rollout import ToolRunner
from rstar2.training.slips import program_call, slipped_call
from rstar2.training.spec import Demonstrations, NoiseSpec
from rstar2.training.traces import ConversationWriter, Demonstration, Document, answer_block

_MAX_SLIPS = 2


def write_document(
    worked: WorkedProblem, rng: random.Random, demonstrations: Demonstrations
) -> Document:
    """A document about a problem: its program as JSON holds it, or its steps by hand."""
    if demonstrations is Demonstrations.BY_HAND:
        solution = " ".join(worked.steps)
    else:
        solution = json.dumps({"code": rng.choice(worked.right)})
    return Document(f"{worked.problem.question}\n", f"{worked.plan}\n{solution}")


async def demonstrate(
    worked: WorkedProblem,
    rng: random.Random,
    noise: NoiseSpec,
    demonstrations: Demonstrations,
    *,
    sandbox: ToolRunner,
    manifest: Manifest,
    timeout: float,
) -> Demonstration:
    """Writes one conversation about a problem, running its programs for real."""
    if demonstrations is Demonstrations.BY_HAND:
        return _by_hand(worked, rng, noise)
    if rng.random() < noise.direct:
        thought = rng.choice(_DIRECT)
        turn = f"{thought}</reason>{answer_block(str(worked.problem.answer))}"
        return Demonstration(worked.problem.question, (turn,), ())
    writer = ConversationWriter(sandbox, manifest, timeout)
    right = rng.randrange(len(worked.right))
    code = rng.choice(worked.wrong) if rng.random() < noise.wrong_program else worked.right[right]
    thought = rng.choice(_PLANS).replace("{plan}", worked.plan)
    if demonstrations is Demonstrations.REASONING:
        thought = " ".join((thought, *worked.steps[:-1]))
    for _ in range(_MAX_SLIPS):
        if rng.random() >= noise.slip:
            break
        await writer.call(thought, slipped_call(code, manifest.tool_name, rng))
        thought = rng.choice(_REPAIRS)
    record = await writer.call(thought, program_call(code, manifest.tool_name))
    if rng.random() < noise.verify and len(worked.right) > 1:
        other = worked.right[1 - right if right < 2 else 0]
        record = await writer.call(_CHECK, program_call(other, manifest.tool_name))
    result = record.response.rsplit("\n", 1)[-1]
    ending = rng.choice(_ENDINGS).replace("{output}", result)
    return writer.answered(worked.problem.question, _closing(ending, result, rng, noise))


def _by_hand(worked: WorkedProblem, rng: random.Random, noise: NoiseSpec) -> Demonstration:
    """A conversation of one turn, without a tool; of the noise it has the doubled answer."""
    thought = " ".join((rng.choice(_PLANS).replace("{plan}", worked.plan), *worked.steps))
    turn = _closing(thought, str(worked.problem.answer), rng, noise)
    return Demonstration(worked.problem.question, (turn,), ())


def _closing(thought: str, value: str, rng: random.Random, noise: NoiseSpec) -> str:
    """The last turn: a thought and the answer, now and then twice."""
    last = f"{thought}</reason>{answer_block(value)}"
    if rng.random() < noise.repeat_answer:
        last += f"<reason>{_AGAIN}</reason>{answer_block(value)}"
    return last


_DIRECT = ("I can do this directly.", "Estimate it by hand.", "This is short.")
_PLANS = ("Let me {plan}.", "I will {plan}.", "Plan: {plan}.")
_REPAIRS = ("Fix the error.", "There is a mistake.", "The call failed.")
_CHECK = "Check with another program."
_ENDINGS = ("The output is {output}.", "So the answer is {output}.", "Done.")
_AGAIN = "Let me state it again."
