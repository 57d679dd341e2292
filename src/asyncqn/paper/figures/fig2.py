"""Figure 2: time to epsilon against sigma_w^2 at W = 40, three algorithms, and the quorum of mb-L-BFGS."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncqn.paper.controls import control_words, without_pairs
from asyncqn.paper.drawing import ALGORITHM_LOOKS, LOOKS, band, few_decades, panels
from asyncqn.paper.experiment import UNTESTABLE, Claim, Context, Experiment, Tables, verdict
from asyncqn.paper.problems import PROBLEMS
from asyncqn.paper.records import Record, distinct, summary, where
from asyncqn.paper.settings import MENDED, MESSAGE, NAMES, algorithm, cluster
from asyncqn.tuning.measure import time_to

VARIANCES = (1.0, 25.0, 50.0, 100.0, 200.0, 400.0, 600.0, 900.0)
SETTINGS = {
    "paper": ("linear-gaussian", "the paper's numbers (as-L-BFGS: H₀, floor ours), correlated posterior"),
    "tuned": ("linear-gaussian", "tuned, correlated posterior"),
    "tuned, stiff": ("linear-gaussian-stiff", "tuned, one stiff direction"),
}

PRINTED = {
    "async-sgd": "the paper's table",
    "mb-lbfgs": "the paper's table; quorum 0.5 is our own default",
    "as-lbfgs": "the paper's table, but initial_scale and cosine_floor are ours, chosen by the map on this "
    "problem; as printed it diverges here",
}


class Size(NamedTuple):
    """How often each point is measured."""

    repetitions: int
    quorum_repetitions: int


QUICK, FULL = Size(10, 4), Size(100, 25)
QUORUMS = (0.25, 0.5, 0.75, 0.9, 1.0)
READINGS = {
    "printed": "the paper's numbers; its timeout of 10 units counts messages too",
    "computation": "the paper's numbers; its timeout of 10 units counts computation alone",
    "tuned": "tuned but for the quorum",
}
"""The quorum of mb-L-BFGS is looked at with these numbers.  Messages take 10 units on this cluster, so a
timeout of computation alone is one of 20 units until answers arrive."""
CONTROLLED = (1.0, 200.0, 900.0)
"""The values of sigma_w^2 at which as-L-BFGS is also run with M = 0."""

Curve = tuple[Any, Any, Any, Any]
Curves = dict[str, Curve]


@dataclass(frozen=True)
class Job:
    """Some repetitions of one point of a curve; a run that needs longer than `limit` is too slow."""

    setting: str
    problem: str
    kind: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float
    seeds: tuple[int, ...]
    workers: int = 40
    epsilon: float = 0.05
    limit: float = 12_000.0
    serial: float = 0.0


def measure(job: Job) -> list[Record]:
    """One record per repetition."""
    potential = PROBLEMS[job.problem].potential()
    method = algorithm(job.kind, dict(job.parameters))
    records = []
    for seed in job.seeds:
        outcome = time_to(
            potential,
            method,
            cluster(job.kind, job.workers, job.variance, serial=job.serial),
            seed=seed,
            target=job.epsilon,
            limit=job.limit,
        )
        records.append(
            {
                "setting": job.setting,
                "algorithm": job.kind,
                "variance": job.variance,
                "quorum": dict(job.parameters).get("quorum"),
                "seed": seed,
                **outcome._asdict(),
            }
        )
    return records


def compute(context: Context) -> Tables:
    """Tables `times`, `controls`, `quorum` and `parameters`."""
    spec = FULL if context.full else QUICK
    seeds = range(context.seed, context.seed + spec.repetitions)
    times, controls, quorum, used = [], [], [], []
    for setting, (problem, _) in SETTINGS.items():
        for kind in NAMES:
            study = None if setting == "paper" else context.tuned(f"{kind}-{problem}")
            parameters = MENDED[kind] if study is None else study["best"]["parameters"]
            found = PRINTED[kind] if study is None else study["command"]
            used.append(
                {"setting": setting, "algorithm": kind, "found by": found, "parameters": str(parameters)}
            )
            times += jobs_of(setting, problem, kind, parameters, VARIANCES, seeds)
            if kind == "as-lbfgs":
                plain = without_pairs(parameters)
                controls += jobs_of(setting, problem, kind, plain, CONTROLLED, seeds)
            if kind == "mb-lbfgs" and setting in ("paper", "tuned"):
                few = seeds[: spec.quorum_repetitions]
                quorum += _quorum_jobs(setting, problem, parameters, few)
    return {
        "times": context.jobs("Fig. 2, three algorithms", measure, times),
        "controls": context.jobs("Fig. 2, as-L-BFGS without pairs", measure, controls),
        "quorum": context.jobs("Fig. 2, quorums", measure, quorum),
        "parameters": used,
    }


def _quorum_jobs(setting: str, problem: str, parameters: Mapping[str, Any], seeds: range) -> list[Job]:
    """mb-L-BFGS with every quorum, and the paper's numbers in both readings of its timeout."""
    readings = {"tuned": parameters}
    if setting == "paper":
        longer = {**parameters, "timeout": parameters["timeout"] + MESSAGE}
        readings = {"printed": parameters, "computation": longer}
    return [
        job
        for reading, given in readings.items()
        for share in QUORUMS
        for job in jobs_of(reading, problem, "mb-lbfgs", {**given, "quorum": share}, CONTROLLED, seeds)
    ]


