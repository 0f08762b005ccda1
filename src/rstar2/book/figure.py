"""Figures that follow the page's light or dark theme and say where they come from.

One cell output serves three readers: the book takes the inline SVG, a viewer
without HTML (PDF, a code host's preview) the PNG, a terminal the caption.
"""

import base64
import html
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from rstar2.book.provenance import RUN_SOURCES, Source, provenance_line, provenance_summary
from rstar2.book.style import INK

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_ID = re.compile(r' id="([^"]+)"')


def figure(
    fig: Figure,
    *,
    name: str,
    caption: str,
    alt: str,
    runs: Sequence[Mapping[str, Any]] = (),
    source: Source | None = None,
) -> None:
    """Show a figure with its caption and its provenance, then close it.

    Args:
        fig: A figure drawn after :func:`rstar2.book.style.use`.
        name: Its anchor in the page: lower case, digits, hyphens; unique in the chapter.
        caption: What it shows, plain text.
        alt: What a reader who cannot see it should know; the trend, not the axes.
        runs: The runs whose numbers it shows, each as its ``run.json``.
        source: What kind of numbers it shows, where there is no run.

    Raises:
        ValueError: The name is no anchor; the alternative text is empty; neither runs
            nor a source is given; the source is a run but none is named; or the
            figure was drawn without the book's style.
    """
    display(figure_bundle(fig, name, caption, alt, runs, source), raw=True)


def figure_bundle(
    fig: Figure,
    name: str,
    caption: str,
    alt: str,
    runs: Sequence[Mapping[str, Any]] = (),
    source: Source | None = None,
) -> dict[str, str]:
    """The cell output of :func:`figure`, by MIME type. Closes the figure."""
    check_name(name)
    notes = provenance_html(name, runs, source)
    picture, png = svg(fig, name, alt), png_bytes(fig)
    plt.close(fig)
    text = f"<figcaption>{html.escape(caption)}{notes}</figcaption>"
    return {
        "text/html": f'<figure class="fig" id="{name}">{picture}{text}</figure>',
        "image/png": base64.b64encode(png).decode(),
        "text/plain": caption,
    }


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless the name can be an anchor."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"figure name {name!r}: use lower-case letters, digits and hyphens")


def provenance_html(
    name: str, runs: Sequence[Mapping[str, Any]] = (), source: Source | None = None
) -> str:
    """One line for each run, or the source's words where there is none.

    Several runs share one line that unfolds into a line for each.

    Raises:
        ValueError: The reader would not learn where the numbers come from.
    """
    if not runs and source is None:
        raise ValueError(f"figure {name}: say where the numbers come from: runs=... or source=...")
    if not runs and source in RUN_SOURCES:
        raise ValueError(f"figure {name}: source {str(source)!r} must name its runs: runs=...")
    lines = [provenance_line(run) for run in runs]
    words = [] if source is None else [str(source)]
    if len(runs) < 2:
        return "".join(_note(line) for line in words + lines)
    summary = f"<summary>{html.escape(provenance_summary(runs))}</summary>"
    each = "".join(_note(line) for line in lines)
    return "".join(map(_note, words)) + f'<details class="runs">{summary}{each}</details>'


def _note(line: str) -> str:
    return f'<span class="prov">{html.escape(line)}</span>'


def svg(fig: Figure, name: str, alt: str) -> str:
    """An inline SVG whose ink is the page's text colour.

    Args:
        fig: The figure; it stays open.
        name: Salts the ids, so that two figures in a page never share one.
        alt: Becomes the picture's label for screen readers.

    Returns:
        The ``<svg>`` element, the same bytes each time.

    Raises:
        ValueError: ``alt`` is empty, or the figure was drawn without the book's style.
    """
    if not alt.strip():
        raise ValueError(f"figure {name}: alt is empty; say what the picture shows")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].rstrip()
    if INK not in text:
        raise ValueError(f"figure {name}: call rstar2.book.style.use() before drawing it")
    text = _without_unused_ids(text.replace(INK, "currentColor"))
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(alt)}" ', 1)


def png_bytes(fig: Figure, dpi: int = 130) -> bytes:
    """The figure as a PNG on white; it stays open."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _without_unused_ids(text: str) -> str:
    """Drop ids as ``axes_1``, which every figure would share; keep those referred to."""
    return _ID.sub(lambda match: match[0] if f"#{match[1]}" in text else "", text)
