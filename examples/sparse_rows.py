"""Logistic regression on sparse rows: a SciPy matrix is used directly, and never made dense."""

from __future__ import annotations

import numpy as np
import scipy.sparse

import asyncqn as aq


def main() -> None:
    """Fit two thousand texts of a few words each, from a vocabulary of 3,000."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2_000, 3_000), density=0.005, rng=rng, format="csr")
    truth = rng.standard_normal(3_000)
    # Separable labels; the prior of `LogisticRegression` keeps the coefficients finite.
    y = X @ truth > 0.0
    run = aq.minimize(
        aq.LogisticRegression(X, y, intercept=False), engine=aq.Threads(2)
    )
    right = np.mean((X @ run.theta > 0.0) == y)
    print(f"{run.status} after {run.passes:.0f} passes; {right:.0%} of the labels")


if __name__ == "__main__":
    main()
