"""The sets of the cold start: raw records become conversations, rendered in our template.

The records under ``data/sft_mix`` are invented; their schemas are those of the real sets.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.problems.data.formats import read_records
from rstar2.protocol import PAPER, MalformedCall, ProgramCall, TokenTemplate, parse_calls
from rstar2.protocol.calls import outside_calls
from rstar2.protocol.manifest import TAGS, TURN_CLOSE, TURN_OPEN
from rstar2.training.sft_mix import (
    Call,
    Conversation,
    Format,
    Message,
    Refusal,
    Refused,
    Role,
    convert,
    encode_conversation,
    from_json,
    rendered_messages,
    to_json,
)
from rstar2.training.sft_mix.checks import MathsRule, find_maths
from rstar2.training.sft_mix.glaive import parse_glaive_call
from rstar2.training.sft_mix.messages import conversation
from rstar2.training.sft_mix.rendering import assistant_text, call_json, system_text
from rstar2.training.sft_mix.toolace import parse_python_calls
from rstar2.training.sft_mix.tools import function_schema

DATA = Path(__file__).parents[1] / "data" / "sft_mix"
EXPECTED: dict[str, tuple[Format, list[Refusal | None]]] = {
    "toolace.json": (
        Format.TOOLACE,
        [
            None,
            None,
            None,
            Refusal.UNPARSABLE_CALL,  # an argument without a name
            Refusal.UNPARSABLE_CALL,  # an argument that would have to be run
            Refusal.UNKNOWN_TOOL,
            Refusal.UNPARSABLE_CALL,  # a call within prose
            Refusal.ORPHAN_RESPONSE,
            Refusal.RESPONSE_COUNT,
            Refusal.BAD_TOOLS,
        ],
    ),
    "apigen.json": (
        Format.APIGEN,
        [
            None,
            None,
            Refusal.UNANSWERED,
            Refusal.WRONG_ORDER,
            Refusal.UNPARSABLE_CALL,
            Refusal.UNKNOWN_TOOL,
        ],
    ),
    "glaive.json": (
        Format.GLAIVE,
        [
            None,
            None,
            None,
            None,
            Refusal.UNKNOWN_TOOL,
            Refusal.UNPARSABLE_CALL,
            Refusal.ORPHAN_RESPONSE,
            Refusal.WRONG_ORDER,
            Refusal.BAD_TOOLS,
            Refusal.RESERVED_TAG,
        ],
    ),
    "magicoder_oss.jsonl": (
        Format.MAGICODER,
        [
            None,
            Refusal.NOT_PYTHON,
            Refusal.SEVERAL_PROGRAMS,
            Refusal.NOT_PYTHON,  # Python 2
            Refusal.NO_PROGRAM,
            None,
        ],
    ),
    "magicoder_evol.jsonl": (Format.MAGICODER, [None, Refusal.NOT_PYTHON, Refusal.NOT_PYTHON]),
    "tulu.jsonl": (Format.TULU, [None, Refusal.EMPTY, None]),
    "nemotron.jsonl": (
        Format.NEMOTRON,
        [
            None,
            None,
            Refusal.THINKING,  # marked as reasoning
            Refusal.THINKING,  # not marked, but it thinks
            Refusal.CATEGORY,
            None,
            Refusal.BAD_FIELD,
        ],
    ),
}


def converted(name: str) -> list[Conversation | Refused]:
    schema, _ = EXPECTED[name]
    return [convert(record, schema) for _, record in read_records(DATA / name)]


def conversations() -> Iterator[Any]:
    for name in EXPECTED:
        for number, one in enumerate(converted(name)):
            if isinstance(one, Conversation):
                yield pytest.param(one, id=f"{name}:{number + 1}")


def calls_of(name: str) -> list[list[Call]]:
    return [
        [call for message in one.messages for call in message.calls]
        for one in converted(name)
        if isinstance(one, Conversation)
    ]


def reason_of(parse: Callable[[str], object], text: str) -> Refusal | None:
    try:
        parse(text)
    except Refused as refused:
        return refused.reason
    return None


def talk(user: str, assistant: str) -> Conversation:
    return conversation([Message(Role.USER, user), Message(Role.ASSISTANT, assistant)])


# --- converters --------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_each_record_becomes_a_conversation_or_is_refused_by_name(name: str) -> None:
    reasons = [one.reason if isinstance(one, Refused) else None for one in converted(name)]
    assert reasons == EXPECTED[name][1]


def test_toolace_calls_are_read_as_literals() -> None:
    first, second, third = calls_of("toolace.json")
    assert first == [
        Call("Tide Table", {"harbour": "Husum", "days": 2, "limits": {"low": -0.5}}),
        Call(
            "ferry.search",
            {"from": "Dagebüll", "to": "Föhr", "cars": [{"length": 4.2}], "cabin": False},
        ),
    ]
    assert [call.arguments["harbour"] for call in second] == ["Husum", "Büsum"]
    assert third == []


def test_toolace_answers_are_dealt_to_their_calls() -> None:
    one = converted("toolace.json")[1]
    assert isinstance(one, Conversation)
    answers = [json.loads(text) for text in one.texts(Role.TOOL)]
    assert [answer["results"]["high"] for answer in answers] == ["04:10", "04:32"]


def test_toolace_tools_become_json_schema_and_its_format_is_not_asked_for() -> None:
    one = converted("toolace.json")[0]
    assert isinstance(one, Conversation)
    assert one.tool_names == ("Tide Table", "ferry.search")
    parameters = one.tools[0]["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"]["days"] == {
        "type": "integer",
        "description": "Days ahead.",
        "default": 1,
    }
    limits = parameters["properties"]["limits"]
    assert (limits["type"], limits["properties"]["low"]["type"]) == ("object", "number")
    cars = one.tools[1]["function"]["parameters"]["properties"]["cars"]
    assert cars["items"]["properties"]["length"]["type"] == "number"
    assert "[func" not in system_text(one)


def test_apigen_arguments_are_objects_or_strings() -> None:
    first, second = calls_of("apigen.json")
    assert first == [
        Call("find_member", {"card": "C-17"}),
        Call("think", {"thought": "Both loans may be renewed once."}),
        Call("renew_loan", {"member_id": "m_9", "items": ["b_1", "b_2"]}),
    ]
    assert second == [Call("find_member", {"card": "C-18"})]


def test_text_before_a_call_is_of_its_message() -> None:
    one = converted("apigen.json")[1]
    assert isinstance(one, Conversation)
    assert one.messages[2].text == "One moment."
    assert one.messages[2].calls


def test_glaive_is_split_into_turns_and_its_quoted_arguments_are_read() -> None:
    first, second, third, fourth = calls_of("glaive.json")
    assert first == [
        Call("book_court", {"name": "O'Brien", "hours": [9, 10]}),
        Call("get_rules", {}),
    ]
    assert second == [Call("book_court", {"name": "D'Arcy"})]
    assert third == [Call("get_rules", {})]
    assert fourth == []
    one = converted("glaive.json")[0]
    assert isinstance(one, Conversation)
    assert one.texts(Role.SYSTEM) == ("You are a helpful assistant.",)
    assert one.tool_names == ("book_court", "get_rules")
    assert not any("<|endoftext|>" in message.text for message in one.messages)


def test_magicoder_becomes_one_call_of_the_papers_tool() -> None:
    one = converted("magicoder_oss.jsonl")[0]
    assert isinstance(one, Conversation)
    assert one.tool_names == (PAPER.tool_name,)
    message = one.messages[-1]
    assert message.text == "The words are joined by `str.join`."
    (call,) = message.calls
    assert call.arguments["input"] == ""
    assert call.arguments["code"].endswith("print(squash(['a', 'b']))")


def test_the_switch_of_nemotron_is_no_system_text() -> None:
    first, second = converted("nemotron.jsonl")[:2]
    assert isinstance(first, Conversation)
    assert isinstance(second, Conversation)
    assert first.texts(Role.SYSTEM) == ()
    assert second.texts(Role.SYSTEM) == ("You are a librarian.",)


@pytest.mark.parametrize("schema", Format)
@pytest.mark.parametrize(
    "record", [{}, {"conversations": [None]}, {"messages": 3}, {"chat": None, "system": ""}]
)
def test_a_record_of_another_set_is_refused(schema: Format, record: dict[str, Any]) -> None:
    refused = convert(record, schema)
    assert isinstance(refused, Refused)
    assert refused.reason in (Refusal.BAD_FIELD, Refusal.BAD_TOOLS)


def test_half_a_surrogate_pair_is_refused() -> None:
    record = {"messages": [{"role": "user", "content": "a"}]}
    record["messages"].append({"role": "assistant", "content": "\ud83d"})
    refused = convert(record, Format.TULU)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.BAD_TEXT


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a record."""
    yield path
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(value, (*path, key))


