"""The protocol: what the model is told, which calls it makes, what it reads back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.protocol import (
    LAPTOP,
    MANIFESTS,
    PAPER,
    CallStatus,
    MalformedCall,
    MalformedKind,
    Manifest,
    ProgramCall,
    RunStatus,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    answered_call,
    outside_calls,
    parse_calls,
    refused_call,
    response_text,
)
from rstar2.protocol.manifest import CALL_CLOSE, CALL_OPEN, TAGS, TURN_CLOSE

# --- Figure 3 ----------------------------------------------------------------------------

FIGURE_3_SYSTEM = """\
A conversation between User and Assistant. The user asks a question, and the Assistant solves \
it. The Assistant first thinks about the reasoning process in the mind and then provides the \
user with the answer. The reasoning process and answer are enclosed within <reason> </reason> \
and <answer> </answer> tags, respectively, i.e., <reason> reasoning process here \
</reason><answer> answer here </answer>.

# Tools: You may call one or more functions to assist with the user query. You are provided \
with function signatures within <tools></tools> XML tags:
<tools>{"type": "function", "function": {"name": "execute_python_code_with_standard_io", \
"description": "Execute Python code with standard input and capture standard output. This \
function takes a Python code string and an input string, provides the input string through \
standard input (stdin) to the code, and captures and returns any output produced through \
standard output (stdout). If the executed code raises an exception, the error message will be \
captured and returned instead.", "parameters": {"type": "object", "properties": {"code": \
{"type": "string", "description": "A string containing Python code to be executed. The code \
can read from standard input using the input() function."}, "input": {"type": "string", \
"description": "A string that will be provided as standard input to the code when it calls \
input()."}}, "required": ["code", "input"]}, "return": {"type": "string", "description": \
"str: The output produced by the executed code through standard output. If an error occurs \
during execution, the error message will be returned."}}}</tools>
For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:<tool_call>{"name": <function-name>, "arguments": \
<args-json-object>}</tool_call>"""


def test_the_paper_manifest_is_figure_3_with_its_json_closed() -> None:
    assert PAPER.system_text() == FIGURE_3_SYSTEM
    assert PAPER.question_text("What is 6 * 7?") == (
        "You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here "
        "</answer>. And your final answer will be extracted automatically by the \\boxed{} tag. "
        "This is the problem: What is 6 * 7? "
    )
    assert PAPER.prime == "<reason>"


def test_the_tool_of_figure_3_parses_and_names_what_calls_must_name() -> None:
    schema = json.loads(PAPER.system_text().split("\n<tools>")[1].split("</tools>\n")[0])
    function = schema["function"]
    assert function["name"] == PAPER.tool_name
    assert set(function["parameters"]["properties"]) == {"code", "input"}
    assert function["parameters"]["required"] == ["code", "input"]
    assert PAPER.stdin_required
    assert "return" in function


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_the_question_stands_in_every_manifest_as_it_is(manifest: Manifest) -> None:
    question = "Is {question} or {tools} {} special? No."
    assert manifest.question.count("{question}") == 1
    assert question in manifest.question_text(question)
    assert "{tools}" not in manifest.system_text()


# --- calls -------------------------------------------------------------------------------


def call(body: Any) -> str:
    """A tool call as the model writes it."""
    return f"{CALL_OPEN}{body if isinstance(body, str) else json.dumps(body)}{CALL_CLOSE}"


def program(code: str, tool: str = LAPTOP.tool_name, **arguments: Any) -> str:
    return call({"name": tool, "arguments": {"code": code, **arguments}})


def test_a_turn_without_a_call_has_none() -> None:
    assert parse_calls("I know it.</reason><answer>\\boxed{4}</answer>", LAPTOP) == ()
    assert parse_calls(f"closing alone {CALL_CLOSE}", LAPTOP) == ()


def test_all_calls_of_a_turn_are_found_in_order() -> None:
    text = f"First{program('a')} then {program('b', input='7')}{call('{')}{program('c')} done"
    first, second, third, fourth = parse_calls(text, LAPTOP)
    assert isinstance(first, ProgramCall)
    assert (first.code, first.stdin) == ("a", "")
    assert isinstance(second, ProgramCall)
    assert (second.code, second.stdin) == ("b", "7")
    assert isinstance(third, MalformedCall)
    assert third.raw == "{"
    assert isinstance(fourth, ProgramCall)
    assert fourth.code == "c"


code_texts = st.text().filter(lambda text: CALL_OPEN not in text and CALL_CLOSE not in text)


@given(code=code_texts, stdin=code_texts, pretty=st.booleans(), ascii_only=st.booleans())
def test_any_program_arrives_as_it_was_written(
    code: str, stdin: str, pretty: bool, ascii_only: bool
) -> None:
    body = json.dumps(
        {"name": PAPER.tool_name, "arguments": {"code": code, "input": stdin}},
        indent=2 if pretty else None,
        ensure_ascii=ascii_only,
    )
    (found,) = parse_calls(f"x{CALL_OPEN}\n{body}\n{CALL_CLOSE}y", PAPER)
    assert found == ProgramCall(f"\n{body}\n", code, stdin)


MALFORMED: list[tuple[str, MalformedKind, str]] = [
    ('<tool_call>{"name": "python"', MalformedKind.UNCLOSED, "never closed"),
    ("<tool_call>", MalformedKind.UNCLOSED, "never closed"),
    (call(""), MalformedKind.BAD_JSON, "not valid JSON"),
    (call('{"name": "python", }'), MalformedKind.BAD_JSON, "not valid JSON"),
    (call('{"code": "a\nb"}'), MalformedKind.BAD_JSON, "not valid JSON"),
    (call("[" * 100_000), MalformedKind.BAD_JSON, "not valid JSON"),
    (call("9" * 5_000), MalformedKind.BAD_JSON, "not valid JSON"),
    (program("x = '</tool_call>'"), MalformedKind.BAD_JSON, "not valid JSON"),
    (call("[1]"), MalformedKind.NOT_AN_OBJECT, "the call is not a JSON object"),
    (call("null"), MalformedKind.NOT_AN_OBJECT, "the call is not a JSON object"),
    (call({"name": "python", "arguments": "1"}), MalformedKind.NOT_AN_OBJECT, "'arguments'"),
    (call({"arguments": {"code": "1"}}), MalformedKind.MISSING_KEY, "no 'name'"),
    (call({"name": "python"}), MalformedKind.MISSING_KEY, "no 'arguments'"),
    (call({"name": "python", "arguments": {}}), MalformedKind.MISSING_KEY, "no 'code'"),
    (program("1", tool="bash"), MalformedKind.UNKNOWN_TOOL, 'no tool "bash"; the tool is python'),
    (call({"name": [{}], "arguments": {"code": "1"}}), MalformedKind.UNKNOWN_TOOL, "no tool [{}]"),
    (call({"name": "python", "arguments": {"code": 1}}), MalformedKind.WRONG_TYPE, "'code'"),
    (program("1", input=None), MalformedKind.WRONG_TYPE, "'input' is not a string"),
]


@pytest.mark.parametrize(("text", "kind", "message"), MALFORMED)
def test_a_call_that_cannot_run_says_why(text: str, kind: MalformedKind, message: str) -> None:
    (found,) = parse_calls(text, LAPTOP)
    assert isinstance(found, MalformedCall)
    assert found.kind is kind
    assert message in found.message


def test_every_kind_of_malformed_call_is_in_the_table() -> None:
    assert {kind for _, kind, _ in MALFORMED} == set(MalformedKind)


def test_input_is_required_by_the_paper_and_not_on_the_laptop() -> None:
    (on_laptop,) = parse_calls(program("1"), LAPTOP)
    (in_paper,) = parse_calls(program("1", tool=PAPER.tool_name), PAPER)
    assert isinstance(on_laptop, ProgramCall)
    assert isinstance(in_paper, MalformedCall)
    assert in_paper.kind is MalformedKind.MISSING_KEY
    assert "'input'" in in_paper.message


def test_the_place_of_a_json_fault_is_told_by_the_paper_only() -> None:
    (in_paper,) = parse_calls(call("{"), PAPER)
    (on_laptop,) = parse_calls(call("{"), LAPTOP)
    assert isinstance(in_paper, MalformedCall)
    assert isinstance(on_laptop, MalformedCall)
    assert in_paper.message.endswith("line 1 column 2 (char 1)")
    assert on_laptop.message == "the call is not valid JSON"


fragments = st.sampled_from([*TAGS, TURN_CLOSE, "{", "}", '"', '{"name": "python"', "\n", "é", ":"])


@given(st.lists(fragments | st.text(max_size=5)).map("".join))
def test_every_opened_call_is_a_call_whatever_a_model_writes(text: str) -> None:
    assert len(parse_calls(text, LAPTOP)) == text.count(CALL_OPEN)


def test_what_stands_in_a_call_is_not_the_models_own_word() -> None:
    text = f"a<answer>{program('<answer>')}b{call('{')}c<tool_call><answer>"
    assert outside_calls(text) == "a<answer>bc"
    assert outside_calls("no call</tool_call>") == "no call</tool_call>"


# --- responses ---------------------------------------------------------------------------

TRACEBACK = 'Traceback (most recent call last):\n  File "main.py", line 1\nValueError: no\n'


@pytest.mark.parametrize(
    ("result", "in_paper", "on_laptop"),
    [
        (ToolResult(RunStatus.OK, stdout="6\n\n"), "6", "6"),
        (ToolResult(RunStatus.OK, stdout=" 6\n7 \n"), " 6\n7 ", " 6\n7 "),
        (ToolResult(RunStatus.OK, stdout="6\n", value="7"), "6", "6"),
        (ToolResult(RunStatus.OK, value="{1, 2}"), "{1, 2}", "{1, 2}"),
        (ToolResult(RunStatus.OK, stdout="\n", value="7"), "7", "7"),
        (ToolResult(RunStatus.OK), "(no output)", "(no output)"),
        (
            ToolResult(RunStatus.ERROR, stderr=TRACEBACK, error_type="ValueError"),
            TRACEBACK.rstrip(),
            "ValueError: no",
        ),
        (
            ToolResult(RunStatus.ERROR, "6\n", stderr=TRACEBACK, error_type="ValueError"),
            "6\n" + TRACEBACK.rstrip(),
            "6\nValueError: no",
        ),
        (
            ToolResult(RunStatus.TIMEOUT),
            "TimeoutError: the program did not finish within its time limit",
            "TimeoutError: the program did not finish within its time limit",
        ),
        (
            ToolResult(RunStatus.TIMEOUT, stdout="1\n"),
            "1\nTimeoutError: the program did not finish within its time limit",
            "1\nTimeoutError: the program did not finish within its time limit",
        ),
    ],
)
def test_the_model_reads_one_of_four_results(
    result: ToolResult, in_paper: str, on_laptop: str
) -> None:
    assert response_text(result, PAPER) == in_paper
    assert response_text(result, LAPTOP) == on_laptop


@pytest.mark.parametrize(
    ("ending", "error_type", "line"),
    [
        ("ValueError: one\ntwo\n", "ValueError", "ValueError: one"),
        (
            "json.decoder.JSONDecodeError: bad\n",
            "JSONDecodeError",
            "json.decoder.JSONDecodeError: bad",
        ),
        ("ValueError: no\na note\n", "ValueError", "ValueError: no"),
        ("AssertionError\n", "AssertionError", "AssertionError"),
        ("KeyError: 1\n\nDuring handling\n\nKeyError: 2\n", "KeyError", "KeyError: 2"),
        ("The program was killed by SIGSEGV\n", "SIGSEGV", "The program was killed by SIGSEGV"),
        ("one\n\ntwo\n", "", "two"),
    ],
)
def test_without_detail_an_error_is_the_line_that_names_it(
    ending: str, error_type: str, line: str
) -> None:
    result = ToolResult(RunStatus.ERROR, stderr=f"Traceback:\n{ending}", error_type=error_type)
    assert response_text(result, LAPTOP) == line


@pytest.mark.parametrize("seconds", [0.0, 12.5])
def test_no_duration_reaches_the_model(seconds: float) -> None:
    for status in RunStatus:
        quick = ToolResult(status, "1", TRACEBACK, error_type="ValueError")
        timed = ToolResult(
            status,
            "1",
            TRACEBACK,
            error_type="ValueError",
            cpu=seconds,
            duration=seconds,
        )
        assert response_text(timed, PAPER) == response_text(quick, PAPER)


def test_the_record_of_a_program_holds_what_ran_and_how_it_ended() -> None:
    ran = ProgramCall("{raw}", "print(1 / 0)", "stdin")
    result = ToolResult(RunStatus.ERROR, "", TRACEBACK, error_type="ZeroDivisionError")
    assert answered_call(ran, result, PAPER) == ToolCall(
        raw="{raw}",
        status=CallStatus.ERROR,
        code="print(1 / 0)",
        stdin="stdin",
        response=TRACEBACK.rstrip(),
        error_type="ZeroDivisionError",
    )


def test_the_record_of_a_malformed_call_holds_its_message() -> None:
    refused = refused_call(MalformedCall("{", MalformedKind.BAD_JSON, "the call is bad"))
    assert refused == ToolCall(
        raw="{",
        status=CallStatus.MALFORMED,
        response="Error: the call is bad",
        error_type="bad_json",
    )


def test_all_but_a_program_that_ran_to_its_end_are_errors() -> None:
    statuses = {
        answered_call(ProgramCall("", "", ""), ToolResult(status), LAPTOP).status
        for status in RunStatus
    }
    assert statuses | {CallStatus.MALFORMED} == set(CallStatus)
    assert [status for status in CallStatus if not status.is_error] == [CallStatus.OK]


# --- trajectories ------------------------------------------------------------------------


def test_a_trajectory_counts_its_calls_errors_and_answer_tags() -> None:
    calls = tuple(ToolCall("", status) for status in CallStatus)
    turns = (Turn("a", 2, calls, answer_tags=1), Turn("b", 1, calls[:1], answer_tags=2))
    trajectory = Trajectory(
        "r", (5, 6), (1, 2, 3, 4), (1, 1, 0, 1), (-1.0, -1.0, 0.0, -1.0), turns, StopReason.ANSWERED
    )
    assert trajectory.calls == (*calls, calls[0])
    assert trajectory.num_errors == 3
    assert trajectory.answer_tags == 3
    assert trajectory.num_model_tokens == 3


def test_a_trajectory_whose_parts_differ_in_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"trajectory r: ids, mask and log_probs .* 2, 1, 2"):
        Trajectory("r", (), (1, 2), (1,), (0.0, 0.0), (), StopReason.ANSWERED)


def test_limits_truncate_and_models_end() -> None:
    truncated = {StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.PROMPT_TOO_LONG}
    assert {reason for reason in StopReason if reason.is_truncated} == truncated
