"""The sets of problems that are known by name, and what is known about each.

Revisions are commits of the data sets' repositories. Row counts are those of the copies in
circulation; the integer golds of a benchmark are counted and summed, so that a copy with
changed labels, or of another year, is noticed.

A licence is what the publisher states. It does not settle the rights in contest problems, so
no problem is part of this project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from rstar2.problems.data.schemas import (
    BOXED,
    DAPO_PROCESSED,
    IFEVAL,
    OPEN_MATH_REASONING,
    PLAIN,
    VERL,
    Schema,
)


class Role(StrEnum):
    """What a set is for."""

    POOL = "pool"
    """Problems to train on."""
    BENCHMARK = "benchmark"
    """Problems to measure with: the pool must hold none of them."""


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a set lies on the Hugging Face Hub.

    Attributes:
        dataset: Its id.
        revision: The commit that is read.
        split: The split.
        file: The file of the split, for those who fetch it by hand; a pattern if there are many.
        config: The configuration; None for the default one.
        columns: Columns to read, where the rest is too large; None for all.
        streamed: Whether to read over the network, record by record, without a copy on disk.
    """

    dataset: str
    revision: str
    split: str
    file: str
    config: str | None = None
    columns: tuple[str, ...] | None = None
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Edition:
    """A copy of a set, recognised by its number of records.

    Attributes:
        records: How many records it has.
        what: What distinguishes it.
        usable: False for a copy that must not be used; ``what`` says why.
        integers: How many labels are plain decimal integers; None if that is not known.
        gold_sum: The sum of these labels; None if that is not known.
    """

    records: int
    what: str
    usable: bool = True
    integers: int | None = None
    gold_sum: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A known set of problems.

    Attributes:
        name: Its name in rows, reports and on the command line.
        what: What it is, in one sentence.
        role: What it is for.
        licence: What its publisher states.
        schemas: The layouts it comes in.
        editions: Its copies; empty if the set grows and no count is expected.
        hub: Where it lies; None if a file must be given.
        faults: What is known to be wrong with it, one sentence each.
    """

    name: str
    what: str
    role: Role
    licence: str
    schemas: tuple[Schema, ...]
    editions: tuple[Edition, ...] = ()
    hub: Hub | None = None
    faults: tuple[str, ...] = ()


_DAPO = Source(
    name="dapo-17k",
    what="Contest problems rewritten so that the answer is an integer (DAPO-Math-17k).",
    role=Role.POOL,
    licence="Apache-2.0 for the original collection; the card of the processed copy states none.",
    schemas=(DAPO_PROCESSED, VERL, PLAIN),
    editions=(
        Edition(17_398, "one row per distinct prompt", integers=17_398),
        Edition(17_917, "one row per problem id", integers=17_917),
        Edition(14_116, "the English part of those with distinct prompts", integers=14_116),
        Edition(
            1_791_700,
            "the copy with every prompt 100 times; take one without repeats",
            usable=False,
            integers=1_791_700,
        ),
    ),
    hub=Hub(
        dataset="open-r1/DAPO-Math-17k-Processed",
        config="all",
        revision="31dd309567e3da778038cc87d868b6097a3ccf68",
        split="train",
        file="all/train-00000-of-00001.parquet",
    ),
    faults=(
        "About 2% of the problems that stand there twice have two different labels.",
        "About a fifth of the prompts are Chinese.",
        "Some rewritten prompts lost their question; one is a bare fraction.",
        "Hundreds of prompts refer to a figure that is missing.",
    ),
)

_AOPS = Source(
    name="aops",
    what="Problems from the AoPS forums, extracted and rephrased by a language model "
    "(OpenMathReasoning).",
    role=Role.POOL,
    licence="CC BY 4.0 for the collection.",
    schemas=(OPEN_MATH_REASONING,),
    editions=(
        Edition(3_201_061, "split cot: one record per chain-of-thought solution"),
        Edition(1_718_466, "split tir: one record per solution with tools"),
        Edition(193_170, "split additional_problems: problems without solutions"),
    ),
    hub=Hub(
        dataset="nvidia/OpenMathReasoning",
        revision="d3d08664755704f422af97d43a7ff0ded4bd95df",
        split="cot",
        file="data/cot-*.parquet",
        columns=OPEN_MATH_REASONING.columns,
        streamed=True,
    ),
    faults=(
        "Labels that were not found in the thread are what most model solutions said.",
        "Users report wrong labels, undefined symbols, and answers to another question.",
        "Problems made from proofs (converted_proof) are of low quality.",
        "A part of the problems is from the training set of MATH.",
    ),
)

_EULER = Source(
    name="euler",
    what="Project Euler problems with integer answers, joined by number.",
    role=Role.POOL,
    licence="Problem text CC BY-NC-SA 4.0 (not for commercial use); the list of answers is the "
    "user's own.",
    schemas=(PLAIN,),
    faults=(
        "The answers are of people who solved the problems; nobody confirms them.",
        "The site asks that answers of later problems not be spread.",
    ),
)

_AIME_LICENCE = "The problems are the Mathematical Association of America's; the card states none."

_AIME24 = Source(
    name="aime24",
    what="The 30 problems of AIME I and II 2024.",
    role=Role.BENCHMARK,
    licence=_AIME_LICENCE,
    schemas=(PLAIN, BOXED, VERL),
    editions=(
        Edition(30, "each problem once", integers=30, gold_sum=8_762),
        Edition(
            960,
            "the copy with every problem 32 times; take one without repeats",
            usable=False,
            integers=960,
            gold_sum=32 * 8_762,
        ),
        Edition(90, "AIME 2022 to 2024; take the 30 of 2024", usable=False),
    ),
    hub=Hub(
        dataset="HuggingFaceH4/aime_2024",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        split="train",
        file="data/train-00000-of-00001.parquet",
    ),
    faults=("It is older than most base models: they may have been trained on it.",),
)

_AIME25 = Source(
    name="aime25",
    what="The 30 problems of AIME I and II 2025.",
    role=Role.BENCHMARK,
    licence=_AIME_LICENCE.replace("the card states none", "the card states Apache-2.0"),
    schemas=(PLAIN, BOXED, VERL),
    editions=(
        Edition(30, "each problem once", integers=30, gold_sum=8_344),
        Edition(15, "one of the two exams; join the files of both", usable=False),
    ),
    hub=Hub(
        dataset="math-ai/aime25",
        revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
        split="test",
        file="test.jsonl",
    ),
)

_HMMT25 = Source(
    name="hmmt25",
    what="The 30 problems of HMMT February 2025.",
    role=Role.BENCHMARK,
    licence="CC BY-NC-SA 4.0 (not for commercial use).",
    schemas=(PLAIN,),
    editions=(Edition(30, "each problem once", integers=14, gold_sum=13_524),),
    hub=Hub(
        dataset="MathArena/hmmt_feb_2025",
        revision="6fdc4277120810ff75aa22d2d5489b91f7a262a1",
        split="train",
        file="data/train-00000-of-00001.parquet",
    ),
    faults=("Only 14 of the 30 answers are integers.",),
)

_MATH500 = Source(
    name="math500",
    what="500 problems of the MATH test set.",
    role=Role.BENCHMARK,
    licence="MIT for MATH; the card of this selection states none.",
    schemas=(PLAIN,),
    editions=(Edition(500, "each problem once", integers=311, gold_sum=165_950),),
    hub=Hub(
        dataset="HuggingFaceH4/MATH-500",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        split="test",
        file="test.jsonl",
    ),
    faults=(
        "Only 311 of the 500 answers are plain integers.",
        "It is older than most base models: they may have been trained on it.",
    ),
)

_GSM8K = Source(
    name="gsm8k",
    what="The test set of GSM8K, for decontamination.",
    role=Role.BENCHMARK,
    licence="MIT.",
    schemas=(PLAIN,),
    editions=(Edition(1_319, "each problem once", integers=1_305, gold_sum=6_970_677),),
    hub=Hub(
        dataset="openai/gsm8k",
        config="main",
        revision="740312add88f781978c0658806c59bc2815b9866",
        split="test",
        file="main/test-00000-of-00001.parquet",
    ),
)

_IFEVAL = Source(
    name="ifeval",
    what="The prompts of IFEval, for decontamination; they have no labels.",
    role=Role.BENCHMARK,
    licence="Apache-2.0.",
    schemas=(IFEVAL,),
    editions=(Edition(541, "each prompt once", integers=0, gold_sum=0),),
    hub=Hub(
        dataset="google/IFEval",
        revision="966cd89545d6b6acfd7638bc708b98261ca58e84",
        split="train",
        file="ifeval_input_data.jsonl",
    ),
)

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        source.name: source
        for source in (
            _DAPO,
            _AOPS,
            _EULER,
            _AIME24,
            _AIME25,
            _HMMT25,
            _MATH500,
            _GSM8K,
            _IFEVAL,
        )
    }
)
"""The known sets, by name."""
