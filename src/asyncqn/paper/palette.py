"""One look per algorithm, in every figure: lines differ in colour, brightness, dash and marker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#1b4f8a", "marker": "o", "linestyle": "-"},
    {"color": "#c4661f", "marker": "s", "linestyle": "--"},
    {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
    {"color": "#7a3b8f", "marker": "D", "linestyle": ":"},
    {"color": "#555555", "marker": "v", "linestyle": (0, (5, 1, 1, 1))},
    {"color": "#b03060", "marker": "x", "linestyle": (0, (1, 1))},
)
ALGORITHM_LOOKS = {
    "as-lbfgs": LOOKS[0],
    "async-sgd": LOOKS[1],
    "mb-lbfgs": LOOKS[2],
    "staged-lbfgs": LOOKS[3],
    "block-lbfgs": LOOKS[4],
    "momentum-lbfgs": LOOKS[5],
}


def looks_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A look for each name: an algorithm's own, or one that none of the others has while there are any."""
    names = list(names)
    taken = [ALGORITHM_LOOKS[name] for name in names if name in ALGORITHM_LOOKS]
    free = [look for look in LOOKS if look not in taken] or list(LOOKS)
    found, used = {}, 0
    for name in names:
        if name in ALGORITHM_LOOKS:
            found[name] = ALGORITHM_LOOKS[name]
        else:
            found[name] = free[used % len(free)]
            used += 1
    return found
