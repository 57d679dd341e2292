"""Posteriors outside posteriordb, two seeds each, on 8 uneven simulated workers with 20,000 draws.

python -m benchmarks.studies.posteriors.further [--draws 20000] [--only NAME ...]

- regression: 12 coefficients of strongly correlated columns (condition 10^4), unit noise; moments in closed
  form.
- hierarchical: 12 groups in non-centred form (14 parameters); moments by summation over a grid of two of
  them, given which the others are Gaussian.
- logistic: 15 coefficients, 5,000 rows; moments by importance sampling from the Laplace approximation with
  Student tails, 200,000 independent draws, which share nothing with a Markov chain.
- modes: two Gaussians 8 standard deviations apart; R-hat must warn.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from benchmarks.studies.posteriors.compare import ERRORS, MEAN, SD, moments
from tests.posterior_models import beside_a_unit_gaussian, hierarchical, on_a_grid


class Further(NamedTuple):
    """A problem with the exact moments of some of its parameters; no moments: R-hat must warn."""

    problem: Any
    mean: Any = None
    sd: Any = None
    columns: slice = slice(None)


def regression(n_data: int = 200, dim: int = 12) -> Further:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n_data, dim)) * np.geomspace(1.0, 0.01, dim)
    A = A @ np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    problem = aq.LinearGaussian(A, A @ rng.standard_normal(dim) + rng.standard_normal(n_data), noise_var=1.0)
    return Further(problem, problem.optimum_theta, np.sqrt(np.diag(np.linalg.inv(problem.precision))))


def nested(groups: int = 12) -> Further:
    model = hierarchical(groups)

    def marginal(t: Any) -> float:
        mu, tau = t[0], np.exp(t[1])
        var = model.s**2 + tau**2
        prior = 0.5 * (mu / 5.0) ** 2 + np.log1p((tau / 5.0) ** 2) - t[1]
        return float(prior + 0.5 * ((model.y - mu) ** 2 / var + np.log(var)).sum())

    mean, sd = on_a_grid(marginal, [np.linspace(-16.0, 24.0, 150), np.linspace(-10.0, 5.0, 200)])
    return Further(model, mean, sd, slice(groups, groups + 2))


def logistic(n_data: int = 5000, dim: int = 15, draws: int = 200_000) -> Further:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_data, dim))
    X[:, 1] = 0.95 * X[:, 0] + 0.3 * X[:, 1]
    y = rng.uniform(size=n_data) < 1.0 / (1.0 + np.exp(-0.5 * X @ rng.standard_normal(dim)))
    problem = aq.LogisticRegression(X, y)
    return Further(problem, *importance_moments(problem, draws))


def importance_moments(problem: Any, draws: int) -> tuple[Any, Any]:
    """Means and standard deviations by importance sampling from a Student t around the mode."""
    rng, dim, rows = np.random.default_rng(1), int(problem.dim), np.arange(int(problem.n_data))

    def gradient(theta: Any) -> Any:
        out = np.empty(dim)
        problem.grad(theta, rows, out)
        return out

    theta = np.zeros(dim)
    for _ in range(20):  # Newton's method, with the Hessian by differences
        H = np.array([(gradient(theta + 1e-5 * e) - gradient(theta - 1e-5 * e)) / 2e-5 for e in np.eye(dim)])
        theta = theta - np.linalg.solve(H, gradient(theta))
    factor, freedom = np.linalg.cholesky(np.linalg.inv(0.5 * (H + H.T))), 20.0
    z = rng.standard_normal((draws, dim)) / np.sqrt(rng.chisquare(freedom, draws) / freedom)[:, None]
    points = theta + z @ factor.T
    log_proposal = -0.5 * (freedom + dim) * np.log1p((z**2).sum(axis=1) / freedom)
    log_weight = -np.array([problem.value(point) for point in points]) - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


def modes() -> Further:
    return Further(beside_a_unit_gaussian(np.array([6.0, -4.0, 3.0, 2.0, 1.0]), 1.0, share=0.3))


FURTHER: dict[str, Callable[[], Further]] = {
    "regression": regression,
    "hierarchical": nested,
    "logistic": logistic,
    "modes": modes,
}


def engine(workers: int = 8) -> aq.Simulator:
    """Workers whose slowest takes four times as long as the fastest."""
    return aq.Simulator(
        aq.Cluster(workers=workers, worker_mean=np.linspace(1.0, 4.0, workers).tolist(), worker_std=0.3)
    )


def judge(case: Further, draws: int, seed: int) -> tuple[bool, str]:
    """Whether a run is as it must be, and a line with its numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = aq.sample(case.problem, chains=8, draws=draws, engine=engine(), seed=seed)
    rhat = float(samples.rhat.max())
    if case.mean is None:
        return rhat > 1.01, f"R-hat {rhat:.3f}"
    drawn = moments([chain[:, case.columns] for chain in samples.chains])
    off, ratio = np.abs(drawn.mean - case.mean), drawn.sd / case.sd
    good = (off <= np.maximum(MEAN * case.sd, ERRORS * drawn.mean_error)).all() and (
        np.abs(ratio - 1.0) <= np.maximum(SD, ERRORS * drawn.sd_error / case.sd)
    ).all()
    return bool(good), (
        f"mean {(off / case.sd).max():.3f} sd, sd {np.abs(ratio - 1.0).max():.1%}, R-hat {rhat:.4f}, ESS "
        f"{drawn.ess:.0f}, {samples.gradients} gradients, {samples.divergent} divergent"
    )


def main() -> None:
    """Print a line per posterior and seed; exit 1 if one is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", default=list(FURTHER), choices=FURTHER)
    asked = parser.parse_args()
    fine = True
    for name in asked.only:
        case = FURTHER[name]()
        for seed in (0, 1):
            good, line = judge(case, asked.draws, seed)
            fine &= good
            print(f"{name}, seed {seed}: {'right' if good else 'WRONG'}: {line}", flush=True)
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
