"""Magicoder, reformatted as calls of the paper's Python tool (paper, section 4.1).

``ise-uiuc/Magicoder-OSS-Instruct-75K`` has ``lang``, ``problem`` and ``solution``;
``ise-uiuc/Magicoder-Evol-Instruct-110K`` has ``instruction`` and ``response``. The paper
does not say which of them its 48K are from; the first has 38,284 records in Python.

The one code block of the solution becomes the ``code`` of one call with an empty ``input``;
what stands before it is what the assistant says. The call is the end of the conversation:
the program was never run, so there is no result to show, and what follows the block in the
solution would speak of one.
"""

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from rstar2.protocol.manifest import PAPER
from rstar2.training.sft_mix.messages import (
    Call,
    Conversation,
    Message,
    Refusal,
    Refused,
    Role,
    conversation,
    field,
)

_BLOCK = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.M | re.S)
_PYTHON = ("python", "python3", "py")


def convert_magicoder(record: Mapping[str, Any]) -> Conversation:
    """A record of either set as one call of the paper's tool.

    Raises:
        Refused: Its program is not one block of Python.
    """
    if "problem" in record:
        problem, solution = field(record, "problem", str), field(record, "solution", str)
        language = field(record, "lang", str).lower()
        if language not in _PYTHON:
            raise Refused(Refusal.NOT_PYTHON, language)
    else:
        problem, solution = field(record, "instruction", str), field(record, "response", str)
        language = ""
    spoken, code = _program(solution, language)
    call = Call(PAPER.tool_name, {"code": code, "input": ""})
    messages = [Message(Role.USER, problem.strip()), Message(Role.ASSISTANT, spoken, (call,))]
    return conversation(messages, [json.loads(PAPER.tool_schema)])


def _program(solution: str, language: str) -> tuple[str, str]:
    """What is said before the one code block, and its program."""
    blocks = list(_BLOCK.finditer(solution))
    if not blocks:
        raise Refused(Refusal.NO_PROGRAM, solution[:80])
    if len(blocks) > 1:
        raise Refused(Refusal.SEVERAL_PROGRAMS, f"{len(blocks)} code blocks")
    (block,) = blocks
    named = block[1].lower() or language
    if named not in _PYTHON:
        raise Refused(Refusal.NOT_PYTHON, named or "a code block without a language")
    code = block[2].rstrip()
    if not code.strip():
        raise Refused(Refusal.EMPTY, "an empty program")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's style
            compile(code, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(Refusal.NOT_PYTHON, str(error)[:80]) from error
    return solution[: block.start()].strip(), code
