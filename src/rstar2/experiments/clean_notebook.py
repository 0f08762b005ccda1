"""Takes what is secret, and what names this machine, out of an executed notebook.

1. Values of environment variables whose names say secret become ``<removed NAME>``; so does what
   has the form of a secret (a token's prefix, a private key, a password in a URL), and what an
   entry or an assignment calls one.
2. The checkout becomes ``.``, the home folder ``~``, the environment ``<venv>``, a temporary
   folder of one's own ``<tmp>``, the user's name in a path ``<user>``, the host's ``<host>``.

Colours and tags inside a secret or a path do not hide it. What is not covered: a secret without
a known form, name or variable (a password in a sentence), one that was encoded (base64, a
picture), and one that is spread over the entries of a list.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from pathlib import Path
from typing import Any

import nbformat

from rstar2.errors import UserError
from rstar2.experiments.machine_names import Machine, rules
from rstar2.experiments.secret_forms import MARKERS, Rule, marker, may_be_secret, names_secret
from rstar2.records import atomic_write

_MARKUP = frozenset({"text/html", "image/svg+xml", "text/markdown", "application/xml", "text/xml"})
_BINARY = re.compile(r"(?:image/(?!svg)|audio/|video/|font/|application/(?:pdf|octet-stream))")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_DATA_URI = re.compile(r"(data:(?:image|audio|video|font)/[\w.+-]+;base64,[A-Za-z0-9+/=]*)")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURS_AND_TAGS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|</?[A-Za-z][^<>]*>")


class NotebookError(UserError):
    """A notebook cannot be read; the message names the file and what to do."""


def clean_notebook(path: Path, root: Path) -> None:
    """Cleans an executed notebook in place; one that is clean already is not written.

    Args:
        path: The notebook, of format 4.
        root: The checkout that it was executed in.

    Raises:
        NotebookError: It cannot be read, or is no whole notebook of format 4.
        RecordError: It cannot be written; the old file is untouched.
    """
    path = path.resolve()
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise NotebookError(f"cannot read {path}: {error.strerror}; execute it first") from error
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"{path} is half-written or no notebook: execute it again") from error
    if not _is_notebook(content):
        raise NotebookError(f"{path} is no notebook of format 4: execute it with papermill")
    notebook = nbformat.v4.to_notebook(content)  # type: ignore[no-untyped-call]  # it has no types
    cleaned = clean(notebook, Machine.here(root))
    if cleaned != notebook:
        atomic_write(path, _as_bytes(cleaned))


def clean(notebook: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Cleans a notebook in memory.

    Cells, their order, ids and types stay; base64 data of pictures is let stand. Neighbouring
    outputs of one stream become one where a secret runs across them. Cleaning it again changes
    nothing.

    Args:
        notebook: A notebook of format 4, each text one string.
        machine: What must not stand in it.
    """
    cleaner = _Cleaner(rules(machine))
    cells = [cleaner.cell(cell) for cell in notebook["cells"]]
    return {**cleaner.rest(notebook, {"cells", "nbformat", "nbformat_minor"}), "cells": cells}


