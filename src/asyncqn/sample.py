"""sample: draws from a posterior on asynchronous workers."""

from __future__ import annotations

import math
import os
import warnings

import numpy as np

from asyncqn.algorithms.sampling.shared_metric_hmc import (
    BURN_IN,
    Acceptance,
    ChainCount,
    DrawCount,
    SharedMetricHMC,
    WarmUp,
)
from asyncqn.algorithms.sampling.warm_up import end_of
from asyncqn.checks.observed_calls import MARK, NothingToJudge, ObservedCalls
from asyncqn.core.stopping import MaxTime
from asyncqn.draws import Samples, error_of, names_of
from asyncqn.errors import BadInput, SamplingWarning, require
from asyncqn.minimize import (
    CheckpointFolder,
    Objective,
    Start,
    Where,
    minimize,
    starting_point,
)
from asyncqn.parameters import CheckpointEvery, Seed, checked
from asyncqn.types import Array, Callback, Problem, Progress
from asyncqn.view.progress import shown

_SPARE = 1.05
"""Factor on the expected number of commits: workers that join late bring chains that burn in as well."""


@checked
def sample(
    problem: Objective,
    *,
    chains: ChainCount = 8,
    draws: DrawCount = 10_000,
    engine: Where = None,
    seed: Seed = 0,
    theta0: Start = None,
    warm_up: WarmUp = None,
    acceptance: Acceptance = 0.8,
    max_time: MaxTime = None,
    checkpoint: CheckpointFolder = None,
    checkpoint_every: CheckpointEvery = 30.0,
    callback: Callback | None = None,
    progress: bool | None = None,
    check: bool = True,
) -> Samples:
    """Draw from the posterior exp(-U) of a problem, by chains on asynchronous workers.

    Every chain is Hamiltonian Monte Carlo with a Metropolis test, under a metric that the master learns from
    all chains during a warm-up and then freezes.  Delays therefore do not bias the draws.

    Parameters
    ----------
    problem : Problem
        U(theta) = -log p(theta | data) up to a constant, with its gradient: one of asyncqn's models,
        `FiniteSum`, `from_torch`, `from_jax`, or a class of your own.
    chains : int, default 8
        Smallest number of chains.  Every worker runs the same number of chains, at least one.
    draws : int, default 10,000
        Number of draws after the warm-up, of all chains together.
    engine : Engine, optional
        Where the workers run; by default threads of this process, one per processor.
    seed : int, default 0
        Seed of all random numbers; the same seed and schedule give the same bits.
    theta0 : array, optional
        The point around which the searches for modes begin; by default the problem's `initial`, else zeros.
        U must be finite there.  For a `Constrained` problem, pass unconstrained values, which its method
        `unconstrain` returns.
    warm_up : int, optional
        Commits before the metric is frozen; by default 500 + 50 per chain + 10 per coordinate.
    acceptance : float, default 0.8
        Acceptance rate to which the step is tuned; raise it if trajectories diverge.
    max_time : float, optional
        Longest duration, on the engine's clock and in its unit; the draws made until then are returned.
    checkpoint : path, optional
        Folder for checkpoints; `Samples.from_run(resume(folder))` continues from the last one.
    checkpoint_every : int or float, default 30.0
        Interval between two checkpoints: an int counts commits, a float counts seconds.
    callback : callable, optional
        Called with a `Progress` about 200 times; it raises StopIteration to end the run.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal and in a notebook.
    check : bool, default True
        Whether your own problem is tested before the run: its gradient against its values, sums of rows
        against all rows, and equal calls against each other.

    Returns
    -------
    Samples
        The draws by chain, R-hat, effective sample sizes, and the run, which replays bit for bit.

    Warns
    -----
    SamplingWarning
        If R-hat exceeds 1.01, trajectories diverged, the warm-up was lengthened for that reason, the effective
        sample size is too small, or the posterior seems to be improper.

    Notes
    -----
    See docs/explanation/sampling.md for the proof that staleness does not bias, and what it assumes.

    Examples
    --------
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=4, worker_mean=[1.0, 2.0, 3.0, 4.0]))
    >>> samples = aq.sample(problem, chains=4, draws=4000, engine=engine)
    >>> pooled = np.concatenate(samples.chains)
    >>> bool(abs(pooled.mean(axis=0) - problem.optimum_theta).max() < 0.1)
    True
    """
    if engine is None:
        from asyncqn.engines.threads import Threads

        engine = Threads(os.cpu_count() or 1)
    # Equally many on every worker: which chain a step moves then follows from its number alone.
    per_worker = max(1, math.ceil(chains / engine.workers))
    chains = per_worker * engine.workers
    algorithm = SharedMetricHMC(draws, chains, per_worker, warm_up, acceptance)
    # Before any worker starts: a chain cannot leave a point of density zero.
    start = starting_point(problem, theta0, seed)
    _check_start(problem, start)
    before = algorithm.warm_up_commits(start.size)
    longest = end_of(before, longer=True)
    # Warm-up, draws, and for each chain the steps that do not count, with one to spare.
    commits = math.ceil(_SPARE * (longest + draws + chains * (BURN_IN + 1)))
    # The method itself ends the run at the last draw that counts; `commits` is an upper bound.
    total = before + draws
    with shown(progress, False, total, "sample") as advance:

        def tell(seen: Progress) -> None:
            if advance is not None:
                # Commits of late chains that burn in would carry the bar beyond its end.
                advance(min(seen.commit, total))
            if callback is not None:
                callback(seen)

        run = minimize(
            problem,
            algorithm,
            engine=engine,
            theta0=start,
            commits=commits,
            seed=seed,
            # A sampler does not converge to a point, so that no tolerance ends it.
            tol=None,
            max_time=max_time,
            callback=tell,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            check=check,
            keep=1,
            progress=False,
        )
    if run is None:
        return run  # another rank of MPI has the run
    if (error := error_of(run)) is not None:
        raise error
    samples = Samples.from_run(run)
    for sentence in samples.warnings:
        warnings.warn(sentence, SamplingWarning, stacklevel=3)
    return samples


def _check_start(problem: Problem, start: Array) -> None:
    """Raise `BadInput` unless U and its gradient are finite at the start."""
    calls = ObservedCalls(problem)
    try:
        # Overflow in the user's function becomes the sentence below, not NumPy's warning.
        with np.errstate(all="ignore"):
            value = calls.number("value", start)
            g = calls.grad(start, np.arange(int(problem.n_data)), MARK)
    except NothingToJudge as nothing:
        # An error of the user's own code, with its own traceback.
        raise nothing.__cause__ or nothing from None
    at = "theta0" if start.any() else "theta0 = 0"
    require(
        math.isfinite(value),
        f"U is {value} at {at}, where the searches begin: pass a theta0 at which the posterior's density is "
        "positive and finite.",
    )
    bad = np.flatnonzero(~np.isfinite(g))
    if bad.size:
        name = names_of(problem, start.size)[bad[0]]
        raise BadInput(
            f"the gradient with respect to {name} is {g[bad[0]]} at {at}, where the searches begin: pass another "
            "theta0, or correct grad."
        )
