"""The style of the figures: each algorithm has one look, readable in greyscale by marker, dash and shade."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.cli import ALGORITHM_STYLES as ALGORITHM_STYLES
from asyncqn.cli import STYLES as STYLES
from asyncqn.errors import MissingExtra
from asyncqn.storage import write_whole

_BLUES = ("#9cc3ea", "#6aa3dc", "#3f82c4", "#1b4f8a", "#123a68", "#081f3a")
VARIANTS = tuple(
    {**look, "color": blue} for look, blue in zip(STYLES, _BLUES, strict=True)
)
"""Settings of as-L-BFGS, where a figure shows nothing else: shades of its own colour, so that no other
algorithm's is borrowed."""
CONTROL = {**STYLES[4], "color": "#777777"}
"""Its control, without pairs: grey."""


_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.markersize": 4,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "asyncqn",
    "figure.dpi": 100,
}


def style() -> AbstractContextManager[Any]:
    """Return a context in which everything is drawn in the common style."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing figures") from None
    return matplotlib.rc_context(_STYLE)


def panels(
    rows: int, columns: int, width: float = 3.5, height: float = 2.7, **options: Any
) -> tuple[Any, Any]:
    """Return a figure, made without pyplot, and its axes as a 2-D array; sizes are in inches per panel."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # With less room subscripts at the edge would be cut.
    room = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(width * columns, height * rows), layout=room)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def few_decades(axis: Any) -> None:
    """Put plain numbers on a logarithmic y axis that spans less than two decades.

    Matplotlib labels such an axis with powers of ten, of which there may be none or one in view.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_ylim()
    if high >= 100 * low:
        return
    # Below a factor of three 1, 2, 5 leave at most two labels, so ticks are spaced evenly in numbers.
    narrow = high < 3.0 * low
    ticks = MaxNLocator(4) if narrow else LogLocator(subs=(1.0, 2.0, 5.0))
    axis.yaxis.set_major_locator(ticks)
    axis.yaxis.set_major_formatter(_plain_number)
    axis.yaxis.set_minor_formatter(NullFormatter())


def _plain_number(value: float, position: int) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def band(
    axis: Any, x: Any, runs: Any, label: str, look: dict[str, Any], least: float = 0.0
) -> None:
    """Draw the mean of the runs, one per row, in a shade of three standard deviations.

    The shade ends at `least` times the mean: a logarithmic axis has no room for all of it.
    """
    mean = np.mean(runs, axis=0)
    wide = 3.0 * np.std(runs, axis=0)
    low = np.maximum(mean - wide, least * mean)
    axis.plot(x, mean, label=label, **look)
    axis.fill_between(x, low, mean + wide, color=look["color"], alpha=0.18, linewidth=0)


def save_figure(figure: Any, stem: Path) -> None:
    """Write `stem`.png with a palette of its own, a third as large as one with all colours."""
    from PIL import Image

    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    colours = Image.open(content).convert("RGB")
    smaller = BytesIO()
    palette = colours.quantize(
        48, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    )
    palette.save(smaller, "png", optimize=True)
    write_whole(stem.with_suffix(".png"), smaller.getvalue())
