"""Workers as Ray actors, which may come and go: python examples/ray_workers.py [ADDRESS]

Without an address Ray starts on this machine; "auto" joins the cluster that `ray start` made.
"""

from __future__ import annotations

import sys

import asyncqn as aq


def main(address: str | None = None) -> aq.Run:
    """Run on two actors, and replay the run in this process."""
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    run = aq.minimize(
        problem,
        aq.AsyncSGD(h=1e-4, batch=20),
        engine=aq.Ray(2, address=address),
        commits=60,
    )
    again = aq.replay(run)
    print(
        f"{run.status}: {run.nit} commits; identical: {(again.theta == run.theta).all()}"
    )
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2])
