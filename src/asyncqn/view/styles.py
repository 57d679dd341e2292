"""The look of each algorithm in every figure, readable in greyscale by marker, dash and shade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def styles_of_runs(kinds: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the look of each of several runs that are drawn together, by its label.

    Parameters
    ----------
    kinds : mapping of str to str
        The name of the algorithm of each run, by the run's label.  An algorithm has its own look, unless two
        of the runs have the same algorithm.
    """
    names = kinds if len(set(kinds.values())) == len(kinds) else {label: label for label in kinds}
    found = styles_of(names.values())
    return {label: found[name] for label, name in names.items()}


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