def jobs_of(
    setting: str,
    problem: str,
    kind: str,
    parameters: Mapping[str, Any],
    variances: Sequence[float],
    seeds: range,
    serial: float = 0.0,
) -> list[Job]:
    """Batches of at most ten repetitions."""
    plain = tuple(sorted(parameters.items()))
    return [
        Job(setting, problem, kind, plain, variance, tuple(seeds[k : k + 10]), serial=serial)
        for variance in variances
        for k in range(0, len(seeds), 10)
    ]


def curve(records: Sequence[Record], name: str = "variance") -> Curve:
    """x, mean, standard deviation; points that fewer than half of the runs reached are left out."""
    xs = distinct(records, name)
    rows = [summary(where(records, **{name: x}), "time") for x in xs]
    mean = np.array([m if share >= 0.5 else np.nan for m, _, share in rows])
    return np.array(xs), mean, np.array([s for _, s, _ in rows]), np.array([share for *_, share in rows])


def draw(tables: Tables) -> dict[str, Any]:
    """One panel per setting, and the quorums."""
    figure, axes = panels(1, len(SETTINGS), sharex=True)
    for axis, (setting, (_, words)) in zip(axes[0], SETTINGS.items(), strict=True):
        absent = []
        for kind, name in NAMES.items():
            x, mean, spread, _ = curve(where(tables["times"], setting=setting, algorithm=kind))
            if np.isfinite(mean).any():
                band(axis, x, mean, spread, name, ALGORITHM_LOOKS[kind])
            else:
                absent.append(name)
        axis.set(title=textwrap.fill(words, 42), xlabel=r"$\sigma_w^2$ (squared time units)", yscale="log")
        if absent:
            note = f"{', '.join(absent)}: not reached"
            axis.text(0.98, 0.04, note, transform=axis.transAxes, ha="right", fontsize=7)
        few_decades(axis)
    axes[0][0].set_ylabel(r"time to $\varepsilon$ = 0.05 (time units)")
    handles = axes[0][1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3)
    readings = distinct(tables["quorum"], "setting")
    quorums, axes = panels(1, len(readings), width=3.7, height=3.0, sharey=True)
    for axis, reading in zip(axes[0], readings, strict=True):
        rows = where(tables["quorum"], setting=reading)
        for share, look in zip(distinct(rows, "quorum"), LOOKS, strict=False):
            x, mean, spread, _ = curve(where(rows, quorum=share))
            band(axis, x, mean, spread, f"quorum {share:g}", look)
        axis.set(xlabel=r"$\sigma_w^2$ (squared time units)", yscale="log")
        axis.set_title(textwrap.fill(f"mb-L-BFGS, {READINGS[reading]}", 42))
    axes[0][0].set_ylabel(r"time to $\varepsilon$ = 0.05 (time units)")
    quorums.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return {"fig2": figure, "fig2_quorum": quorums}


def claims(tables: Tables) -> list[Claim]:
    """The four statements for each setting, and the quorums."""
    found = []
    for setting, (_, words) in SETTINGS.items():
        rows = where(tables["times"], setting=setting)
        controls = where(tables.get("controls", []), setting=setting)
        found += order_claims(rows, words, control_words(rows, controls))
    return [*found, *_quorum_claims(tables)]


def order_claims(rows: list[Record], words: str, controls: str = "") -> list[Claim]:
    """The paper's four statements about Fig. 2; `controls` says whether curvature pairs acted."""
    curves = {kind: curve(where(rows, algorithm=kind)) for kind in NAMES}
    return [
        _slow_sgd(curves, words),
        _mb_slows(curves["mb-lbfgs"], words),
        _robust(curves, words),
        _fastest(curves, words, controls),
    ]


