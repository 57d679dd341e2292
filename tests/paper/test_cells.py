"""Cells and their store: computed once, kept through interruptions, published as tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from asyncqn.errors import BadInput
from asyncqn_paper.catalogue import NAMES, find
from asyncqn_paper.cells import Cell, Store, compute
from asyncqn_paper.figures.gaussian import model
from asyncqn_paper.problems import DIM, PROBLEMS, largest_mean_correlation

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
        return [
            {"twice": k, "square": float(self.x**2), "odd": None if self.x % 2 else 1.5}
            for k in (1, 2)
        ]


def test_an_interrupted_computation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        compute(
            [Square(1), Square(2), Square(-1), Square(3)],
            Store(tmp_path, any_code=True),
        )
    assert len(Store(tmp_path, any_code=True)) == 2
    with (tmp_path / "cells.jsonl").open("a") as journal:
        journal.write('{"key": "cut off in the mid')
    store = Store(tmp_path, any_code=True)
    compute([Square(1), Square(2), Square(3)], store)
    assert CALLS == [1, 2, -1, 3]
    assert store.get(Square(3)) == [
        {"twice": k, "square": 9.0, "odd": None} for k in (1, 2)
    ]


def test_what_is_published_is_found_again_and_ends_the_journal(tmp_path: Path) -> None:
    store = Store(tmp_path, any_code=True)
    cells = [Square(1), Square(2), Square(5)]
    compute(cells[:2], store)
    store.publish(cells)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["squares.parquet"]
    again = Store(tmp_path, any_code=True)
    assert [again.get(cell) for cell in cells] == [store.get(cell) for cell in cells]
    assert again.get(Square(5)) is None
    assert [one.code for one in again.finished(cells)] == [
        one.code for one in store.finished(cells)
    ]


def test_cells_of_other_code_count_only_where_they_may(tmp_path: Path) -> None:
    store = Store(tmp_path, any_code=False)
    compute([Square(1)], store)
    text = (tmp_path / "cells.jsonl").read_text()
    (tmp_path / "cells.jsonl").write_text(
        text.replace(store.finished([Square(1)])[0].code, "another code")
    )
    assert Store(tmp_path, any_code=True).get(Square(1)) is not None
    assert Store(tmp_path, any_code=False).get(Square(1)) is None


def test_every_experiment_is_found_and_its_cells_have_keys_of_their_own() -> None:
    assert [experiment.name for experiment in find([])] == list(NAMES)
    cells = {
        cell
        for experiment in find([])
        for batch in experiment.cells(True)
        for cell in batch
    }
    assert len({cell.key for cell in cells}) == len(cells)
    with pytest.raises(BadInput, match="there is no experiment 'fig9'"):
        find(["fig9"])


def test_no_posterior_exceeds_the_bound_on_its_mean_correlation_and_one_attains_it() -> (
    None
):
    def mean_correlation(precision: Any) -> float:
        C = np.linalg.inv(precision)
        R = np.abs(C / np.sqrt(np.outer(np.diag(C), np.diag(C))))
        return float((R.sum() - DIM) / (DIM * (DIM - 1)))

    for name in PROBLEMS:
        precision = model(name, 0).precision
        top = float(np.linalg.eigvalsh(precision)[-1])
        assert mean_correlation(precision) <= largest_mean_correlation(top) + 1e-9, name
    # One weak direction along (1, ..., 1): equal correlations of exactly 1/2 at L = d + 1.
    v = np.ones(DIM) / np.sqrt(DIM)
    equal = (DIM + 1.0) * np.eye(DIM) - DIM * np.outer(v, v)
    assert mean_correlation(equal) == pytest.approx(0.5)
    assert largest_mean_correlation(DIM + 1.0) == pytest.approx(0.5, abs=1e-4)
    assert largest_mean_correlation(39.8) < 0.32
