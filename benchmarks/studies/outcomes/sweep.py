"""Does a run that says success end above its start?  `python -m benchmarks.studies.outcomes.sweep [SEED]`

Every stochastic algorithm runs on six problems with steps from a thousandth of the stable one to ten thousand
times it, on a simulated cluster.  Counted are the runs that say success although U at the end exceeds
U at the start.  An optimizer may not rise at all; a sampler may by (1.5 d + 5) / beta.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.stability import delay_limit, largest_curvature
from asyncqn.minimize import starting_point
from asyncqn_paper.nonconvex import PhaseRetrieval

WORKERS, BATCH, BETA = 4, 12, 20.0
FACTORS = (1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 1e4)
"""Steps as multiples of the largest stable one."""


class Ending(NamedTuple):
    """One run: what it was, and what it says."""

    problem: str
    algorithm: str
    factor: float
    run: Any
    allowed: float
    """The largest U at the end of a success."""

    @property
    def false_success(self) -> bool:
        """True if the run reports success above its start."""
        return self.run.success and not self.run.fun <= self.allowed

    def __str__(self) -> str:
        return f"{self.algorithm} on {self.problem}, step x {self.factor:g}: {self.run.message}"


def problems(seed: int = 7) -> dict[str, Any]:
    """Six small problems: two quadratic, three with bounded or exploding gradients, one not convex."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 8))
    score = X @ rng.standard_normal(8)
    labels = (score + rng.logistic(size=200) > 0).astype(float)
    return {
        "linear-gaussian": aq.LinearGaussian.random(10, 200, 2.0, seed=seed),
        "logistic": aq.LogisticRegression(X, labels, intercept=False),
        "softmax": aq.SoftmaxRegression(
            X, np.digitize(score + rng.logistic(size=200), [-1.0, 1.0]), intercept=False
        ),
        "robust": aq.RobustRegression(
            X, score + rng.standard_t(2, 200), intercept=False
        ),
        "poisson": aq.PoissonRegression(
            X, rng.poisson(np.exp(0.3 * score)), intercept=False
        ),
        "phase-retrieval": PhaseRetrieval.random(6, 100, seed=seed),
    }


def algorithms(step: float) -> dict[str, Any]:
    """Every stochastic algorithm, with this step where plain gradients are stable at 1 / lambda_max."""
    pairs: dict[str, Any] = {"memory": 3, "batch": BATCH, "overlap": 6}
    pairs["initial_scale"] = 1.0
    return {
        "async-sgd": aq.AsyncSGD(step, BATCH),
        "sgd": aq.SGD(step / 2, BATCH, momentum=0.5),
        "delay-adaptive-sgd": aq.DelayAdaptiveSGD(step, BATCH, tau=WORKERS),
        "rennala": aq.Rennala(step, BATCH, collect=2),
        "async-saga": aq.AsyncSAGA(step, parts=10),
        "sgld": aq.SGLD(step, BETA, BATCH),
        "as-lbfgs": aq.ASLBFGS(h=0.1 * step, gamma=0.1, beta=BETA, **pairs),
        "mb-lbfgs": aq.MBLBFGS(h=step, **pairs),
    }


def sweep(
    factors: Sequence[float] = FACTORS,
    commits: int = 300,
    names: Sequence[str] | None = None,
    seed: int = 7,
) -> Iterator[Ending]:
    """Yield one ending per problem, algorithm and step."""
    engine = aq.Simulator(aq.Cluster(WORKERS, 2.0, 0.5))
    for name, problem in problems(seed).items():
        theta0 = starting_point(problem, None, 0)
        start, d = float(problem.value(theta0)), int(problem.dim)
        # The stability limit of a delayed gradient step, with the staleness of equal workers, W - 1.
        stable = delay_limit(WORKERS - 1) / largest_curvature(problem, theta0)
        for factor in factors:
            for kind, algorithm in algorithms(factor * stable).items():
                if names is not None and kind not in names:
                    continue
                run = aq.minimize(
                    problem,
                    algorithm,
                    engine=engine,
                    theta0=theta0,
                    commits=commits,
                    seed=seed,
                )
                beta = getattr(algorithm, "beta", np.inf)
                # A run that stays at its start may differ from it by the order of a sum.
                rise = (1.5 * d + 5.0) / beta + 1e-13 * abs(start)
                yield Ending(name, kind, factor, run, start + rise)


def main() -> int:
    """Print how the runs ended, step by step, and every false success."""
    warnings.simplefilter("ignore", aq.StabilityWarning)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    endings = list(sweep(seed=seed))
    for factor in FACTORS:
        some = [each for each in endings if each.factor == factor]
        print(f"{factor:13g}", dict(Counter(str(each.run.status) for each in some)))
    false = [each for each in endings if each.false_success]
    print(*false, sep="\n")
    print(f"{len(endings)} runs, {len(false)} successes above the start")
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
