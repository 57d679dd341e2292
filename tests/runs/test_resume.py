"""resume: a run continues with what it began with, and refuses anything else in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.runs.manifest import needs_imports

ENGINE = aq.Simulator(aq.Cluster(4, 2.0, 1.0))
ALGORITHM = aq.ASLBFGS(1e-4, 0.05, 1e3, 3, 12, 4)


def make_problem(n_data: int = 60) -> aq.LinearGaussian:
    return aq.LinearGaussian.random(
        10, n_data, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0)
    )


def stop_at_50(progress: aq.Progress) -> None:
    if progress.commit == 50:
        raise StopIteration


def begin(folder: Path, problem: Any = None, algorithm: Any = ALGORITHM) -> aq.Run:
    """Return a run that its callback stops at commit 50 of 120."""
    return aq.minimize(
        make_problem() if problem is None else problem,
        algorithm,
        engine=ENGINE,
        commits=120,
        seed=3,
        evaluate=10,
        callback=stop_at_50,
        checkpoint=folder,
    )


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            {"algorithm": replace(ALGORITHM, h=2e-4)},
            "the algorithm's h was 0.0001, not 0.0002",
        ),
        (
            {"algorithm": aq.AsyncSGD(1e-4, 6)},
            "the algorithm was as-lbfgs, not async-sgd",
        ),
        ({"problem": make_problem(80)}, "n_data was 60, not 80"),
        (
            {"engine": aq.Simulator(aq.Cluster(5, 2.0, 1.0))},
            "only on its own cluster",
        ),
        ({"engine": aq.Threads(1)}, "only on a real engine"),
    ],
)
def test_other_inputs_are_refused_in_a_sentence_that_names_them(
    inputs: dict[str, Any], words: str, tmp_path: Path
) -> None:
    begin(tmp_path)
    with pytest.raises(BadInput, match=words) as error:
        aq.resume(tmp_path, **inputs)
    assert one_sentence(error.value)


def test_other_data_of_the_same_shape_are_noticed_by_u_at_the_start(
    tmp_path: Path,
) -> None:
    problem = Quadratic.random()
    begin(tmp_path, problem, aq.AsyncSGD(1e-3, 4))
    with pytest.raises(BadInput, match="U at the start was"):
        aq.resume(tmp_path, Quadratic(problem.A, problem.y + 1e-3))


# -- a run that has ended continues to a later end


def some_rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    return X, X[:, 0] + 0.5 * rng.standard_normal(400) > 0


@pytest.mark.parametrize(
    "engine", [aq.Threads(2), aq.Simulator(aq.Cluster(3, worker_std=0.3))], ids=repr
)
@pytest.mark.parametrize(
    ("algorithm", "first", "then"),
    [
        (aq.ASLBFGS(1e-4, 0.1, 500.0, 3, 20, 10), {"commits": 40}, {"commits": 90}),
        (aq.AsyncSGD(1e-3, 10), {"max_passes": 1.0}, {"max_passes": 3.0}),
        (None, {"tol": 1e-2}, {"tol": 1e-9}),
        (None, {"max_passes": 3.0, "waits": False}, {"max_passes": 9.0}),
        (aq.ExactLBFGS(blocks=4), {"target": 125.0}, {"target": 119.0}),
    ],
    ids=["commits", "stochastic passes", "tol", "table", "target"],
)
def test_a_run_that_has_ended_continues_with_later_limits(
    algorithm: Any,
    first: dict[str, Any],
    then: dict[str, Any],
    engine: Any,
    tmp_path: Path,
) -> None:
    problem = aq.LogisticRegression(*some_rows())
    run = aq.minimize(problem, algorithm, engine=engine, checkpoint=tmp_path, **first)
    same = aq.resume(tmp_path, problem)
    assert (same.nit, same.theta.tobytes()) == (run.nit, run.theta.tobytes())
    longer = aq.resume(tmp_path, problem, **then)
    assert longer.nit > run.nit
    assert longer.fun < run.fun
    # Pairs and table are continued with: the replay computes the whole run in one go.
    assert aq.replay(longer).theta.tobytes() == longer.theta.tobytes()
    assert np.array_equal(longer.fingerprints[: run.nit], run.fingerprints)


def test_a_budget_that_is_used_says_what_it_was_good_for(tmp_path: Path) -> None:
    problem = aq.LogisticRegression(*some_rows())
    run = aq.minimize(problem, engine=aq.Threads(2), max_passes=3, checkpoint=tmp_path)
    assert not run.success
    assert run.message.startswith("used its budget of 3 passes, after ")
    ending = "; from a checkpoint, resume(folder, max_passes=9) continues."
    assert f" U fell from 277.259 to {run.fun:.6g}{ending}" in run.message
    with pytest.raises(BadInput, match="commits: it cannot end after 1"):
        aq.resume(tmp_path, problem, commits=1)


class Importable(Quadratic):
    def __init__(self) -> None:
        pass

    def reference(self) -> dict[str, Any]:
        return {"kind": "module:Importable"}


def test_the_command_that_continues_allows_imports_where_they_are_needed(
    tmp_path: Path,
) -> None:
    for imports, ending in ((True, "a --allow-imports"), (False, "a")):
        place = Checkpoints(tmp_path / "a", imports=imports)
        assert place.command.endswith(f"{tmp_path / ending}")
    assert needs_imports(Importable(), ALGORITHM)
    assert not needs_imports(make_problem(), ALGORITHM)
