"""One cell of the study: a posterior, a method, a number of workers and a seed, as a row of results."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import asyncqn as aq
from benchmarks.studies.posteriors.compare import Moments, compare, moments
from benchmarks.studies.posteriors.densities import Density


class Problem:
    """A density as a problem of asyncqn, of one data point."""

    n_data = 1

    def __init__(self, density: Density) -> None:
        self.dim = density.dim
        self._both = jax.jit(jax.value_and_grad(lambda t: -density.log_density(t)))

    def value(self, theta: np.ndarray) -> float:
        return float(self._both(theta)[0])

    def grad(self, theta: np.ndarray, rows: Any, out: np.ndarray) -> None:
        out[:] = self._both(theta)[1]

    def grad_with_value(self, theta: np.ndarray, rows: Any, out: np.ndarray) -> float:
        value, out[:] = self._both(theta)
        return float(value)

    def value_rows(self, theta: np.ndarray, rows: Any) -> float:
        return self.value(theta)


def cluster(workers: int) -> aq.Cluster:
    """Uneven workers: the slowest takes four times as long as the fastest, each with a jitter of one half."""
    mean = np.geomspace(1.0, 4.0, workers)
    return aq.Cluster(workers=workers, worker_mean=mean.tolist(), worker_std=(0.5 * mean).tolist())


def lockstep_speed(workers: int, rounds: int = 2000) -> float:
    """Trajectories per unit of time where every round waits for the slowest worker."""
    times = [cluster(workers).compute_times(seed=0, worker=w, count=rounds) for w in range(workers)]
    return workers / float(np.max(times, axis=0).mean())


def named_chains(density: Density, names: list[str], chains: list[np.ndarray]) -> list[np.ndarray]:
    """The parameters of the reference, from draws of the unconstrained ones."""
    named = jax.jit(jax.vmap(density.named))
    out = []
    for chain in chains:
        found = named(chain)
        out.append(np.stack([np.asarray(found[name]) for name in names], axis=1))
    return out


def ours(
    density: Density, names: list[str], reference: Moments, workers: int, draws: int, seed: int
) -> dict[str, Any]:
    """`aq.sample` with its defaults on a simulated cluster of uneven workers."""
    problem, before = Problem(density), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = aq.sample(
            problem, chains=max(4, workers), draws=draws, engine=aq.Simulator(cluster(workers)), seed=seed
        )
    seconds = time.process_time() - before
    found = moments(named_chains(density, names, [c for c in samples.chains if len(c) >= 8]))
    counters = samples.run.counters
    return {
        **compare(found, reference),
        "rhat": float(samples.rhat.max()),
        "ess": found.ess,
        "gradients": counters["gradients"],
        "warm_up_gradients": counters["warm_up_gradients"],
        "accept": samples.accept,
        "step": samples.step,
        "divergent": samples.divergent,
        "seconds": seconds,
        "over_lockstep": samples.run.nit / samples.run.time / lockstep_speed(workers),
    }


def nuts(dense: bool) -> Callable[..., dict[str, Any]]:
    """blackjax's NUTS with its window adaptation, four chains."""

    def run(
        density: Density, names: list[str], reference: Moments, workers: int, draws: int, seed: int
    ) -> dict[str, Any]:
        import blackjax

        before, chains, warm_up = time.process_time(), 4, 1000
        adaptation = blackjax.window_adaptation(
            blackjax.nuts, density.log_density, is_mass_matrix_diagonal=not dense
        )

        def chain(key: Any) -> Any:
            start, tune, go = jax.random.split(key, 3)
            place = jax.random.uniform(start, (density.dim,), minval=-2.0, maxval=2.0)
            (state, parameters), told = adaptation.run(tune, place, warm_up)
            step = blackjax.nuts(density.log_density, **parameters).step

            def one(state: Any, key: Any) -> Any:
                state, info = step(key, state)
                return state, (state.position, info.num_integration_steps, info.is_divergent)

            _, (theta, steps, divergent) = jax.lax.scan(one, state, jax.random.split(go, draws // chains))
            return theta, steps, divergent, told.info.num_integration_steps

        keys = jax.random.split(jax.random.key(seed), chains)
        theta, steps, divergent, tuning = (np.asarray(a) for a in jax.jit(jax.vmap(chain))(keys))
        seconds = time.process_time() - before
        found = moments(named_chains(density, names, list(theta)))
        return {
            **compare(found, reference),
            "rhat": math.nan,
            "ess": found.ess,
            "gradients": int(steps.sum()),
            "warm_up_gradients": int(tuning.sum()),
            "divergent": int(divergent.sum()),
            "seconds": seconds,
        }

    return run


METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "sample": ours,
    "nuts-dense": nuts(dense=True),
    "nuts-diagonal": nuts(dense=False),
}
