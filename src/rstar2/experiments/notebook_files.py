"""Reads notebooks as batches need them: their code, and the parameters that they declare.

The ``parameters`` cell holds literals only. What is computed there would not follow a
parameter that papermill injects below it.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rstar2.errors import UserError


class NotebookError(UserError):
    """A notebook cannot be read, or is given what it does not declare."""


@dataclass(frozen=True)
class NotebookFile:
    """A notebook on disk, ``.ipynb`` or, through jupytext, any text format (``.md``, ``.py``).

    Attributes:
        path: The file.
    """

    path: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        """The notebook as nbformat 4 JSON.

        Raises:
            NotebookError: It is missing or no notebook.
        """
        try:
            if self.path.suffix == ".ipynb":
                content = json.loads(self.path.read_bytes())
            else:
                import jupytext

                content = json.loads(jupytext.writes(jupytext.read(self.path), fmt="ipynb"))
            if not isinstance(content["cells"], list):
                raise TypeError("its cells are no list")
            for cell in content["cells"]:
                _refuse_no_cell(cell)
        except FileNotFoundError as error:
            raise NotebookError(f"there is no notebook {self.path}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotebookError(f"{self.path} is no notebook: {error}") from error
        return dict(content)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax of all code cells; they may await.

        Raises:
            NotebookError: A cell is not plain Python, as one with a ``%magic``.
        """
        cells = (cell for cell in self.content["cells"] if cell["cell_type"] == "code")
        return self._parsed("\n".join(_source(cell) for cell in cells))

    @property
    def code(self) -> str:
        """The code of all cells without comments."""
        return ast.unparse(self.tree)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The parameters with their defaults, in their order; none without such a cell.

        Raises:
            NotebookError: The cell holds anything but assignments of literals.
        """
        cells = [cell for cell in self.content["cells"] if "parameters" in _tags(cell)]
        found: dict[str, Any] = {}
        for node in (node for cell in cells[:1] for node in self._parsed(_source(cell)).body):
            try:
                name, value = _assignment(node)
                found[name] = ast.literal_eval(value)
            except (ValueError, TypeError) as error:
                raise NotebookError(
                    f"{self.path}: the parameters cell may hold assignments of literals only, "
                    f"not {ast.unparse(node)!r}"
                ) from error
        return found

    def final_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with what is given in their place.

        Raises:
            NotebookError: A name is not declared, or a value is of another type.
        """
        declared = self.parameters
        if unknown := sorted(given.keys() - declared.keys()):
            raise NotebookError(
                f"{self.path.name} has no parameter {unknown[0]!r}; "
                f"it has: {', '.join(declared) or 'none'}"
            )
        for name, value in given.items():
            default = declared[name]
            wanted = (int, float) if isinstance(default, float) else type(default)
            if default is not None and not _is_a(value, wanted):
                raise NotebookError(
                    f"{self.path.name}: {name} is {value!r}: give a {type(default).__name__}, "
                    f"as its default {default!r}"
                )
        whole = {
            name: float(value) for name, value in given.items() if isinstance(declared[name], float)
        }
        return {**declared, **given, **whole}

    def _parsed(self, code: str) -> ast.Module:
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            tree = compile(code, self.path.name, "exec", flags)
        except (SyntaxError, ValueError) as error:
            raise NotebookError(f"{self.path} is not plain Python: {error}") from error
        assert isinstance(tree, ast.Module)
        return tree


def _refuse_no_cell(cell: Any) -> None:
    source, tags = cell["source"], _tags(cell)
    texts = [cell["cell_type"], *tags, *([source] if isinstance(source, str) else source)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a cell is no cell")


def _source(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _tags(cell: Mapping[str, Any]) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def _assignment(node: ast.stmt) -> tuple[str, ast.expr]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name, value
    raise ValueError("no assignment to one name")


def _is_a(value: object, wanted: type | tuple[type, ...]) -> bool:
    """Whether a value is of a type; a bool is no number."""
    return isinstance(value, wanted) and (isinstance(value, bool) == (wanted is bool))
