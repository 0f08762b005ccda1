"""The laboratory meets its premise by construction: a free habit, a key that nobody can know."""

import asyncio
import dataclasses
import random
from typing import Any

import pytest

from rstar2.experiments.presets import load_torch_preset
from rstar2.problems.ambiguous import Key, draw_ambiguous
from rstar2.problems.splits import Split
from rstar2.protocol import LAPTOP, TokenTemplate, ToolResult
from rstar2.sandbox import Sandbox
from rstar2.training.laboratory_spec import HabitSpec
from rstar2.training.laboratory_world import (
    BrokenPremiseError,
    LaboratoryWorld,
    demonstrate_ambiguous,
)
from rstar2.training.traces import Demonstration
from rstar2.training.world import Lessons

PRESET = load_torch_preset("laboratory", {"sft.examples": 48})
WORLD = PRESET.world


def world(**changes: Any) -> LaboratoryWorld:
    assert isinstance(WORLD, LaboratoryWorld)
    return dataclasses.replace(WORLD, **changes)


def lessons(**changes: Any) -> Lessons:
    async def write() -> Lessons:
        async with Sandbox() as sandbox:
            return await world(**changes).lessons(1, sandbox)

    return asyncio.run(write())


def shown(probability: float, count: int = 40) -> list[Demonstration]:
    async def write() -> list[Demonstration]:
        async with Sandbox() as sandbox:
            return [
                await demonstrate_ambiguous(
                    draw_ambiguous(Key.HIDDEN, Split.TRAIN, 5, index),
                    random.Random(index),
                    HabitSpec(probability=probability),
                    sandbox=sandbox,
                    manifest=LAPTOP,
                    timeout=1.0,
                )
                for index in range(count)
            ]

    return asyncio.run(write())


def test_a_clean_demonstration_takes_one_reading_and_answers_what_its_program_prints() -> None:
    readings = set()
    for index, one in enumerate(shown(0.0)):
        drawn = draw_ambiguous(Key.HIDDEN, Split.TRAIN, 5, index)
        thought = one.turns[0].partition("</reason>")[0]
        taken = drawn.readings.index(thought)
        readings.add(taken)
        assert len(one.turns) == 2
        assert f"\\boxed{{{one.responses[-1]}}}" in one.turns[-1]
        right = str(drawn.problem.answer) == one.responses[-1]
        assert right == (taken == Key.HIDDEN.reading(index))
    assert readings == {0, 1}


def test_the_habit_is_one_failed_call_and_then_the_same_reading_in_plain_code() -> None:
    for clean, erring in zip(shown(0.0, 12), shown(1.0, 12), strict=True):
        assert "ModuleNotFoundError" in erring.responses[0]
        assert len(erring.turns) == 3
        assert erring.turns[0].partition("</reason>")[0] == clean.turns[0].partition("</reason>")[0]
        assert erring.responses[1:] == clean.responses
        assert erring.turns[-1] == clean.turns[-1]


def test_a_module_that_exists_after_all_breaks_the_premise() -> None:
    class Everything:
        async def run(self, code: str, stdin: str = "", timeout: float = 1.0) -> ToolResult:
            async with Sandbox() as sandbox:
                return await sandbox.run(f"print({len(code)})", stdin, timeout)

    drawn = draw_ambiguous(Key.HIDDEN, Split.TRAIN, 5, 0)
    with pytest.raises(BrokenPremiseError, match="remove the module numtools"):
        asyncio.run(
            demonstrate_ambiguous(
                drawn,
                random.Random(0),
                HabitSpec(probability=1.0),
                sandbox=Everything(),
                manifest=LAPTOP,
                timeout=1.0,
            )
        )


@pytest.mark.thorough
def test_lessons_are_the_same_again_and_others_with_another_habit() -> None:
    first = lessons()
    assert len(first.examples["sft"]) == 48
    assert first.examples == lessons().examples
    assert first.examples != lessons(habit=HabitSpec(probability=0.0)).examples
    template = TokenTemplate(first.tokenizer, PRESET.texts)
    longest = max(len(one.ids) for one in first.examples["sft"])
    assert longest <= PRESET.limits.max_prompt_tokens + PRESET.stages[0].max_response_tokens
    assert template.end_id in first.examples["sft"][0].ids


def test_the_problems_of_a_step_have_the_key_in_balance() -> None:
    drawn = [WORLD.problem(0, 3, 7000 + place) for place in range(8)]
    keys = [one.problem_id.split("-")[1] for one in drawn]
    assert set(keys) == {Key.HIDDEN.value}
    assert WORLD.candidates(0) == 0
    assert drawn == [WORLD.problem(0, 3, 7000 + place) for place in range(8)]
    assert drawn != [WORLD.problem(0, 4, 7000 + place) for place in range(8)]


def test_before_rl_both_keys_are_measured_on_the_same_questions_and_later_that_of_the_stage() -> (
    None
):
    before = WORLD.held_out(9, 6, None)
    assert set(before) == {key.value for key in Key}
    questions = [[one.question for one in problems] for problems in before.values()]
    assert questions[0] == questions[1]
    assert WORLD.held_out(9, 6, 0) == {Key.HIDDEN.value: before[Key.HIDDEN.value]}
    first = PRESET.stages[0].model_copy(update={"key": Key.FIRST})
    assert world(stages=(first,)).held_out(9, 6, 0) == {Key.FIRST.value: before[Key.FIRST.value]}
