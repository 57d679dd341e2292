"""Samples: the draws that `sample` returns, with their diagnostics and warnings."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from asyncqn.algorithms.sampling.metric import is_dense
from asyncqn.algorithms.sampling.shared_metric_hmc import (
    BURN_IN,
    STATISTICS,
    SharedMetricHMC,
)
from asyncqn.algorithms.sampling.warm_up import LENGTHENING, end_of
from asyncqn.checks import mixing
from asyncqn.columns import Table
from asyncqn.core.schedule import DROPPED, Schedule
from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.runs.run import Run
from asyncqn.storage import check_output, write_whole
from asyncqn.types import Array, Counters, extra

MAX_RHAT = 1.01
"""Threshold of R-hat that Vehtari et al. recommend ("Rank-normalization, folding, and localization", 2021):
above it, the chains still depend on where they began."""
MIN_ESS_PER_CHAIN, MIN_ESS = 100, 400
"""Effective draws per chain, and of all chains together, below which R-hat and quantiles are uncertain
themselves.  400 is the recommendation of the same authors; fewer than four chains need 100 each."""
UNBOUNDED_ACCEPTANCE = 0.995
"""Share of accepted trajectories from which chains that disagree seem to meet no resistance: on a proper
posterior, the step is tuned until some trajectories are rejected."""
FEW_ACCEPTED = 0.3
"""Share of accepted trajectories below which chains hardly move: far below any reasonable target of
`acceptance`, so that the tuned step cannot explain it."""
MOST_OF_ROWS = 50_000_000
"""Numbers in a group of ArviZ that has one for each row of the data and each draw."""
COARSE_SPACING = 0.1
"""Spacing of the floating-point numbers near U from which rounding affects what is accepted."""
IMPROPER = (
    "the posterior may be improper, with no prior or data to bound it; give it a proper prior, and check "
    "that U is minus the log density"
)
DRIFT_RATIO = 10.0
"""A chain drifts away if its last third is wider than its first by at least this factor."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws from the posterior exp(-U), chain by chain, with their diagnostics.

    Attributes
    ----------
    chains : list of ndarray, each of shape (draws, dim)
        The draws after the warm-up, in the natural parameters of the problem (`Constrained`).  The chains
        differ in length, because a fast worker draws more.
    run : Run
        The run that made them, which `replay` computes again bit for bit.  `run.keep` has all draws, also
        those of the warm-up, in the order of their commits.
    names : list of str
        Names of the parameters.
    statistics : list of ndarray, each of shape (draws, 4)
        Energy, acceptance rate, step size and whether the trajectory diverged, of each draw.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=4))
    >>> samples = aq.sample(problem, chains=4, draws=2000, engine=engine)
    >>> sum(len(chain) for chain in samples.chains), samples.divergent
    (2000, 0)
    >>> again = aq.Samples.from_run(aq.replay(samples.run))
    >>> bool((again.chains[0] == samples.chains[0]).all())
    True
    >>> bool(samples.rhat.max() < 1.01)
    True
    """

    chains: list[Array] = field(repr=False)
    run: Run
    names: list[str] = field(default_factory=list, repr=False)
    statistics: list[Array] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        """Return the table of `summary`, and one line of warnings."""
        if not any(map(len, self.chains)):
            return f"no draws: {self.run.message}"
        columns = dict(self.summary())
        names = columns.pop("parameter")
        short = {
            name: [float(f"{x:.4g}") for x in column]
            for name, column in columns.items()
        }
        table = Table({"parameter": names, **short})
        return f"{table}\n{' '.join(self.warnings)}".rstrip()

    @classmethod
    def from_run(cls, run: Run) -> Samples:
        """Return the samples of a run of a sampler that kept every iterate, such as a resumed or loaded run.

        Parameters
        ----------
        run : Run
            The run, as `resume`, `replay` or `load_run` returns it.

        Returns
        -------
        Samples
            The draws after the warm-up, by chain.
        """
        algorithm = getattr(run, "algorithm", None)
        require(
            isinstance(algorithm, SharedMetricHMC),
            "the run is not of a sampler, SharedMetricHMC: its iterates are no chains.",
        )
        require(
            run.keep is not None and run.keep.every == 1,
            "the run did not keep every iterate: replay(run, keep=1) makes it again with them.",
        )
        assert isinstance(algorithm, SharedMetricHMC)
        assert run.keep is not None
        dim = run.theta0.size
        longer = bool(run.results["step"][3])
        warm_up = end_of(algorithm.warm_up_commits(dim), longer)
        # The schedule says which chain made each commit, and run.keep holds the draw of each commit.
        chain, counts = _chains_of(run.schedule, algorithm.per_worker, warm_up)
        order = np.argsort(run.schedule.commit, kind="stable")
        draws = order[counts[order]]
        # A rejected update changed nothing: at its place stands the draw of another chain.
        lost = len(draws) - run.counters["draws"]
        require(
            lost <= 0 or not run.counters.get("updates_rejected", 0),
            f"{lost} draws were not finite or beyond all bounds: {IMPROPER}, and finite.",
        )
        # The first draws of all chains together: slow chains have fewer, and no value decides.
        draws = draws[: algorithm.draws]
        stored = run.results["statistics"]
        constrain = extra(run.problem, "constrain")
        chains, statistics = [], []
        for c in np.unique(chain):
            mine = np.flatnonzero(chain[draws] == c)
            # Commit n, counted from 1, is row n - 1 of `run.keep.theta`.
            theta = np.array(run.keep.theta[run.schedule.commit[draws[mine]] - 1])
            chains.append(theta if constrain is None else constrain(theta))
            statistics.append(stored[mine[mine < len(stored)]])
        return cls(chains, run, names_of(run.problem, dim), statistics)

    def __getitem__(self, name: str) -> Array:
        """Return all draws of a parameter, of all chains together."""
        require(
            name in self.names,
            f"there is no parameter {name!r}; the names are {', '.join(self.names[:8])}"
            + (", ..." if len(self.names) > 8 else "."),
        )
        i = self.names.index(name)
        return np.concatenate([chain[:, i] for chain in self.chains])

    @cached_property
    def rhat(self) -> Array:
        """Rank-normalised split R-hat of every parameter; it is near 1 if the chains agree."""
        return self._diagnosed(mixing.rhat)

    @cached_property
    def ess(self) -> Array:
        """Effective sample size in the bulk of every parameter's distribution, of all chains together."""
        return self._diagnosed(mixing.ess)

    def _diagnosed(self, measure: Any) -> Array:
        # R-hat of a few draws is noise; NaN says that there is nothing to report.
        if max(map(len, self.chains), default=0) < mixing.MIN_DRAWS:
            return np.full(self.run.theta0.size, math.nan)
        numbers: Array = measure(self.chains)
        return numbers

    @property
    def divergent(self) -> int:
        """Number of trajectories after the warm-up whose energy error exceeded 1,000."""
        return self.run.counters["divergent"]

    @property
    def gradients(self) -> int:
        """Number of gradients over all data, including those of the searches and of the warm-up."""
        return self.run.counters["gradients"] + self.run.counters["warm_up_gradients"]

    @property
    def accept(self) -> float:
        """Share of accepted trajectories after the warm-up; NaN without draws."""
        draws = self.run.counters["draws"]
        return self.run.counters["accepted"] / draws if draws else math.nan

    @property
    def step(self) -> float:
        """Size of a leapfrog step, in units of the metric."""
        return float(self.run.results["step"][0])

    @property
    def metric(self) -> Array:
        """H, the metric of the trajectories after the warm-up, which approximates the posterior's covariance.

        It has the shape (dim, dim); beyond 200 parameters it is diagonal and has the shape (dim,).
        """
        F = self.run.results["metric"]
        H: Array = F @ F.T if is_dense(F) else F[0] ** 2
        return H

    @cached_property
    def warnings(self) -> list[str]:
        """Reasons to doubt these draws, one sentence each; empty if there is none."""
        return [*_about_chains(self), *_about_draws(self)]

    def summary(self) -> Table:
        """Return mean, standard deviation, quantiles, effective sample size and R-hat of every parameter.

        Returns
        -------
        Table
            A row per parameter.  "mcse" is the standard error of the mean.
        """
        self._require_draws("to summarise")
        # Chains are pooled by draws: longer ones weigh more.
        pooled = np.concatenate(self.chains)
        low, middle, high = np.percentile(pooled, [5, 50, 95], axis=0)
        sd = pooled.std(axis=0)
        columns = {
            "parameter": self.names,
            "mean": pooled.mean(axis=0),
            # The effective sample size for means, not that of the bulk.
            "mcse": sd / np.sqrt(self._diagnosed(partial(mixing.ess, ranked=False))),
            "sd": sd,
            "5%": low,
            "50%": middle,
            "95%": high,
            "ess": self.ess.round(),
            "rhat": self.rhat.round(4),
        }
        return Table(columns)

    def to_arviz(self) -> Any:
        """Return the draws as an ArviZ data tree; this needs the extra `arviz`.

        The group "posterior" has the draws, the group "sample_stats" the energy, the acceptance rate, the step size and
        whether the trajectory diverged, of each draw.  Logistic and Poisson regression add "log_likelihood" and
        "posterior_predictive", with a number for each row, unless there are more than 50 million of them.

        ArviZ needs chains of equal length.  Chains shorter than a tenth of the longest are left out; of the
        others the last draws are taken, as many as the shortest of them has.
        """
        try:
            from arviz_base import from_dict
        except ImportError:
            raise MissingExtra("arviz-base", "arviz", "to_arviz") from None
        self._require_draws("for ArviZ")
        # A chain that joined late would cut all others to its length.
        lengths = [len(chain) for chain in self.chains]
        used = [c for c, n in enumerate(lengths) if 10 * n >= max(lengths)]
        shortest = min(lengths[c] for c in used)

        def rectangular(parts: Sequence[Array]) -> Array:
            # The shape is (chains, draws, columns), as ArviZ expects.
            return np.stack([parts[c][len(parts[c]) - shortest :] for c in used])

        draws = rectangular(self.chains)
        groups = {"posterior": _by_name(self.names, draws)}
        if all(len(self.statistics[c]) == lengths[c] for c in used):
            columns = np.moveaxis(rectangular(self.statistics), -1, 0)
            facts: dict[str, Any] = dict(zip(STATISTICS, columns))
            facts["diverging"] = facts["diverging"] > 0.0
            groups["sample_stats"] = facts
        problem: Any = self.run.problem
        flat = draws.reshape(-1, draws.shape[-1])
        few = len(flat) * int(problem.n_data) <= MOST_OF_ROWS
        if few and hasattr(problem, "log_likelihood"):
            rng = np.random.default_rng(0)
            shape = (*draws.shape[:2], -1)
            likelihood = np.stack([problem.log_likelihood(theta) for theta in flat])
            predicted = np.stack([problem.predicted(theta, rng) for theta in flat])
            groups["log_likelihood"] = {"y": likelihood.reshape(shape)}
            groups["posterior_predictive"] = {"y": predicted.reshape(shape)}
        return from_dict(groups)

    def _require_draws(self, purpose: str) -> None:
        count = sum(map(len, self.chains))
        require(count > 0, f"there are no draws {purpose}: {self.run.message}")

    def to_netcdf(self, path: str | os.PathLike[str]) -> None:
        """Write the tree of `to_arviz` to a netCDF file; this needs h5netcdf and h5py, of the extra `arviz`.

        Parameters
        ----------
        path : path
            The file, which is replaced.
        """
        require_netcdf()
        self.to_arviz().to_netcdf(path, engine="h5netcdf")

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write all draws to a CSV file: the chain, the number of the draw in it, and a column per parameter.

        Parameters
        ----------
        path : path
            The file, which is replaced.
        """
        # The writer of Python quotes names that have commas.
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["chain", "draw", *self.names])
        for number, chain in enumerate(self.chains):
            rows = enumerate(chain.tolist())
            writer.writerows([number, draw, *theta] for draw, theta in rows)
        write_whole(Path(path), text.getvalue().encode())

    def plot(self, most: int = 6) -> Any:
        """Return a figure with the trace and the histogram of the first `most` parameters, by chain."""
        from asyncqn.view.plots import new_figure

        shown = range(min(most, len(self.names)))
        figure = new_figure(9.0, 1.6 * len(shown) + 0.6)
        axes = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(2.5, 1.0))
        for i in shown:
            trace, histogram = axes[i]
            for chain in self.chains:
                trace.plot(chain[:, i], linewidth=0.4)
                histogram.hist(chain[:, i], bins=40, density=True, histtype="step")
            trace.set_ylabel(self.names[i])
            histogram.set_yticks([])
        axes[-1][0].set_xlabel("draw")
        return figure


def require_netcdf() -> None:
    """Raise `MissingExtra` unless netCDF files can be written."""
    # h5netcdf does not require h5py, but cannot write without it.
    for module in ("h5netcdf", "h5py"):
        if find_spec(module) is None:
            raise MissingExtra(module, "arviz", "to_netcdf")


def check_exports(netcdf: Path | None, csv_file: Path | None) -> None:
    """Raise `BadInput` unless draws can be written to the files that are given."""
    if netcdf is not None:
        require_netcdf()
    for path in (netcdf, csv_file):
        if path is not None:
            check_output(path)


def _chains_of(
    schedule: Schedule, per_worker: int, warm_up: int
) -> tuple[Counters, Any]:
    """Return the chain of every row of a schedule, and whether its draw counts.

    A draw counts if the version that it read is at or after the last commit of the warm-up, and if its chain has
    burned in.  Both follow from the schedule alone: a choice by the values of draws would bias them.
    """
    # The k-th step of a worker moves its chain k modulo per_worker; reads of one worker increase with k.
    # `lexsort` sorts by its last key first: by worker, then by version read, then by arrival.
    order = np.lexsort((np.arange(len(schedule)), schedule.read, schedule.worker))
    workers = schedule.worker[order]
    # The place of each worker's first step in the sorted order; the distance to it is k.
    k = np.empty(len(schedule), np.int64)
    k[order] = np.arange(len(schedule)) - np.searchsorted(workers, workers)
    chain = schedule.worker.astype(np.int64) * per_worker + k % per_worker
    delivered = schedule.commit != DROPPED
    return chain, delivered & (schedule.read >= warm_up) & (k // per_worker >= BURN_IN)


def names_of(problem: Any, dim: int) -> list[str]:
    """Return the names of a problem's parameters."""
    names = extra(problem, "names")
    return [f"theta[{i}]" for i in range(dim)] if names is None else list(names)


