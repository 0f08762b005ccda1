"""Tool definitions of the sets, brought to one form: OpenAI's function schemas."""

from collections.abc import Mapping, Sequence
from typing import Any

from rstar2.training.sft_mix.messages import Refusal, Refused

_TYPES = {
    "dict": "object",
    "map": "object",
    "hashmap": "object",
    "float": "number",
    "double": "number",
    "int": "integer",
    "long": "integer",
    "str": "string",
    "char": "string",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
}
"""Names of other languages for JSON schema's types."""


def function_schema(raw: Any) -> dict[str, Any]:
    """One tool as ``{"type": "function", "function": {name, description, parameters}}``.

    Raises:
        Refused: It has no name, or its parameters are no object.
    """
    function = raw
    if isinstance(raw, Mapping) and isinstance(raw.get("function"), Mapping):
        function = raw["function"]
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name.strip():
        raise Refused(Refusal.BAD_TOOLS, f"a tool without a name: {str(raw)[:80]}")
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise Refused(Refusal.BAD_TOOLS, f"{name}: parameters are no object")
    try:
        schema = _schema(parameters)
    except RecursionError as error:
        raise Refused(Refusal.BAD_TOOLS, f"{name}: nested too deeply") from error
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    description = function.get("description")
    return {
        "type": "function",
        "function": {
            "name": name.strip(),
            "description": description if isinstance(description, str) else "",
            "parameters": schema,
        },
    }


def function_schemas(raw: Any) -> tuple[dict[str, Any], ...]:
    """All tools of a record; a definition that stands twice is taken once.

    Raises:
        Refused: It is no list, a tool is unreadable, or two tools share a name.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise Refused(Refusal.BAD_TOOLS, f"expected a list of tools, found {type(raw).__name__}")
    tools: dict[str, dict[str, Any]] = {}
    for item in raw:
        tool = function_schema(item)
        name = tool["function"]["name"]
        if tools.setdefault(name, tool) != tool:
            raise Refused(Refusal.BAD_TOOLS, f"two tools are called {name}")
    return tuple(tools.values())


def _schema(node: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for key, value in node.items():
        if value is None:
            continue
        if key == "properties" and isinstance(value, Mapping):
            schema[key] = {
                name: _schema(each) if isinstance(each, Mapping) else each
                for name, each in value.items()
            }
        elif key == "items" and isinstance(value, Mapping):
            schema[key] = _schema(value)
        elif key == "type" and isinstance(value, str):
            lowered = value.lower()
            if lowered not in ("any", "none"):
                schema[key] = _TYPES.get(lowered, lowered)
        else:
            schema[key] = value
    return schema
