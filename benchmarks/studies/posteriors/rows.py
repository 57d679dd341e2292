"""python -m benchmarks.studies.posteriors.rows: the sampler, NUTS and GIST where posteriors are hard.

It needs numpyro and blackjax, and writes docs/results/hard-posteriors.csv, a row for each target, method and seed.
Rows that are there are left as they are.

Rules, fixed before the first run on `JUDGED_ON`:

- All methods get eight chains.  NUTS is NumPyro's with a diagonal metric and acceptance 0.8, 500 steps of warm-up and
  500 draws per chain; its gradients, with those of the warm-up, are the budget of the others.  GIST is blackjax's
  `gist_trajectory_length` after the warm-up of blackjax's NUTS.  The sampler has its defaults, on four uneven
  simulated workers.
- A run's errors are the largest error of a mean, in standard deviations, and the largest relative error of a standard
  deviation.  They are averaged over the five seeds 10 to 14, with which no method was run before.
- The line is met where both averages do not exceed those of the better of NUTS and GIST by more than two standard
  errors of the rival's average, every run has draws, and every run whose mean is off by more than 0.1 sd warns.
- Constants were chosen on `CHOSEN_ON`.  Earlier versions of the sampler were run on every target with one or two
  other seeds; nothing was chosen by these rows after the seeds above were fixed.
- Rows of the sampler are those of one commit, which the page names.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import asyncqn as aq
from asyncqn.checks.mixing import ess, rhat
from benchmarks.studies.posteriors.targets import CHOSEN_ON, JUDGED_ON, Array, Hard

TABLE = Path(__file__).parents[3] / "docs" / "results" / "hard-posteriors.csv"
CHAINS = 8
WARM_UP = DRAWS = 500
FIELDS = (
    "target", "method", "seed", "mean", "sd", "ess", "rhat", "gradients", "warm_up_gradients", "divergent", "warned",
    "error", "seconds",
)  # fmt: skip


def cluster() -> aq.Cluster:
    """Four workers, the slowest four times as slow as the fastest, each with a jitter of one half."""
    mean = np.geomspace(1.0, 4.0, 4)
    return aq.Cluster(
        workers=4, worker_mean=mean.tolist(), worker_std=(0.5 * mean).tolist()
    )


class Numpyro:
    """NumPyro's NUTS with a diagonal metric on all chains at once, compiled once."""

    def __init__(self, log_density: Any, dim: int, draws: int, accept: float) -> None:
        from numpyro.infer import MCMC, NUTS

        kernel = NUTS(potential_fn=lambda x: -log_density(x), target_accept_prob=accept)
        self.dim = dim
        self.mcmc = MCMC(
            kernel,
            num_warmup=WARM_UP,
            num_samples=draws,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )

    def run(self, seed: int) -> tuple[Array, int, int, int]:
        """Return chains, gradients of the draws and of the warm-up, and divergences."""
        # NumPyro would begin a second run at the end of the first.
        self.mcmc.post_warmup_state = None
        key, place = jax.random.split(jax.random.key(seed))
        start = jax.random.uniform(place, (CHAINS, self.dim), minval=-2.0, maxval=2.0)
        names = ("num_steps", "diverging")
        self.mcmc.warmup(
            key, init_params=start, extra_fields=names, collect_warmup=True
        )
        tuning = int(self.mcmc.get_extra_fields()["num_steps"].sum())
        self.mcmc.run(self.mcmc.post_warmup_state.rng_key, extra_fields=names)
        fields = self.mcmc.get_extra_fields()
        theta = np.asarray(self.mcmc.get_samples(group_by_chain=True))
        steps, divergent = (int(fields[name].sum()) for name in names)
        return theta, steps, tuning, divergent


