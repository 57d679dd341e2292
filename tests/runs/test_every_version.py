"""Exact methods note a row per version, and honour target, callback and limits there."""

from __future__ import annotations

import numpy as np
import pytest

import asyncqn as aq
from asyncqn import exact_algorithm


def logistic(n=3000, d=8, cls=aq.LogisticRegression):
    return cls.random(n_data=n, dim=d, seed=0)


def engine(workers=2):
    return aq.Simulator(aq.Cluster(workers, 2.0, 0.5))


ALGORITHMS = {
    "block": aq.ExactLBFGS(2),
    "growing": aq.ExactLBFGS(2, samples=1),
    "metric": exact_algorithm(logistic(), 2),
}


def same(a, b):
    assert a.metrics.columns == b.metrics.columns
    for name, column in a.metrics.items():
        np.testing.assert_array_equal(column, b.metrics[name], err_msg=name)
    assert a.theta.tobytes() == b.theta.tobytes()
    assert (a.status, a.message, a.fun) == (b.status, b.message, b.fun)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_there_is_a_row_per_version_that_was_judged_on_all_rows(algorithm):
    p = logistic()
    seen = []
    run = aq.minimize(
        p,
        algorithm,
        engine=engine(1),
        commits=40,
        evaluate=1000,
        tol=None,
        callback=lambda progress: seen.append((progress, p.value(progress.theta))),
    )
    commits = run.metrics["commit"].astype(int).tolist()
    assert commits == [0, *range(commits[1], run.nit + 1)]
    assert (commits[1] == 1) == (algorithm.samples == 0), "others begin with samples"
    assert [progress.commit for progress, _ in seen] == commits
    for row, (progress, value) in enumerate(seen):
        assert progress.metrics["fun"] == pytest.approx(value, rel=1e-12), (
            "the callback sees the row's point"
        )
        assert run.metrics["time"][row] == progress.time
        assert run.metrics["fun"][row] == progress.metrics["fun"]
    gradient = np.zeros(p.dim)
    p.grad(seen[-2][0].theta, np.arange(p.n_data), gradient)
    assert run.metrics["grad_norm"][-2] == pytest.approx(
        np.linalg.norm(gradient), rel=1e-8
    )


@pytest.mark.parametrize(
    "door", [engine(), aq.Threads(2)], ids=["simulator", "threads"]
)
def test_a_target_ends_an_exact_run_at_the_first_version_known_to_reach_it(
    door, tmp_path
):
    p = aq.LogisticRegression.random(n_data=20_000, dim=20, seed=0)
    whole = aq.minimize(p, engine=door)
    run = aq.minimize(p, engine=door, target=9000.0)
    assert whole.status == run.status == "converged"
    assert run.nit < whole.nit
    assert run.fun <= 9000.0 == pytest.approx(9000.0)
    assert p.value(run.theta) == pytest.approx(run.fun, rel=1e-12), (
        "the point is the one that reached it"
    )
    assert run.metrics["fun"][-1] == run.fun
    assert (run.metrics["fun"][:-1] > 9000.0).all()
    assert "at or below the target 9000" in run.message
    same(run, aq.replay(run.save(tmp_path), p))
