"""Experiment: the cells that are computed, and the outcomes and figures that are made of their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Outcome

Get = Callable[[Cell], "list[Record] | None"]
"""A function that returns the records of a cell, or None if the cell has not been computed."""


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper, or one set of claims.

    `cells(full)` returns batches: the first batch of each experiment is computed before the second batch of
    any.  `outcomes` (on the map), `stated` (in the setting of the first screen, on fresh seeds) and `draw`
    receive finished cells only, and leave out what is missing.
    """

    name: str
    title: str
    caption: str
    """What the picture of the map shows."""
    cells: Callable[[bool], list[list[Cell]]]
    outcomes: Callable[[Get, bool], list[Outcome]]
    draw: Callable[[Get, bool], dict[str, Any]]
    stated: Callable[[Get, bool], list[Outcome]] | None = None
