"""Momentum, rho and the overlap: outcomes follow the tables, one small run of each kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.core.streams import Stream
from asyncqn.types import Commit, Task
from asyncqn_paper.claims import FAILS, HOLDS, UNTESTABLE
from asyncqn_paper.figures import remarks
from asyncqn_paper.figures.fig2_cases import BELOW_LIMIT
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.settings import algorithm


def runs(with_: tuple[float, ...], without: tuple[float, ...]) -> list[dict[str, Any]]:
    return [
        {"problem": "rows-alike-8", "H0": BELOW_LIMIT, "epsilon": 1.2, "gamma": gamma, "rate": rate,
         "status": "reached" if rate in arrives else "diverged"}
        for gamma, arrives in ((None, without), (0.01, with_), (0.03, with_))
        for rate in (0.01, 0.1)
    ]  # fmt: skip


def words(rows: list[dict[str, Any]]) -> set[str]:
    twice = [{**row, "gamma": None} for row in rows if row["gamma"] is None]
    return {one.verdict for one in remarks._momentum(rows, twice)}


def test_momentum_helps_where_larger_drifts_arrive_with_it() -> None:
    assert words(runs((0.01, 0.1), (0.01,))) == {HOLDS}
    assert words(runs((0.01,), (0.01,))) == {FAILS}
    assert words(runs((), ())) == {UNTESTABLE}


def test_without_momentum_a_commit_moves_by_minus_h_H_g_alone() -> None:
    job = remarks.momentum_job("rows-alike-8", (BELOW_LIMIT, 1.2), None, 0.01, range(1))
    method, model = algorithm(job.kind, dict(job.parameters)), PROBLEMS[job.problem].model()
    theta0 = model.initial(np.random.default_rng(0))
    iterate, local = method.init(theta0), method.init_worker(model, theta0)
    for k in range(2):
        update = method.step(iterate, local, model, Task(0, k, Stream(0, 0, k)))
        before = iterate.theta.copy()
        iterate = method.apply(iterate, [update], Commit(k + 1, [0], model.value))
        # theta + d, rounded once in each.
        assert np.allclose(iterate.theta - before, update.d, rtol=1e-9, atol=1e-15)


def test_without_momentum_and_with_H_twice_a_commit_moves_by_minus_h_c_squared_g() -> None:
    given = {"h": 0.1, "gamma": 1.0, "memory": 0, "batch": 6, "overlap": 2, "initial_scale": 0.5}
    model = PROBLEMS["rows-alike-8"].model()
    theta0, moved = model.initial(np.random.default_rng(0)), []
    for kind in (remarks.TwiceLBFGS, remarks.MomentumLBFGS):
        method = kind(**given)
        update = method.step(method.init(theta0), method.init_worker(model, theta0), model,
                             Task(0, 0, Stream(0, 0, 0)))  # fmt: skip
        moved.append(update.d.copy())
    assert np.array_equal(moved[0], 0.5 * moved[1])


def test_rho_helps_where_its_best_step_ends_lower_and_lost_runs_do_not_count() -> None:
    def rows(plain: float | None) -> list[dict[str, Any]]:
        same = {"ratings": "r", "epsilon": 1.0, "start": "s"}
        return [
            {**same, "rho": 0.0, "h": 1.0, "rmse": plain},
            {**same, "rho": 0.0, "h": 0.1, "rmse": 1.0},
            {**same, "rho": 3.0, "h": 1.0, "rmse": None},
            {**same, "rho": 3.0, "h": 0.1, "rmse": 0.9},
        ]

    assert remarks._rho(rows(None))[0].verdict == HOLDS
    assert remarks._rho(rows(0.8))[0].verdict == FAILS


def test_a_small_factorization_ends_with_an_error_or_is_lost() -> None:
    good, wild = (
        remarks.factorize(remarks.RhoJob("synthetic-demo", 3.0, h, 1e-4, "near the mean", (0,)))[0]["rmse"]
        for h in (1e-8, 1e3)
    )
    assert 0.0 < good < 2.0
    assert wild is None


def test_the_overlap_costs_what_its_rows_cost() -> None:
    row = remarks.cost(remarks.CostJob("rows-alike-8", steps=8))[0]
    assert (row["rows"], row["overlap rows"]) == (6, 2)
    assert 0.0 < row["overlap"] < row["step"]
    table = {"problem": "p", "step": 70.0, "overlap": 3.3, "rows": 6, "overlap rows": 2, "source": "s"}
    assert [o.verdict for o in remarks._cost([table, {**table, "overlap": 20.0}])] == [HOLDS, FAILS]
