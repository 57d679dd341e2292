"""Charts for a terminal: a line of braille dots, and bars in eighths of a block."""

from __future__ import annotations

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
    """Return y over increasing x as lines of text, with the ranges of both, without values that are not finite.

    `axis` comes from `axis_of`; it is None where there is nothing to draw.
    """
    keep = np.isfinite(x) & np.isfinite(y)
    if axis is None or not keep.any():
        return ["(nothing to draw)"]
    x = x[keep].astype(float)
    level = axis.clip(y[keep].astype(float))
    if axis.log:
        level = np.log10(level)
    low, high = level.min(), level.max()
    # A braille cell has two columns and four rows of dots.
    columns = np.linspace(x[0], x[-1], 2 * width)
    fall = (high - np.interp(columns, x, level)) / ((high - low) or 1.0)
    down = np.rint(fall * (4 * height - 1)).astype(int)
    cells = np.zeros((height, width), np.int64)
    for c, (before, now) in enumerate(zip([down[0], *down], down)):
        for r in range(min(before, now), max(before, now) + 1):
            cells[r // 4, c // 2] |= _DOTS[c % 2][r % 4]
    labels = [""] * height
    for place, value in ((0, high), (height // 2, (low + high) / 2), (-1, low)):
        labels[place] = f"{10.0**value if axis.log else value:.3g}"
    # Labels are right-aligned, so that the frame is straight.
    margin = max(map(len, labels))
    lines = []
    for label, row in zip(labels, cells, strict=True):
        braille = "".join(chr(0x2800 + int(cell)) for cell in row)
        lines.append(f"{label:>{margin}} ┤{braille}")
    first, last = f"{x[0]:.4g}", f"{x[-1]:.4g}"
    return [*lines, " " * (margin + 2) + first + last.rjust(width - len(first))]


def bar_chart(
    labels: Sequence[str], values: Sequence[float], *, width: int = 40
) -> list[str]:
    """Return one labelled bar per value, followed by the value; the largest bar has `width` cells."""
    most = max(values, default=0.0) or 1.0
    margin = max(map(len, labels), default=0)
    lines = []
    for label, value in zip(labels, values, strict=True):
        # Unicode has blocks of one to eight eighths of a cell, so that a bar resolves 8 * width steps.
        whole, eighths = divmod(round(value / most * width * 8), 8)
        blocks = "█" * whole + _EIGHTHS[eighths].strip()
        number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
        lines.append(f"{label:>{margin}} │{blocks} {number}")
    return lines


def histogram_bins(
    counts: npt.NDArray[np.int64], most: int = 12
) -> tuple[list[str], list[int]]:
    """Gather counts of 0, 1, 2, ... into at most `most` bins of equal width; return labels and sums."""
    if not counts.size:
        return [], []
    # Bins begin at the smallest staleness that occurs.
    low = int(np.argmax(counts > 0))
    width = -(-(counts.size - low) // most)
    starts = np.arange(low, counts.size, width)
    ends = np.minimum(starts + width, counts.size) - 1
    labels = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends)]
    return labels, np.add.reduceat(counts, starts).tolist()
