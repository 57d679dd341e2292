"""Parameters no algorithm can use are refused when it is made, in one sentence each."""

from __future__ import annotations

import math

import pytest
from oracles import Quadratic, one_sentence

from asyncqn import (
    ASLBFGS,
    MBLBFGS,
    SGD,
    SGLD,
    AsyncSGD,
    Cluster,
    ExactLBFGS,
    Simulator,
    minimize,
)
from asyncqn.errors import BadInput

BATCHES = {"memory": 3, "batch": 6, "overlap": 2}
GOOD = {
    ASLBFGS: {"h": 1e-3, "gamma": 0.1, "beta": 1e3, **BATCHES},
    MBLBFGS: {"h": 1e-3, **BATCHES},
    AsyncSGD: {"h": 1e-3, "batch": 6},
    SGD: {"h": 1e-3, "batch": 6},
    SGLD: {"h": 1e-3, "beta": 10.0, "batch": 6},
    ExactLBFGS: {"blocks": 2, "memory": 3},
}
NOT_A_STEP = [0.0, -1e-3, math.nan, math.inf, "1"]
NOT_A_COUNT = [0, -1, 2.5, math.nan, "6"]
BAD = {
    "h": NOT_A_STEP,
    "beta": [0.0, -1.0, math.nan],
    "gamma": [-0.1, 2.0, math.nan],
    "memory": [-1, 1.5],
    "batch": NOT_A_COUNT,
    "overlap": [0, -1, 6, 7, 2.0],
    "rho": [-1.0, math.inf, math.nan],
    "epsilon": [0.0, -1e-4, math.inf, math.nan],
    "cosine_floor": [-0.1, 1.0, math.nan],
    "initial_scale": [0.0, -1.0, math.inf, math.nan, "newton"],
    "timeout": [-1.0, math.nan],
    "quorum": [0.0, -0.5, 1.1, math.nan],
    "momentum": [-0.1, 1.0, math.nan],
    "sampling": ["sometimes"],
}


def cases():
    for cls in GOOD:
        for name, values in BAD.items():
            if name in cls.__dataclass_fields__:
                for value in values:
                    yield pytest.param(
                        cls, name, value, id=f"{cls.__name__}-{name}={value!r}"
                    )


@pytest.mark.parametrize(("cls", "name", "value"), list(cases()))
def test_a_useless_parameter_is_named_in_one_sentence(cls, name, value):
    cls(**GOOD[cls])
    with pytest.raises(BadInput, match=name) as caught:
        cls(**{**GOOD[cls], name: value})
    assert one_sentence(caught.value)


def test_the_central_memory_has_no_diagonal():
    with pytest.raises(BadInput, match="initial_scale must be 'pair' or a positive"):
        MBLBFGS(**GOOD[MBLBFGS], initial_scale="diagonal")


@pytest.mark.parametrize(
    ("curvature", "words"),
    [
        (None, "needs a problem with curvature_diagonal"),
        ([1.0, 1.0], "one positive finite number per coordinate"),
        ([1.0, 0.0, 1.0, 1.0], "one positive finite number per coordinate"),
        ([1.0, math.nan, 1.0, 1.0], "one positive finite number per coordinate"),
    ],
)
def test_the_diagonal_scale_needs_a_useful_curvature(curvature, words):
    problem = Quadratic.random(4)
    if curvature is not None:
        problem.curvature_diagonal = lambda theta: curvature
    algorithm = ASLBFGS(**GOOD[ASLBFGS], initial_scale="diagonal")
    with pytest.raises(BadInput, match=words) as caught:
        minimize(problem, algorithm, engine=Simulator(Cluster(1)), commits=3, seed=0)
    assert one_sentence(caught.value)
