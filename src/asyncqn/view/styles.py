"""The look of each algorithm in every figure, readable in greyscale by marker, dash and shade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

# The order matters: neighbours differ most, and the first ones serve most figures.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#1b4f8a", "marker": "o", "linestyle": "-"},
    {"color": "#c4661f", "marker": "s", "linestyle": "--"},
    {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
    {"color": "#7a3b8f", "marker": "D", "linestyle": ":"},
    {"color": "#555555", "marker": "v", "linestyle": (0, (5, 1, 1, 1))},
    {"color": "#b03060", "marker": "x", "linestyle": (0, (1, 1))},
)
# An algorithm keeps its look in all figures, so that readers can compare pages; the three of the paper come
# first.
ALGORITHM_STYLES = {
    "as-lbfgs": STYLES[0],
    "async-sgd": STYLES[1],
    "mb-lbfgs": STYLES[2],
    "staged-lbfgs": STYLES[3],
    "exact-lbfgs": STYLES[4],
}


def styles_of_runs(kinds: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the style of each run in one drawing, by its label.

    Parameters
    ----------
    kinds : mapping of str to str
        The algorithm of each run, by the run's label.  A run has its algorithm's own style, unless two of the
        runs have the same algorithm.
    """
    # Two runs of one algorithm would share its style, so then every run gets one of its own.
    distinct = len(set(kinds.values())) == len(kinds)
    styles = styles_of(kinds.values() if distinct else kinds)
    return dict(zip(kinds, styles.values()))


def styles_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return a style for each name: the algorithm's own, or a free one while there are any."""
    names = list(names)
    own = {name: ALGORITHM_STYLES.get(name) for name in names}
    others = [look for look in STYLES if look not in own.values()]
    # With more names than styles, they repeat.
    free = cycle(others or STYLES)
    return {name: style or next(free) for name, style in own.items()}
