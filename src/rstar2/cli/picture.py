"""The README's picture: what the committed laptop runs did, step by step."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rstar2.records import atomic_write

if TYPE_CHECKING:
    from rstar2.experiments.report import Record

PICTURE = Path("book", "_static", "laptop-run.png")
"""Its place in the checkout."""

_WINDOW = 5
"""Steps of the moving mean."""


def draw_laptop_run(records: "Sequence[Record]", path: Path) -> None:
    """Draw tool errors in correct trajectories and accuracy against the RL step, both arms.

    The arms are ``grpo`` and ``grpo-roc``; one without records is left out. A line under the
    picture says which runs it shows.

    Raises:
        NoRecordsError: There are records of neither arm.
        RecordError: The picture cannot be written.
    """
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from rstar2.book import style
    from rstar2.book.provenance import provenance_summary
    from rstar2.experiments.curves import curve
    from rstar2.experiments.plans import BOOK_ARMS, NATURAL_SWEEP
    from rstar2.experiments.report import NoRecordsError, of_arm

    arms = {arm: runs for arm in BOOK_ARMS if (runs := of_arm(records, arm))}
    if not arms:
        raise NoRecordsError(
            f"{NATURAL_SWEEP} has no record of {' or '.join(BOOK_ARMS)} to draw: `make results` "
            "makes them"
        )
    style.use()
    panels = {
        "tool_error_in_correct": "tool errors in correct trajectories",
        "accuracy": "accuracy",
    }
    fig, axes = plt.subplots(1, 2, figsize=(9.0, 3.4))
    fig.set_layout_engine(ConstrainedLayoutEngine(rect=(0.0, 0.06, 1.0, 0.94)))
    for axis, (metric, title) in zip(axes, panels.items(), strict=True):
        for arm, runs in arms.items():
            line = {**style.arm_style(arm).line(), "marker": ""}
            shown = curve(runs, metric, window=_WINDOW)
            for values in shown.seeds.values():
                faint = {**line, "label": "", "alpha": 0.25, "linewidth": 0.8}
                axis.plot(shown.steps, values, **faint)
            axis.plot(shown.steps, shown.mean, **line)
        axis.set(title=f"{title}, all rollouts sampled", xlabel="RL step", ylim=(0, None))
        axis.legend(frameon=False)
    whence = provenance_summary([record.run for runs in arms.values() for record in runs])
    fig.text(0.995, 0.015, whence, ha="right", va="bottom", fontsize=7, color=style.GREY)
    picture = io.BytesIO()
    fig.savefig(picture, format="png", dpi=150, facecolor="white")
    plt.close(fig)
    atomic_write(path, picture.getvalue())
