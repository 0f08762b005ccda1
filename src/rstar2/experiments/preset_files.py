"""Reads the YAML of a preset: its values, and of each one whose it is.

A tag says whose a value is: ``steps: !paper 300``. A tag on a section or a list, or on the
whole file (``--- !ours``), holds for all below it until another tag. Everything else is
plain YAML without aliases; ``1e-6`` is a number. A comment behind a value is its note.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from rstar2.errors import UserError


class PresetError(UserError):
    """A preset is unknown or says something impossible."""


class Origin(StrEnum):
    """Whose a value is."""

    PAPER = "paper"
    """It stands in the paper, or follows from what stands there by arithmetic."""
    RELEASE = "release"
    """The paper does not say; the code that its authors released does."""
    OURS = "ours"
    """Nobody says; we chose it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a preset.

    Attributes:
        value: The value: text, number, boolean, None, or an empty list or section.
        origin: Whose it is.
        note: The comment behind it, empty if there is none.
    """

    value: Any
    origin: Origin
    note: str = ""


@dataclass(frozen=True, slots=True)
class PresetFile:
    """What a preset says, before it is known to be possible.

    Attributes:
        label: What messages call the file.
        values: The values, nested.
        settings: Every value by its dotted place, as ``stages.0.steps``.
        lines: Line of every place of the file, sections and lists too.
        changed: Places whose value is not the file's.
    """

    label: str
    values: dict[str, Any]
    settings: Mapping[str, Setting]
    lines: Mapping[str, int]
    changed: frozenset[str] = frozenset()

    def where(self, place: str) -> str:
        """File and line of a place, or of what it should lie in, for a message."""
        changed = any(within(place, one) or within(one, place) for one in self.changed)
        if changed or (self.changed and not place):
            return f"{self.label} with changes"
        while place:
            if place in self.lines:
                return f"{self.label}:{self.lines[place]}"
            place = place.rpartition(".")[0]
        return self.label


def within(place: str, outer: str) -> bool:
    """Whether a dotted place is another one or lies below it."""
    return place == outer or place.startswith(f"{outer}.")


def read_preset_file(path: Path, label: str) -> PresetFile:
    """Reads a file.

    Args:
        path: The file.
        label: What messages call it.

    Raises:
        PresetError: If it cannot be read, is no YAML mapping, or has a value without origin,
            an unknown tag, a name twice or an alias.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PresetError(f"{label} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PresetError(f"{label}:{line}: not UTF-8: {error.reason}") from error
    try:
        return _Reader(label, text).read()
    except yaml.YAMLError as error:
        raise PresetError(_yaml_fault(label, error)) from error
    except RecursionError as error:
        raise PresetError(f"{label}: lists or sections are nested too deep") from error


def leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """All values below a place with their own dotted places."""
    below: Iterator[tuple[object, Any]] | None = None
    if isinstance(value, Mapping):
        below = iter(value.items())
    elif isinstance(value, list | tuple):
        below = iter(enumerate(value))
    if not value or below is None:
        yield place, value
        return
    for name, one in below:
        yield from leaves(one, f"{place}.{name}" if place else str(name))


_YAML = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_YAML + kind for kind in ("null", "bool", "int", "float", "str")}
_ODD_TAGS = {_YAML + kind for kind in ("timestamp", "merge", "value")}
"""What YAML also reads into plain text: dates, ``<<``, ``=``."""
_TAGS = {f"!{origin}": origin for origin in Origin}
_TAG_NAMES = ", ".join(_TAGS)
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""What a setting may be called; so a dotted place has one meaning."""


class _Loader(yaml.SafeLoader):
    """YAML without aliases."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.MarkedYAMLError(problem="an alias; write the value out", problem_mark=mark)
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    _YAML + "float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class _Reader:
    """Walks the nodes of one file and notes origins and lines on the way."""

    def __init__(self, label: str, text: str) -> None:
        self._label = label
        self._rows = text.splitlines()
        self._loader = _Loader(text)
        self._settings: dict[str, Setting] = {}
        self._lines: dict[str, int] = {}

    def read(self) -> PresetFile:
        node = self._loader.get_single_node()
        if node is None:
            raise PresetError(f"{self._label}: the file is empty")
        if not isinstance(node, MappingNode):
            self._fail(node, "", "the file is no mapping of settings")
        values = self._value(node, "", None, "")
        return PresetFile(self._label, values, self._settings, self._lines)

    def _value(self, node: Node, place: str, origin: Origin | None, note: str) -> Any:
        origin = self._origin(node, place, origin)
        note = self._note(node) or note
        if isinstance(node, MappingNode):
            value: Any = self._mapping(node, place, origin)
        elif isinstance(node, SequenceNode):
            value = []
            for number, one in enumerate(node.value):
                self._lines[f"{place}.{number}"] = one.start_mark.line + 1
                value.append(self._value(one, f"{place}.{number}", origin, note))
        else:
            value = self._scalar(node, place)
        if isinstance(node, ScalarNode) or not value:
            if origin is None:
                self._fail(node, place, f"whose value is it? Put one of {_TAG_NAMES} before it")
            self._settings[place] = Setting(value, origin, note)
        return value

    def _mapping(self, node: MappingNode, place: str, origin: Origin | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, one in node.value:
            name = self._name(key, place)
            below = f"{place}.{name}" if place else name
            if name in values:
                self._fail(key, below, f"is set twice, first in line {self._lines[below]}")
            self._lines[below] = key.start_mark.line + 1
            values[name] = self._value(one, below, origin, "")
        return values

    def _name(self, key: Node, place: str) -> str:
        named = isinstance(key, ScalarNode) and key.tag == _YAML + "str"
        if not named or not NAME.fullmatch(key.value):
            shown = repr(key.value) if isinstance(key, ScalarNode) else "a list or mapping"
            self._fail(key, place, f"{shown} is no name of a setting")
        return str(key.value)

    def _origin(self, node: Node, place: str, origin: Origin | None) -> Origin | None:
        known = _PLAIN_TAGS | _ODD_TAGS
        if isinstance(node, CollectionNode):
            known = {_YAML + ("map" if isinstance(node, MappingNode) else "seq")}
        if node.tag in known:
            return origin
        if node.tag not in _TAGS:
            shown = node.tag.replace(_YAML, "!!")
            self._fail(node, place, f"unknown tag {shown}; the tags are: {_TAG_NAMES}")
        return _TAGS[node.tag]

    def _scalar(self, node: Node, place: str) -> Any:
        tag = node.tag
        if tag in _TAGS:  # its usual type, as if the tag were not there
            plain = getattr(node, "style", None) is None
            implicit = (plain, not plain)
            tag = self._loader.resolve(ScalarNode, node.value, implicit)  # type: ignore[no-untyped-call]  # untyped in the stubs of yaml
        if tag not in _PLAIN_TAGS:
            self._fail(node, place, f"{node.value!r} is no text, number or boolean: quote it")
        untagged = ScalarNode(tag, node.value, node.start_mark, node.end_mark)
        try:
            return self._loader.construct_object(untagged)
        except ValueError as error:
            self._fail(node, place, f"{node.value[:40]!r} cannot be read as a number", error)

    def _note(self, node: Node) -> str:
        """The comment behind a value in one line; in brackets, that of the bracket."""
        flows = isinstance(node, ScalarNode) or bool(getattr(node, "flow_style", False))
        mark = node.end_mark
        if not flows or mark.line != node.start_mark.line:
            return ""
        found = re.match(r"\s+#\s*(.*?)\s*$", self._rows[mark.line][mark.column :])
        return found[1] if found else ""

    def _fail(self, node: Node, place: str, what: str, cause: Exception | None = None) -> NoReturn:
        at = f"{self._label}:{node.start_mark.line + 1}"
        raise PresetError(f"{at}: {place}: {what}" if place else f"{at}: {what}") from cause


def _yaml_fault(label: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{label}: not YAML: {' '.join(str(error).split())}"
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    return f"{label}:{mark.line + 1}: not YAML: {', '.join(filter(None, parts))}"