class Packed:
    """A density as a problem of one data point: U and its gradient arrive in one array, which JAX hands over fast."""

    n_data = 1

    def __init__(self, hard: Hard) -> None:
        self.dim = hard.dim
        both = jax.value_and_grad(lambda x: -hard.log_density(x))
        self._both = jax.jit(lambda x: jnp.append(both(x)[1], both(x)[0]))

    def value(self, theta: Array) -> float:
        return float(self._both(theta)[-1])

    def grad(self, theta: Array, rows: object, out: Array) -> None:
        out[:] = np.asarray(self._both(theta))[:-1]

    def grad_with_value(self, theta: Array, rows: object, out: Array) -> float:
        packed = np.asarray(self._both(theta))
        out[:] = packed[:-1]
        return float(packed[-1])


class Case:
    """A target with its moments, and what is compiled once for all its rows."""

    def __init__(self, hard: Hard) -> None:
        self.hard = hard
        self.problem = Packed(hard)
        self.compiled: dict[str, Any] = {}
        self.mean, self.sd = self._moments()

    def _moments(self) -> tuple[Array, Array]:
        hard = self.hard
        if hard.mean is not None and hard.sd is not None:
            return hard.mean, hard.sd
        if hard.draws is not None:
            draws = hard.draws(0)
        else:
            reference = Numpyro(hard.easy_density, hard.dim, 2500, 0.95)
            easy, _, _, divergent = reference.run(0)
            assert hard.easy is not None
            draws = np.asarray(jax.vmap(hard.easy)(easy.reshape(-1, hard.dim)))
            print(
                f"reference: {ess(list(easy)).min():.0f} effective draws, "
                f"R-hat {rhat(list(easy)).max():.4f}, {divergent} divergences"
            )
        return draws.mean(axis=0), draws.std(axis=0)

    def compared(self, chains: list[Array]) -> dict[str, Any]:
        """Return the largest error of a mean in sd, of an sd relative to it, and what the draws are worth."""
        measured = self.hard.measured(np.concatenate(chains))
        long = [chain for chain in chains if len(chain) >= 8]
        return {
            "mean": float(np.abs((measured.mean(axis=0) - self.mean) / self.sd).max()),
            "sd": float(np.abs(measured.std(axis=0) / self.sd - 1.0).max()),
            "ess": float(ess(long).min()),
            "rhat": float(rhat(long).max()),
        }


def nuts(case: Case, seed: int, budget: int) -> dict[str, Any]:
    """NumPyro's NUTS; the budget is what it takes."""
    if "nuts" not in case.compiled:
        hard = case.hard
        case.compiled["nuts"] = Numpyro(hard.log_density, hard.dim, DRAWS, 0.8)
    theta, gradients, tuning, divergent = case.compiled["nuts"].run(seed)
    row = case.compared(list(theta))
    return {
        **row,
        "gradients": gradients,
        "warm_up_gradients": tuning,
        "divergent": divergent,
        "warned": divergent > 0 or row["rhat"] > 1.01 or row["ess"] < 400,
    }


