"""SGLD and as-L-BFGS at beta = 1, and nutpie, on some posteriors of the study.

The first two have exact gradients and advantages that a user has not: they begin at a draw of the
posterior, their steps are in units of its covariance, and of four steps the one with the smallest errors is
reported.  22,222 commits of four uneven workers; after the first tenth every second is a draw.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.checks.mixing import rhat
from benchmarks.studies.posteriors.rows import NUTS_CHAINS, NUTS_WARM_UP, Case, cluster

POSTERIORS = (
    "eight_schools-eight_schools_noncentered",
    "low_dim_gauss_mix-low_dim_gauss_mix",
    "arK-arK",
    "sblrc-blr",
    "kidiq-kidscore_momiq",
    "nes1972-nes",
)
"""Few parameters and many, near a Gaussian and not."""

THIN = 2
"""Commits between two draws."""
GAMMA, MEMORY = 0.1, 5
STEPS = {
    "sgld": (0.03, 0.1, 0.3, 1.0),
    "as-lbfgs": (1e-3, 1e-2, 1e-1, 1.0),
}
"""In units in which a Gaussian is stable up to about one: for SGLD the least variance of the posterior, for
as-L-BFGS, which applies H twice, the inverse of the largest."""


def _method(name: str, h: float, variances: np.ndarray) -> Any:
    if name == "sgld":
        return aq.SGLD(h=h * float(variances.min()), beta=1.0, batch=1)
    # A problem of one data point: every row is the whole of it, so that gradients are exact.
    common: dict[str, Any] = {
        "gamma": GAMMA,
        "memory": MEMORY,
        "batch": 2,
        "overlap": 1,
        "beta": 1.0,
    }
    common["initial_scale"] = float(variances.min())
    return aq.ASLBFGS(h=h / float(variances.max()), **common)


def _pilot(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """A draw of the posterior and the eigenvalues of its covariance, from `aq.sample`."""
    if "pilot" not in case.samplers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = aq.sample(
                case.problem,
                chains=4,
                draws=2000,
                engine=aq.Simulator(aq.Cluster(4)),
                seed=99,
            )
        pooled = np.concatenate(samples.chains)
        case.samplers["pilot"] = pooled[-1], np.linalg.eigvalsh(np.cov(pooled.T))
    found: tuple[np.ndarray, np.ndarray] = case.samplers["pilot"]
    return found


def _run(
    case: Case, name: str, workers: int, draws: int, seed: int, h: float
) -> dict[str, Any] | None:
    """The row of one step size; None where the run diverged."""
    start, variances = _pilot(case)
    commits = draws * THIN * 10 // 9
    before = time.process_time()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        run = aq.minimize(
            case.problem,
            _method(name, h, variances),
            engine=aq.Simulator(cluster(workers)),
            theta0=start,
            commits=commits,
            keep=THIN,
            evaluate=commits,
            seed=seed,
            check=False,
        )
    assert run.keep is not None
    chain = np.asarray(run.keep.theta)[-draws:]
    if run.status == "diverged" or len(chain) < draws or not np.isfinite(chain).all():
        return None
    return {
        **case.compared([chain]),
        "step": h,
        "gradients": commits,
        "seconds": time.process_time() - before,
    }


def unadjusted(name: str) -> Callable[..., dict[str, Any]]:
    """The best of several steps of a method without a Metropolis test."""

    def run(case: Case, workers: int, draws: int, seed: int) -> dict[str, Any]:
        found = [_run(case, name, workers, draws, seed, h) for h in STEPS[name]]
        rows = [row for row in found if row is not None]
        if not rows:
            raise ArithmeticError(f"every step of {STEPS[name]} diverged")
        return min(
            rows,
            key=lambda row: max(row["mean"] / 0.1, abs(math.log(row["sd"])) / 0.05),
        )

    return run


def nutpie(case: Case, workers: int, draws: int, seed: int) -> dict[str, Any]:
    """nutpie with its own adaptation of a diagonal metric, four chains, as it comes."""
    import nutpie as package
    from nutpie.compiled_pyfunc import from_pyfunc

    dim, problem = case.density.dim, case.problem

    def make_logp() -> Any:
        def logp(x: Any) -> Any:
            g = np.empty(dim)
            value = problem.grad_with_value(x, None, g)
            return -value, -g

        return logp

    def make_expand(*_: Any) -> Any:
        return lambda x: {"theta": np.asarray(x)}

    model = from_pyfunc(
        ndim=dim, make_logp_fn=make_logp, make_expand_fn=make_expand,
        expanded_dtypes=[np.dtype("float64")], expanded_shapes=[(dim,)], expanded_names=["theta"],
        make_initial_point_fn=lambda s: np.random.default_rng(s).uniform(-2.0, 2.0, dim),
    )  # fmt: skip
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = package.sample(
            model, draws=draws // NUTS_CHAINS, tune=NUTS_WARM_UP, chains=NUTS_CHAINS, cores=1, seed=seed,
            progress_bar=False,
        )  # fmt: skip
    chains = list(np.asarray(trace.posterior["theta"]))
    stats = trace.sample_stats
    return {
        **case.compared(chains),
        "rhat": float(rhat(chains).max()),
        "gradients": int(np.asarray(stats["n_steps"]).sum()),
        "warm_up_gradients": int(
            np.asarray(trace.warmup_sample_stats["n_steps"]).sum()
        ),
        "divergent": int(np.asarray(stats["diverging"]).sum()),
        "seconds": time.process_time() - before,
    }


METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    **{name: unadjusted(name) for name in STEPS},
    "nutpie": nutpie,
}
