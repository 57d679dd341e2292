"""One cell of the study: a posterior, a method, a number of workers and a seed, as a row of results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

import asyncqn as aq
from asyncqn.checks.mixing import rhat
from benchmarks.studies.posteriors.compare import Moments, compare, moments
from benchmarks.studies.posteriors.database import Database
from benchmarks.studies.posteriors.densities import DENSITIES
from benchmarks.studies.posteriors.density import Density

NUTS_CHAINS, NUTS_WARM_UP = 4, 1000


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


@dataclass
class Case:
    """A posterior with the moments of its reference draws, and what is compiled once for all its cells."""

    density: Density
    names: list[str]
    reference: Moments
    samplers: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, database: Database, posterior: str) -> Case:
        """A posterior of a checkout; parameters that are constant in the reference draws are left out."""
        draws = database.reference(posterior)
        names = [name for name, chains in draws.items() if chains.std() > 0.0]
        stacked = np.stack([draws[name] for name in names], axis=2)
        return cls(
            DENSITIES[posterior](database.data(posterior)),
            names,
            moments(list(stacked)),
        )

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.density)

    @cached_property
    def _named(self) -> Any:
        return jax.jit(jax.vmap(self.density.named))

    def compared(self, chains: Sequence[np.ndarray]) -> dict[str, Any]:
        """Chains of unconstrained parameters against the reference draws."""
        named = []
        for chain in chains:
            found = self._named(chain)
            named.append(
                np.stack([np.asarray(found[name]) for name in self.names], axis=1)
            )
        drawn = moments(named)
        return {**compare(drawn, self.reference), "ess": drawn.ess}


def cluster(workers: int) -> aq.Cluster:
    """Uneven workers: the slowest takes four times as long as the fastest, each with a jitter of one half."""
    mean = np.geomspace(1.0, 4.0, workers)
    return aq.Cluster(
        workers=workers, worker_mean=mean.tolist(), worker_std=(0.5 * mean).tolist()
    )


def lockstep_speed(cluster: aq.Cluster, rounds: int = 2000) -> float:
    """Trajectories per unit of time where every round waits for the slowest worker."""
    times = [
        cluster.compute_times(seed=0, worker=w, count=rounds)
        for w in range(cluster.workers)
    ]
    return cluster.workers / float(np.max(times, axis=0).mean())


def ours(case: Case, workers: int, draws: int, seed: int) -> dict[str, Any]:
    """`aq.sample` with its defaults on a simulated cluster of uneven workers."""
    speeds = cluster(workers)
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = aq.sample(
            case.problem,
            chains=max(4, workers),
            draws=draws,
            engine=aq.Simulator(speeds),
            seed=seed,
        )
    seconds = time.process_time() - before
    counters = samples.run.counters
    return {
        **case.compared([c for c in samples.chains if len(c) >= 8]),
        "rhat": float(samples.rhat.max()),
        "gradients": counters["gradients"],
        "warm_up_gradients": counters["warm_up_gradients"],
        "accept": samples.accept,
        "step": samples.step,
        "divergent": samples.divergent,
        "seconds": seconds,
        "over_lockstep": samples.run.nit / samples.run.time / lockstep_speed(speeds),
    }


def _nuts_sampler(density: Density, dense: bool, draws: int) -> Any:
    """A compiled function of keys: draws, gradients, divergences and gradients of the warm-up, by chain."""
    import blackjax

    adaptation = blackjax.window_adaptation(
        blackjax.nuts, density.log_density, is_mass_matrix_diagonal=not dense
    )

    def chain(key: Any) -> Any:
        start, tune, go = jax.random.split(key, 3)
        place = jax.random.uniform(start, (density.dim,), minval=-2.0, maxval=2.0)
        (state, parameters), told = adaptation.run(tune, place, NUTS_WARM_UP)
        step = blackjax.nuts(density.log_density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (
                state.position,
                info.num_integration_steps,
                info.is_divergent,
            )

        _, (theta, steps, divergent) = jax.lax.scan(
            one, state, jax.random.split(go, draws)
        )
        return theta, steps, divergent, told.info.num_integration_steps

    return jax.jit(jax.vmap(chain))


def nuts(dense: bool) -> Callable[..., dict[str, Any]]:
    """blackjax's NUTS with its window adaptation, four chains."""

    def run(case: Case, workers: int, draws: int, seed: int) -> dict[str, Any]:
        if (dense, draws) not in case.samplers:
            case.samplers[dense, draws] = _nuts_sampler(
                case.density, dense, draws // NUTS_CHAINS
            )
        before = time.process_time()
        keys = jax.random.split(jax.random.key(seed), NUTS_CHAINS)
        theta, steps, divergent, tuning = (
            np.asarray(a) for a in case.samplers[dense, draws](keys)
        )
        return {
            **case.compared(list(theta)),
            "rhat": float(rhat(list(theta)).max()),
            "gradients": int(steps.sum()),
            "warm_up_gradients": int(tuning.sum()),
            "divergent": int(divergent.sum()),
            "seconds": time.process_time() - before,
        }

    return run


METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "sample": ours,
    "nuts-dense": nuts(dense=True),
    "nuts-diagonal": nuts(dense=False),
}
