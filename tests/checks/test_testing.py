"""The conformance checks accept what keeps the rules and name the rule that a broken class breaks."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from examples import (
    DTYPES,
    EXAMPLES,
    IN_THIS_PROCESS,
    problem_examples,
    problem_for,
)
from oracles import Quadratic, one_sentence

from asyncqn import AsyncSGD, Bounded, Constrained
from asyncqn.algorithms.paper.async_sgd import Update
from asyncqn.checks.testing import check_algorithm, check_problem
from asyncqn.core.stages import ASYNCHRONOUS
from asyncqn.errors import BadInput
from asyncqn.models import PROBLEMS
from asyncqn.types import ALGORITHM_EXTRAS, PROBLEM_EXTRAS, extra

RNG = np.random.default_rng(0)


def test_the_smallest_problem_keeps_the_rules_also_in_another_process():
    assert check_problem(Quadratic.random(), engines=IN_THIS_PROCESS) == {
        "simulator": "passed",
        "threads": "passed",
    }


class WrongSign(Quadratic):
    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        out *= -1.0


class SortsRows(Quadratic):
    def grad(self, theta, rows, out):
        rows[::-1].sort()
        super().grad(theta, rows, out)


class NoisyGradient(Quadratic):
    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        out += 1e-12 * RNG.standard_normal(out.size)


class ValueWrites(Quadratic):
    def value(self, theta):
        theta *= 1.0 + 1e-12
        return super().value(theta)


class WrongStart(Quadratic):
    def initial(self, rng):
        return np.zeros(4) + np.random.default_rng(
            int(1e9 * RNG.random())
        ).standard_normal(4)


class NegativeCurvature(Quadratic):
    def curvature_diagonal(self, theta):
        return -np.ones(4)


class HighOptimum(Quadratic):
    optimum = 1e9


class VectorMetrics(Quadratic):
    def metrics(self, theta):
        return {"theta": theta}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (WrongSign, "is -1 times the gradient"),
        (SortsRows, "grad changes rows"),
        (NoisyGradient, "grad is not pure"),
        (ValueWrites, "value changes theta"),
        (WrongStart, "draw from its argument alone"),
        (NegativeCurvature, "one positive finite number"),
        (HighOptimum, "is above a value it takes"),
        (VectorMetrics, "names to single numbers"),
    ],
)
def test_a_broken_problem_is_told_which_rule_it_breaks(broken, words):
    with pytest.raises(BadInput, match=words) as caught:
        check_problem(broken.random(), travel=False, engines=())
    assert broken.__name__ in str(caught.value)
    assert one_sentence(caught.value)


def test_a_problem_that_cannot_travel_is_told_so():
    p = Quadratic.random()
    p.extra = lambda: None
    with pytest.raises(BadInput, match="cannot be pickled"):
        check_problem(p)


def test_an_object_that_is_no_problem_is_told_what_it_lacks():
    with pytest.raises(BadInput, match="it has no 'dim'"):
        check_problem(object())


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_our_own_algorithms_keep_the_rules(name, dtype):
    tried = check_algorithm(
        EXAMPLES[name], problem_for(name, dtype), engines=IN_THIS_PROCESS
    )
    assert set(tried.values()) == {"passed"}


@pytest.mark.parametrize(("kind", "dtype"), problem_examples())
def test_our_own_problems_keep_the_rules(kind, dtype):
    check_problem(PROBLEMS[kind].example(dtype), travel=False, engines=())


@dataclass(frozen=True)
class HiddenCounter(AsyncSGD):
    seen: dict = field(default_factory=lambda: {"commits": 0}, compare=False)

    def apply(self, iterate, updates, commit):
        self.seen["commits"] += 1
        iterate = super().apply(iterate, updates, commit)
        if self.seen["commits"] > 40:
            iterate.theta[0] += 1e-9
        return iterate


class WritesView(AsyncSGD):
    def step(self, view, local, problem, task):
        update = super().step(view, local, problem, task)
        view.theta[0] += 1.0
        return update


class WritesUpdate(AsyncSGD):
    def learn(self, view, local, problem, task):
        local.d_theta[...] = 0.0
        return local


SHARED = np.zeros(4)


class SharesBuffer(AsyncSGD):
    def step(self, view, local, problem, task):
        SHARED[...] = super().step(view, local, problem, task).d_theta
        return Update(SHARED)


class RandomStep(AsyncSGD):
    def step(self, view, local, problem, task):
        update = super().step(view, local, problem, task)
        update.d_theta[0] += 1e-9 * RNG.standard_normal()
        return update


class RandomApply(AsyncSGD):
    def apply(self, iterate, updates, commit):
        iterate = super().apply(iterate, updates, commit)
        iterate.theta[0] += 1e-9 * RNG.standard_normal()
        return iterate


class KeepsStart(AsyncSGD):
    def init(self, theta0):
        return super().init(theta0)._replace(theta=theta0)


class OtherDtype(AsyncSGD):
    def apply(self, iterate, updates, commit):
        return iterate._replace(theta=iterate.theta.astype(np.float32))


class ReturnsNoUpdate(AsyncSGD):
    def step(self, view, local, problem, task):
        super().step(view, local, problem, task)


class ReturnsNoIterate(AsyncSGD):
    def apply(self, iterate, updates, commit):
        super().apply(iterate, updates, commit)


class FractionalCounters(AsyncSGD):
    def counters(self, iterate, locals_):
        return {"pairs": 0.5}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (HiddenCounter, "state of its own"),
        (WritesView, "step writes to its view"),
        (WritesUpdate, "learn writes to its view or to the update"),
        (SharesBuffer, "overwrites the update of another worker"),
        (RandomStep, "step is not a function of its arguments"),
        (RandomApply, "apply is not a function of its arguments"),
        (KeepsStart, "is a copy of theta0"),
        (OtherDtype, "apply changes the dtype"),
        (ReturnsNoUpdate, "step must return its update"),
        (ReturnsNoIterate, "apply must return the new iterate"),
        (FractionalCounters, "names to integers"),
    ],
)
def test_a_broken_algorithm_is_told_which_rule_it_breaks(broken, words):
    with pytest.raises(BadInput, match=words) as caught:
        check_algorithm(broken(1e-3, 4), Quadratic.random(), engines=())
    assert broken.__name__ in str(caught.value)
    assert one_sentence(caught.value)


def test_an_object_that_is_no_algorithm_is_told_what_it_lacks():
    class Half:
        stages = ASYNCHRONOUS

    with pytest.raises(BadInput, match="it has no 'init'"):
        check_algorithm(Half(), Quadratic.random())


def test_an_algorithm_that_cannot_travel_is_told_so():
    class Local(AsyncSGD):
        pass

    with pytest.raises(BadInput, match="Local cannot be pickled"):
        check_algorithm(Local(1e-3, 4), Quadratic.random())


class OnlyInTheMainThread(AsyncSGD):
    def step(self, view, local, problem, task):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("this is no place to work.\nlook it up")
        return super().step(view, local, problem, task)


def test_an_algorithm_that_fails_on_an_engine_is_told_which_and_why():
    with pytest.raises(
        BadInput,
        match=r"OnlyInTheMainThread fails on threads: worker \d failed.* no place",
    ) as e:
        check_algorithm(
            OnlyInTheMainThread(1e-6, 4), Quadratic.random(), engines=IN_THIS_PROCESS
        )
    assert "\n" not in str(e.value)


class ElsewhereInAThread(Quadratic):
    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        out[0] += threading.current_thread() is not threading.main_thread()


def test_a_problem_that_gives_other_bits_on_an_engine_is_told_so():
    with pytest.raises(
        BadInput, match="ElsewhereInAThread does not replay from a run on threads"
    ):
        check_problem(
            ElsewhereInAThread.random(), travel=False, engines=IN_THIS_PROCESS
        )


def test_an_engine_that_is_not_there_is_not_tried(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = check_algorithm(AsyncSGD(1e-6, 4), Quadratic.random(), commits=10)
    assert {kind for kind, word in outcome.items() if word == "passed"} == {
        "simulator",
        "threads",
        "processes",
    }
    assert outcome["mpi"].startswith("not tried: ")
    assert re.match("not tried: .*asyncqn\\[ray\\]", outcome["ray"])
    with pytest.raises(BadInput, match="there is no engine 'gossip'"):
        check_problem(Quadratic.random(), travel=False, engines=("gossip",))


def test_every_extra_that_we_declare_is_offered_by_one_of_our_own_classes():
    problems = [model.example() for model in PROBLEMS.values()]
    problems.append(
        Constrained(Quadratic.random(), [Bounded("x", Quadratic.random().dim)])
    )
    # `stand_in` belongs to rows on a data server (tests/models/test_server.py).
    for name in set(PROBLEM_EXTRAS) - {"stand_in"}:
        assert any(extra(problem, name) is not None for problem in problems), name
    for name in set(ALGORITHM_EXTRAS) - {"standing", "max_workers"}:
        assert any(
            extra(algorithm, name) is not None for algorithm in EXAMPLES.values()
        ), name
    with pytest.raises(KeyError, match="declare it in"):
        extra(problems[0], "hessian")