def _slow_sgd(curves: Curves, words: str) -> Claim:
    text = "a-SGD is slower than both quasi-Newton methods when the workers are alike (small σ_w²)"
    first = {kind: c[1][0] for kind, c in curves.items()}
    because = "at the smallest σ_w²: " + ", ".join(f"{NAMES[k]} {_n(t)}" for k, t in first.items())
    partial = [
        f"{NAMES[k]} {100 * c[3].min():.0f} %" for k, c in curves.items() if _ran(c) and c[3].min() < 1
    ]
    if partial:
        because += f"; means leave out runs that miss ε, which at worst only {', '.join(partial)} reach"
    if not np.isfinite(first["async-sgd"]):
        return Claim(text, words, UNTESTABLE, f"a-SGD does not reach ε with these numbers; {because}")
    slower = [bool(first["async-sgd"] > first[k]) for k in ("mb-lbfgs", "as-lbfgs")]
    return Claim(text, words, verdict(all(slower), any(slower)), because)


def _mb_slows(curve_: Curve, words: str) -> Claim:
    text = "mb-L-BFGS gets slower as σ_w² grows"
    x, mean, *_ = curve_
    if not _ran(curve_):
        lost = ", ".join(f"{v:g}" for v in x[~np.isfinite(mean)])
        return Claim(text, words, UNTESTABLE, f"it does not reach ε at σ_w² = {lost}")
    growth = mean[-1] / mean[0]
    because = (
        f"time at σ_w² = {x[-1]:g} over time at {x[0]:g}: {growth:.2f}, "
        f"largest over smallest {mean.max() / mean.min():.2f}"
    )
    return Claim(text, words, verdict(growth > 1.15, growth > 1.05), because)


def _robust(curves: Curves, words: str) -> Claim:
    text = "both asynchronous methods are robust against σ_w²"
    ran = [k for k in ("async-sgd", "as-lbfgs") if _ran(curves[k])]
    if not ran:
        return Claim(text, words, UNTESTABLE, "neither reaches ε at every σ_w²")
    growths = {k: curves[k][1].max() / curves[k][1][0] for k in ran}
    because = "largest time over time at the smallest σ_w²: " + ", ".join(
        f"{NAMES[k]} {g:.2f}" for k, g in growths.items()
    )
    robust = [g < 1.25 for g in growths.values()]
    if len(ran) == 2:
        return Claim(text, words, verdict(all(robust), any(robust)), because)
    return Claim(text, words, verdict(False, all(robust)), f"{because}; the other does not reach ε")


def _fastest(curves: Curves, words: str, controls: str) -> Claim:
    text = "as-L-BFGS is the fastest of the three"
    sgd, mb, mean = (curves[k][1] for k in ("async-sgd", "mb-lbfgs", "as-lbfgs"))
    if not _ran(curves["as-lbfgs"]):
        return Claim(text, words, verdict(False), f"it does not reach ε at every σ_w²{controls}")
    rivals = np.nanmin([np.where(np.isfinite(m), m, np.inf) for m in (sgd, mb)], axis=0)
    wins = int((mean < rivals).sum())
    because = f"fastest at {wins} of {mean.size} values of σ_w²"
    if np.isfinite(rivals).all():
        because += f"; {float(np.exp(np.mean(np.log(mean / rivals)))):.2f} times the better rival's time"
    if not _ran(curves["async-sgd"]):
        because += "; a-SGD does not reach ε with these numbers"
    everywhere = wins == mean.size and _ran(curves["async-sgd"])
    return Claim(text, words, verdict(everywhere, wins > 0), because + controls)


def _ran(curve_: Curve) -> bool:
    """Whether every point was reached."""
    return bool(np.isfinite(curve_[1]).all())


def _quorum_claims(tables: Tables) -> list[Claim]:
    """Whether mb-L-BFGS slows down, for each reading of its numbers and each quorum."""
    text = "mb-L-BFGS suffers from slow workers (looked at for several quorums, which the paper leaves open)"
    found = []
    for reading in distinct(tables["quorum"], "setting"):
        rows = where(tables["quorum"], setting=reading)
        ratios = {}
        for share in distinct(rows, "quorum"):
            mean = curve(where(rows, quorum=share))[1]
            ratios[share] = float(mean[-1] / mean[0])
        known = [ratio for ratio in ratios.values() if np.isfinite(ratio)]
        because = "time at σ_w² = 900 over time at 1: " + ", ".join(
            f"quorum {share:g}: {_n(ratio, 2)}" for share, ratio in ratios.items()
        )
        word = verdict(min(known) > 1.15, max(known) > 1.15) if known else UNTESTABLE
        found.append(Claim(text, f"{READINGS[reading]}, correlated posterior", word, because))
    return found


def _n(value: float, digits: int = 0) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "not reached"


EXPERIMENT = Experiment(
    "fig2",
    "Time to ε against the spread of the workers' speed",
    "Simulated time until (U − U*)/U* ≤ 0.05 at W = 40; lines are means, shades three standard deviations.",
    compute,
    draw,
    claims,
    quick="10 repetitions, 4 for the quorums",
    full="100 repetitions, 25 for the quorums",
)
