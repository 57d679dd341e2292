"""The comparison with scikit-learn's solvers, on its smallest data set: every method reaches the level."""

from __future__ import annotations

import pytest

from benchmarks.studies.estimators import comparison
from benchmarks.studies.estimators.data import CASES


@pytest.mark.filterwarnings("ignore")  # of solvers that end before their tolerance
def test_every_method_is_timed_at_the_same_objective(monkeypatch):
    case = CASES["breast cancer, 569 x 30"]._replace(solvers=("lbfgs", "newton-cholesky"))
    monkeypatch.setitem(comparison.CASES, "small", case)
    records = comparison.compare("small", rounds=1, patience=1000.0)
    assert [record["method"].split()[-1] for record in records] == ["asyncqn", "lbfgs", "newton-cholesky"]
    for record in records:
        assert abs(record["gap"]) <= comparison.GAP
        assert record["ours_over_it"] > 0.0
