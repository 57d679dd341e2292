"""resume: a run continues with what it began with, and refuses anything else in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn.errors import BadInput

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
        ({"engine": aq.Threads(1)}, "only on the simulator"),
    ],
)
def test_other_inputs_are_refused_in_a_sentence_that_names_them(
    inputs: dict[str, Any], words: str, tmp_path: Path
) -> None:
    begin(tmp_path)
    with pytest.raises(BadInput, match=words) as error:
        aq.resume(tmp_path, **inputs)
    assert one_sentence(error.value)


def test_equal_inputs_continue_to_the_bits_of_an_uninterrupted_run(
    tmp_path: Path,
) -> None:
    begin(tmp_path)
    run = aq.resume(tmp_path, make_problem(), ALGORITHM)
    options = {"engine": ENGINE, "commits": 120, "seed": 3, "evaluate": 10}
    whole = aq.minimize(make_problem(), ALGORITHM, **options)
    assert run.status == "completed"
    assert run.theta.tobytes() == whole.theta.tobytes()


def test_other_data_of_the_same_shape_are_noticed_by_u_at_the_start(
    tmp_path: Path,
) -> None:
    problem = Quadratic.random()
    begin(tmp_path, problem, aq.AsyncSGD(1e-3, 4))
    with pytest.raises(BadInput, match="U at the start was"):
        aq.resume(tmp_path, Quadratic(problem.A, problem.y + 1e-3))
