"""Slips: small mistakes that make a call fail, as a programmer in a hurry makes them."""

import json
import random
import re
from collections.abc import Callable

_NAMES = "abcdefghjkmnpqrstuvwxyz"

Slip = Callable[[str, random.Random], str | None]


def program_call(code: str, tool_name: str) -> str:
    """The JSON body of a call."""
    return json.dumps({"name": tool_name, "arguments": {"code": code}})


def slipped_call(code: str, tool_name: str, rng: random.Random) -> str:
    """The body of a call that fails because of one slip in it."""
    while True:
        kind = rng.choice(_KINDS)
        if kind in _CODE_SLIPS:
            slipped = _CODE_SLIPS[kind](code, rng)
            if slipped is not None and slipped != code:
                return program_call(slipped, tool_name)
        elif kind == "json":
            return _break_json(program_call(code, tool_name), rng)
        else:
            return program_call(code, rng.choice(["calc", "solve", "pyhton"]))


def _break_json(body: str, rng: random.Random) -> str:
    return rng.choice([body[:-1], body[:-2], body.replace('"arguments":', '"arguments"', 1)])


def _drop_colon(code: str, rng: random.Random) -> str | None:
    places = [match.start() for match in re.finditer(":\n", code)]
    if not places:
        return None
    place = rng.choice(places)
    return code[:place] + code[place + 1 :]


def _drop_paren(code: str, _: random.Random) -> str | None:
    return code[:-1] if code.endswith(")") else None


def _wrong_name(code: str, rng: random.Random) -> str | None:
    uses = list(re.finditer(r"\b[a-z]\b", code))
    free = [name for name in _NAMES if name not in code]
    if not uses or not free:
        return None
    start = uses[-1].start()
    return code[:start] + rng.choice(free) + code[start + 1 :]


def _drop_import(code: str, _: random.Random) -> str | None:
    first, _newline, rest = code.partition("\n")
    return rest if "import" in first else None


def _wrong_call(code: str, _: random.Random) -> str | None:
    for right, wrong in (("sum(", "Sum("), ("range(", "rang(")):
        if right in code:
            return code.replace(right, wrong, 1)
    return None


def _drop_indent(code: str, _: random.Random) -> str | None:
    return code.replace("\n  ", "\n", 1) if "\n  " in code else None


def _misspell_print(code: str, _: random.Random) -> str | None:
    return code.replace("print(", "pritn(", 1)


def _wrong_attribute(code: str, _: random.Random) -> str | None:
    return code.replace("math.", "maths.", 1) if "math." in code else None


_CODE_SLIPS: dict[str, Slip] = {
    "colon": _drop_colon,
    "paren": _drop_paren,
    "name": _wrong_name,
    "import": _drop_import,
    "call": _wrong_call,
    "indent": _drop_indent,
    "print": _misspell_print,
    "attribute": _wrong_attribute,
}
_KINDS = (*_CODE_SLIPS, "json", "tool")
