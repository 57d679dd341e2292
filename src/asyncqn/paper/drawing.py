"""How figures look: readable in greyscale, by marker, dash and shade."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.errors import MissingExtra
from asyncqn.paper.palette import ALGORITHM_STYLES, CONTROLS, STYLES, VARIANTS
from asyncqn.storage import write_whole

__all__ = [
    "ALGORITHM_STYLES",
    "CONTROLS",
    "STYLES",
    "VARIANTS",
    "band",
    "few_decades",
    "panels",
    "save_figure",
    "style",
]

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
    """The common look, for everything drawn inside."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing figures") from None
    return matplotlib.rc_context(_STYLE)


def panels(
    rows: int, columns: int, width: float = 3.5, height: float = 2.7, **options: Any
) -> tuple[Any, Any]:
    """A figure without a screen, and its axes as a 2-D array."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    room = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)  # subscripts at the edge are not cut
    figure = Figure(figsize=(width * columns, height * rows), layout=room)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def few_decades(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 on a logarithmic y axis that spans less than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_ylim()
    if high < 100 * low:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        )
        axis.yaxis.set_minor_formatter(NullFormatter())


def band(axis: Any, x: Any, middle: Any, low: Any, high: Any, label: str, look: dict[str, Any]) -> None:
    """A line with a shade from `low` to `high`; what is not finite is left out."""
    middle, low, high = (np.where(np.isfinite(a), a, np.nan) for a in (middle, low, high))
    axis.plot(x, middle, label=label, **look)
    axis.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 120, "metadata": {"Software": ""}},
    "svg": {"metadata": {"Date": None}},
}


def save_figure(figure: Any, stem: Path, kinds: Sequence[str] = ("png", "svg")) -> None:
    """Write `stem`.png and `stem`.svg, or only one of them."""
    figure.set_dpi(_OPTIONS["png"]["dpi"])
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it is laid out now, once for both
    for kind in kinds:
        content = BytesIO()
        figure.savefig(content, format=kind, **_OPTIONS[kind])
        write_whole(stem.with_suffix(f".{kind}"), content.getvalue())