def _gist(hard: Hard) -> Any:
    """Return the compiled warm-up and the compiled kernel."""
    import blackjax

    adaptation = blackjax.window_adaptation(
        blackjax.nuts, hard.log_density, is_mass_matrix_diagonal=True
    )

    def tuned(key: Any) -> Any:
        place, tune = jax.random.split(key)
        start = jax.random.uniform(place, (hard.dim,), minval=-2.0, maxval=2.0)
        (state, parameters), told = adaptation.run(tune, start, WARM_UP)
        kernel = blackjax.gist_trajectory_length(hard.log_density, **parameters)
        steps = told.info.num_integration_steps.sum()
        return kernel.init(state.position), parameters, steps

    def moved(state: Any, parameters: Any, keys: Any) -> Any:
        step = blackjax.gist_trajectory_length(hard.log_density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            cost = info.num_steps_to_uturn_forward + info.num_steps_to_uturn_reverse
            return state, (state.position, cost, info.is_divergent)

        return jax.lax.scan(one, state, keys)

    return jax.jit(jax.vmap(tuned)), jax.jit(jax.vmap(moved))


def gist(case: Case, seed: int, budget: int) -> dict[str, Any]:
    """blackjax's GIST of trajectory lengths, with the metric and the step of blackjax's NUTS."""
    if "gist" not in case.compiled:
        case.compiled["gist"] = _gist(case.hard)
    tuned, moved = case.compiled["gist"]
    first, key = jax.random.split(jax.random.key(seed))
    states, parameters, tuning = tuned(jax.random.split(first, CHAINS))
    spent = warm_up = int(tuning.sum())
    parts = []
    divergent = 0
    while spent < budget or not parts:
        key, now = jax.random.split(key)
        keys = jax.random.split(now, (CHAINS, 100))
        states, (theta, cost, diverging) = moved(states, parameters, keys)
        parts.append(np.asarray(theta))
        spent += int(cost.sum())
        divergent += int(diverging.sum())
    row = case.compared(list(np.concatenate(parts, axis=1)))
    return {
        **row,
        "gradients": spent - warm_up,
        "warm_up_gradients": warm_up,
        "divergent": divergent,
        "warned": divergent > 0 or row["rhat"] > 1.01 or row["ess"] < 400,
    }


def sample(case: Case, seed: int, budget: int) -> dict[str, Any]:
    """`aq.sample` with its defaults; a short run shows how many draws the budget buys."""

    def run(draws: int) -> aq.Samples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return aq.sample(
                case.problem,
                chains=CHAINS,
                draws=draws,
                engine=aq.Simulator(cluster()),
                seed=seed,
            )

    # The seed fixes the warm-up, so that the second run differs from the first in its length alone.
    short = run(1000).run.counters
    rest = budget - short["warm_up_gradients"]
    samples = run(max(1000, int(1000 * rest / short["gradients"])))
    counters = samples.run.counters
    return {
        **case.compared(samples.chains),
        "gradients": counters["gradients"],
        "warm_up_gradients": counters["warm_up_gradients"],
        "divergent": samples.divergent,
        "warned": bool(samples.warnings),
    }


METHODS: dict[str, Callable[[Case, int, int], dict[str, Any]]] = {
    "nuts": nuts,
    "gist": gist,
    "sample": sample,
}


def main() -> None:
    """Fill the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12, 13, 14])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--only", nargs="+", default=list(JUDGED_ON), metavar="TARGET")
    asked = parser.parse_args()
    rows = []
    if asked.table.exists():
        with asked.table.open() as file:
            rows = list(csv.DictReader(file))
    done = {(row["target"], row["method"], int(row["seed"])): row for row in rows}
    builders = {**CHOSEN_ON, **JUDGED_ON}
    case = cache(lambda target: Case(builders[target]()))
    for seed in asked.seeds:
        for target in asked.only:
            for method in asked.methods:
                if (target, method, seed) in done:
                    continue
                row = _row(case(target), target, method, seed, done)
                done[target, method, seed] = row
                new = not asked.table.exists()
                with asked.table.open("a", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS)
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
                print(row, flush=True)


def _row(case: Case, target: str, method: str, seed: int, done: Any) -> dict[str, Any]:
    """Return the row of one run; that of an error says so, and the study goes on."""
    rival = done.get((target, "nuts", seed), {})
    if method != "nuts" and not rival.get("gradients"):
        raise SystemExit(
            f"{target}, seed {seed}: run NUTS first, whose gradients are the budget."
        )
    budget = sum(int(rival.get(name, 0)) for name in ("gradients", "warm_up_gradients"))
    before = time.process_time()
    try:
        row = METHODS[method](case, seed, budget)
    except Exception as error:
        row = {"error": f"{type(error).__name__}: {error}"[:200]}
    seconds = round(time.process_time() - before, 1)
    return {"target": target, "method": method, "seed": seed, **row, "seconds": seconds}


if __name__ == "__main__":
    main()
