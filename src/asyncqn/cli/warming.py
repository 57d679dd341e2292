"""Compile kernels in advance, so that the first run does not wait for the compiler."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from asyncqn.cli.output import Output
from asyncqn.errors import require
from asyncqn.registry import Registry

WHICH = ("defaults", "all")
PLUGINS = Registry({}, group="asyncqn.warm")
"""Functions without arguments with which other packages compile their own kernels."""


def compile_ahead(which: str, out: Output) -> None:
    """Compile the kernels of the defaults, or of all algorithms, and print the times.

    Compiled kernels stay on disk (in `NUMBA_CACHE_DIR`, if set) for this processor and this version, so doing
    this once is enough.

    Parameters
    ----------
    which : {"defaults", "all"}
        The defaults of `minimize`, `simulate` and the plug-ins; or every registered algorithm as well.
    out : Output
        Output for the times; with --json, those of every kernel as well.
    """
    require(which in WHICH, f"--warm must be {' or '.join(WHICH)}, not {which!r}.")
    from asyncqn.kernels.compile_times import listening
    from asyncqn.kernels.jit import cache_folder

    parts = []
    for name, work in jobs(which == "all"):
        began = time.process_time()
        # Processor time, not wall-clock time: an image is often built beside other work.
        with listening() as compiled:
            work()
        seconds = time.process_time() - began
        parts.append(
            {
                "name": name,
                "seconds": seconds,
                "kernels": [row._asdict() for row in compiled],
            }
        )
        out.show(f"{name:<28} {seconds:6.2f} s, {len(compiled)} compiled")
    out.show(f"the compiled code is in {cache_folder()}")
    out.result({"parts": parts, "folder": str(cache_folder())})


def jobs(everything: bool) -> list[tuple[str, Callable[[], Any]]]:
    """Return the runs that trigger compilation, with their names."""
    import numpy as np

    from asyncqn.cli.jobfile import load_job
    from asyncqn.cluster.cluster import Cluster
    from asyncqn.engines.simulator import Simulator
    from asyncqn.engines.threads import Threads
    from asyncqn.minimize import minimize
    from asyncqn.models.logistic import LogisticRegression

    def logistic() -> None:
        # Types and layouts of arrays decide what numba compiles, and their sizes do not: a tiny problem is
        # enough.
        x = np.random.default_rng(0).standard_normal((400, 5))
        minimize(
            LogisticRegression(
                x, (x[:, 0] > 0.1 * x[:, 1]).astype(float), intercept=False
            ),
            engine=Threads(1),
            progress=False,
        )

    def simulate() -> None:
        job = load_job(None, {"run": {"commits": 300}})
        minimize(
            job.problem,
            job.algorithm,
            engine=Simulator(job.cluster),
            commits=300,
            progress=False,
        )
        # The default method has other kernels than the algorithm of the default job.
        minimize(job.problem, engine=Simulator(Cluster(workers=4)), progress=False)

    found = [("minimize", logistic), ("simulate", simulate), *PLUGINS.items()]
    return found + (examples() if everything else [])


def examples() -> list[tuple[str, Callable[[], Any]]]:
    """Return a run of every registered algorithm, on the first problem that offers what it requires."""
    from asyncqn.algorithms import ALGORITHMS
    from asyncqn.algorithms.fit import offers
    from asyncqn.cluster.cluster import Cluster
    from asyncqn.engines.simulator import Simulator
    from asyncqn.minimize import minimize
    from asyncqn.models import PROBLEMS
    from asyncqn.types import extra

    def run(kind: str) -> None:
        model: Any = ALGORITHMS[kind]
        needs = extra(model, "requires")
        # On the class, `requires` may be a property instead of its value.
        needs = needs if isinstance(needs, tuple) else ()
        made = (problem.example("float64") for problem in PROBLEMS.values())
        problem = next(p for p in made if offers(p, needs))
        algorithm = model.example(problem)
        workers = extra(algorithm, "max_workers") or 2
        # Enough commits that L-BFGS methods form pairs and compile their products with H.
        minimize(
            problem,
            algorithm,
            engine=Simulator(Cluster(workers=workers)),
            commits=40,
            progress=False,
        )

    return [(kind, partial(run, kind)) for kind in ALGORITHMS]
