"""What a batch reads of a notebook: its code, its parameters, and what they may be given."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.experiments.notebook_files import NotebookError, NotebookFile

ROOT = Path(__file__).resolve().parents[2]


def code(source: str | list[str], *tags: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def notebook(folder: Path, *cells: Any) -> NotebookFile:
    path = folder / "one.ipynb"
    path.write_text(
        json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    )
    return NotebookFile(path)


def parameters(folder: Path, source: str) -> NotebookFile:
    return notebook(folder, code(source, "parameters"))


# --- the parameters cell ------------------------------------------------------------------


def test_parameters_are_literals_with_comments_and_annotations(tmp_path: Path) -> None:
    source = [
        "# What it is.\n",
        "preset: str = 'test'  # a file\n",
        "\n",
        "seed = -1\n",
        "rate: float = 1e-3\n",
        "sizes: list[int] = [1, 2]; flag = False\n",
        "changes: dict = {'rl.epsilon': 0.5}\n",
        "nothing = None",
    ]
    found = notebook(tmp_path, text("# Title"), code(source, "parameters"), code("x = 2"))
    assert list(found.parameters.items()) == [
        ("preset", "test"),
        ("seed", -1),
        ("rate", 1e-3),
        ("sizes", [1, 2]),
        ("flag", False),
        ("changes", {"rl.epsilon": 0.5}),
        ("nothing", None),
    ]


@pytest.mark.parametrize(
    "cells", [[], [code("x = 1")], [text("nothing")], [code("", "parameters")]]
)
def test_a_notebook_may_have_no_parameters(tmp_path: Path, cells: list[dict[str, Any]]) -> None:
    found = notebook(tmp_path, *cells)
    assert found.parameters == {}
    assert found.final_parameters({}) == {}
    with pytest.raises(NotebookError, match=r"one\.ipynb has no parameter 'x'; it has: none$"):
        found.final_parameters({"x": 1})


def test_the_first_tagged_cell_counts_as_for_papermill(tmp_path: Path) -> None:
    found = notebook(tmp_path, code("a = 1", "parameters"), code("b = 2", "other", "parameters"))
    assert found.parameters == {"a": 1}


def test_a_parameter_that_is_given_twice_has_its_last_default(tmp_path: Path) -> None:
    assert parameters(tmp_path, "a = 1\na = 2").parameters == {"a": 2}


@pytest.mark.parametrize(
    "line",
    [
        "b = a + 1",
        "b = int('1')",
        "b = f'{a}'",
        "a, b = 1, 2",
        "a = b = 1",
        "a += 1",
        "a.b = 1",
        "a: int",
        "import os",
        "print(a)",
        "b = {[1]: 2}",
        "b = -'1'",
        "'a docstring'",
    ],
)
def test_anything_but_literals_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    found = parameters(tmp_path, f"a = 1\n{line}\n")
    with pytest.raises(
        NotebookError, match="may hold assignments of literals only, not "
    ) as caught:
        found.final_parameters({})
    assert "\n" not in str(caught.value)


# --- its code -----------------------------------------------------------------------------


def test_code_is_told_without_comments_and_layout(tmp_path: Path) -> None:
    one = notebook(tmp_path, code("x = 1  # why"), text("Text."), code(["y = [x,\n", "  2]"])).code
    other = notebook(tmp_path, code("# Other.\nx=1\n\n\ny = [x, 2]")).code
    assert one == other == "x = 1\ny = [x, 2]"


def test_cells_may_await(tmp_path: Path) -> None:
    assert notebook(tmp_path, code("x = await f()")).code == "x = await f()"


@pytest.mark.parametrize("source", ["%matplotlib inline", "!ls", "x = (", "x = 1\n  y = 2", "\0"])
def test_what_is_not_plain_python_is_refused(tmp_path: Path, source: str) -> None:
    for found in (notebook(tmp_path, code(source)), parameters(tmp_path, source)):
        with pytest.raises(NotebookError, match=r"one\.ipynb is not plain Python: "):
            assert found.code
    with pytest.raises(NotebookError, match="is not plain Python"):
        parameters(tmp_path, source).final_parameters({})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"worksheets": [], "nbformat": 3}',
        b'{"cells": {}}',
        b'{"cells": [1]}',
        b'{"cells": [{}]}',
        b'{"cells": [{"cell_type": "code"}]}',
        b'{"cells": [{"cell_type": "code", "metadata": null, "source": ""}]}',
        b'{"cells": [{"cell_type": "code", "metadata": {"tags": null}, "source": ""}]}',
        b'{"cells": [{"cell_type": "code", "metadata": {}, "source": 5}]}',
    ],
)
def test_what_is_no_notebook_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "one.ipynb"
    path.write_bytes(content)

    def read() -> None:
        assert NotebookFile(path).parameters is not None
        assert NotebookFile(path).code is not None

    with pytest.raises(NotebookError, match=r"one\.ipynb is no(t plain Python| notebook): "):
        read()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match=r"there is no notebook .*gone\.ipynb$"):
        assert NotebookFile(tmp_path / "gone.ipynb").parameters
    with pytest.raises(NotebookError, match=r"gone\.md"):
        assert NotebookFile(tmp_path / "gone.md").parameters
    with pytest.raises(NotebookError, match="is no notebook: "):
        assert NotebookFile(tmp_path).parameters


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("one.py", "# %% tags=['parameters']\nseed = 3\n# %%\nprint(seed)\n"),
        ("one.md", "```python tags=['parameters']\nseed = 3\n```\n\n```python\nprint(seed)\n```\n"),
    ],
)
def test_text_notebooks_are_read(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = NotebookFile(tmp_path / name)
    assert found.parameters == {"seed": 3}
    assert found.code == "seed = 3\nprint(seed)"


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_the_notebooks_of_the_book_are_read(path: Path) -> None:
    assert NotebookFile(path).code
    assert NotebookFile(path).final_parameters({}) == NotebookFile(path).parameters


# --- what they are given ------------------------------------------------------------------

DECLARED = "n = 1\nx = 1.0\nname = 'a'\nflag = True\nitems = [1]\ntable = {}\nfree = None"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"n": -5},
        {"x": 2.5},
        {"x": 3},
        {"name": ""},
        {"flag": False},
        {"items": []},
        {"table": {"a": [1]}},
        {"free": 1},
        {"free": True},
        {"free": None},
        {"free": {"a": 1}},
    ],
)
def test_a_value_of_the_type_of_the_default_replaces_it(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    found = parameters(tmp_path, DECLARED)
    final = found.final_parameters(given)
    assert final == {**found.parameters, **given}
    assert list(final) == list(found.parameters), "in their order"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", True),
        ("n", 1.0),
        ("n", "1"),
        ("n", None),
        ("x", True),
        ("x", "1.0"),
        ("name", 1),
        ("name", None),
        ("flag", 1),
        ("flag", "yes"),
        ("items", "abc"),
        ("items", {"a": 1}),
        ("table", [1]),
        ("table", None),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_default(
    tmp_path: Path, name: str, value: object
) -> None:
    found = parameters(tmp_path, DECLARED)
    default = found.parameters[name]
    with pytest.raises(NotebookError) as caught:
        found.final_parameters({name: value})
    message = str(caught.value)
    assert message.startswith(f"one.ipynb: {name} is {value!r}: give a")
    assert message.endswith(f"{type(default).__name__}, as its default {default!r}")


def test_a_whole_number_for_a_float_is_that_float(tmp_path: Path) -> None:
    final = parameters(tmp_path, DECLARED).final_parameters({"x": 3})
    assert json.dumps(final["x"]) == "3.0", "3 and 3.0 are one run"


def test_a_misspelt_name_is_told_with_those_there_are(tmp_path: Path) -> None:
    message = "one.ipynb has no parameter 'N'; it has: n, x, name, flag, items, table, free"
    with pytest.raises(NotebookError, match=message):
        parameters(tmp_path, DECLARED).final_parameters({"N": 1, "n": True})


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(values=st.dictionaries(st.from_regex(r"\A[a-z]{1,6}_\Z"), LITERALS, max_size=4))
def test_every_literal_is_read_back(
    values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    found = parameters(tmp_path_factory.mktemp("literals"), source)
    assert repr(found.parameters) == repr(values)
    assert found.final_parameters(values) == values
