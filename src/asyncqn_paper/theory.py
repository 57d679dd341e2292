"""The theory: ergodic error against N, h, l_max and beta, the invariant law, the region of linear speedup.

The bound is |E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N
iterates and h the step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  It is looked at with
H = I (M = 0) and with pairs on (M = 3), on a small quadratic; the law, where H depends on theta, on the SDE
itself (`langevin_sde`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from asyncqn import ASLBFGS, Cluster, LinearGaussian, Simulator
from asyncqn.errors import require
from asyncqn.types import Array, Request
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.langevin_sde import LINE, PLANE, Chains, expected, moments
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.theory_claims import STUDIES, draw, outcomes

DIM, N_DATA = 10, 100
CHECKPOINTS = 40
NOISY, EXACT = 20, N_DATA
"""Sizes of batches: 20 of 100 rows drawn with replacement, or every row once."""
RATE_N, SPEEDUP_N = (500, 2000, 8000), (1000, 4000, 16_000)
STEPS, BETAS = (0.004, 0.008, 0.016), (0.1, 0.3, 1.0, 3.0, 10.0)
LAW_STEP = 0.01
STALE_STEP = 0.003
"""Small enough for W = 32: 2 l h lambda stays below one."""
SDE_STEPS = (0.2, 0.1, 0.05)
FIELDS = {"1": LINE, "2": PLANE}
"""H(theta) by the number of dimensions."""


@dataclass(frozen=True)
class Job:
    """One run: N commits of step h (of the SDE), W workers, inverse temperature beta, size of batches, M."""

    study: str
    N: int
    h: float
    workers: int
    beta: float
    batch: int
    memory: int
    seed: int

    @property
    def every(self) -> int:
        """Every how many commits the run is looked at: means need not see all of them."""
        return 5 if self.study in ("h", "l", "beta") else 1


@dataclass(frozen=True)
class SDEJob:
    """The SDE itself with an H that depends on theta."""

    field: str
    h: float
    corrected: bool
    beta: float
    chains: int
    seed: int


@cache
def _model() -> LinearGaussian:
    return LinearGaussian.random(DIM, N_DATA, spectrum=np.geomspace(1.0, 4.0, DIM))


def measure(job: Job) -> list[Record]:
    """Running means of U - U* at N spread in logarithm, and of the second half (`stationary`)."""
    model = _model()
    P, optimum = model.precision, model.optimum_theta
    eigenvalues, directions = np.linalg.eigh(P)
    method = ASLBFGS(
        *(job.h**2, job.h, job.beta, job.memory, job.batch, job.batch // 2),
        sampling="shuffled" if job.batch == EXACT else "replacement",
    )
    theta0 = optimum + np.random.Generator(np.random.Philox(key=[job.seed, 7])).standard_normal(DIM)
    thetas: list[Array] = []
    run = Simulator(Cluster(job.workers, 1.0, 0.3)).minimize(
        Request(
            model,
            method,
            theta0=theta0,
            commits=job.N,
            seed=job.seed,
            evaluate=job.every,
            callback=lambda progress: thetas.append(progress.theta),
        )
    )
    require(run.success, f"theory: {job} diverged, so its step is outside the region of the theorem.")
    iterates = np.array(thetas[1:])
    excess = 0.5 * np.einsum("ni,ij,nj->n", iterates - optimum, P, iterates - optimum)
    running = np.cumsum(excess) / np.arange(1, len(excess) + 1)
    half = slice(len(excess) // 2, None)
    shared = {name: value for name, value in vars(job).items() if name != "N"}
    shared |= {"length": job.N, "l_max": int(run.schedule.staleness.max(initial=0))}
    found: list[tuple[str, int, int | None, float]] = []
    if job.every == 1:
        at = np.unique(np.geomspace(10, job.N, CHECKPOINTS).astype(int))
        found += [("mean", int(n), None, running[n - 1]) for n in at]
    found.append(("stationary", job.N, None, excess[half].mean()))
    if job.study == "law":
        along = (iterates[half] - optimum) @ directions
        ratios = (along**2).mean(axis=0) * job.beta * eigenvalues
        p = np.diff(iterates[half], axis=0) / job.h  # with H = I, theta moves by a stale u = h p
        found += [("theta", job.N, k, ratio) for k, ratio in enumerate(ratios)]
        found.append(("p", job.N, None, (p**2).mean() * job.beta))
    return [
        {**shared, "what": what, "N": n, "index": index, "value": float(value)}
        for what, n, index, value in found
    ]


def measure_sde(job: SDEJob) -> list[Record]:
    """Means of theta_i^2 and U over those of the law of Proposition 1, and, where it is known, of the law
    without Gamma."""
    field = FIELDS[job.field]
    chains = Chains(job.h, beta=job.beta, chains=job.chains)
    found, law = moments(field, chains, job.corrected, job.seed), expected(field, job.beta)
    other = expected(field, job.beta, corrected=False) if field.model.dim == 1 else law
    shared = {"dimensions": job.field, "h": job.h, "corrected": job.corrected, "beta": job.beta}
    return [
        {
            **shared,
            "what": "U" if i == field.model.dim else f"θ_{i + 1}²",
            "law": float(law[i]),
            "ratio": float(found[:, i].mean() / law[i]),
            "spread": float(found[:, i].std(ddof=1) / job.chains**0.5 / law[i]),
            "without": float(other[i] / law[i]) if field.model.dim == 1 else None,
        }
        for i in range(found.shape[1])
    ]


def jobs(full: bool, seed: int) -> list[Job]:
    """All runs: each study varies one quantity and keeps the others where they do not count."""
    seeds = range(seed, seed + (12 if full else 3))
    length = 4 if full else 1
    cold = 1e6
    bound = [
        job
        for M in (0, 3)
        for s in seeds
        for job in (
            Job("N", 4000 * length, 0.02, 1, cold, EXACT, M, s),
            *(Job("h", int(100 * length / h), h, 1, cold, NOISY, M, s) for h in STEPS),
            *(Job("l", 10_000 * length, STALE_STEP, W, cold, NOISY, M, s) for W in (1, 4, 16, 32)),
            *(Job("beta", 4000 * length, 0.05, 1, beta, EXACT, M, s) for beta in BETAS),
            *(Job("rate", N, 2.0 / N**0.5, 1, cold, NOISY, M, s) for N in RATE_N),
        )
    ]
    lengths = SPEEDUP_N if full else SPEEDUP_N[:2]
    return [
        *bound,
        *(Job("law", 15_000 * length, LAW_STEP, W, 1.0, EXACT, 0, s) for W in (1, 4) for s in seeds),
        *(
            Job("speedup", N, STALE_STEP, W, cold, NOISY, 0, s)
            for N in lengths
            for W in (1, 4, 8, 16, 32)
            for s in seeds
        ),
    ]


def sde_jobs(full: bool, seed: int) -> list[SDEJob]:
    """Every H(theta), with and without Gamma, at steps that halve; then colder, with Gamma left out."""
    chains = 4000 if full else 600
    warm = [SDEJob(f, h, c, 1.0, chains, seed) for f in FIELDS for h in SDE_STEPS for c in (True, False)]
    return [*warm, *(SDEJob(f, SDE_STEPS[-1], False, 10.0, chains, seed) for f in FIELDS)]


def slope(x: Any, y: Any) -> tuple[float, float]:
    """Slope of log y over log x by least squares, and its standard error."""
    lx, ly = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    lx = lx - lx.mean()
    b = float(lx @ (ly - ly.mean()) / (lx @ lx))
    rest = ly - ly.mean() - b * lx
    return b, float(np.sqrt(rest @ rest / max(1, lx.size - 2) / (lx @ lx)))


def _means(records: Sequence[Record], name: str) -> tuple[Any, Any]:
    xs = sorted(distinct(records, name))
    return np.array(xs, float), np.array([column(where(records, **{name: x}), "value").mean() for x in xs])


def _curves(runs: list[Record], memory: int) -> dict[str, list[Record]]:
    """The records behind every slope."""
    mine = where(runs, memory=memory)
    return {
        "N": where(mine, study="N", what="mean"),
        "h": where(mine, study="h", what="stationary"),
        "l": where(mine, study="l", what="stationary"),
        "beta": where(mine, study="beta", what="stationary"),
        "rate": [r for N in RATE_N for r in where(mine, study="rate", what="mean", N=N, length=N)],
    }


def _slopes(runs: list[Record], memory: int) -> list[Record]:
    found = []
    for study, records in _curves(runs, memory).items():
        name = {"l": "workers", "rate": "N"}.get(study, study)
        x, y = _means(records, name)
        # The transient of pairs that are still being found is no part of the rate.
        far = x >= 500 if study == "N" else np.ones(x.size, bool)
        b, error = slope(x[far], y[far])
        # Points of one seed share its luck: what the seeds disagree about counts, if it is more.
        each = [
            slope(x[far], _means(where(records, seed=s), name)[1][far])[0] for s in distinct(records, "seed")
        ]
        error = max(error, float(np.std(each, ddof=1) / len(each) ** 0.5))
        fit = {"slope": b, "standard error": error, "bound": STUDIES[study].bound}
        found += [
            {"study": study, "memory": memory, "x": float(a), "error": float(e), **fit}
            for a, e in zip(x, y, strict=True)
        ]
    return found


def _law(runs: list[Record]) -> list[Record]:
    found = []
    for W in (1, 4):
        for what in ("theta", "p"):
            mine = where(runs, study="law", workers=W, what=what)
            for k in distinct(mine, "index"):
                v = column(where(mine, index=k), "value")
                spread = float(v.std(ddof=1) / v.size**0.5)
                row = {"workers": W, "what": what, "index": k, "ratio": float(v.mean()), "spread": spread}
                # A delay l in both halves of the step works against friction: gamma -> gamma - 2 l h lambda.
                top = float(np.linalg.eigvalsh(_model().precision)[-1])
                found.append({**row, "h": LAW_STEP, "allowed": 1.0 / (1.0 - 2 * (W - 1) * LAW_STEP * top)})
    return found


def _speedup(runs: list[Record]) -> list[Record]:
    speed = []
    for N in distinct(where(runs, study="speedup"), "length"):
        finals = where(runs, study="speedup", what="mean", N=N, length=N)
        _, y = _means(finals, "workers")
        for W, value in zip(sorted(distinct(finals, "workers")), y, strict=True):
            l_max = max(r["l_max"] for r in where(finals, workers=W))
            row = {"N": N, "workers": W, "l_max": l_max, "l_max N h²": l_max * N * STALE_STEP**2}
            speed.append({**row, "error": float(value), "ratio": float(value / y[0])})
    return speed


def compute(context: Context) -> Tables:
    """Tables `slopes`, `law`, `speedup`, `sde` and `parameters`."""
    runs = context.jobs("theory", measure, jobs(context.full, context.seed))
    chosen = "gamma' = h, h' = h^2; one quantity varies where its term of the bound dominates"
    own = {"found by": "our own choice"}
    return {
        "slopes": _slopes(runs, 0) + _slopes(runs, 3),
        "law": _law(runs),
        "speedup": _speedup(runs),
        "sde": context.jobs("theory, H that depends on θ", measure_sde, sde_jobs(context.full, context.seed)),
        "parameters": [
            {"setting": "H = I", "parameters": f"M = 0, {chosen}", **own},
            {"setting": "pairs on", "parameters": f"M = 3, half of a batch overlaps, {chosen}", **own},
            {"setting": "the SDE, H(θ)", "parameters": f"{LINE}; {PLANE}", **own},
        ],
    }


EXPERIMENT = Experiment(
    "theory",
    "Ergodic error, invariant law, linear speedup",
    "Dotted: the slope of the bound. Above a small quadratic (d = 10, N_Y = 100, eigenvalues 1 to 4) with "
    "H = I and with pairs on (M = 3); below the SDE with an L-BFGS matrix H(θ), with and without Γ.",
    compute,
    draw,
    outcomes,
    quick="3 seeds, 600 chains of the SDE",
    full="12 seeds, stationary runs 4 times as long, 4000 chains of the SDE",
    minutes=(0.5, 5.5),
)
