"""Mistakes in what `minimize` is given, and in a problem that somebody wrote, are told in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.errors import BadInput, WorkerFailed

SGD = aq.AsyncSGD(h=0.01, batch=2)


class Bowl:
    """|theta|^2 / 2, from data that do not matter."""

    dim, n_data = 3, 20

    def value(self, theta: Any) -> float:
        return 0.5 * float(theta @ theta)

    def grad(self, theta: Any, rows: Any, out: Any) -> Any:
        out[:] = theta


def bowl(**members: Any) -> Any:
    return type("Bowl", (Bowl,), members)()


def engine() -> aq.Simulator:
    return aq.Simulator(aq.Cluster(workers=4))


def returning(self: Any, theta: Any, rows: Any, out: Any) -> Any:
    return theta.copy()


def idle(self: Any, theta: Any, rows: Any, out: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"grad": returning}, r"grad leaves the array out unchanged \(it returns an array of shape \(3,\)"),
        ({"grad": idle}, "grad leaves the array out unchanged: write the gradient"),
        ({"value": lambda self, theta: np.ones(3)}, "value must return a number, not an array of shape"),
        ({"value": lambda self, theta: "low"}, "value must return a number, not str"),
        ({"value": 3.0}, "'value' of the problem must be a method"),
        ({"dim": 3.0}, r"dim = 3\.0: it must be an integer"),
        ({"n_data": 0}, "n_data = 0: it must be an integer"),
        ({"dtype": "foo"}, "but the problem has dtype = 'foo'"),
        ({"dtype": np.int64}, "but the problem has dtype = .*int64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("algorithm", [SGD, None], ids=["sgd", "default"])
def test_a_wrong_problem_is_refused(
    members: dict[str, Any], sentence: str, algorithm: Any
) -> None:
    with pytest.raises(BadInput, match=sentence) as caught:
        aq.minimize(bowl(**members), algorithm, engine=engine(), commits=5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"problem": Bowl}, r"problem must be .*, not the class Bowl: create an object, Bowl\(\.\.\.\)"),
        ({"problem": 3}, "problem must be an object with dim, n_data, value and grad, not 3"),
        ({"algorithm": aq.AsyncSGD}, "algorithm must be .*, not the class AsyncSGD: create"),
        ({"engine": "threads"}, "engine must be an engine, such as .*, not 'threads'"),
        ({"callback": 3}, "callback must be a function, a Patience, a list of these or None, not 3"),
    ],
)  # fmt: skip
def test_what_is_no_object_of_a_run_is_refused(
    arguments: dict[str, Any], sentence: str
) -> None:
    call = {"problem": Bowl(), "algorithm": SGD, "engine": engine(), **arguments}
    with pytest.raises(BadInput, match=sentence):
        aq.minimize(**call, commits=5)


def test_what_a_problem_raises_is_told_by_the_engine() -> None:
    def raising(self: Any, theta: Any, rows: Any, out: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(WorkerFailed, match="worker 0 failed in its step 0"):
        aq.minimize(bowl(grad=raising), SGD, engine=aq.Threads(1), commits=5)
    with pytest.raises(KeyError, match="mine"):
        aq.minimize(bowl(grad=raising), SGD, engine=engine(), commits=5)


def test_an_objective_that_is_not_finite_at_the_start_is_named_as_the_cause() -> None:
    run = aq.minimize(
        bowl(value=lambda self, theta: np.nan), SGD, engine=engine(), commits=5
    )
    assert run.status == "diverged"
    assert "the objective at theta0 is not finite" in run.message
