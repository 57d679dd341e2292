"""Charts for a terminal: lines of braille dots, and bars in eighths of a block."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from asyncqn.view.axes import Axis

Floats = npt.NDArray[np.floating]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille cell by column and row, from the top."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def line_chart(
    x: Floats, y: Floats, *, width: int = 60, height: int = 10, axis: Axis | None
) -> list[str]:
    """Return y over x as lines of text, with the ranges of both; values that are not finite are left out.

    `axis` comes from `axis_of`; it is None where there is nothing to draw.
    """
    log = axis is not None and axis.log
    x, level = _drawable(x, y, axis)
    if not x.size:
        return ["(nothing to draw)"]
    # A braille cell has two columns and four rows of dots.
    across = _places(x, x, 2 * width)
    down = 4 * height - 1 - _places(level, level, 4 * height)
    cells = np.zeros((height, width), np.int64)
    for i in range(x.size):
        # Connect each point to the next with as many dots as the longer side of the gap has.
        j = min(i + 1, x.size - 1)
        right = int(across[j] - across[i])
        rise = int(down[j] - down[i])
        steps = max(abs(right), abs(rise), 1)
        for k in range(steps + 1):
            c = int(across[i]) + round(right * k / steps)
            r = int(down[i]) + round(rise * k / steps)
            dot = _DOTS[c % 2][r % 4]
            cells[r // 4, c // 2] |= dot
    rows = []
    for row in cells:
        braille = [chr(0x2800 + int(cell)) for cell in row]
        rows.append("".join(braille))
    return _framed(rows, x, level, log, middle=height > 4)


def _drawable(x: Floats, y: Floats, axis: Axis | None) -> tuple[Floats, Floats]:
    """Return the points that can be drawn, clipped to the axis; heights are logarithms on a log axis."""
    if axis is None:
        return x[:0], y[:0]
    keep = np.isfinite(x) & np.isfinite(y)
    level = axis.clip(y[keep].astype(float))
    if axis.log:
        level = np.log10(level)
    return x[keep].astype(float), level


def _places(values: Floats, among: Floats, count: int) -> npt.NDArray[np.int64]:
    """Return the place of each value among `count` equal steps from the smallest of `among` to the
    largest."""
    low, high = among.min(), among.max()
    # A constant curve lies in the middle; dividing by its range would give NaN.
    if high == low:
        return np.full(values.size, (count - 1) // 2, np.int64)
    share = (values - low) / (high - low)
    steps = np.rint(share * (count - 1))
    return np.asarray(steps, np.int64)


def _framed(
    rows: Sequence[str], x: Floats, level: Floats, log: bool, middle: bool = False
) -> list[str]:
    """Return the lines of a chart with the ranges of both axes and, with `middle`, the middle level."""
    labels = ["" for _ in rows]
    low, high = level.min(), level.max()
    levels = {0: high, len(rows) - 1: low}
    if middle:
        levels[len(rows) // 2] = (high + low) / 2
    for place, value in levels.items():
        labels[place] = f"{10.0**value if log else value:.3g}"
    # Labels are right-aligned, so that the frame is straight.
    margin = max(map(len, labels))
    lines = []
    for label, row in zip(labels, rows, strict=True):
        lines.append(f"{label:>{margin}} ┤{row}")
    first, last = f"{x.min():.4g}", f"{x.max():.4g}"
    room = len(rows[0]) - len(first)
    indent = " " * (margin + 2)
    return [*lines, indent + first + last.rjust(room)]


def bar(share: float, width: int = 30) -> str:
    """Return a bar that fills `share` (0 to 1) of `width` cells."""
    # Unicode has blocks of one to eight eighths of a cell, so that a bar resolves 8 * width steps.
    share = max(0.0, min(1.0, share))
    whole, eighths = divmod(round(share * width * 8), 8)
    last = _EIGHTHS[eighths] if eighths else ""
    return "█" * whole + last


def bar_chart(
    labels: Sequence[str], values: Sequence[float], *, width: int = 40
) -> list[str]:
    """Return one labelled bar per value, followed by the value; the largest bar has `width` cells."""
    finite = [value for value in values if math.isfinite(value)]
    most = max(finite, default=0.0) or 1.0
    margin = max(map(len, labels), default=0)
    shown = [
        f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
        for value in values
    ]
    return [
        f"{label:>{margin}} │{bar(value / most, width)} {number}".rstrip()
        for label, value, number in zip(labels, values, shown, strict=True)
    ]


def histogram_bins(
    counts: npt.NDArray[np.int64], most: int = 12
) -> tuple[list[str], list[int]]:
    """Gather counts of 0, 1, 2, ... into at most `most` bins of equal width; return labels and sums."""
    if not counts.size:
        return [], []
    used = np.flatnonzero(counts)
    low = int(used[0]) if used.size else 0
    # Bins begin at the smallest staleness that occurs.
    width = max(1, -(-(counts.size - low) // most))
    labels, sums = [], []
    for start in range(low, counts.size, width):
        end = min(start + width, counts.size) - 1
        labels.append(str(start) if end == start else f"{start}-{end}")
        sums.append(int(counts[start : end + 1].sum()))
    return labels, sums
