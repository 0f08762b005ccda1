"""The world of the laptop run: fifteen families, their compositions, three kinds of lesson.

A model that is made from scratch must first be taught to solve at all: ``pretrain``, the
stand-in for a base model, then the SFT. Both read what the run's kind of demonstration is.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from rstar2.problems import Problem, ProblemSet, Split, draw, draw_mixed
from rstar2.protocol import Manifest, TokenTemplate
from rstar2.rollout import ToolRunner
from rstar2.rollout.groups import run_all
from rstar2.training.demonstrations import demonstrate, write_document
from rstar2.training.spec import (
    Demonstrations,
    FamilyStageSpec,
    FamilySupervisedSpec,
    LimitsSpec,
    NoiseSpec,
    SupervisedSpec,
)
from rstar2.training.tokenizer import END_OF_TEXT, train_tokenizer
from rstar2.training.traces import (
    Demonstration,
    Document,
    encode_demonstration,
    encode_document,
    texts_of_demonstrations,
)
from rstar2.training.world import RL_STREAM, Lessons, stream_seed

_DOCUMENT_STREAM = 1
_DEMONSTRATION_STREAM = 2

_TOKENIZER_TEXTS = 4000


@dataclass(frozen=True, slots=True)
class FamilyWorld:
    """The families of ``rstar2.problems``.

    Attributes:
        manifest: What the model is told.
        pretrain: Settings of the stand-in for a base model.
        sft: Settings of the SFT.
        demonstrations: What the lessons show.
        noise: What the demonstrations get wrong.
        limits: Budgets.
        stages: The stages of RL.
        vocab_size: Entries of the tokenizer.
    """

    manifest: Manifest
    pretrain: FamilySupervisedSpec
    sft: FamilySupervisedSpec
    demonstrations: Demonstrations
    noise: NoiseSpec
    limits: LimitsSpec
    stages: Sequence[FamilyStageSpec]
    vocab_size: int

    @property
    def phases(self) -> Mapping[str, SupervisedSpec]:
        """``pretrain``, then ``sft``."""
        return {"pretrain": self.pretrain, "sft": self.sft}

    async def lessons(self, seed: int, sandbox: ToolRunner) -> Lessons:
        """Writes documents and demonstrations, trains the tokenizer on them and encodes them.

        Raises:
            Exception: What writing a demonstration raised; the others are cancelled first.
        """
        documents = self._documents(stream_seed(seed, _DOCUMENT_STREAM))
        shown = await self._demonstrations(stream_seed(seed, _DEMONSTRATION_STREAM), sandbox)
        tokenizer = laptop_tokenizer(documents, shown, self.manifest, self.vocab_size)
        template = TokenTemplate(tokenizer, self.manifest)
        end_of_text = tokenizer.get_vocab()[END_OF_TEXT]
        examples = {
            "pretrain": [encode_document(text, template, end_of_text) for text in documents],
            "sft": [
                encode_demonstration(one, template, self.limits.max_tool_tokens) for one in shown
            ],
        }
        return Lessons(tokenizer, examples)

    def problem(self, stage: int, seed: int, index: int) -> Problem:
        """A training problem of a stage."""
        share = self.stages[stage].composition_share
        stream = stream_seed(seed, RL_STREAM)
        return draw_mixed(Split.TRAIN, stream, index, share).problem

    def candidates(self, stage: int, /) -> int:
        """Problems that are mined for a stage."""
        return self.stages[stage].mine_problems

    def held_out(self, seed: int, problems: int, _stage: int | None, /) -> dict[str, list[Problem]]:
        """The four sets, whatever the policy was trained in."""
        return family_sets(Split.HELD_OUT, seed, problems)

    def _documents(self, stream: int) -> list[Document]:
        spec = self.pretrain
        return [
            write_document(
                draw_mixed(Split.TRAIN, stream, index, spec.composition_share),
                random.Random(f"document:{stream}:{index}"),
                self.demonstrations,
            )
            for index in range(spec.examples)
        ]

    async def _demonstrations(self, stream: int, sandbox: ToolRunner) -> list[Demonstration]:
        """All are written at once: the sandbox bounds how many programs run."""
        spec = self.sft
        return await run_all(
            demonstrate(
                draw_mixed(Split.TRAIN, stream, index, spec.composition_share),
                random.Random(f"demonstration:{stream}:{index}"),
                self.noise,
                self.demonstrations,
                sandbox=sandbox,
                manifest=self.manifest,
                timeout=self.limits.tool_timeout,
            )
            for index in range(spec.examples)
        )


def family_sets(split: Split, seed: int, problems: int) -> dict[str, list[Problem]]:
    """The first problems of each of the four sets, by its name."""
    return {
        one.value: [draw(one, split, seed, index).problem for index in range(problems)]
        for one in ProblemSet
    }


def laptop_tokenizer(
    documents: Sequence[Document],
    demonstrations: Sequence[Demonstration],
    manifest: Manifest,
    vocab_size: int,
) -> PreTrainedTokenizerFast:
    """A tokenizer trained on both kinds of text, roles of the turns included."""

    def texts() -> Iterator[str]:
        for document in documents[:_TOKENIZER_TEXTS]:
            yield document.question + document.solution
        yield from texts_of_demonstrations(demonstrations[:_TOKENIZER_TEXTS], manifest)

    return train_tokenizer(texts(), vocab_size)
