"""How figures look: readable in greyscale, by marker, dash and shade."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.errors import MissingExtra
from asyncqn.storage import write_whole

LOOKS: list[dict[str, Any]] = [
    {"color": "#1b4f8a", "marker": "o", "linestyle": "-"},
    {"color": "#c4661f", "marker": "s", "linestyle": "--"},
    {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
    {"color": "#7a3b8f", "marker": "D", "linestyle": ":"},
    {"color": "#555555", "marker": "v", "linestyle": (0, (5, 1, 1, 1))},
    {"color": "#b03060", "marker": "x", "linestyle": (0, (1, 1))},
]
ALGORITHM_LOOKS = {"async-sgd": LOOKS[1], "mb-lbfgs": LOOKS[2], "as-lbfgs": LOOKS[0]}

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
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())


def band(axis: Any, x: Any, mean: Any, spread: Any, label: str, look: dict[str, Any]) -> None:
    """A line with a shade of three standard deviations, as in the paper."""
    x, mean, spread = (np.asarray(a, np.float64) for a in (x, mean, spread))
    floor = _positive_floor(mean)
    axis.plot(x, mean, label=label, **look)
    low = np.maximum(mean - 3 * spread, floor)
    axis.fill_between(x, low, mean + 3 * spread, color=look["color"], alpha=0.15, linewidth=0)


def _positive_floor(mean: npt.NDArray[np.float64]) -> float:
    """The band is cut here, so that a logarithmic axis can show it."""
    good = mean[np.isfinite(mean) & (mean > 0)]
    return float(good.min()) / 5 if good.size else 0.0


def save_figure(figure: Any, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    png, svg = {"dpi": 120, "metadata": {"Software": ""}}, {"metadata": {"Date": None}}
    for kind, options in (("png", png), ("svg", svg)):
        content = BytesIO()
        figure.savefig(content, format=kind, **options)
        write_whole(stem.with_suffix(f".{kind}"), content.getvalue())
