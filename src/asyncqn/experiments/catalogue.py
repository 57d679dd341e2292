"""The experiments by name, in the order of the report."""

from __future__ import annotations

from importlib import import_module

from asyncqn.errors import BadInput
from asyncqn.experiments.experiment import Experiment

MODULES = {
    "fig1": "fig1",
    "fig2": "fig2",
    "fig3": "fig3",
    "fig4": "fig4",
    "fig5": "fig5",
    "map": "paper_map",
    "theory": "theory",
}

BEYOND = {"tempering": "tempering"}
"""Experiments that are not the paper's: by name only, not part of "all" or of the page."""


def find(names: list[str]) -> list[Experiment]:
    """Experiments by name; "all" is all of the paper's."""
    wanted = list(MODULES) if "all" in names else list(dict.fromkeys(names))
    modules = MODULES | BEYOND
    for name in wanted:
        if name not in modules:
            raise BadInput(f"there is no experiment '{name}'; there are all, {', '.join(modules)}.")
    found: list[Experiment] = [
        import_module(f"asyncqn.experiments.{modules[name]}").EXPERIMENT for name in wanted
    ]
    return found
