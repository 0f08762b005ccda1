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
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import nbformat

from rstar2.experiments.machine_names import Machine, rules
from rstar2.experiments.notebook_files import NotebookError
from rstar2.experiments.secret_forms import MARKERS, Edit, Rule, marker, may_be_secret, names_secret
from rstar2.records import atomic_write

_MARKUP = frozenset({"text/html", "image/svg+xml", "text/markdown", "application/xml", "text/xml"})
_BINARY = re.compile(r"(?:image/(?!svg)|audio/|video/|font/|application/(?:pdf|octet-stream))")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
_DATA_URI = re.compile(r"(data:(?:image|audio|video|font)/[\w.+-]+;base64,[A-Za-z0-9+/=]*)")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURS_AND_TAGS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|</?[A-Za-z][^<>]*>")


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
    try:
        notebook = nbformat.v4.to_notebook(content)
        cleaned = clean(notebook, Machine.here(root))
        data = None if cleaned == notebook else _as_bytes(cleaned)
    except RecursionError as error:
        raise NotebookError(
            f"{path} is nested too deeply to be cleaned: do not publish it"
        ) from error
    if data is not None:
        atomic_write(path, data)


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

    def rest(self, values: Mapping[str, Any], kept: Collection[str] = ()) -> dict[str, Any]:
        """A mapping whose keys are those of the format: all values clean but the kept ones."""
        return {
            key: value if key in kept else self._value(value, key) for key, value in values.items()
        }

    def _outputs(self, stream: str | None, group: list[Any]) -> list[Any]:
        cleaned = [self._output(output) for output in group]
        if stream is None or len(group) == 1:
            return cleaned
        whole = self._text("".join(output["text"] for output in group))
        if whole == "".join(output["text"] for output in cleaned):
            return cleaned
        return [{**cleaned[0], "text": whole}]

    def _output(self, output: Mapping[str, Any]) -> dict[str, Any]:
        result = self.rest(output, {"output_type", "name", "data"})
        return {**result, "data": self.rest(output["data"])} if "data" in output else result

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
        # first what marks run through: half of a token may look like a whole one
        if markup or "\x1b" in text:
            text = self._across_marks(text, _COLOURS_AND_TAGS if markup else _COLOURS, markup)
        parts = _DATA_URI.split(text) if ";base64," in text else [text]
        parts[::2] = [self._plain(part, markup) for part in parts[::2]]
        return "".join(parts)

    def _across_marks(self, text: str, marks: re.Pattern[str], markup: bool) -> str:
        """Cleans what colours or tags run through; they follow what takes its place."""
        bare = marks.sub("", text)
        for rule in self.rules:
            if edits := rule.edits(bare, markup):
                text = _edited(text, marks, edits)
                bare = marks.sub("", text)
        return text

    def _plain(self, text: str, markup: bool) -> str:
        for rule in self.rules:
            text = rule.apply(text, markup)
        return text


def _edited(text: str, marks: re.Pattern[str], edits: list[Edit]) -> str:
    """A text with edits of what it is without its marks; the marks inside an edit follow it."""
    found = list(marks.finditer(text))
    removed = [0, *accumulate(len(mark[0]) for mark in found)]
    at = [mark.start() - before for mark, before in zip(found, removed, strict=False)]
    parts, done = [], 0
    for start, stop, replacement in edits:
        first, last = bisect_right(at, start), bisect_left(at, stop)
        parts += [text[done : start + removed[first]], replacement]
        parts += [mark[0] for mark in found[first:last]]
        done = stop + removed[last]
    return "".join([*parts, text[done:]])


def _as_bytes(notebook: dict[str, Any]) -> bytes:
    node = nbformat.from_dict(notebook)
    try:
        text: str = nbformat.v4.writes(node)
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which a model may print
        text = nbformat.v4.writes(node, ensure_ascii=True)
        return text.encode() + b"\n"


def _is_notebook(content: Any) -> bool:
    """Whether it has the parts that are walked through; nbformat's schema asks for more."""
    if not isinstance(content, dict) or content.get("nbformat") != 4:
        return False
    cells = content.get("cells")
    return isinstance(cells, list) and all(map(_is_cell, cells))


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or "cell_type" not in cell:
        return False
    outputs = cell.get("outputs", [])
    return isinstance(outputs, list) and all(
        isinstance(output, dict) and isinstance(output.get("data", {}), dict) for output in outputs
    )


def _stream(output: Mapping[str, Any]) -> str | None:
    is_stream = output.get("output_type") == "stream" and isinstance(output.get("text"), str)
    return str(output.get("name")) if is_stream else None
