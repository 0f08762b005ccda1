"""Every chapter has its frame and runs, and its solutions pass its exercises."""

import json
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from rstar2.book.exercise import solutions

ROOT = Path(__file__).parents[2]


def _chapters() -> list[Path]:
    """The notebooks in the table of contents; the others are runs."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    names = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [ROOT / f"{name}.ipynb" for name in names if name.startswith("notebooks/")]


CHAPTERS = _chapters()


def _cells(path: Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def _printed(cells: list) -> str:
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_the_frame_that_all_have(path: Path):
    text = "\n".join("".join(cell["source"]) for cell in _cells(path))
    for part in (
        "**Question.**",
        "**What you will see.**",
        "chapter-box",
        "## What to inspect",
        "## Details that matter",
        "## Summary",
        "## Exercises",
        "## Sources",
    ):
        assert part in text, f"{path.name} lacks {part}"


@pytest.mark.notebook
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_solutions_pass_the_exercises(path: Path):
    """Executes the chapter, then its solutions in the same kernel."""
    notebook = nbformat.read(path, as_version=4)
    found = solutions(notebook.cells)
    assert len(found) >= 2
    exercises = len(notebook.cells)
    notebook.cells += [nbformat.v4.new_code_cell(solution.code) for solution in found]
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    before = _printed(notebook.cells[:exercises])
    assert before.count("waiting for your answer") == len(found)
    for solution, cell in zip(found, notebook.cells[exercises:], strict=True):
        assert _printed([cell]).startswith("✓"), f"{solution.name}: {_printed([cell])}"