def _by_name(names: Sequence[str], draws: Array) -> dict[str, Array]:
    """Return the draws by name; `beta[0]`, `beta[1]` and further indices of a name become one array."""
    stems: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        stems.setdefault(name.partition("[")[0], []).append(i)
    return {
        stem: draws[..., where] if "[" in names[where[0]] else draws[..., where[0]]
        for stem, where in stems.items()
    }


def _about_chains(samples: Samples) -> Iterator[str]:
    """Yield sentences on chains that disagree, drift away or are too short."""
    chains = [chain for chain in samples.chains if len(chain) >= mixing.MIN_DRAWS]
    short = len(samples.chains) - len(chains)
    if short:
        yield f"{short} of {len(samples.chains)} chains are too short to compare: draw more."
    if not chains:
        return
    wandering = _drifting(chains)
    if wandering.any():
        name = samples.names[int(wandering.argmax())]
        yield f"the draws of {name} spread further and further: {IMPROPER}."
    constant = np.array([np.ptp(chain, axis=0) == 0.0 for chain in chains]).all(axis=0)
    # R-hat of a constant is NaN.
    worst = int(np.argmax(np.where(np.isfinite(samples.rhat), samples.rhat, -1.0)))
    if constant.any():
        name = samples.names[int(constant.argmax())]
        yield (
            f"the draws of {name} are all alike: no step was possible; check that value and gradient are "
            "finite around the mode, and that they belong together."
        )
    elif not samples.rhat[worst] <= MAX_RHAT:
        yield (
            f"R-hat is {samples.rhat[worst]:.3f} for {samples.names[worst]}, above {MAX_RHAT}: the chains "
            f"disagree; {_disagreement(samples, [chain[:, worst] for chain in chains])}."
        )


