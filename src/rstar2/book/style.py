"""One look for every figure: ink, palette, and the fixed style of each arm.

The palette is legible on a white and on a dark page (contrast of at least 3:1
with both) and to colour-blind readers; an arm also has its own line style and
marker, so that no figure depends on colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import matplotlib as mpl
from cycler import cycler

INK = "#0a0b0c"
"""The colour that stands for the page's text; a figure in the book turns it into the page's."""

BLUE, VERMILLION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#AA4499", "#777777"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, GREY)


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How the curve of one arm is drawn.

    Attributes:
        color: Colour of line and marker.
        linestyle: Line style of matplotlib.
        marker: Marker of matplotlib.
        label: Name in the legend.
    """

    color: str
    linestyle: str
    marker: str
    label: str

    def line(self) -> dict[str, str]:
        """Keyword arguments for ``Axes.plot``."""
        return {
            "color": self.color,
            "linestyle": self.linestyle,
            "marker": self.marker,
            "label": self.label,
        }


ARMS: Mapping[str, ArmStyle] = MappingProxyType(
    {
        "grpo": ArmStyle(VERMILLION, "--", "s", "GRPO"),
        "grpo-2g": ArmStyle(PURPLE, ":", "^", "GRPO-2G"),
        "grpo-roc": ArmStyle(BLUE, "-", "o", "GRPO-RoC"),
        "grpo-roc-0.5": ArmStyle(BLUE, "-.", "v", "GRPO-RoC, ε 0.5"),
        "roc-uniform": ArmStyle(GREEN, "-.", "D", "equal weights"),
        "dapo-cot": ArmStyle(GREY, "--", "x", "DAPO, no tool"),
    }
)


def arm_style(arm: str) -> ArmStyle:
    """The fixed style of an arm.

    Raises:
        ValueError: There is no arm of this name.
    """
    if arm not in ARMS:
        raise ValueError(f"no style for arm {arm!r}; known arms: {', '.join(ARMS)}")
    return ARMS[arm]


def use() -> None:
    """Set matplotlib's defaults to the book's; a chapter calls it in its first cell."""
    mpl.rcParams.update(
        {
            "figure.figsize": (5.0, 3.0),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "font.size": 11,
            "axes.titlesize": 11,
            "axes.labelsize": 11,
            "axes.prop_cycle": cycler(color=PALETTE),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GREY,
            "grid.alpha": 0.25,
            "lines.linewidth": 2.0,
            "lines.markersize": 5,
            "legend.frameon": False,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )
