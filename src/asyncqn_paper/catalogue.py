"""The experiments by name, in the order of the page."""

from __future__ import annotations

from importlib import import_module

from asyncqn.errors import BadInput
from asyncqn_paper.experiment import Experiment

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "theory", "title")


def find(names: list[str]) -> list[Experiment]:
    """Experiments by name; none or "all" is all of them."""
    wanted = list(NAMES) if not names or "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in NAMES:
            raise BadInput(
                f"there is no experiment '{name}'; there are all, {', '.join(NAMES)}."
            )
    found: list[Experiment] = [
        import_module(f"asyncqn_paper.figures.{name}").EXPERIMENT for name in wanted
    ]
    return found
