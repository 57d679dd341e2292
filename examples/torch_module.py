"""A torch module trained with quasi-Newton steps on exact gradients, which two threads compute."""

from __future__ import annotations

import torch

import asyncqn as aq


def main() -> None:
    """Fit a small network to a sine, and write the result into the module."""
    torch.manual_seed(0)
    # Double precision, so that the run can converge to small gradients.
    X = torch.linspace(-1, 1, 200, dtype=torch.float64).reshape(-1, 1)
    module = torch.nn.Sequential(
        torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ).double()
    problem = aq.from_torch(module, torch.nn.MSELoss(), X, torch.sin(3 * X), prior=1e-3)
    run = aq.minimize(problem, engine=aq.Threads(2), max_passes=300)
    # `minimize` leaves the module as it was; this writes the fitted weights into it.
    problem.load(run.theta)
    worst = (module(X) - torch.sin(3 * X)).abs().max().item()
    print(f"{run.status}: {run.passes:.0f} passes, largest error {worst:.2f}")


if __name__ == "__main__":
    main()
