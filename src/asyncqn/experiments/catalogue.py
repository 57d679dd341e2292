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


def find(names: list[str]) -> list[Experiment]:
    """Experiments by name; "all" is all of them."""
    wanted = list(MODULES) if "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in MODULES:
            raise BadInput(f"there is no experiment '{name}'; there are all, {', '.join(MODULES)}.")
    found: list[Experiment] = [
        import_module(f"asyncqn.experiments.{MODULES[name]}").EXPERIMENT for name in wanted
    ]
    return found
