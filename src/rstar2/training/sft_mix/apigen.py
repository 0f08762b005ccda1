"""APIGen-MT (``Salesforce/APIGen-MT-5k``): long conversations of a shop and an airline.

A record has ``system`` (the agent's policy), ``tools`` (a JSON list as a string) and
``conversations`` of ``from`` (human, gpt, function_call, observation) and ``value``. A call
is a JSON object whose ``arguments`` are an object or, in every fifth, a JSON string.
"""

from collections.abc import Mapping
from typing import Any

from rstar2.training.sft_mix.messages import (
    Call,
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    conversation,
    field,
    parse_json,
    turns,
)
from rstar2.training.sft_mix.tools import function_schemas

_ROLES = {"human": Role.USER, "gpt": Role.ASSISTANT, "observation": Role.TOOL}


def convert_apigen(record: Mapping[str, Any]) -> Conversation:
    """An APIGen-MT record as a conversation.

    Raises:
        Refused: It cannot become one.
    """
    tools = function_schemas(parse_json(field(record, "tools", str), Refusal.BAD_TOOLS))
    system = record.get("system")
    messages = [Message(Role.SYSTEM, system)] if isinstance(system, str) and system else []
    for turn in turns(record, "conversations"):
        kind, value = str(turn.get("from")), field(turn, "value", str)
        if kind == "function_call":
            call = call_of(parse_json(value, Refusal.UNPARSABLE_CALL))
            messages.append(Message(Role.ASSISTANT, "", (call,)))
        elif kind in _ROLES:
            messages.append(Message(_ROLES[kind], value.strip()))
        else:
            raise Refused(Refusal.BAD_FIELD, f"from: {kind}")
    return conversation(messages, tools)


def call_of(value: Any) -> Call:
    """The call of a JSON object with ``name`` and ``arguments``, object or string.

    Raises:
        Refused: It is none.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise Refused(Refusal.UNPARSABLE_CALL, f"no object with a name: {str(value)[:80]}")
    arguments = value.get("arguments")
    if isinstance(arguments, str):
        arguments = parse_json(arguments or "{}", Refusal.UNPARSABLE_CALL)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise Refused(Refusal.UNPARSABLE_CALL, f"{value['name']}: arguments are no object")
    return Call(value["name"].strip(), dict(arguments))
