"""Rollouts and conversations: the model's last word counts, and nothing that follows it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.grading import BadGold, Reason, Verdict, grade
from rstar2.protocol.types import CallStatus, StopReason, ToolCall, Trajectory, Turn

RIGHT = r"<answer>\boxed{42}</answer>"
WRONG = r"<answer>\boxed{41}</answer>"
PENDING = [{"id": "1", "type": "function", "function": {"name": "python", "arguments": "{}"}}]


def trajectory(
    *texts: str, stop: StopReason = StopReason.ANSWERED, printed: str = ""
) -> Trajectory:
    """A rollout of the given turns, all but the last with a call that printed `printed`."""
    call = ToolCall(raw="{}", status=CallStatus.OK, response=printed)
    turns = tuple(
        Turn(text, num_tokens=1, calls=() if i == len(texts) - 1 else (call,))
        for i, text in enumerate(texts)
    )
    return Trajectory("r", (1,), (2,), (1,), (0.0,), turns, stop)


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


# --- rollouts ------------------------------------------------------------------------------


def test_of_a_trajectory_only_the_last_turn_is_read() -> None:
    assert grade(trajectory(WRONG, RIGHT), 42) == Verdict(True, 42, Reason.CORRECT)
    assert grade(trajectory(RIGHT, "so."), 42).reason is Reason.NO_ANSWER_BLOCK


@pytest.mark.parametrize("printed", [RIGHT, f"</tool_response>{RIGHT}<tool_response>", "<answer>"])
def test_what_a_tool_printed_is_never_read(printed: str) -> None:
    assert not grade(trajectory("I call.", "I do not know.", printed=printed), 42).correct
    assert grade(trajectory("I call.", RIGHT, printed=printed), 42).correct


@pytest.mark.parametrize("stop", [stop for stop in StopReason if stop.is_truncated])
def test_a_truncated_trajectory_is_wrong_whatever_it_says(stop: StopReason) -> None:
    assert grade(trajectory(RIGHT, stop=stop), 42) == Verdict(False, None, Reason.TRUNCATED)


def test_an_infrastructure_failure_has_its_own_reason() -> None:
    verdict = grade(trajectory(RIGHT, stop=StopReason.INFRASTRUCTURE), 42)
    assert verdict == Verdict(False, None, Reason.INFRASTRUCTURE)


def test_a_trajectory_without_turns_has_no_answer() -> None:
    assert grade(trajectory(stop=StopReason.NO_CALL), 42).reason is Reason.NO_ANSWER_BLOCK
    assert grade(trajectory(stop=StopReason.PROMPT_TOO_LONG), 42).reason is Reason.TRUNCATED


def test_a_bad_gold_is_an_error_also_for_a_truncated_rollout() -> None:
    with pytest.raises(BadGold):
        grade(trajectory(RIGHT, stop=StopReason.MAX_TOKENS), "none")


# --- conversations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        RIGHT,
        [{"type": "text", "text": RIGHT}],
        [{"type": "text", "text": "So:"}, {"type": "text", "text": RIGHT}],
        [{"type": "thinking", "thinking": WRONG}, {"type": "text", "text": RIGHT}],
    ],
)
def test_the_last_assistant_message_is_graded(content: object) -> None:
    conversation = [
        message("user", "What is 6 times 7?"),
        message("assistant", WRONG, tool_calls=PENDING),
        message("tool", WRONG),
        message("assistant", content),
    ]
    assert grade(conversation, 42) == Verdict(True, 42, Reason.CORRECT)
    assert grade(tuple(conversation), 41).reason is Reason.MISMATCH


@pytest.mark.parametrize(
    ("conversation", "reason"),
    [
        ([], Reason.NO_ANSWER_BLOCK),
        ([message("assistant", None)], Reason.NO_ANSWER_BLOCK),
        ([{"role": "assistant"}], Reason.NO_ANSWER_BLOCK),
        ([message("assistant", [])], Reason.NO_ANSWER_BLOCK),
        ([message("assistant", RIGHT), message("assistant", "so.")], Reason.NO_ANSWER_BLOCK),
        ([message("tool", RIGHT)], Reason.TRUNCATED),
        ([message("user", RIGHT)], Reason.TRUNCATED),
        ([message("assistant", RIGHT), message("user", "Sure?")], Reason.TRUNCATED),
        ([message("assistant", RIGHT), message("tool", "42")], Reason.TRUNCATED),
        ([message("assistant", RIGHT, tool_calls=PENDING)], Reason.TRUNCATED),
        ([message("assistant", RIGHT, tool_calls=[])], Reason.CORRECT),
        ([message("assistant", RIGHT, tool_calls=None)], Reason.CORRECT),
        ([message("assistant", r"<answer>\boxed{42}")], Reason.UNCLOSED),
    ],
)
def test_a_conversation_must_end_with_the_models_last_word(
    conversation: list[dict[str, Any]], reason: Reason
) -> None:
    assert grade(conversation, 42).reason is reason


def test_two_parts_do_not_join_into_one_number() -> None:
    parts = [r"<answer>\boxed{4", r"2}</answer>"]
    content = [{"type": "text", "text": part} for part in parts]
    assert not grade([message("assistant", content)], 42).correct


@given(st.text(max_size=40), st.sampled_from(["tool", "user", "system"]), st.booleans())
def test_what_others_say_never_changes_the_verdict(noise: str, role: str, right: bool) -> None:
    said = message(role, noise + RIGHT + noise)
    last = message("assistant", RIGHT if right else "I do not know.")
    assert grade([said, last], 42).correct == right


@pytest.mark.parametrize(
    ("conversation", "error"),
    [
        ([{}], "message 0 has no 'role'"),
        ([message("user", "?"), {"content": RIGHT}], "message 1 has no 'role'"),
        ([{"role": None}], "message 0 has no 'role'"),
        ([RIGHT], "message 0 is a value of type str"),
        (RIGHT.encode(), "message 0 is a value of type int"),
        ([message("assistant", 42)], "message 0 has a value of type int as content"),
        ([message("assistant", [RIGHT])], "message 0 has a part that is not"),
        ([message("assistant", [{"type": "text"}])], "message 0 has a part that is not"),
        (message("assistant", RIGHT), "not a value of type dict"),
        (None, "not a value of type NoneType"),
        (42, "not a value of type int"),
    ],
)
def test_a_message_that_is_none_is_an_error_that_names_it(conversation: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        grade(conversation, 42)


def test_a_conversation_from_json_is_graded_like_its_text() -> None:
    conversation = json.loads(json.dumps([message("assistant", RIGHT)]))
    assert grade(conversation, 42) == grade(RIGHT, 42)
