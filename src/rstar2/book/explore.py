"""A slider that works for every reader.

In the book there is no kernel, so the frames are drawn ahead and a plain range
input shows one of them; in JupyterLab the same cell is a widget that draws
afresh; elsewhere (PDF, no JavaScript) it is a picture.
"""

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from rstar2.book.figure import check_name, png_bytes, provenance_html, svg
from rstar2.book.provenance import Source

Draw = Callable[[float], Figure]
"""Draws the figure for one value of the slider."""

_SCRIPT = """(()=>{
const root=document.getElementById(%s),input=root.querySelector('input');
const output=root.querySelector('output'),frames=[...root.querySelectorAll('.frame')];
const names=JSON.parse(root.dataset.names);
root.querySelector('label').hidden=false;
input.addEventListener('input',()=>{
const chosen=Number(input.value);
frames.forEach((frame,k)=>{frame.hidden=k!==chosen;});
output.value=names[chosen];
input.setAttribute('aria-valuetext',names[chosen]);
});})()"""


def explore(
    draw: Draw,
    values: Sequence[float],
    *,
    label: str,
    name: str,
    alt: str,
    caption: str = "",
    source: Source | None = Source.FORMULA,
    runs: Sequence[Mapping[str, Any]] = (),
    index: int = 0,
) -> None:
    """Show ``draw(value)`` under a slider over the values.

    Args:
        draw: Draws the figure for a value; give it fixed axes, so that frames compare.
        values: The slider's stops, in order.
        label: What the slider sets, plain text.
        name: Its anchor in the page: lower case, digits, hyphens; unique in the chapter.
        alt: What the pictures show; the value is added to each.
        caption: What to look for, plain text.
        source: What kind of numbers it shows; None where they are those of runs.
        runs: The runs whose numbers it shows, each as its ``run.json``.
        index: The stop shown first.

    Raises:
        ValueError: Fewer than two values, the index is none of them, or as
            :func:`rstar2.book.figure.figure`.
    """
    bundle = explore_bundle(
        draw, values, label, name, alt, caption, source=source, runs=runs, index=index
    )
    display(live_bundle(draw, values, label, index) | bundle, raw=True)


def explore_bundle(
    draw: Draw,
    values: Sequence[float],
    label: str,
    name: str,
    alt: str,
    caption: str = "",
    *,
    source: Source | None = Source.FORMULA,
    runs: Sequence[Mapping[str, Any]] = (),
    index: int = 0,
) -> dict[str, str]:
    """The cell output of :func:`explore` for readers without a kernel, by MIME type."""
    check_name(name)
    if len(values) < 2 or not 0 <= index < len(values):
        raise ValueError(f"slider {name}: index {index} with {len(values)} values")
    frames = []
    png = b""
    for k, value in enumerate(values):
        fig = draw(value)
        picture = svg(fig, f"{name}-{k}", f"{alt} {label} = {value:g}.")
        frames.append(f'<div class="frame"{"" if k == index else " hidden"}>{picture}</div>')
        png = png_bytes(fig) if k == index else png
        plt.close(fig)
    notes = provenance_html(name, runs, source)
    return {
        "text/html": _page(name, label, values, index, "".join(frames), caption, notes),
        "image/png": base64.b64encode(png).decode(),
        "text/plain": f"{label}: {values[index]:g} (a slider over {len(values)} values)",
    }


def _page(
    name: str,
    label: str,
    values: Sequence[float],
    index: int,
    frames: str,
    caption: str,
    notes: str,
) -> str:
    names = [f"{value:g}" for value in values]
    return (
        f'<figure class="fig explore" id="{name}" data-names="{html.escape(json.dumps(names))}">'
        f"<label hidden><span>{html.escape(label)}</span> "
        f'<input type="range" min="0" max="{len(values) - 1}" value="{index}" '
        f'autocomplete="off" aria-valuetext="{names[index]}"> '
        f"<output>{names[index]}</output></label>{frames}"
        f"<figcaption>{html.escape(caption)}{notes}</figcaption></figure>"
        f"<script>{_SCRIPT % json.dumps(name)}</script>"
    )


def live_bundle(draw: Draw, values: Sequence[float], label: str, index: int) -> dict[str, Any]:
    """The widget that JupyterLab shows: it draws through the kernel."""
    import ipywidgets  # half a second, only where it shows

    def picture(value: float) -> bytes:
        fig = draw(value)
        data = png_bytes(fig)
        plt.close(fig)
        return data

    slider = ipywidgets.SelectionSlider(
        options=[(f"{value:g}", value) for value in values],
        value=values[index],
        description=label,
        style={"description_width": "initial"},
    )
    image = ipywidgets.Image(value=picture(values[index]), format="png")
    slider.observe(lambda change: setattr(image, "value", picture(change["new"])), "value")
    bundle = ipywidgets.VBox([slider, image])._repr_mimebundle_()
    return dict(bundle[0] if isinstance(bundle, tuple) else bundle)