def _disagreement(samples: Samples, chains: Sequence[Array]) -> str:
    """Return a reason for chains to disagree about a parameter, and what to do."""
    if samples.accept > UNBOUNDED_ACCEPTANCE:
        return IMPROPER
    if samples.accept < FEW_ACCEPTED:
        return "they hardly move"
    places = _separate_places(chains)
    if places == 1:
        return (
            "they have not forgotten where they began: draw more, reparametrise, or check that the posterior "
            "is proper"
        )
    if samples.run.counters["starts_without_mode"] >= len(chains):
        return f"no search found a mode; {IMPROPER}"
    return (
        f"the chains lie at {places} separate places: the posterior has several modes, or neither prior nor "
        "data bound it in some direction; how much of it each place holds is not known from these draws"
    )


def _separate_places(chains: Sequence[Array]) -> int:
    """Return the number of groups of chains whose central 98 % overlap."""
    # Slow mixing leaves ranges overlapping.  Ranges that do not meet are of separate modes, or of chains that
    # began far apart in a direction in which U is flat.
    places = 0
    end = -math.inf
    for low, high in sorted(
        tuple(np.percentile(chain, [1.0, 99.0])) for chain in chains
    ):
        places += low > end
        end = max(end, high)
    return places


def _drifting(chains: Sequence[Array]) -> Any:
    """Return whether most chains spread ever further, for each parameter."""
    votes = np.zeros(chains[0].shape[1])
    for chain in chains:
        # Medians, which single draws of a heavy tail do not move.
        third = len(chain) // 3
        middle = np.median(chain[:third], axis=0)
        away = np.abs(chain - middle)
        width = np.maximum(np.median(away[:third], axis=0), 1e-300)
        votes += np.median(away[-third:], axis=0) > DRIFT_RATIO * width
    return 2 * votes > len(chains)


