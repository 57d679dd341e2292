"""How the rivals of Block L-BFGS are tuned on the linear Gaussian suite, all alike.

In each cell every rival gets `BUDGET` trials: the paper's setting, the best of the cell before, a
grid of good points, random draws, then variations of the best so far.  A trial is judged by the mean
time to epsilon on the tuning seeds and given up once it takes half as long again as the best, its own
or an earlier rival's.  Of its five best trials a rival is then given the one that does best on the
test seeds, a choice in its favour.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from asyncqn.paper.records import Record
from asyncqn.paper.settings import PAPER
from asyncqn.tuning.suite import LIMIT, SPREADS, curvature, test, time_of

BUDGET, RANDOM_SHARE = 40, 0.5
TUNING_SEEDS, SHORTLIST, PRUNE = (1001, 1002, 1003), 5, 1.5
RIVALS = ("mb-lbfgs", "async-sgd", "as-lbfgs")

# What is searched: name -> (low, high) on a logarithmic axis, or a list of choices.
SPACES: dict[str, dict[str, tuple[float, float] | list[Any]]] = {
    "async-sgd": {"r": (0.1, 6.0), "batch": [1, 3, 6, 15, 30]},
    "mb-lbfgs": {
        "h": (0.1, 1.5), "first": (0.2, 2.0), "timeout": (1.0, 100.0), "quorum": (0.2, 1.0),
        "cosine_floor": [0.0, 0.3], "batch": [6, 15, 30, 60, 120],
        "kept": [1 / 3, 1 / 2, 5 / 6], "memory": [2, 3, 5, 10],
    },
    "as-lbfgs": {
        "share": (0.05, 2.0), "c": (0.1, 30.0), "r": (0.01, 5.0), "fixed": [True, False],
        "cosine_floor": [0.0, 0.3, 0.5], "batch": [6, 15, 30], "kept": [1 / 3, 1 / 2, 5 / 6],
        "memory": [1, 3, 5], "beta": [500.0, math.inf],
    },
    "momentum-lbfgs": {
        "share": (0.5, 40.0), "c": (0.3, 30.0), "r": (0.1, 6.0), "fixed": [True, False],
        "cosine_floor": [0.0, 0.3, 0.5], "batch": [6, 15, 30], "kept": [1 / 3, 1 / 2, 5 / 6],
        "memory": [1, 3, 5],
    },
}  # fmt: skip


# Points that did well on first acquaintance, as a grid: every cell begins with them.
GOOD: dict[str, list[dict[str, Any]]] = {
    "async-sgd": [{"r": r, "batch": batch} for r in (0.6, 1.0, 1.5) for batch in (1, 3, 6)],
    "mb-lbfgs": [
        {"h": h, "first": 1.0, "timeout": 20.0, "quorum": 0.6, "cosine_floor": 0.0, "batch": batch,
         "kept": 1 / 2, "memory": 3}
        for h in (0.3, 0.5, 1.0) for batch in (6, 15, 30)
    ],
    "as-lbfgs": [
        {"share": 0.3, "c": c, "r": r, "fixed": True, "cosine_floor": 0.3, "batch": 6, "kept": 1 / 3,
         "memory": memory, "beta": 500.0}
        for c, r in ((1.0, 0.3), (3.0, 0.3), (3.0, 1.0)) for memory in (1, 3)
    ],
    "momentum-lbfgs": [
        {"share": 4.0, "c": c, "r": r, "fixed": True, "cosine_floor": 0.3, "batch": 6, "kept": 1 / 3,
         "memory": memory}
        for c, r in ((1.0, 0.6), (3.0, 0.6), (3.0, 1.5)) for memory in (1, 3)
    ],
}  # fmt: skip


def parameters_of(kind: str, point: dict[str, Any], spectrum: str, workers: int) -> dict[str, Any]:
    """The algorithm's parameters at a point of its search space.

    With c_1 the largest curvature: first_scale = first / c_1.  a-SGD: h = r / (c_1 W), for r near 1.6
    is the limit under equal delays.  as-L-BFGS: gamma = share / W; initial_scale c / c_1; h through
    r = 2 W h initial_scale^2 c_1 / gamma, of order one.  Momentum L-BFGS: r = W h initial_scale c_1 / gamma.
    """
    p, top = dict(point), curvature(spectrum)
    if kind == "async-sgd":
        return {"h": p["r"] / (top * workers), "batch": p["batch"]}
    overlap = max(1, min(p["batch"] - 1, round(p.pop("kept") * p["batch"])))
    if kind == "mb-lbfgs":
        first_scale = p.pop("first") / top
        return {**p, "overlap": overlap, "first_scale": first_scale}
    gamma, c = min(1.0, p["share"] / workers), p["c"] / top
    shared = {
        "gamma": gamma, "initial_scale": c if p["fixed"] else "pair", "cosine_floor": p["cosine_floor"],
        "batch": p["batch"], "overlap": overlap, "memory": p["memory"],
    }  # fmt: skip
    if kind == "momentum-lbfgs":
        return {"h": p["r"] * gamma / (workers * c * top), **shared}
    return {"h": p["r"] * gamma / (2 * workers * c * c * top), "beta": p["beta"], **shared}


def _draw(kind: str, rng: np.random.Generator, best: dict[str, Any] | None) -> dict[str, Any]:
    """A random point, or a variation of `best`: a factor of about e^0.4, each choice anew by chance 1/4."""
    point = {}
    for name, axis in SPACES[kind].items():
        if isinstance(axis, list):
            new = axis[int(rng.integers(len(axis)))]
            point[name] = new if best is None or rng.random() < 0.25 else best[name]
        else:
            low, high = math.log(axis[0]), math.log(axis[1])
            drawn = rng.uniform(low, high) if best is None else math.log(best[name]) + 0.4 * rng.normal()
            point[name] = math.exp(min(max(drawn, low), high))
    return point


def run_rivals(spectrum: str, budget: int = BUDGET, workers: int = 40) -> list[Record]:
    """One record per cell and rival: of its best few trials the one that does best on the test seeds.

    A rival that cannot come within `PRUNE` times the best one so far gets no time: only the best
    rival of a cell matters.
    """
    records: list[Record] = []
    warm: dict[str, Point | None] = {}
    for spread in SPREADS:
        ceiling = LIMIT
        for kind in RIVALS:
            trials = tuned(kind, spectrum, spread, budget, workers, warm.get(kind), ceiling)
            warm[kind] = trials[0][2] if trials else warm.get(kind)
            record = {"kind": kind, "spectrum": spectrum, "sigma_w": spread, "trials": budget}
            tested = [
                (test(kind, parameters, spectrum, spread, workers), score, parameters)
                for score, parameters, _ in trials[:SHORTLIST]
            ]
            if tested:
                best, score, parameters = min(tested, key=lambda entry: entry[0]["mean"])
                ceiling = min(ceiling, PRUNE * score)
                record |= {"tuning_mean": score, **best, "parameters": str(parameters)}
            else:
                record |= {"tuning_mean": None, "mean": None, "std": None, "reached": 0, "runs": 0,
                           "parameters": f"none below {ceiling:.0f}"}  # fmt: skip
            records.append(record)
    return records


Point = dict[str, Any]
Trial = tuple[float, dict[str, Any], Point | None]


def tuned(
    kind: str, spectrum: str, spread: float, budget: int, workers: int, warm: Point | None, ceiling: float
) -> list[Trial]:
    """(time, parameters, point) of the trials that reached epsilon on every tuning seed, best first."""
    rng = np.random.Generator(np.random.Philox(key=[int(spread), zlib.crc32(f"{kind} {spectrum}".encode())]))
    known = [*([warm] if warm is not None else []), *GOOD[kind]]
    trials: list[Trial] = []
    for trial in range(budget):
        best, _, best_point = trials[0] if trials else (math.inf, None, None)
        point = _draw(kind, rng, best_point if trial >= RANDOM_SHARE * budget else None)
        point = known[trial - 1] if 1 <= trial <= len(known) else point
        parameters = (
            PAPER[kind] if trial == 0 and kind in PAPER else parameters_of(kind, point, spectrum, workers)
        )
        score = 0.0
        for seed in TUNING_SEEDS:
            outcome = time_of(kind, parameters, spectrum, spread, seed, workers=workers,
                              limit=min(ceiling, PRUNE * best))  # fmt: skip
            score += math.inf if outcome.time is None else outcome.time / len(TUNING_SEEDS)
            if score == math.inf:
                break
        if score < math.inf:
            trials = sorted([*trials, (score, parameters, point if trial else None)], key=lambda t: t[0])
    return trials
