"""Cells and their store: computed once, kept through interruptions, published as tables."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import child_environment

from asyncqn.errors import BadInput
from asyncqn_paper.cells import Cell, Missing, Store, compute
from asyncqn_paper.experiment import NAMES, find
from asyncqn_paper.figures.gaussian import model
from asyncqn_paper.problems import DIM

CALLS: list[int] = []


@dataclass(frozen=True)
class Square(Cell):
    """x and x^2, twice."""

    table: ClassVar[str] = "squares"
    x: int

    def measure(self) -> list[dict[str, Any]]:
        CALLS.append(self.x)
        if self.x < 0:
            raise KeyboardInterrupt
        odd = None if self.x % 2 else 1.5
        return [{"twice": k, "square": float(self.x**2), "odd": odd} for k in (1, 2)]


def test_an_interrupted_computation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    CALLS.clear()
    cells = [Square(1), Square(2), Square(-1), Square(3)]
    with pytest.raises(KeyboardInterrupt):
        compute(cells, Store(tmp_path))
    assert len(Store(tmp_path)) == 2
    with (tmp_path / "cells.jsonl").open("a") as journal:
        journal.write('{"key": "cut off in the mid')
    store = Store(tmp_path)
    compute([Square(1), Square(2), Square(3)], store)
    assert CALLS == [1, 2, -1, 3]
    row = {"square": 9.0, "odd": None}
    assert store.get(Square(3)) == [{"twice": 1, **row}, {"twice": 2, **row}]


def test_what_is_published_is_found_again_and_ends_the_journal(tmp_path: Path) -> None:
    store = Store(tmp_path)
    cells = [Square(1), Square(2)]
    compute(cells, store)
    store.publish([*cells, Square(5)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["squares.parquet"]
    again = Store(tmp_path)
    assert [again.get(cell) for cell in cells] == [store.get(cell) for cell in cells]
    with pytest.raises(Missing):
        again.get(Square(5))


def test_a_killed_process_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text("""
import os
from dataclasses import dataclass
from pathlib import Path
from asyncqn_paper.cells import Cell, Store, compute

@dataclass(frozen=True)
class Killed(Cell):
    table = "killed"

    def measure(self):
        os._exit(1)

if __name__ == "__main__":
    compute([Killed()], Store(Path("tables")), processes=2)
""")
    done = subprocess.run(
        [sys.executable, "killed.py"],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "a process of the pool was killed" in done.stderr.splitlines()[-1]


def test_every_experiment_is_found_and_its_cells_have_keys_of_their_own() -> None:
    experiments = find()
    assert [experiment.name for experiment in experiments] == list(NAMES)
    cells = {cell for experiment in experiments for cell in experiment.cells()}
    assert len({cell.key for cell in cells}) == len(cells)
    with pytest.raises(BadInput, match="there is no experiment 'fig9'"):
        find(["fig9"])


def test_the_mean_correlation_of_a_posterior_is_within_the_bound_of_the_theory_page() -> (
    None
):
    """(L - 1) / (2 sqrt(L (d - 1))), attained by equal correlations at L = d + 1."""

    def mean_correlation(precision: Any) -> float:
        C = np.linalg.inv(precision)
        R = np.abs(C / np.sqrt(np.outer(np.diag(C), np.diag(C))))
        return float((R.sum() - DIM) / (DIM * (DIM - 1)))

    def bound(largest: float) -> float:
        return float((largest - 1.0) / (2.0 * np.sqrt(largest * (DIM - 1.0))))

    for name in ("five-weak-10", "three-weak-39", "rows-alike-8"):
        precision = model(name, 0).precision
        top = float(np.linalg.eigvalsh(precision)[-1])
        assert mean_correlation(precision) <= bound(top) + 1e-9, name
    # One weak direction along (1, ..., 1): equal correlations of exactly 1/2.
    equal = (DIM + 1.0) * np.eye(DIM) - np.ones((DIM, DIM))
    assert mean_correlation(equal) == pytest.approx(0.5)
    assert bound(DIM + 1.0) == pytest.approx(0.5, abs=1e-4)
