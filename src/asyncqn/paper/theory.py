"""The theory: ergodic error against N, h, l_max and beta, the invariant law, the region of linear speedup.

The bound is |E U_N - U*| = O(1/(N h) + max(1, l_max) h + 1/beta), U_N the mean of U over the first N
iterates and h the step of the SDE: h' = h^2, gamma' = h gamma with gamma = 1 here.  H = I (M = 0) and a
small quadratic, where the stationary law exp(-beta U(theta) - beta p^2 / 2) is known in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from asyncqn.algorithms.quasi_newton.as_lbfgs import ASLBFGS
from asyncqn.core.cluster import Cluster
from asyncqn.core.request import Request
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import require
from asyncqn.paper.drawing import LOOKS, few_decades, panels
from asyncqn.paper.experiment import Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.types import Array

DIM, N_DATA = 10, 100
CHECKPOINTS = 40
SMALL, LARGE, EXACT = 20, 1000, 10_000
"""Sizes of batches (with replacement, out of 100 points): noisy, nearly exact, as good as exact."""
RATE_N, SPEEDUP_N = (500, 2000, 8000), (1000, 4000, 16_000)
STEPS, BETAS = (0.005, 0.01, 0.02, 0.04), (0.1, 0.3, 1.0, 3.0, 10.0)
LAW_STEP = 0.01
STALE_STEP = 0.003
"""Small enough for W = 32: 2 l h lambda stays below one."""


@dataclass(frozen=True)
class Job:
    """One run: N commits of step h (of the SDE), W workers, inverse temperature beta, size of batches."""

    study: str
    N: int
    h: float
    workers: int
    beta: float
    batch: int
    seed: int


@cache
def _potential() -> LinearGaussian:
    return LinearGaussian.random(DIM, N_DATA, spectrum=np.geomspace(1.0, 4.0, DIM))


def measure(job: Job) -> list[Record]:
    """Running means of U - U* at N spread in logarithm, and of the second half (`stationary`)."""
    potential = _potential()
    P, optimum = potential.precision, potential.optimum_theta
    eigenvalues, directions = np.linalg.eigh(P)
    method = ASLBFGS(h=job.h**2, gamma=job.h, beta=job.beta, memory=0, batch=job.batch, overlap=1)
    theta0 = optimum + np.random.Generator(np.random.Philox(key=[job.seed, 7])).standard_normal(DIM)
    thetas: list[Array] = []
    run = Simulator(Cluster(job.workers, 1.0, 0.3)).minimize(
        Request(
            potential,
            method,
            theta0=theta0,
            commits=job.N,
            seed=job.seed,
            evaluate=1,
            callback=lambda progress: thetas.append(progress.theta),
        )
    )
    require(run.success, f"theory: {job} diverged, so its step is outside the region of the theorem.")
    iterates = np.array(thetas[1:])
    excess = 0.5 * np.einsum("ni,ij,nj->n", iterates - optimum, P, iterates - optimum)
    running = np.cumsum(excess) / np.arange(1, job.N + 1)
    half = slice(job.N // 2, None)
    shared = {
        "study": job.study,
        "h": job.h,
        "workers": job.workers,
        "beta": job.beta,
        "batch": job.batch,
        "seed": job.seed,
        "length": job.N,
        "l_max": int(run.schedule.staleness.max(initial=0)),
    }
    at = np.unique(np.geomspace(10, job.N, CHECKPOINTS).astype(int))
    records = [
        {**shared, "what": "mean", "N": int(n), "index": None, "value": float(running[n - 1])} for n in at
    ]
    records.append(
        {**shared, "what": "stationary", "N": job.N, "index": None, "value": float(excess[half].mean())}
    )
    if job.study == "law":
        along = (iterates[half] - optimum) @ directions
        for k, (eigenvalue, variance) in enumerate(zip(eigenvalues, (along**2).mean(axis=0), strict=True)):
            records.append(
                {
                    **shared,
                    "what": "theta",
                    "N": job.N,
                    "index": k,
                    "value": float(variance * job.beta * eigenvalue),
                }
            )
        p = np.diff(iterates[half], axis=0) / job.h  # with H = I, theta moves by a stale u = h p
        records.append(
            {**shared, "what": "p", "N": job.N, "index": None, "value": float((p**2).mean() * job.beta)}
        )
    return records


def jobs(full: bool, seed: int) -> list[Job]:
    """All runs: each study varies one quantity and keeps the others where they do not count."""
    seeds = range(seed, seed + (16 if full else 4))
    length = 4 if full else 1
    cold = 1e6
    return [
        *(Job("N", 8000, 0.02, 1, cold, EXACT, s) for s in seeds),
        *(Job("h", int(300 * length / h), h, 1, cold, SMALL, s) for h in STEPS for s in seeds),
        *(Job("l", 25_000 * length, STALE_STEP, W, cold, SMALL, s) for W in (1, 4, 16, 32) for s in seeds),
        *(Job("beta", 8000 * length, 0.05, 1, beta, LARGE, s) for beta in BETAS for s in seeds),
        *(Job("rate", N, 2.0 / N**0.5, 1, cold, SMALL, s) for N in RATE_N for s in seeds),
        *(Job("law", 40_000 * length, LAW_STEP, W, 1.0, LARGE, s) for W in (1, 4) for s in seeds),
        *(
            Job("speedup", N, STALE_STEP, W, cold, SMALL, s)
            for N in SPEEDUP_N
            for W in (1, 4, 8, 16, 32)
            for s in seeds
        ),
    ]


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


def compute(context: Context) -> Tables:
    """Tables `runs`, `slopes`, `law`, `speedup` and `parameters`."""
    runs = context.jobs("theory", measure, jobs(context.full, context.seed))
    curves = {
        "N": where(runs, study="N", what="mean"),
        "h": where(runs, study="h", what="stationary"),
        "l": where(runs, study="l", what="stationary"),
        "beta": where(runs, study="beta", what="stationary"),
        "rate": [r for N in RATE_N for r in where(runs, study="rate", what="mean", N=N, length=N)],
    }
    slopes = []
    expected = {"N": -1.0, "h": 1.0, "l": 1.0, "beta": -1.0, "rate": -0.5}
    for study, records in curves.items():
        name = {"l": "workers", "rate": "N"}.get(study, study)
        x, y = _means(records, name)
        far = x >= 500 if study == "N" else np.ones(x.size, bool)
        b, error = slope(x[far], y[far])
        slopes += [
            {
                "study": study,
                "x": float(a),
                "error": float(e),
                "slope": b,
                "standard error": error,
                "bound": expected[study],
            }
            for a, e in zip(x, y, strict=True)
        ]
    law = [
        {
            "workers": W,
            "what": what,
            "index": k,
            "ratio": float(v.mean()),
            "spread": float(v.std(ddof=1) / v.size**0.5),
        }
        for W in (1, 4)
        for what in ("theta", "p")
        for k in distinct(where(runs, study="law", workers=W, what=what), "index")
        for v in [column(where(runs, study="law", workers=W, what=what, index=k), "value")]
    ]
    speed = []
    for N in SPEEDUP_N:
        finals = where(runs, study="speedup", what="mean", N=N, length=N)
        _, y = _means(finals, "workers")
        for W, value in zip(sorted(distinct(finals, "workers")), y, strict=True):
            l_max = max(r["l_max"] for r in where(finals, workers=W))
            product = l_max * N * STALE_STEP**2
            row = {"N": N, "workers": W, "l_max": l_max, "l_max N h²": product}
            speed.append({**row, "error": float(value), "ratio": float(value / y[0])})
    chosen = "M = 0 (H = I), gamma' = h, h' = h^2; one quantity varies where its term of the bound dominates"
    used = [{"setting": "all studies", "parameters": chosen, "found by": "our own choice"}]
    return {"runs": runs, "slopes": slopes, "law": law, "speedup": speed, "parameters": used}


def draw(tables: Tables) -> dict[str, Any]:
    """Six small panels."""
    figure, axes = panels(2, 3, width=3.0, height=2.3)
    labels = {
        "N": "iterations N",
        "h": "step h of the SDE",
        "l": "workers W",
        "beta": "inverse temperature β",
        "rate": "N, with h = 2/√N",
    }
    for axis, (study, label) in zip(axes.flat, labels.items(), strict=False):
        rows = where(tables["slopes"], study=study)
        x, y = column(rows, "x"), column(rows, "error")
        axis.loglog(x, y, **{**LOOKS[0], "markevery": 1 if len(x) < 10 else 4})
        bound, end = rows[0]["bound"], -1 if rows[0]["bound"] < 0 else 0
        axis.loglog(x, y[end] * (x / x[end]) ** bound, color="black", linestyle=":", linewidth=0.9)
        axis.set(
            xlabel=label,
            title=f"slope {rows[0]['slope']:.2f} ± {rows[0]['standard error']:.2f} (bound {bound:g})",
        )
        if len(x) < 10:
            axis.set_xticks(x, [f"{value:g}" for value in x])
            axis.minorticks_off()
        axis.set_ylabel("ergodic error")
        few_decades(axis)
    axis = axes[1][2]
    for look, N in zip(LOOKS, distinct(tables["speedup"], "N"), strict=False):
        rows = where(tables["speedup"], N=N)
        axis.semilogx(
            np.maximum(column(rows, "l_max N h²"), 0.005), column(rows, "ratio"), label=f"N = {N}", **look
        )
    axis.set(xlabel=r"$l_{max} N h^2$", ylabel="error over that of W = 1", title="region of linear speedup")
    axis.legend(fontsize=7)
    return {"theory": figure}


def claims(tables: Tables) -> list[Claim]:
    """Bounds are upper bounds: a slope that is gentler than the bound's in h and l is no contradiction."""
    found = []
    texts = {
        "N": "the ergodic error falls as 1/(N h)",
        "h": "the bias grows at most in proportion to h",
        "l": "staleness multiplies the bias by at most l_max",
        "beta": "the error of the temperature falls as 1/β",
        "rate": "with h ∝ 1/√N the error falls at least as fast as 1/√N",
    }
    for study, text in texts.items():
        row = where(tables["slopes"], study=study)[0]
        b, bound = row["slope"], row["bound"]
        close = abs(b - bound) < 0.15
        holds = close if study in ("N", "beta") else b < bound + 0.15
        because = f"fitted slope {b:.2f} ± {row['standard error']:.2f}, the bound's {bound:g}"
        found.append(Claim(text, "quadratic, H = I", verdict(holds, abs(b - bound) < 0.3), because))
    for W in distinct(tables["law"], "workers"):
        theta = column(where(tables["law"], workers=W, what="theta"), "ratio")
        p = column(where(tables["law"], workers=W, what="p"), "ratio")[0]
        # A delay l in both halves of the step works against friction: gamma -> gamma - 2 l h lambda.
        allowed = 1.0 / (1.0 - 2 * (W - 1) * LAW_STEP * float(np.linalg.eigvalsh(_potential().precision)[-1]))
        low, high = min(theta.min(), p), max(theta.max(), p)
        because = (
            f"variances over those of exp(−βU − βp²/2): θ {theta.min():.2f} to {theta.max():.2f}, p {p:.2f} "
            f"(h = {LAW_STEP:g}; 1/(1 − 2 l h λ) = {allowed:.2f} at the largest curvature)"
        )
        text = "the stationary law is exp(−βU(θ) − βp²/2), up to O(max(1, l) h)"
        holds = low > 0.85 and high < 1.15 * allowed
        found.append(Claim(text, f"W = {W}", verdict(holds, low > 0.7 and high < 2.0 * allowed), because))
    inside = [r for r in tables["speedup"] if r["l_max N h²"] <= 0.5]
    outside = [r for r in tables["speedup"] if r["l_max N h²"] > 2.0]
    worst = max(r["ratio"] for r in inside)
    because = f"error over that of W = 1: at most {worst:.2f} while l_max N h² ≤ 0.5"
    if outside:
        because += f", up to {max(r['ratio'] for r in outside):.2f} where it exceeds 2"
    most = max(r["workers"] for r in tables["speedup"])
    along = ", ".join(f"{r['ratio']:.2f}" for r in where(tables["speedup"], workers=most))
    counts = ", ".join(str(N) for N in distinct(tables["speedup"], "N"))
    because += f"; at W = {most} it is {along} for N = {counts}"
    text = "speedup is linear while l_max = O(1/(N h²)): the error after N commits is that of W = 1"
    found.append(Claim(text, "quadratic, H = I", verdict(worst < 1.25, worst < 1.6), because))
    return found


EXPERIMENT = Experiment(
    "theory",
    "Ergodic error, invariant law, linear speedup",
    "Dotted: the slope of the bound. A small quadratic (d = 10, N_Y = 100, eigenvalues 1 to 4), H = I.",
    compute,
    draw,
    claims,
    quick="4 seeds",
    full="16 seeds, stationary runs 4 times as long",
)
