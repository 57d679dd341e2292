"""Your own problem from a pandas data frame: Huber regression of prices on two features."""

from __future__ import annotations

import numpy as np
import pandas as pd

import asyncqn as aq


class Huber:
    """sum_i huber(y_i - x_i'theta) in NumPy, with the four members that `minimize` needs."""

    def __init__(self, frame: pd.DataFrame, target: str) -> None:
        self.names = [name for name in frame.columns if name != target]
        self.X, self.y = (
            frame[self.names].to_numpy(float),
            frame[target].to_numpy(float),
        )
        self.n_data, self.dim = self.X.shape

    def value(self, theta: np.ndarray) -> float:
        r = np.abs(self.y - self.X @ theta)
        return float(np.where(r < 1.0, 0.5 * r * r, r - 0.5).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X = self.X[rows]
        # n / |rows| makes the sum over a subsample an unbiased estimate of the sum over all rows.
        out[:] = (
            self.n_data / len(rows) * (np.clip(X @ theta - self.y[rows], -1.0, 1.0) @ X)
        )


def main() -> None:
    """Fit the problem, and print the metric table as a data frame."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"one": 1.0, "size": rng.uniform(-1, 1, 400), "age": rng.uniform(-1, 1, 400)}
    )
    # Student's t with two degrees of freedom has outliers, for which Huber's loss is made.
    frame["price"] = (
        2.0 + 3.0 * frame["size"] - 1.0 * frame["age"] + rng.standard_t(2, 400)
    )
    problem = Huber(frame, "price")
    run = aq.minimize(problem, engine=aq.Threads(2))
    print(
        run.status, dict(zip(problem.names, run.theta.round(1).tolist(), strict=True))
    )
    print(run.metrics.to_pandas().tail(2))


if __name__ == "__main__":
    main()
