"""Charts for a terminal: a line in braille dots, and horizontal bars in eighths of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille cell by column and row, from the top."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def line_chart(
    x: npt.NDArray[np.floating], y: npt.NDArray[np.floating], *, width: int = 60, height: int = 10, log: bool
) -> list[str]:
    """y over x as lines of text, with the ranges of both; what is not finite is left out."""
    keep = np.isfinite(x) & np.isfinite(y) & ((y > 0) if log else True)
    x, y = x[keep].astype(float), y[keep].astype(float)
    if not x.size:
        return ["(nothing to draw)"]
    level = np.log10(y) if log else y
    columns, rows = 2 * width, 4 * height
    across = _places(x, columns)
    down = rows - 1 - _places(level, rows)
    cells = np.zeros((height, width), np.int64)
    for i in range(x.size):
        # Join each point to the next by as many dots as the longer side of the gap has.
        j = min(i + 1, x.size - 1)
        steps = int(max(abs(across[j] - across[i]), abs(down[j] - down[i]), 1))
        for k in range(steps + 1):
            c = int(across[i] + round((across[j] - across[i]) * k / steps))
            r = int(down[i] + round((down[j] - down[i]) * k / steps))
            cells[r // 4, c // 2] |= _DOTS[c % 2][r % 4]
    labels = ["" for _ in range(height)]
    labels[0], labels[-1] = f"{y.max():.3g}", f"{y.min():.3g}"
    if height > 4:
        middle = (level.max() + level.min()) / 2
        labels[height // 2] = f"{10.0**middle if log else middle:.3g}"
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} ┤{''.join(chr(0x2800 + int(cell)) for cell in row)}"
        for label, row in zip(labels, cells, strict=True)
    ]
    first, last = f"{x.min():.4g}", f"{x.max():.4g}"
    return [*lines, " " * (margin + 2) + first + last.rjust(width - len(first))]


def _places(values: npt.NDArray[np.floating], count: int) -> npt.NDArray[np.int64]:
    """Each value's place among `count` equal steps from the smallest to the largest."""
    low, high = values.min(), values.max()
    if high == low:
        return np.full(values.size, (count - 1) // 2, np.int64)
    return np.asarray(np.rint((values - low) / (high - low) * (count - 1)), np.int64)


def bar(share: float, width: int = 30) -> str:
    """A bar of `share` (0 to 1) of `width` cells."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def bar_chart(labels: Sequence[str], values: Sequence[float], *, width: int = 40) -> list[str]:
    """One labelled bar per value, the largest as long as `width`, with the value behind it."""
    most = max((v for v in values if math.isfinite(v)), default=0.0) or 1.0
    margin = max(map(len, labels), default=0)
    return [
        f"{label:>{margin}} │{bar(value / most, width)} {value:,.4g}".rstrip()
        for label, value in zip(labels, values, strict=True)
    ]


def histogram_bins(counts: npt.NDArray[np.int64], most: int = 12) -> tuple[list[str], list[int]]:
    """Counts of 0, 1, 2, ... gathered into at most `most` bins of equal width, with their labels."""
    if not counts.size:
        return [], []
    used = np.flatnonzero(counts)
    low = int(used[0]) if used.size else 0
    width = max(1, -(-(counts.size - low) // most))
    labels, sums = [], []
    for start in range(low, counts.size, width):
        end = min(start + width, counts.size) - 1
        labels.append(str(start) if end == start else f"{start}-{end}")
        sums.append(int(counts[start : end + 1].sum()))
    return labels, sums


def overlaid_chart(
    curves: Mapping[str, tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]],
    *,
    width: int = 72,
    height: int = 16,
    log: bool,
) -> list[str]:
    """Several y over x in one frame, each drawn with its letter; where two meet, the later letter stands."""
    kept = {}
    for letter, (x, y) in curves.items():
        keep = np.isfinite(x) & np.isfinite(y) & ((y > 0) if log else True)
        kept[letter] = (x[keep].astype(float), np.log10(y[keep]) if log else y[keep].astype(float))
    xs, ys = (np.concatenate([pair[side] for pair in kept.values()]) for side in (0, 1))
    if not xs.size:
        return ["(nothing to draw)"]
    cells = [[" "] * width for _ in range(height)]
    for letter, (x, y) in kept.items():
        if not x.size:
            continue
        # One letter per column: the last value known there.
        for column in range(width):
            moment = xs.min() + (xs.max() - xs.min()) * column / max(width - 1, 1)
            known = np.flatnonzero(x <= moment)
            if known.size and (moment <= x[-1] or column == 0):
                cells[height - 1 - _place(y[known[-1]], ys, height)][column] = letter
    top, bottom = (f"{10.0**v if log else v:.3g}" for v in (ys.max(), ys.min()))
    margin = max(len(top), len(bottom))
    labels = [top, *[""] * (height - 2), bottom]
    first, last = f"{xs.min():.4g}", f"{xs.max():.4g}"
    return [
        *(f"{label:>{margin}} ┤{''.join(row)}" for label, row in zip(labels, cells, strict=True)),
        " " * (margin + 2) + first + last.rjust(width - len(first)),
    ]


def _place(value: float, among: npt.NDArray[np.floating], count: int) -> int:
    low, high = float(among.min()), float(among.max())
    return (count - 1) // 2 if high == low else round((value - low) / (high - low) * (count - 1))
