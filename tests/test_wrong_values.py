"""A walk over the public names: each argument of a sound call gets each wrong value in turn.

A wrong value is refused in one sentence, or it is not wrong for that argument; no other error may escape.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
import asyncqn.sklearn as estimators
from asyncqn.columns import Table
from asyncqn.errors import AsyncqnError, BadInput
from asyncqn.parameters import Parameter, Refused, parameters_of

VALUES: list[Any] = [
    None, True, -1, 0, 1.5, -0.5, math.nan, math.inf, 10**30, 1j, "", "a\0b", b"bytes", [], [1, "a"],
    [[1.0], [1.0, 2.0]], {}, {"a": 1}, object(), int, len, np.zeros(0), np.zeros((2, 2)),
    np.array(["a", "b"]), np.array([1.0, math.nan]), np.ma.masked_array([1.0, 2.0], [True, False]),
]  # fmt: skip

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 2))
Y = (X[:, 0] > 0).astype(int)
PROBLEM = aq.LinearGaussian.random(2, 6)
LINEAR = aq.LogisticRegression(X, Y)
ENGINE = aq.Simulator(aq.Cluster(workers=2))
SGD = aq.AsyncSGD(h=1e-3, batch=2)
RUN = aq.minimize(PROBLEM, SGD, engine=ENGINE, commits=6)
LOG = {"worker": [0, 1], "start": [0.0, 0.0], "end": [1.0, 2.0]}
SUMS: dict[str, Any] = {
    "value": lambda theta, rows: float(theta @ theta) * len(rows),
    "grad": lambda theta, rows: 2.0 * theta * len(rows),
    "n_data": 6,
    "dim": 2,
}
STEP = {"h": 1e-3, "batch": 4}
PAIRS = {"gamma": 0.1, "beta": 100.0, "memory": 2, "overlap": 2, "rho": 0.0}
SOUND: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ASLBFGS": (aq.ASLBFGS, STEP | PAIRS | {"initial_scale": 1.0, "cosine_floor": 0.1}),
    "AsyncSGD": (aq.AsyncSGD, {**STEP, "sampling": "replacement"}),
    "AsyncSAGA": (aq.AsyncSAGA, {"h": 1e-3, "parts": 2}),
    "DelayAdaptiveSGD": (aq.DelayAdaptiveSGD, {**STEP, "tau": 3}),
    "Rennala": (aq.Rennala, {**STEP, "collect": 2}),
    "Ringmaster": (aq.Ringmaster, {**STEP, "max_delay": 2}),
    "SGD": (aq.SGD, STEP),
    "SGLD": (aq.SGLD, {**STEP, "beta": 10.0}),
    "MBLBFGS": (aq.MBLBFGS, {**STEP, "memory": 2, "overlap": 1, "timeout": 1.0, "quorum": 0.5}),
    "ExactLBFGS": (
        aq.ExactLBFGS,
        {"blocks": 2, "pieces": 1, "samples": 0, "inverse": "pairs", "memory": 3},
    ),
    "TableLBFGS": (aq.TableLBFGS, {"parts": 4, "first": 2, "memory": 3}),
    "SharedMetricHMC": (
        aq.SharedMetricHMC,
        {"draws": 5, "chains": 2, "warm_up": 5, "acceptance": 0.8},
    ),
    "Bounded": (aq.Bounded, {"name": "a", "size": 1, "low": 0.0, "high": 1.0}),
    "Patience": (aq.Patience, {"metric": "fun", "evaluations": 2, "keep_best": True}),
    "times.LogNormal": (aq.times.LogNormal, {"mean": 1.0, "std": 0.1}),
    "times.Exponential": (aq.times.Exponential, {"mean": 1.0}),
    "times.Pareto": (aq.times.Pareto, {"mean": 1.0, "shape": 2.0}),
    "times.Constant": (aq.times.Constant, {"mean": 1.0}),
    "times.Trace": (aq.times.Trace, {"recorded": [1.0, 2.0]}),
    "Cluster": (
        aq.Cluster,
        {"workers": 2, "worker_mean": 1.0, "worker_std": 0.1, "message": 0.1, "master": 0.1, "deaths": {},
         "joins": {}, "times": None, "recoveries": {}, "link": 0.0, "rows": None, "fixed": 0.0},
    ),
    "Cluster.from_schedule": (aq.Cluster.from_schedule, {"schedule": RUN.schedule}),
    "Simulator": (aq.Simulator, {"cluster": aq.Cluster(2)}),
    "Recorded": (aq.Recorded, {"schedule": RUN.schedule}),
    "Threads": (
        aq.Threads,
        {"workers": 2, "timing_model": None, "time_unit": 1.0, "max_staleness": None},
    ),
    "Processes": (
        aq.Processes,
        {"workers": 2, "start_method": "fork", "start_timeout": 60.0, "give_up_after": 60.0},
    ),
    "Ray": (aq.Ray, {"workers": 2, "restarts": 1, "cpus": 1.0, "max_staleness": None}),
    "LinearGaussian": (aq.LinearGaussian, {"A": X, "y": X[:, 0], "noise_var": 1.0}),
    "LinearGaussian.random": (
        aq.LinearGaussian.random,
        {"dim": 2, "n_data": 6, "noise_var": 1.0, "spectrum": [1.0, 2.0], "seed": 0},
    ),
    "LogisticRegression": (
        aq.LogisticRegression,
        {"X": X, "y": Y, "prior": 1.0, "weights": None, "feature_names": None},
    ),
    "LogisticRegression.random": (
        aq.LogisticRegression.random,
        {"n_data": 20, "dim": 2, "condition": 2.0, "correlation": 0.1, "signal": 1.0},
    ),
    "LogisticRegression.from_file": (
        aq.LogisticRegression.from_file,
        {"data": "none.csv", "label": "y", "features": None, "holdout": 0.1},
    ),
    "LeastSquares": (aq.LeastSquares, {"X": X, "y": X[:, 0], "offset": None}),
    "PoissonRegression": (aq.PoissonRegression, {"X": X, "y": Y, "offset": None}),
    "RobustRegression": (aq.RobustRegression, {"X": X, "y": X[:, 0]}),
    "SoftmaxRegression": (aq.SoftmaxRegression, {"X": X, "y": Y, "weights": None}),
    "LogisticRegression.value": (LINEAR.value, {"theta": np.zeros(3)}),
    "LogisticRegression.value_rows": (
        LINEAR.value_rows,
        {"theta": np.zeros(3), "rows": np.arange(3)},
    ),
    "LogisticRegression.score": (LINEAR.score, {"run": np.zeros(3)}),
    "LogisticRegression.coefficients": (
        LINEAR.coefficients,
        {"run": np.zeros(3), "standard_errors": False},
    ),
    "LinearGaussian.value": (PROBLEM.value, {"theta": np.zeros(2)}),
    "FiniteSum": (aq.FiniteSum, {**SUMS, "prior": 0.0, "start": [0.0, 0.0]}),
    "Constrained": (
        aq.Constrained,
        {"problem": PROBLEM, "parameters": [aq.Bounded("a", low=-9.0), aq.Bounded("b")]},
    ),
    "LogDensity": (
        aq.LogDensity,
        {"logp_and_grad": lambda theta: (-float(theta @ theta), -2.0 * theta), "dim": 2},
    ),
    "Schedule": (
        aq.Schedule,
        {"worker": [0], "read": [0], "commit": [1], "time": [1.0], "part": None},
    ),
    "Schedule.serial": (aq.Schedule.serial, {"commits": 3}),
    "Schedule.from_table": (
        aq.Schedule.from_table,
        {"table": LOG, "worker": "worker", "start": "start", "end": "end"},
    ),
    "Table.from_records": (Table.from_records, {"records": [{"a": 1.0}]}),
    "minimize": (
        aq.minimize,
        {"problem": PROBLEM, "algorithm": SGD, "engine": ENGINE, "theta0": [0.0, 0.0], "commits": 4,
         "seed": 0, "tol": 1e-3, "max_passes": 3.0, "max_time": 3.0, "target": None, "metric": "fun",
         "callback": None, "evaluate": 1, "checkpoint": None, "checkpoint_every": 10, "keep": None,
         "stop": None, "waits": True, "progress": False, "verbose": False, "check": True},
    ),
    "sample": (
        aq.sample,
        {"problem": PROBLEM, "engine": ENGINE, "draws": 5, "chains": 2, "warm_up": 5, "seed": 0},
    ),
    "simulate": (
        aq.simulate,
        {"cluster": aq.Cluster(2), "stages": SGD.stages, "commits": 4, "seed": 0},
    ),
    "replay": (aq.replay, {"run": RUN, "problem": PROBLEM, "keep": None}),
    "resume": (aq.resume, {"folder": "none", "commits": 3, "tol": 1e-3}),
    "load_run": (aq.load_run, {"folder": "none"}),
    "blame": (aq.blame, {"run": RUN, "seeds": 2, "workers": None, "metric": "fun"}),
    "starting_point": (aq.starting_point, {"problem": PROBLEM, "theta0": [0.0, 0.0]}),
    "default_algorithm": (
        aq.default_algorithm,
        {"problem": PROBLEM, "workers": 2, "message": 0.0, "waits": True},
    ),
    "plan": (
        aq.plan,
        {"problem": PROBLEM, "target": 1.0, "workers": [1], "record": 0.1},
    ),
    **{
        f"sklearn.{kind.__name__}.{name}": (
            lambda kind=kind, **given: kind(**given).fit(X, Y),
            {name: default},
        )
        for kind in (estimators.LogisticRegression, estimators.Ridge)
        for name, default in kind().get_params().items()
    },
}  # fmt: skip


FREE = {"rows", "theta", "run", "records", "table"}
"""Parameters that take anything, and that their functions judge."""
FUNCTIONS = ("value", "grad", "callback", "stop", "logp_and_grad")


def refuses(parameter: Parameter, value: Any) -> bool:
    """Whether the description of a parameter does not allow a value."""
    try:
        parameter.kind.convert(value)
    except Refused:
        return True
    except BadInput:
        pass  # a mapping that is no object of the kind: its own sentence says why
    return False


def raw_errors(name: str) -> Iterator[str]:
    """Yield a line for each value that is not answered as the description of its argument promises."""
    make, sound = SOUND[name]
    parameters = {} if name.startswith("sklearn") else parameters_of(make)
    described = parameters.keys() - FREE
    for argument in sound:
        for value in VALUES:
            # What a function of the user's raises is shown as it is.
            if callable(value) and argument in FUNCTIONS:
                continue
            wrong = argument in described and refuses(parameters[argument], value)
            call = f"{name}({argument}={value!r})"
            try:
                make(**{**sound, argument: value})
            except AsyncqnError as error:
                text = str(error)
                if "\n" in text or (wrong and argument not in text):
                    yield f"{call}: {text}"
            except Exception as error:
                yield f"{call}: {type(error).__name__}: {error}"
            else:
                if wrong:
                    yield f"{call} was accepted"


@pytest.mark.parametrize("name", SOUND)
def test_a_wrong_value_gets_a_sentence(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(raw_errors(name)) == []
