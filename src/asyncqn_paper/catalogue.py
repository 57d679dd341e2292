"""The experiments by name, in the order of the report."""

from __future__ import annotations

from importlib import import_module

from asyncqn.errors import BadInput
from asyncqn_paper.experiment import Experiment

MODULES = {
    "fig1": "figures.fig1",
    "fig2": "figures.fig2",
    "order": "figures.order",
    "fig3": "figures.fig3",
    "fig4": "figures.fig4",
    "fig5": "figures.fig5",
    "map": "figures.paper_map",
    "remarks": "figures.remarks",
    "theory": "theory",
}

BEYOND = {"tempering": "figures.tempering"}
"""Experiments that are not the paper's: by name only, not part of "all" or of the page."""


def find(names: list[str]) -> list[Experiment]:
    """Experiments by name; "all" is all of the paper's."""
    wanted = list(MODULES) if "all" in names else list(dict.fromkeys(names))
    modules = MODULES | BEYOND
    for name in wanted:
        if name not in modules:
            raise BadInput(f"there is no experiment '{name}'; there are all, {', '.join(modules)}.")
    found: list[Experiment] = [import_module(f"asyncqn_paper.{modules[name]}").EXPERIMENT for name in wanted]
    return found
