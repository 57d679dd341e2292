"""`asyncqn warm`: compile kernels ahead, so that the first run does not wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from asyncqn.cli.output import Output


def warm(
    out: Output,
    everything: Annotated[
        bool, typer.Option("--all", help="Also every algorithm, each on a small problem.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List what was compiled, with processor seconds.")
    ] = False,
) -> None:
    """Compile what the defaults of `minimize`, `simulate` and the recommender run.

    Compiled kernels stay on disk (`NUMBA_CACHE_DIR` says where else), for this processor and this
    version: once is enough.
    """
    from asyncqn.kernels.compile_times import listening
    from asyncqn.kernels.jit import cache_folder

    parts = []
    for name, work in jobs(everything):
        began = time.process_time()
        with listening() as compiled:
            work()
        seconds = time.process_time() - began
        parts.append({"name": name, "seconds": seconds, "kernels": [row._asdict() for row in compiled]})
        out.show(f"{name:<28} {seconds:6.2f} s, {len(compiled)} compiled")
        for row in compiled if kernels else ():
            out.show(f"  {row.seconds:6.2f} s  {row.name.removeprefix('asyncqn.kernels.')}")
    out.show(f"kept in {cache_folder()}")
    out.result({"parts": parts, "folder": str(cache_folder())})


def jobs(everything: bool) -> list[tuple[str, Callable[[], Any]]]:
    """What is run to compile it, with the names it is shown by."""
    import numpy as np

    from asyncqn.cli.jobfile import load_job
    from asyncqn.cluster.cluster import Cluster
    from asyncqn.engines.simulator import Simulator
    from asyncqn.engines.threads import Threads
    from asyncqn.minimize import minimize
    from asyncqn.models.logistic import LogisticRegression
    from asyncqn_recommender.data import synthetic_ratings
    from asyncqn_recommender.estimator import Recommender

    def logistic() -> None:
        x = np.random.default_rng(0).standard_normal((400, 5))
        minimize(LogisticRegression(x, (x[:, 0] > 0.1 * x[:, 1]).astype(float)), engine=Threads(1))

    def simulate() -> None:
        job = load_job(None, {"run": {"commits": 300}})
        minimize(job.problem, job.algorithm, engine=Simulator(job.cluster), commits=300)
        minimize(job.problem, engine=Simulator(Cluster(workers=4)))

    def recommend() -> None:
        ratings = synthetic_ratings(60, 40, 1_200, seed=0)  # one kernel serves all ranks
        Recommender(5, workers=1, passes=4, seed=0).fit(ratings).recommend(ratings.user_ids[0], 2)

    found = [("minimize", logistic), ("simulate", simulate), ("recommender", recommend)]
    return found + (examples() if everything else [])


def examples() -> list[tuple[str, Callable[[], Any]]]:
    """Every algorithm of the registry on the first potential that offers what it requires."""
    from asyncqn.algorithms import ALGORITHMS
    from asyncqn.algorithms.fit import offers
    from asyncqn.cluster.cluster import Cluster
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize
    from asyncqn.models import POTENTIALS
    from asyncqn.types import extra

    def run(kind: str) -> None:
        model: Any = ALGORITHMS[kind]
        needs = extra(model, "requires")
        needs = needs if isinstance(needs, tuple) else ()
        made = (potential.example("float64") for potential in POTENTIALS.values())
        potential = next(p for p in made if offers(p, needs))
        algorithm = model.example(potential)
        workers = extra(algorithm, "max_workers") or 2
        minimize(potential, algorithm, engine=Simulator(Cluster(workers=workers)), commits=40)

    return [(kind, partial(run, kind)) for kind in ALGORITHMS]
