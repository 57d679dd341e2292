"""How far off SGLD, as-L-BFGS and Momentum L-BFGS are as samplers at beta = 1, with exact gradients.

python -m benchmarks.studies.posteriors.at_beta_one: for each method and number of workers the step, of three
tried, whose worst error is least, and the errors there: of a mean in posterior standard deviations, and the
ratios of standard deviations.  The posteriors: a Gaussian in 5 dimensions of condition 100, and a
hierarchical model in non-centred form (8 parameters), whose moments come from `aq.sample`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import asyncqn as aq
from tests.posterior_models import Model, hierarchical

COMMITS, BURN_IN = 30_000, 5_000


def gaussian() -> Model:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    P = Q @ np.diag(np.geomspace(1.0, 100.0, 5)) @ Q.T
    return Model(
        lambda t: (0.5 * t @ P @ t, P @ t), 5, mean=np.zeros(5), sd=np.sqrt(np.diag(np.linalg.inv(P)))
    )


def method(name: str, h: float) -> Any:
    """The method at beta = 1; batches are of one data point, the whole of the model."""
    memory = {"memory": 5, "batch": 2, "overlap": 1, "beta": 1.0, "initial_scale": 0.01}
    if name == "SGLD":
        return aq.SGLD(h=h, beta=1.0, batch=1)
    if name == "ASLBFGS":
        return aq.ASLBFGS(h=h, gamma=0.1, **memory)
    return aq.MomentumLBFGS(h=h, gamma=0.1, **memory)


STEPS = {
    "SGLD": (1e-3, 3e-3, 1e-2),
    "ASLBFGS": (3e-4, 1e-3, 3e-3),
    "MomentumLBFGS": (3e-3, 1e-2, 3e-2),
}


def errors(
    model: Model, mean: np.ndarray, sd: np.ndarray, name: str, workers: int, h: float
) -> tuple[float, float, float]:
    """The largest error of a mean, and the least and the largest ratio of standard deviations."""
    engine = aq.Simulator(aq.Cluster(workers=workers, worker_std=0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = aq.minimize(
            model,
            method(name, h),
            engine=engine,
            theta0=mean,
            commits=COMMITS,
            keep=5,
            evaluate=COMMITS,
            seed=1,
        )
    assert run.keep is not None
    draws = run.keep.theta[BURN_IN // 5 :]
    if run.status == "diverged" or len(draws) < (COMMITS - BURN_IN) // 5:
        return math.inf, math.nan, math.nan
    ratio = draws.std(axis=0) / sd
    return float(np.abs((draws.mean(axis=0) - mean) / sd).max()), float(ratio.min()), float(ratio.max())


def main() -> None:
    """Print the table."""
    nested = hierarchical()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = aq.sample(nested, chains=8, draws=40_000, engine=aq.Simulator(aq.Cluster(8)))
    pooled = np.concatenate(reference.chains)
    flat = gaussian()
    models = {
        "Gaussian": (flat, flat.mean, flat.sd),
        "hierarchical": (nested, pooled.mean(axis=0), pooled.std(axis=0)),
    }
    print("method, posterior, workers, best h, mean error (sd), sd ratios")
    for name, steps in STEPS.items():
        for posterior, (model, mean, sd) in models.items():
            for workers in (1, 16):
                found = {h: errors(model, mean, sd, name, workers, h) for h in steps}
                best = min(found, key=lambda h: worst(found[h]))
                off, low, high = found[best]
                print(
                    f"{name}, {posterior}, {workers}, {best:g}, {off:.2f}, {low:.2f} to {high:.2f}",
                    flush=True,
                )


def worst(found: tuple[float, float, float]) -> float:
    off, low, high = found
    return max(off, abs(math.log(low)), abs(math.log(high))) if math.isfinite(off) else math.inf


if __name__ == "__main__":
    main()
