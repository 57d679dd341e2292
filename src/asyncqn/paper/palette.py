"""One look per algorithm, in every figure: lines differ in colour, brightness, dash and marker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#1b4f8a", "marker": "o", "linestyle": "-"},
    {"color": "#c4661f", "marker": "s", "linestyle": "--"},
    {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
    {"color": "#7a3b8f", "marker": "D", "linestyle": ":"},
    {"color": "#555555", "marker": "v", "linestyle": (0, (5, 1, 1, 1))},
    {"color": "#b03060", "marker": "x", "linestyle": (0, (1, 1))},
)
ALGORITHM_STYLES = {
    "as-lbfgs": STYLES[0],
    "async-sgd": STYLES[1],
    "mb-lbfgs": STYLES[2],
    "staged-lbfgs": STYLES[3],
    "block-lbfgs": STYLES[4],
    "momentum-lbfgs": STYLES[5],
}

_BLUES = ("#9cc3ea", "#6aa3dc", "#3f82c4", "#1b4f8a", "#123a68", "#081f3a")
VARIANTS = tuple({**look, "color": blue} for look, blue in zip(STYLES, _BLUES, strict=True))
"""Settings of as-L-BFGS, where a figure shows nothing else: shades of its own colour, so that no other
algorithm's is borrowed."""
CONTROLS = tuple(
    {**look, "color": grey} for look, grey in zip(STYLES[3:], ("#a8a8a8", "#777777", "#3d3d3d"), strict=True)
)
"""Its controls: greys."""


def styles_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A look for each name: an algorithm's own, or one that none of the others has while there are any."""
    names = list(names)
    taken = [ALGORITHM_STYLES[name] for name in names if name in ALGORITHM_STYLES]
    free = [look for look in STYLES if look not in taken] or list(STYLES)
    found, used = {}, 0
    for name in names:
        if name in ALGORITHM_STYLES:
            found[name] = ALGORITHM_STYLES[name]
        else:
            found[name] = free[used % len(free)]
            used += 1
    return found
