"""What an experiment is: cells that are computed, and outcomes and figures that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asyncqn_paper.cells import Cell
from asyncqn_paper.records import Record
from asyncqn_paper.rules import Outcome

Get = Callable[[Cell], "list[Record] | None"]
"""The records of a cell; None where it has not been computed."""


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper, or one set of claims.

    cells(full) are batches: the first of all experiments are computed before the second of any.  outcomes and
    draw see finished cells only, and make the best of what is there.
    """

    name: str
    title: str
    caption: str
    """Two sentences."""
    cells: Callable[[bool], list[list[Cell]]]
    outcomes: Callable[[Get, bool], list[Outcome]]
    draw: Callable[[Get, bool], dict[str, Any]]