@dataclass(frozen=True, slots=True)
class _Cleaner:
    rules: tuple[Rule, ...]

    def cell(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        result = self.rest(cell, {"id", "cell_type", "outputs"})
        if "outputs" in cell:
            groups = groupby(cell["outputs"], key=_stream)
            result["outputs"] = [
                output for stream, group in groups for output in self._outputs(stream, list(group))
            ]
        return result

    def rest(self, values: Mapping[str, Any], kept: set[str]) -> dict[str, Any]:
        """All of a mapping, clean but for the entries to be kept."""
        cleaned = self._mapping({key: value for key, value in values.items() if key not in kept})
        return {**cleaned, **{key: values[key] for key in kept & values.keys()}}

    def _outputs(self, stream: str | None, group: list[Any]) -> list[Any]:
        cleaned = [self.rest(output, {"output_type", "name"}) for output in group]
        if stream is None or len(group) == 1:
            return cleaned
        whole = self._text("".join(output["text"] for output in group))
        if whole == "".join(output["text"] for output in cleaned):
            return cleaned
        return [{**cleaned[0], "text": whole}]

    def _mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in values.items():
            name = self._text(key)
            while name != key and (name in result or name in values):
                name += "'"
            result[name] = self._value(value, key)
        return result

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list):
            return [self._value(item, key) for item in value]
        if not isinstance(value, str) or (_BINARY.match(key) and _BASE64.fullmatch(value)):
            return value
        # "token" alone names a piece of text as often as a secret
        if key.lower() != "token" and names_secret(key) and may_be_secret(value):
            return value if re.fullmatch(MARKERS, value) else marker(key)
        return self._text(value, key in _MARKUP)

    def _text(self, text: str, markup: bool = False) -> str:
        """Cleans until nothing is left to clean, so that a second call changes nothing."""
        while (cleaned := self._once(text, markup or "</" in text)) != text:
            text = cleaned
        return text

    def _once(self, text: str, markup: bool) -> str:
        parts = _DATA_URI.split(text) if ";base64," in text else [text]
        parts[::2] = [self._plain(part, markup) for part in parts[::2]]
        text = "".join(parts)
        if not markup and "\x1b" not in text:
            return text
        marks = _COLOURS_AND_TAGS if markup else _COLOURS
        bare = marks.sub("", text)
        if self._plain(bare, markup) == bare:
            return text
        lines = [text] if "PRIVATE KEY" in bare else text.split("\n")
        return "\n".join(self._under_marks(line, marks, markup) for line in lines)

    def _under_marks(self, line: str, marks: re.Pattern[str], markup: bool) -> str:
        """Cleans what colours or tags run through; they follow what took its place."""
        bare = marks.sub("", line)
        cleaned = self._plain(bare, markup)
        if cleaned == bare:
            return line
        start = _common(bare, cleaned)
        end = _common(bare[start:][::-1], cleaned[start:][::-1])
        first, last = _places(line, marks, start, len(bare) - end)
        inside = "".join(marks.findall(line[first:last]))
        return line[:first] + cleaned[start : len(cleaned) - end] + inside + line[last:]

    def _plain(self, text: str, markup: bool) -> str:
        for rule in self.rules:
            text = rule.apply(text, markup)
        return text


def _common(one: str, other: str) -> int:
    """Characters that two texts have in common at their beginning."""
    return len(commonprefix([one, other]))  # noqa: RUF071  # characters are meant, not folders


def _places(line: str, marks: re.Pattern[str], start: int, stop: int) -> tuple[int, int]:
    """Where the characters from ``start`` to before ``stop`` of the bare line stand in it."""
    first, removed = None, 0
    for mark in marks.finditer(line):
        at = mark.start() - removed
        if first is None and at > start:
            first = start + removed
        if at >= stop:
            break
        removed += len(mark[0])
    return (start + removed if first is None else first), stop + removed


def _as_bytes(notebook: dict[str, Any]) -> bytes:
    node = nbformat.from_dict(notebook)  # type: ignore[no-untyped-call]  # it has no types
    try:
        text: str = nbformat.v4.writes(node)  # type: ignore[no-untyped-call]  # it has no types
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which a model may print
        text = nbformat.v4.writes(node, ensure_ascii=True)  # type: ignore[no-untyped-call]  # same
        return text.encode() + b"\n"


def _is_notebook(content: Any) -> bool:
    cells = content.get("cells") if isinstance(content, dict) else None
    return (
        isinstance(cells, list)
        and content.get("nbformat") == 4
        and all(isinstance(cell, dict) and "cell_type" in cell for cell in cells)
        and all(isinstance(output, dict) for cell in cells for output in cell.get("outputs", []))
    )


def _stream(output: Mapping[str, Any]) -> str | None:
    is_stream = output.get("output_type") == "stream" and isinstance(output.get("text"), str)
    return str(output.get("name")) if is_stream else None
