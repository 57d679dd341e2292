"""Every public parameter is described, and a wrong value for it is refused in one sentence that names it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.engines.named import REAL_ENGINES
from asyncqn.errors import AsyncqnError, BadInput
from asyncqn.parameters import Refused, parameters_of

PROBLEM = aq.LinearGaussian.random(dim=4, n_data=40, seed=0)
MODELS = (aq.LeastSquares, aq.LogisticRegression, aq.PoissonRegression, aq.RobustRegression)
X, Y = np.arange(12.0).reshape(6, 2), np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
WRONG: tuple[Any, ...] = (
    *(None, True, np.bool_(False), "x", "", b"x", [], [None], ["x"], {}, {"x": "y"}, (), object(), 1j),
    *(-1, 0, 1.5, -2.5, math.nan, math.inf, -math.inf, np.float64("nan"), np.int64(-7), np.float32(-1.5)),
    *(10**30, 10**400, -(10**30), 2**63, Fraction(-1, 3), np.array([1j]), np.array(["a"]), int, len),
    *(np.ma.masked_equal([1.0, 2.0], 2.0), {1, 2}, range(0), slice(3), ...),
)
SOME_STAGES = aq.AsyncSGD(0.1, 2).stages


def good() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public constructor and function that takes parameters, with arguments that it accepts."""
    for cls in ALGORITHMS.values():
        if cls.__name__ in aq.__all__ and hasattr(cls, "example"):
            problem: Any = PROBLEM if cls is not aq.StagedLBFGS else None
            if cls in (aq.StagedLBFGS, aq.MetricLBFGS):
                problem = aq.LogisticRegression.example()
            yield cls, {name: getattr(cls.example(problem), name) for name in parameters_of(cls)}
    yield aq.Cluster, {"workers": 3}
    yield aq.LogNormal, {"mean": 1.0, "std": 0.5}
    yield aq.Exponential, {"mean": 1.0}
    yield aq.Constant, {"mean": 1.0}
    yield aq.Pareto, {"mean": 1.0, "shape": 2.0}
    yield aq.Trace, {"recorded": [1.0, 2.0]}
    yield aq.Simulator, {"cluster": aq.Cluster(2)}
    yield aq.Threads, {"workers": 2}
    yield aq.Processes, {"workers": 2}
    yield aq.Ray, {"workers": 2}
    yield aq.LinearGaussian, {"A": X, "y": Y, "noise_var": 1.0}
    yield aq.LinearGaussian.random, {"dim": 3, "n_data": 9}
    for model in MODELS:
        yield model, {"X": X, "y": Y}
        yield model.random, {"n_data": 20, "dim": 2}
    yield aq.FiniteSum, {"value": lambda t, r: 0.0, "grad": lambda t, r: t, "n_data": 3, "dim": 1}
    yield (
        aq.simulate,
        {"cluster": aq.Cluster(2), "stages": SOME_STAGES, "commits": 3, "seed": 0},
    )
    yield aq.Cluster.from_run, {"run": None}
    yield aq.default_algorithm, {"potential": PROBLEM, "workers": 2}
    yield aq.table_algorithm, {"potential": PROBLEM, "workers": 2}
    yield aq.load_run, {"folder": "no such folder"}
    yield aq.resume, {"folder": "no such folder"}
    yield aq.replay, {"run": "no such folder"}
    yield aq.read_libsvm, {"path": "no such file"}
    yield aq.blame, {"run": None}
    yield aq.plan, {"potential": PROBLEM, "target": 1.0}


CALLS = list(good())


def cases() -> Iterator[tuple[Callable[..., Any], dict[str, Any], str, Any]]:
    """Every value of the table that the description of a parameter does not allow."""
    for make, arguments in CALLS:
        for name, about in parameters_of(make).items():
            for value in WRONG:
                try:
                    about.kind.convert(value)
                except Refused:
                    yield make, arguments, name, value
                except BadInput:
                    pass  # a mapping that is no object of the kind: its own sentence says why


@pytest.mark.parametrize(("make", "arguments"), CALLS, ids=lambda at: getattr(at, "__qualname__", ""))
def test_every_public_parameter_is_described(make: Callable[..., Any], arguments: dict[str, Any]) -> None:
    described = parameters_of(make)
    assert set(described) >= set(arguments)
    for name, about in described.items():
        assert about.kind.description, f"{make.__qualname__}: {name} has no description"
        assert about.kind.words != ("anything",), f"{make.__qualname__}: {name} takes anything"


def test_wrong_values_are_refused_in_one_sentence_that_names_the_parameter() -> None:
    count, wrong = 0, []
    for make, arguments, name, value in cases():
        count += 1
        try:
            make(**{**arguments, name: value})
        except AsyncqnError as error:
            text = str(error)
            # Another argument may be refused first where it depends on this one, as with from_run(run=None).
            if not text.endswith(".") or "\n" in text or not (name in text or None in arguments.values()):
                wrong.append(f"{make.__qualname__}({name}={value!r}): {text}")
        except Exception as error:
            wrong.append(f"{make.__qualname__}({name}={value!r}) raised {type(error).__name__}: {error}")
        else:
            wrong.append(f"{make.__qualname__}({name}={value!r}) was accepted")
    assert wrong == [], f"{len(wrong)} of {count}"
    assert count >= 2500


@pytest.mark.parametrize("value", [True, None, "1", 1j, math.nan, [1.0], object()])
def test_no_description_of_a_number_takes_what_is_none(value: Any) -> None:
    """The description itself is judged, by the type that stands in the signature."""
    for make, _ in CALLS:
        for name, about in parameters_of(make).items():
            words = about.kind.words
            numbers = all("number" in word or "integer" in word or word == "infinity" for word in words)
            if numbers and not any(
                "one per worker" in word or "list" in word or "array" in word for word in words
            ):
                with pytest.raises(Refused):
                    about.kind.convert(value)
                assert name in inspect.signature(make).parameters


def test_numpy_s_scalars_are_the_numbers_that_they_hold() -> None:
    algorithm = aq.AsyncSGD(h=np.float32(0.5), batch=np.int8(3))
    assert repr(algorithm) == "AsyncSGD(h=0.5, batch=3, sampling='replacement')"
    assert type(algorithm.h) is float
    assert type(algorithm.batch) is int
    assert aq.Cluster(np.int64(3)).workers == 3


@pytest.mark.parametrize("model", MODELS)
def test_complex_numbers_and_masks_are_refused(model: Any) -> None:
    for bad in (X + 1j, np.ma.masked_equal(X, 3.0)):
        with pytest.raises(BadInput, match="X must be an array, not a"):
            model(bad, Y)
    with pytest.raises(BadInput, match="y must be an array, not an array of complex numbers"):
        model(X, Y + 1j)


def test_every_real_engine_is_walked_through_but_mpi() -> None:
    walked = {make.__name__.lower() for make, _ in CALLS if isinstance(make, type)}
    assert set(REAL_ENGINES) - walked == {"mpi"}  # which needs a launcher


def test_a_warning_names_the_line_of_the_caller() -> None:
    unstable = aq.ASLBFGS(h=1e-6, gamma=1.0, beta=500.0, memory=3, batch=20, overlap=10)
    with pytest.warns(aq.StabilityWarning) as caught:
        aq.minimize(PROBLEM, unstable, engine=aq.Simulator(aq.Cluster(4)), commits=5)
    assert {warning.filename for warning in caught} == {__file__}