def _about_draws(samples: Samples) -> Iterator[str]:
    """Yield sentences on divergences, and on draws that carry too little information."""
    counters = samples.run.counters
    wanted = getattr(samples.run.algorithm, "draws", 0)
    if counters["draws"] < wanted:
        yield f"{counters['draws']} of {wanted} draws were made: {samples.run.message}"
    share = f"{samples.divergent} of {counters['draws']} trajectories diverged"
    if 2 * counters["not_finite"] > samples.divergent:
        yield (
            f"{share}, {counters['not_finite']} of them where U or its gradient is NaN or infinite: nothing "
            "is drawn there; correct the problem if its density is not zero there, or bound its parameters "
            "(`Constrained`)."
        )
    elif samples.divergent:
        yield (
            f"{share}: the posterior bends more than the step allows, and what lies there is drawn too "
            "rarely; reparametrise, or raise acceptance."
        )
    if samples.run.results["step"][3]:
        yield (
            f"the warm-up was lengthened {LENGTHENING:g} times, because trajectories still diverged at its "
            "end."
        )
    # Where chains disagree, their effective sample size means nothing.
    few = min(MIN_ESS, MIN_ESS_PER_CHAIN * len(samples.chains))
    ess = np.where(np.isfinite(samples.ess), samples.ess, np.inf)
    worst = int(ess.argmin())
    if ess[worst] < few and np.nanmax(samples.rhat) <= MAX_RHAT:
        yield (
            f"the draws of {samples.names[worst]} are worth {ess[worst]:.0f} independent ones, fewer than "
            f"{few}: draw more."
        )
    spacing = _spacing(samples.run)
    if spacing > COARSE_SPACING:
        yield (
            f"U is about {samples.run.fun:.3g} at the draws, where floating-point numbers are {spacing:.2g} "
            "apart: rounding affects which trajectories are accepted; compute U in float64, or leave out its "
            "constant terms."
        )
    if samples.accept < FEW_ACCEPTED:
        yield (
            f"only {samples.accept:.0%} of the trajectories were accepted: check that the gradient belongs "
            "to the value, that U is minus the log density, and that the posterior is smooth."
        )


def _spacing(run: Run) -> float:
    """Return the distance of floating-point numbers near U, in the precision in which U is computed."""
    # The first row is of theta0, where U may be far larger than at any draw.
    U = np.abs(run.metrics["fun"][1:])
    U = U[np.isfinite(U)]
    if not U.size:
        return 0.0
    # A sum in float64 is not a float32 number by chance, let alone each time; zeros and integers may be.
    with np.errstate(over="ignore"):
        single = U.astype(np.float32)
    return float(np.spacing(np.median(single if (single == U).all() else U)))


def error_of(run: Run) -> BadInput | None:
    """Return the error of a run without draws of the posterior, or None for any other run."""
    if run.status != "diverged":
        return None
    # The engine's message names the commit; what follows its colon is advice for an optimiser.
    reason, _, _ = run.message.partition(":")
    return BadInput(f"the chains ran away ({reason}): {IMPROPER}.")
