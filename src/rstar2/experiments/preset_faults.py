"""Says in one line what is wrong with a preset: place, what was given, what would be valid."""

import difflib
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_MISSPELT = ("extra_forbidden", "literal_error", "enum")
_WANTED = {
    "bool_type": "give true or false",
    "dict_type": "give a section",
    "tuple_type": "give a list",
    "string_type": "give text",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "string_too_short": "give text",
}
_LENGTHS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def first_fault(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """Place and fault; first a name that does not exist, since others may follow from it.

    Args:
        error: What validation found.
        model: What was validated.
    """
    faults = sorted(error.errors(), key=lambda one: (one["type"] not in _MISSPELT, len(one["loc"])))
    fault = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    loc = tuple(part for part in fault["loc"] if part != "[key]")
    return ".".join(map(str, loc)), _told(fault, loc, model) + more


def unknown_name(name: str, valid: Iterable[str]) -> str:
    """What to say of a name that is none of the valid ones."""
    names = list(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    meant = f"; did you mean {close[0]}?" if close else "."
    listed = f" It has: {', '.join(names)}" if names else " It has no names below it"
    return f"there is no such setting{meant}{listed}"


def shown(value: object) -> str:
    """A value as messages show it, in one line of at most 60 characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _told(fault: Mapping[str, Any], loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    kind, given = fault["type"], fault["input"]
    if kind == "value_error":
        return str(fault["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden" or fault["loc"][-1:] == ("[key]",):
        return unknown_name(str(loc[-1]), _names_at(model, loc[:-1]))
    if kind == "missing":
        names = ", ".join(_names_at(model, loc[:-1]))
        return f"is missing; {_place(loc[:-1])} has: {names}" if names else "is missing"
    if kind == "model_type":
        names = ", ".join(_names_at(model, loc))
        return f"is {shown(given)}: give a section with {names}"
    if kind in _LENGTHS:
        bound, name = _LENGTHS[kind]
        return f"is {shown(given)}: give {bound} {fault['ctx'][name]}"
    wanted = _WANTED.get(kind) or fault["msg"].replace("Input should be", "it should be")
    return f"is {shown(given)}: {wanted}"


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc)) or "a preset"


def _names_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The valid names at a place."""
    here: Any = model
    for part in loc:
        here = _below(_required(here), part)
    here = _required(here)
    if isinstance(here, type) and issubclass(here, BaseModel):
        return list(here.model_fields)
    if get_origin(here) is dict:
        return [str(name) for name in get_args(get_args(here)[0])]
    return []


def _required(annotation: Any) -> Any:
    """``X`` of ``X | None``; anything else as it is."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    (kept,) = (one for one in get_args(annotation) if one is not types.NoneType)
    return kept


def _below(annotation: Any, part: int | str) -> Any:
    """Type of what lies below a section, a list or a table of sections."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.model_fields[str(part)].annotation
    arguments = get_args(annotation)
    return arguments[1] if get_origin(annotation) is dict else arguments[0]
