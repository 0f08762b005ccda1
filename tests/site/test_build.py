"""Building a book: the cache follows its key, and what fails says why."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from rstar2.book.build import BookBuildError, build_book

pytestmark = pytest.mark.notebook
ROOT = Path(__file__).parents[2]


def write_notebook(path: Path, *sources: str) -> None:
    cells = [
        {
            "cell_type": "code" if k else "markdown",
            "id": f"cell-{k}",
            "metadata": {},
            "source": source,
            **({"outputs": [], "execution_count": None} if k else {}),
        }
        for k, source in enumerate(("# A page", *sources))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    path.write_text(json.dumps(notebook | {"nbformat_minor": 5}))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one page with the real configuration."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    extensions = config["sphinx"]["local_extensions"]
    config["sphinx"]["local_extensions"] = {
        name: str(ROOT / extensions[name]) for name in extensions
    }
    config["sphinx"]["config"] |= {"html_static_path": [], "html_css_files": []}
    del config["bibtex_bibfiles"]
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    return tmp_path


def test_a_page_is_executed_by_this_interpreter_and_again_when_the_key_changes(book: Path):
    program = "import sys\nprint(sys.executable)\nprint(open('../fact').read())"
    write_notebook(book / "book" / "page.ipynb", program)
    (book / "README.md").write_text("# A stray page\n\n[nowhere](nowhere.md)\n")
    (book / "fact").write_text("first")
    page = build_book(book, cache_key="a").with_name("book") / "page.html"
    assert str(Path(sys.executable).parent) in page.read_text()
    (book / "fact").write_text("second")
    build_book(book, cache_key="a")
    assert "first" in page.read_text()
    build_book(book, cache_key="b")
    assert "second" in page.read_text()


def tail_of_failed_build(book: Path) -> str:
    """What the log ends with; the message itself is one line."""
    with pytest.raises(BookBuildError, match=r"^jupyter-book stopped .*book\.log$") as caught:
        build_book(book, cache_key="a")
    return caught.value.tail


def test_a_failing_cell_is_quoted_and_fails_again(book: Path):
    write_notebook(book / "book" / "page.ipynb", "x = 1 / 0")
    for _ in range(2):
        assert "ZeroDivisionError" in tail_of_failed_build(book)


def test_a_broken_link_and_a_foreign_script_stop_the_build(book: Path):
    (book / "book" / "page.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    for _ in range(2):
        assert "nowhere.md" in tail_of_failed_build(book)
    (book / "book" / "page.md").write_text(
        '# A page\n\n```{raw} html\n<script src="https://example.org/x.js"></script>\n```\n'
    )
    assert "page.html: example.org/x.js" in tail_of_failed_build(book)
