"""The look of each algorithm in every figure, readable in greyscale by marker, dash and shade."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Return the style of each run in one drawing, by its label; `kinds` has the algorithm of each.

    A run has its algorithm's own style, unless two of the runs have the same algorithm.
    """
    distinct = len(set(kinds.values())) == len(kinds)
    names = kinds if distinct else {label: label for label in kinds}
    own = {label: ALGORITHM_STYLES.get(names[label]) for label in kinds}
    # With more runs than styles, they repeat.
    free = cycle([look for look in STYLES if look not in own.values()] or STYLES)
    return {label: style or next(free) for label, style in own.items()}
