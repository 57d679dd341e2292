"""Experiment: the cells that are computed, and the outcomes and figures that are made of their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from asyncqn.errors import require
from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Verdict

Get = Callable[[Cell], list[Record]]
"""A function that returns the records of a cell."""
NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "theory", "title")


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper, or one set of claims; it is judged and drawn when all its cells are computed.

    `outcomes` are those on the map, `stated` those in the setting of the first screen, on fresh seeds.
    """

    name: str
    title: str
    caption: str
    """What the picture of the map shows."""
    cells: Callable[[], list[Cell]]
    outcomes: Callable[[Get], list[Verdict]]
    draw: Callable[[Get], dict[str, Any]]
    stated: Callable[[Get], list[Verdict]] = lambda get: []


def find(names: Sequence[str] = ()) -> list[Experiment]:
    """Return experiments by name; none or "all" is all of them."""
    experiments = []
    for name in NAMES if not names or "all" in names else dict.fromkeys(names):
        require(
            name in NAMES,
            f"there is no experiment '{name}'; there are all, {', '.join(NAMES)}.",
        )
        module = import_module(f"asyncqn_paper.figures.{name}")
        experiments.append(module.EXPERIMENT)
    return experiments