def put(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The record with another value at a place; within a text, somewhere in its middle."""
    if not path:
        if isinstance(node, str) and isinstance(value, str):
            return node[: len(node) // 2] + value + node[len(node) // 2 :]
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = put(node[path[0]], path[1:], value)
    return copy


RECORDS = [
    (schema, record)
    for name, (schema, _) in EXPECTED.items()
    for _, record in read_records(DATA / name)
]
broken_values = (
    st.none()
    | st.integers()
    | st.lists(st.none(), max_size=1)
    | st.dictionaries(st.sampled_from(["name", "from", "function"]), st.none(), max_size=1)
    | st.text(max_size=4)
    | st.sampled_from(["'", '"', "{", "\\", "[f(", "<functioncall>", "\n\nUSER: ", "```", "\ud800"])
)


@given(st.data())
def test_a_damaged_record_is_converted_or_refused(paper: TokenTemplate, data: Any) -> None:
    schema, record = data.draw(st.sampled_from(RECORDS))
    path = data.draw(st.sampled_from([path for path in places(record) if path]))
    one = convert(put(record, path, data.draw(broken_values)), schema)
    if isinstance(one, Conversation):
        assert encode_conversation(one, paper).ids
        assert from_json(json.loads(json.dumps(to_json(one)))) == one


# --- calls written by others -------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(["f", "Get Weather", "a.b/c", "v2 (beta)", "class"])
keys = st.sampled_from(["a", "from", "class", "start-date", "b"])
all_calls = st.builds(Call, names, st.dictionaries(keys, json_values, max_size=3))


@given(st.lists(all_calls, min_size=1, max_size=3))
def test_python_like_calls_read_back(calls: list[Call]) -> None:
    written = ", ".join(
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in calls
    )
    assert list(parse_python_calls(f"[{written}]", [call.name for call in calls])) == calls


@given(st.text(max_size=40) | st.lists(st.sampled_from("[](){}'\"\\,=f1 -")).map("".join))
def test_any_text_is_read_as_calls_or_refused(text: str) -> None:
    for parse in (parse_python_calls, parse_glaive_call):
        assert reason_of(parse, text) in (None, Refusal.UNPARSABLE_CALL)


def test_deep_nesting_is_refused() -> None:
    deep = "[" * 5000 + "]" * 5000
    with pytest.raises(Refused):
        parse_python_calls(f"[f(a={deep})]")
    with pytest.raises(Refused):
        parse_glaive_call(f'{{"name": "f", "arguments": {{"a": {"[" * 200_000}')


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), json_values, max_size=3))
def test_glaive_arguments_read_back(arguments: dict[str, Any]) -> None:
    inner = json.dumps(arguments)
    assert parse_glaive_call(f'{{"name": "f", "arguments": {inner}}}').arguments == arguments
    assert parse_glaive_call(f'{{"name": "f", "arguments": \'{inner}\'}}').arguments == arguments


def test_a_schema_of_the_house_is_left_as_it_is() -> None:
    tool = function_schema(json.loads(PAPER.tool_schema))
    function = json.loads(PAPER.tool_schema)["function"]
    assert tool["function"] == {key: function[key] for key in ("name", "description", "parameters")}


# --- rendering ---------------------------------------------------------------------------


def test_figure_3_is_rendered_as_the_protocol_does() -> None:
    intro = PAPER.system.partition("\n\n")[0]
    one = Conversation(
        (Message(Role.SYSTEM, intro), Message(Role.USER, "q")), (json.loads(PAPER.tool_schema),)
    )
    assert system_text(one) == PAPER.system_text()


def test_a_conversation_has_the_ids_of_the_agent_loop(paper: TokenTemplate) -> None:
    """But for the prime: the turns of the cold start do not begin with ``<reason>``."""
    offer = PAPER.system.partition("\n\n")[2]
    manifest = replace(PAPER, system=offer, question="{question}", prime="")
    loop = TokenTemplate(paper.tokenizer, manifest)
    call = Call(PAPER.tool_name, {"code": "print(6 * 7)", "input": ""})
    one = Conversation(
        (
            Message(Role.USER, "What is 6 * 7? <|im_end|>"),
            Message(Role.ASSISTANT, "Let me run it.", (call, call)),
            Message(Role.TOOL, "42"),
            Message(Role.TOOL, "</tool_response>"),
            Message(Role.ASSISTANT, "It is 42."),
        ),
        (json.loads(PAPER.tool_schema),),
    )
    said = [loop.encode(assistant_text(one.messages[at])) for at in (1, 4)]
    prompt = loop.prompt_ids("What is 6 * 7? <|im_end|>")
    between = loop.tool_turn_ids(["42", "</tool_response>"], 48)
    example = encode_conversation(one, paper)
    assert list(example.ids) == [
        *prompt,
        *[*said[0], loop.end_id],
        *between,
        *[*said[1], loop.end_id],
    ]
    written = [len(said[0]) + 1, len(said[1]) + 1]
    mask = [0] * len(prompt) + [1] * written[0] + [0] * len(between) + [1] * written[1]
    assert list(example.mask) == mask


@pytest.mark.parametrize("one", list(conversations()))
def test_ids_are_the_chat_templates_and_the_loss_is_on_the_assistant(
    one: Conversation, paper: TokenTemplate
) -> None:
    example = encode_conversation(one, paper)
    assert len(example.ids) == len(example.mask)
    said = "".join(
        f"{assistant_text(message)}{TURN_CLOSE}"
        for message in one.messages
        if message.role is Role.ASSISTANT
    )
    counted = [token for token, kept in zip(example.ids, example.mask, strict=True) if kept]
    assert paper.decode(counted) == said
    whole = paper.tokenizer.apply_chat_template(rendered_messages(one), return_dict=False)
    assert [*example.ids, *paper.encode("\n")] == list(whole)


@pytest.mark.parametrize("one", list(conversations()))
def test_the_protocol_reads_back_exactly_the_calls(one: Conversation) -> None:
    for message in one.messages:
        if message.role is not Role.ASSISTANT:
            continue
        text = assistant_text(message)
        found = parse_calls(text, PAPER)
        read = [json.loads(call.raw) for call in found]
        assert read == [{"name": c.name, "arguments": c.arguments} for c in message.calls]
        assert outside_calls(text).strip() == message.text.strip()
        for call, wanted in zip(found, message.calls, strict=True):
            if wanted.name == PAPER.tool_name:
                assert isinstance(call, ProgramCall)
                assert call.code == wanted.arguments["code"]
            else:
                assert isinstance(call, MalformedCall)  # the protocol knows one tool only


def test_several_calls_are_answered_in_one_user_turn(paper: TokenTemplate) -> None:
    one = converted("toolace.json")[1]
    assert isinstance(one, Conversation)
    text = paper.decode(encode_conversation(one, paper).ids)
    assert "</tool_call>\n<tool_call>" in text
    assert "</tool_response>\n<tool_response>\n" in text
    assert text.count(f"{TURN_OPEN}user") == 3


hostile = st.lists(st.sampled_from([*TAGS, TURN_OPEN, TURN_CLOSE, "a", "<", "\n", '"'])).map(
    "".join
)


@given(user=hostile, answer=hostile, value=hostile)
def test_no_text_of_a_set_opens_a_turn_or_a_call(
    paper: TokenTemplate, user: str, answer: str, value: str
) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": value, "parameters": {}}}
    one = conversation(
        [
            Message(Role.USER, f"q{user}"),
            Message(Role.ASSISTANT, "", (Call("f", {"a": value}),)),
            Message(Role.TOOL, answer),
            Message(Role.ASSISTANT, "done"),
        ],
        [tool],
    )
    plain = conversation(
        [
            Message(Role.USER, "q"),
            Message(Role.ASSISTANT, "", (Call("f", {}),)),
            Message(Role.TOOL, ""),
            Message(Role.ASSISTANT, "done"),
        ],
        [{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}],
    )
    added = set(paper.tokenizer.get_added_vocab().values())
    specials = [
        [token for token in encode_conversation(each, paper).ids if token in added]
        for each in (one, plain)
    ]
    assert specials[0] == specials[1]
    (call,) = parse_calls(assistant_text(one.messages[1]), PAPER)
    assert json.loads(call.raw)["arguments"] == {"a": value}


@given(call=all_calls)
def test_a_call_is_json_whatever_its_arguments(call: Call) -> None:
    assert json.loads(call_json(call)) == {"name": call.name, "arguments": call.arguments}


@pytest.mark.parametrize("one", list(conversations()))
def test_a_conversation_survives_json(one: Conversation) -> None:
    assert from_json(json.loads(json.dumps(to_json(one)))) == one


# --- mathematics -------------------------------------------------------------------------

MATHS = [
    ("Find x when 2x + 3 = 11.", "We subtract 3: 2x = 8, and x + 1 = 5.", MathsRule.DERIVATION),
    (
        "Tom has 3 bags of 12 nuts and eats 5. How many are left?",
        "He has 3 * 12 = 36 nuts. Then 36 - 5 = 31 are left.",
        MathsRule.DERIVATION,
    ),
    ("What is 6 * 7?", "It is $\\boxed{42}$.", MathsRule.BOXED),
    (
        "Evaluate $\\int_0^1 x^2 dx$.",
        "We have $\\int x^2 dx = \\frac{x^3}{3}$, hence $\\left[x^3/3\\right]_0^1 = \\frac13$.",
        MathsRule.LATEX,
    ),
    ("Prove that $n^2 \\ge n$.", "Proof. For $n \\ge 1$ multiply by $n$. ∎", MathsRule.PROOF),
]
NOT_MATHS = [
    ("What does the trip cost for 2 people?", "It costs $120 for 2 people, $60 each."),
    ("How many cups of flour are in 2 loaves?", "Take 3 cups for each loaf, 6 cups in all."),
    ("What changed in 2023-10-05?", "Version 2.1 = the last one of 2023; see pages 3-5."),
    ("Which flags set x = 1 in the config?", "Write `x = 1` and `y = 2` into the file."),
    (
        "How do I sum 2 lists?",
        "Use zip:\n```python\na = 1 + 2\nb = 3 * 4 == 12\nc = 2 - 1 = 1\n```",
    ),
    ("What are the opening hours on day 5?", "9:00-12:00 and 14:00-18:00, which is 7 hours."),
]


@pytest.mark.parametrize(("asked", "said", "rule"), MATHS)
def test_a_solved_problem_is_found(asked: str, said: str, rule: MathsRule) -> None:
    finding = find_maths(talk(asked, said))
    assert finding is not None
    assert finding.rule is rule


@pytest.mark.parametrize(("asked", "said"), NOT_MATHS)
def test_talk_about_numbers_is_not_mathematics(asked: str, said: str) -> None:
    assert find_maths(talk(asked, said)) is None


def test_what_a_tool_computed_is_not_mathematics() -> None:
    for one in (*converted("glaive.json"), *converted("apigen.json"), *converted("toolace.json")):
        if isinstance(one, Conversation):
            assert find_maths(one) is None


def solved(path: Path, asked: str, said: str) -> list[MathsRule | None]:
    """The rules that find the solutions of a benchmark, put into a conversation."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    findings = [find_maths(talk(row[asked], re.sub("<<.*?>>", "", row[said]))) for row in rows]
    return [finding.rule if finding else None for finding in findings]


@pytest.mark.skipif(
    "RSTAR2_DATA" not in os.environ, reason="needs the benchmark files: set RSTAR2_DATA"
)
def test_the_solutions_of_benchmarks_are_found() -> None:
    data = Path(os.environ["RSTAR2_DATA"])
    assert set(solved(data / "math500.jsonl", "problem", "solution")) == {MathsRule.BOXED}
    school = solved(data / "gsm8k_test.jsonl", "question", "answer")
    assert sum(rule is not None for rule in school) >= 0.9 * len(school)
