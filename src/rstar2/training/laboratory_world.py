"""The world of the laboratory: ambiguous problems, and a habit that costs nothing.

Every question has two readings with different answers. A demonstration takes one of them at
random; with a given probability its first call imports a module that does not exist, after
which the same reading is programmed plainly. So whether a rollout is right says nothing of
whether it has the habit.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rstar2.errors import UserError
from rstar2.problems.ambiguous import AmbiguousProblem, Key, draw_ambiguous
from rstar2.problems.ambiguous_families import MISSING_MODULE
from rstar2.problems.splits import Split
from rstar2.problems.types import Problem
from rstar2.protocol import Manifest, TokenTemplate
from rstar2.rollout import ToolRunner
from rstar2.rollout.groups import run_all
from rstar2.training.laboratory_spec import AmbiguousStageSpec, HabitSpec
from rstar2.training.slips import program_call
from rstar2.training.spec import LimitsSpec, SupervisedSpec
from rstar2.training.tokenizer import train_tokenizer
from rstar2.training.traces import (
    ConversationWriter,
    Demonstration,
    answer_block,
    encode_demonstration,
    texts_of_demonstrations,
)
from rstar2.training.world import RL_STREAM, Lessons, stream_seed

_DEMONSTRATION_STREAM = 2
_TOKENIZER_TEXTS = 4000


class BrokenPremiseError(UserError):
    """A program of the laboratory does not do what its premise says."""


@dataclass(frozen=True, slots=True)
class LaboratoryWorld:
    """The ambiguous problems.

    Attributes:
        manifest: What the model is told.
        sft: Settings of the one supervised phase, from fresh weights.
        habit: What the demonstrations get wrong.
        limits: Budgets.
        stages: The stages of RL.
        vocab_size: Entries of the tokenizer.
    """

    manifest: Manifest
    sft: SupervisedSpec
    habit: HabitSpec
    limits: LimitsSpec
    stages: Sequence[AmbiguousStageSpec]
    vocab_size: int

    @property
    def phases(self) -> Mapping[str, SupervisedSpec]:
        """``sft`` alone."""
        return {"sft": self.sft}

    async def lessons(self, seed: int, sandbox: ToolRunner) -> Lessons:
        """Writes demonstrations, trains the tokenizer on them and encodes them.

        Raises:
            Exception: What writing a demonstration raised; the others are cancelled first.
        """
        stream = stream_seed(seed, _DEMONSTRATION_STREAM)
        shown = await run_all(
            demonstrate_ambiguous(
                draw_ambiguous(Key.HIDDEN, Split.TRAIN, stream, index),
                random.Random(f"demonstration:{stream}:{index}"),
                self.habit,
                sandbox=sandbox,
                manifest=self.manifest,
                timeout=self.limits.tool_timeout,
            )
            for index in range(self.sft.examples)
        )
        texts = texts_of_demonstrations(shown[:_TOKENIZER_TEXTS], self.manifest)
        tokenizer = train_tokenizer(texts, self.vocab_size)
        template = TokenTemplate(tokenizer, self.manifest)
        room = self.limits.max_tool_tokens
        return Lessons(
            tokenizer, {"sft": [encode_demonstration(one, template, room) for one in shown]}
        )

    def problem(self, stage: int, seed: int, index: int) -> Problem:
        """A training problem of a stage."""
        stream = stream_seed(seed, RL_STREAM)
        return draw_ambiguous(self.stages[stage].key, Split.TRAIN, stream, index).problem

    def candidates(self, _stage: int, /) -> int:
        """None: nothing is mined."""
        return 0

    def held_out(self, seed: int, problems: int, stage: int | None, /) -> dict[str, list[Problem]]:
        """The same questions under the key of the stage; under either before RL."""
        keys = tuple(Key) if stage is None else (self.stages[stage].key,)
        return {
            key.value: [
                draw_ambiguous(key, Split.HELD_OUT, seed, index).problem
                for index in range(problems)
            ]
            for key in keys
        }


async def demonstrate_ambiguous(
    drawn: AmbiguousProblem,
    rng: random.Random,
    habit: HabitSpec,
    *,
    sandbox: ToolRunner,
    manifest: Manifest,
    timeout: float,
) -> Demonstration:
    """Writes one conversation about an ambiguous problem, running its programs for real.

    Raises:
        BrokenPremiseError: If the call that is to fail does not, or a plain program does.
    """
    reading = rng.randrange(len(drawn.readings))
    writer = ConversationWriter(sandbox, manifest, timeout)
    thought = drawn.readings[reading]
    if rng.random() < habit.probability:
        failed = await writer.call(thought, program_call(drawn.missing, manifest.tool_name))
        if failed.error_type != ModuleNotFoundError.__name__:
            raise BrokenPremiseError(
                f"the call that is to find no module ended otherwise: {failed.response!r}; "
                f"remove the module {MISSING_MODULE} from this environment"
            )
        thought = _REPAIR
    plain = await writer.call(thought, program_call(drawn.programs[reading], manifest.tool_name))
    if plain.status.is_error:
        raise BrokenPremiseError(
            f"a plain program of {drawn.problem.problem_id} failed: {plain.response!r}; "
            "`rstar2 doctor` looks at the sandbox"
        )
    last = f"{_ENDING}</reason>{answer_block(plain.response)}"
    return writer.answered(drawn.problem.question, last)


_REPAIR = "Write it in plain code."
_ENDING = "Done."
