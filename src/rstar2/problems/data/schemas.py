r"""How the records of public sets become rows.

A schema is recognised from its columns alone. The first of :data:`SCHEMAS` that fits is taken:

- ``verl``: ``prompt`` is a list of messages, the label is ``reward_model.ground_truth``;
- ``dapo-processed``: ``prompt`` is the text, ``solution`` the label, ``source_prompt`` beside;
- ``open-math-reasoning``: one record per solution, so a problem repeats;
- ``ifeval``: prompts without a label;
- ``plain``: a question and an answer under their usual names;
- ``boxed``: the label stands in the ``\boxed{…}`` of ``solution``.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rstar2.problems.data.formats import Record


class LabelFrom(StrEnum):
    """Where a label comes from; a row has it as ``notes["label_from"]``."""

    EXTRACTED = "extracted"
    """From the discussion of the problem."""
    MAJORITY = "majority"
    """It is what most model solutions said."""


class BadRecord(Exception):
    """A record that is not what its schema says; the message says how."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What a record says.

    Attributes:
        row_id: Its id; empty if it has none.
        question: Its text.
        gold: Its label; empty if it has none.
        notes: Facts that a later rule may need.
    """

    row_id: str
    question: str
    gold: str
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schema:
    """A layout of records.

    Attributes:
        name: Its name in messages.
        needs: For each column that must be there, the names it may have.
        optional: Further columns that ``fields`` reads where they are.
        fields: Reads a record; raises :class:`BadRecord`.
        repeats: Whether the same problem stands in several records, once per solution that
            reached the label; then ``notes["agreeing"]`` of the row counts them.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...]
    fields: Callable[[Record], Fields]
    repeats: bool = False

    def fits(self, columns: Collection[str]) -> bool:
        """Whether a file with these columns has this layout."""
        return all(any(name in columns for name in names) for names in self.needs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that it may read."""
        return (*(name for names in self.needs for name in names), *self.optional)

    def __str__(self) -> str:
        return f"{self.name} ({', '.join('|'.join(names) for names in self.needs)})"


_QUESTIONS = ("problem", "question", "prompt")
_GOLDS = ("answer", "gold", "expected_answer")
_IDS = ("unique_id", "id", "problem_idx", "number", "key")
_BOX = re.compile(r"\s*\{([^{}]*)\}")
_LABELS = {
    "has_answer_extracted": LabelFrom.EXTRACTED,
    "no_answer_extracted": LabelFrom.MAJORITY,
    "converted_proof": LabelFrom.MAJORITY,
}


def _text(record: Mapping[str, Any], column: str) -> str:
    """A value as text: whole numbers in digits, null as nothing."""
    if column not in record:
        raise BadRecord(f"column {column!r} is missing")
    value = record[column]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRecord(f"{column!r} is {type(value).__name__}, text or a number expected")
    return str(value)


def _first(record: Record, names: tuple[str, ...]) -> str:
    for name in names:
        if name in record:
            return _text(record, name)
    raise BadRecord(f"column {'|'.join(names)} is missing")


def _id(record: Record) -> str:
    return next((_text(record, name) for name in _IDS if name in record), "")


def _verl(record: Record) -> Fields:
    messages = record.get("prompt")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadRecord("'prompt' is no list of {content, role}")
    asked = [_text(message, "content") for message in messages if message.get("role") == "user"]
    if len(asked) != 1:
        raise BadRecord(f"'prompt' has {len(asked)} user messages, one expected")
    reward, extra = record.get("reward_model"), record.get("extra_info")
    if not isinstance(reward, dict):
        raise BadRecord("'reward_model' is no object with 'ground_truth'")
    row_id = _text(extra, "index") if isinstance(extra, dict) and "index" in extra else ""
    return Fields(row_id, asked[0], _text(reward, "ground_truth"))


def _dapo_processed(record: Record) -> Fields:
    extra = record.get("extra_info")
    row_id = _text(extra, "index") if isinstance(extra, dict) and "index" in extra else ""
    return Fields(row_id, _text(record, "prompt"), _text(record, "solution"))


def _open_math_reasoning(record: Record) -> Fields:
    if record.get("inference_mode") == "genselect":
        raise BadRecord("'genselect' records compare solutions; take the split cot or tir")
    kind = _text(record, "problem_type")
    if kind not in _LABELS:
        raise BadRecord(f"problem_type {kind!r} is none of {', '.join(_LABELS)}")
    notes = {"label_from": _LABELS[kind].value, "problem_type": kind}
    for name in ("problem_source", "pass_rate_72b_tir"):
        if (value := _text(record, name) if name in record else "") not in ("", "n/a"):
            notes[name] = value
    return Fields("", _text(record, "problem"), _text(record, "expected_answer"), notes)


def _ifeval(record: Record) -> Fields:
    return Fields(_id(record), _text(record, "prompt"), "")


def _plain(record: Record) -> Fields:
    # A worked answer, as of GSM8K, ends in a line with the label: "#### 18".
    gold = _first(record, _GOLDS)
    gold = gold.rpartition("\n#### ")[2]
    return Fields(_id(record), _first(record, _QUESTIONS), gold)


def _boxed(record: Record) -> Fields:
    _, mark, rest = _text(record, "solution").rpartition("\\boxed")
    box = _BOX.match(rest)
    if not mark or not box:
        raise BadRecord("'solution' does not end in \\boxed{…} with a plain label")
    return Fields(_id(record), _first(record, _QUESTIONS), box[1])


VERL = Schema("verl", (("prompt",), ("reward_model",)), ("extra_info",), _verl)
DAPO_PROCESSED = Schema(
    "dapo-processed",
    (("prompt",), ("solution",), ("source_prompt",)),
    ("extra_info",),
    _dapo_processed,
)
OPEN_MATH_REASONING = Schema(
    "open-math-reasoning",
    (("problem",), ("expected_answer",), ("problem_type",)),
    ("problem_source", "pass_rate_72b_tir", "inference_mode"),
    _open_math_reasoning,
    repeats=True,
)
IFEVAL = Schema("ifeval", (("prompt",), ("instruction_id_list",)), ("key",), _ifeval)
PLAIN = Schema("plain", (_QUESTIONS, _GOLDS), _IDS, _plain)
BOXED = Schema("boxed", (("problem",), ("solution",)), _IDS, _boxed)

SCHEMAS = (DAPO_PROCESSED, VERL, OPEN_MATH_REASONING, IFEVAL, PLAIN, BOXED)
"""In the order in which they are tried."""
