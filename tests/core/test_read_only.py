"""A user's problem gets read-only views: a late write fails in a sentence, all else works as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import float64, int64, njit, void

import asyncqn as aq
from asyncqn.core.problem import read_only
from asyncqn.core.worker import WorkerSteps

ENGINES = {
    "simulator": aq.Simulator(aq.Cluster(2)),
    "one thread": aq.Threads(1),
    "threads": aq.Threads(2),
}


class Quadratic:
    """U = n |theta - 1|^2 / 2."""

    dim, n_data = 5, 20

    def value(self, theta: Any) -> float:
        return 0.5 * self.n_data * float((theta - 1.0) @ (theta - 1.0))

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        out[:] = self.n_data * (theta - 1.0)


class LateWriter(Quadratic):
    """Changes an argument of `function` after many calls."""

    def __init__(self, function: str, change: Any) -> None:
        self.function, self.change, self.calls = function, change, 0

    def _count(self, function: str, *arguments: Any) -> None:
        if function == self.function:
            self.calls += 1
            if self.calls > 200:
                self.change(*arguments)

    def value(self, theta: Any) -> float:
        self._count("value", theta)
        return super().value(theta)

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        self._count("grad", theta, rows)
        super().grad(theta, rows, out)


def set_theta(theta: Any, *rest: Any) -> None:
    theta[0] = 7.0


def add_to_theta(theta: Any, *rest: Any) -> None:
    theta += 1.0


def reverse_rows(theta: Any, rows: Any) -> None:
    rows[:] = rows[::-1].copy() + 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("function", "change", "words"),
    [
        ("grad", set_theta, "LateWriter.grad changes theta"),
        ("grad", add_to_theta, "LateWriter.grad changes theta"),
        ("value", set_theta, "LateWriter.value changes theta"),
        ("grad", reverse_rows, "LateWriter.grad changes rows"),
    ],
)
def test_a_write_after_many_calls_fails_in_a_sentence_that_names_it(
    engine: str, function: str, change: Any, words: str
) -> None:
    problem = LateWriter(function, change)
    with pytest.raises(
        aq.AsyncqnError, match=f"{words}: it must .* on a copy"
    ) as caught:
        aq.minimize(
            problem,
            aq.AsyncSGD(1e-3, 5),
            engine=ENGINES[engine],
            commits=400,
            evaluate=1,
        )
    assert "\n" not in str(caught.value)


@njit
def _lazy(theta: Any, out: Any) -> None:
    for i in range(theta.size):
        out[i] = 20.0 * (theta[i] - 1.0)


@njit(void(float64[::1], int64[::1], float64[::1]))
def _writable_only(theta: Any, rows: Any, out: Any) -> None:
    for i in range(theta.size):
        out[i] = 20.0 * (theta[i] - 1.0)


class Lazy(Quadratic):
    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        _lazy(theta, out)


class WritableOnly(Quadratic):
    """Its function is compiled for arrays that may be written to, and for no others."""

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        _writable_only(theta, rows, out)


class InPlaceDifferences(Quadratic):
    """Moves theta and puts it back, bit for bit."""

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        for i in range(theta.size):
            kept = theta[i].copy()
            theta[i] = 1.0
            theta[i] = kept
        super().grad(theta, rows, out)


@pytest.mark.parametrize("kind", [Lazy, WritableOnly, InPlaceDifferences])
@pytest.mark.parametrize("engine", ENGINES)
def test_compiled_functions_and_those_that_put_back_what_they_change_go_on_working(
    engine: str, kind: Any
) -> None:
    options: dict[str, Any] = {"commits": 30, "seed": 1}
    problem = kind()
    run = aq.minimize(problem, aq.AsyncSGD(1e-3, 5), engine=ENGINES[engine], **options)
    assert run.problem is problem
    assert aq.replay(run, problem=Quadratic()).theta.tobytes() == run.theta.tobytes()


def test_our_own_problems_are_handed_plain_arrays_and_extras_stay_absent() -> None:
    own = aq.LinearGaussian.random(3, 10, seed=0)
    assert read_only(own) is own
    asked = read_only(Quadratic())
    assert (asked.dim, asked.n_data) == (5, 20)
    assert not hasattr(asked, "value_rows")
    assert read_only(asked) is asked


def test_an_error_of_the_problem_is_passed_on_and_not_tried_again() -> None:
    calls = []

    class Raising(Quadratic):
        def grad(self, theta: Any, rows: Any, out: Any) -> None:
            calls.append(1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        read_only(Raising()).grad(np.zeros(5), np.arange(4), np.zeros(5))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("update", "taken"),
    [
        ((np.zeros(2), (np.zeros(3), 1.0)), True),
        ((np.zeros(2), (np.array([np.nan]), 1.0)), False),
        ((np.zeros(2), (np.zeros(3), float("inf"))), False),
        ((np.zeros(2), [np.float32("nan")]), False),
        ((np.zeros(2), 1e200, 3, True, None, np.array([3])), True),
        ((np.full(2, 1e200), 1.0), False),
    ],
)
def test_numbers_that_are_none_are_found_wherever_they_stand_in_an_update(
    update: Any, taken: bool
) -> None:
    class Says:
        def step(self, *arguments: Any) -> Any:
            return update

        learn = forget = step

    steps = WorkerSteps(Says(), Quadratic(), 1e12)  # type: ignore[arg-type]
    found = steps.compute(None, None, None)  # type: ignore[arg-type]
    assert (found is update) == taken
