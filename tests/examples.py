"""The lists that tests iterate: every algorithm and every problem of the registries, with its example.

An algorithm runs on the first problem that offers what it requires.  `VARIANTS` are further parameters
worth a run; they add to the registry and never stand for it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from asyncqn.algorithms import ALGORITHMS
from asyncqn.algorithms.exact.inverse import METRIC_EXTRAS
from asyncqn.algorithms.fit import offers
from asyncqn.models import PROBLEMS
from asyncqn.types import extra

DTYPES = ("float64", "float32")
IN_THIS_PROCESS = ("simulator", "threads")
"""Engines that start no other process, and take no time to start."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "as-lbfgs diagonal": ("as-lbfgs", {"rho": 0.1, "initial_scale": "diagonal"}),
    "as-lbfgs shuffled": (
        "as-lbfgs",
        {"beta": math.inf, "sampling": "shuffled", "cosine_floor": 0.3},
    ),
    "async-sgd blocks": ("async-sgd", {"sampling": "blocks"}),
    "mb-lbfgs timeout": ("mb-lbfgs", {"timeout": 1.5, "quorum": 0.3}),
    "mb-lbfgs hurry": (
        "mb-lbfgs",
        {"timeout": 0.0, "quorum": 0.01, "initial_scale": 0.05},
    ),
    "exact-lbfgs pieces": ("exact-lbfgs", {"blocks": 3, "pieces": 4}),
    "exact-lbfgs scatter": ("exact-lbfgs", {"samples": 1, "inverse": "scatter"}),
    "exact-lbfgs metric": ("exact-lbfgs", {"samples": 0, "inverse": "metric"}),
    "staged-lbfgs without warm-up": ("staged-lbfgs", {"batches": 1, "warmup": 0}),
}


def problem_for(name: str, dtype: str = "float64") -> Any:
    """The example problem on which an algorithm, or a variant of one, runs."""
    cls = ALGORITHMS[_kind(name)]
    required = extra(getattr(cls, "initial_inverse", cls), "requires")
    needs = required if isinstance(required, tuple) else ()
    if VARIANTS.get(name, ("", {}))[1].get("inverse") == "metric":
        needs = METRIC_EXTRAS
    models = (model.example(dtype) for model in PROBLEMS.values())
    return next(problem for problem in models if offers(problem, needs))


def algorithm_for(name: str) -> Any:
    """The example of an algorithm, or a variant of it."""
    problem = problem_for(name)
    algorithm = ALGORITHMS[_kind(name)].example(problem)
    if name not in VARIANTS:
        return algorithm
    parameters = VARIANTS[name][1]
    if parameters.get("inverse") == "metric":
        parameters = {**parameters, "curvature": problem.curvature_size}
    return replace(algorithm, **parameters)


def _kind(name: str) -> str:
    return VARIANTS[name][0] if name in VARIANTS else name


def problem_examples() -> list[tuple[str, str]]:
    """(kind, dtype) of every problem, in each type that it computes in."""
    found = []
    for kind, model in PROBLEMS.items():
        for dtype in DTYPES:
            try:
                model.example(dtype)
            except ValueError:
                assert dtype != "float64", f"{kind} needs an example in float64"
                continue
            found.append((kind, dtype))
    return found


EXAMPLES: dict[str, Any] = {
    name: algorithm_for(name) for name in [*ALGORITHMS, *VARIANTS]
}
STOCHASTIC = [
    name
    for name, algorithm in EXAMPLES.items()
    if hasattr(algorithm, "batch") and extra(algorithm, "results") is None
]
"""Those that send the step of a minibatch; a sampler's chain judges its own gradients."""
