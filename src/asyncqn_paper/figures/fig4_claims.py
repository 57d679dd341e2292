"""The settings of Fig. 4, and what each of them says about its claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncqn_paper.claim_list import CAUTIOUS, H0, LENGTH, LINK, NUMBERS, START
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.controls import accepted_words
from asyncqn_paper.experiment import Tables
from asyncqn_paper.movielens import STARTS, label
from asyncqn_paper.real_runs import was_busy
from asyncqn_paper.records import Record, column, distinct, where
from asyncqn_paper.settings import NAMES

WORKERS = 10
LENGTHS = {600: "for 600 steps", 4800: "for 4800 steps", 48_000: "for 48,000 steps"}
"""Steps of a-SGD, in whose time the methods are compared, and the words for it."""
BASE, CONTROL, REAL, TUNED = "paper", "control", "real", "tuned"
_BOTH = ("mb-lbfgs", "as-lbfgs")


@dataclass(frozen=True)
class Setting:
    """What is changed from the base case, for which algorithms, and the words for it by axis."""

    short: str
    words: str
    algorithms: tuple[str, ...] = tuple(NAMES)
    changes: Mapping[str, Any] = field(default_factory=dict)
    link: bool = True
    slow: bool = False
    """Whether computation is as slow as the printed timeout says."""
    choices: Mapping[str, str] = field(default_factory=dict)


_LINK = "a link of 10 Gbit/s that messages keep"
_STATED = {CAUTIOUS: "ε = 1e-4", H0: "H₀ by pairs", LINK: _LINK, NUMBERS: "the paper's numbers"}

_PRINTED = "the paper's parameters"
_SLOW = "gradients so slow, as the printed timeout of 400 ms says, that nothing else counts"
SETTINGS = {
    BASE: Setting("as printed", _PRINTED),
    "epsilon": Setting("cautious constant 30", f"{_PRINTED}, cautious constant 30", _BOTH,
                       {"epsilon": 30.0}, choices={CAUTIOUS: "ε = 30"}),
    "fixed": Setting("H₀ = 0.001 I", f"{_PRINTED}, H₀ = 0.001 I", _BOTH,
                     {"initial_scale": 1e-3}, choices={H0: "H₀ = 0.001 I"}),
    "free": Setting("messages do not wait", f"{_PRINTED}, messages do not wait for each other",
                    link=False, choices={LINK: "messages that do not wait for each other"}),
    "slow": Setting("slow gradients", f"{_PRINTED}, gradients so slow that nothing else counts",
                    slow=True, choices={LINK: _SLOW}),
    TUNED: Setting("tuned", "tuned parameters", choices={NUMBERS: "tuned numbers"}),
    CONTROL: Setting("ρI alone", f"{_PRINTED}, M = 0 and H₀ = 0: ρI alone", ("as-lbfgs",)),
}  # fmt: skip
"""The base case, then one change at a time; the control is for all of them."""


def choices_of(setting: str, at: str) -> dict[str, str]:
    """What a setting chooses on every open axis."""
    return {START: STARTS[at], **_STATED, **SETTINGS[setting].choices}


def outcomes(tables: Tables) -> list[Outcome]:
    """Four claims for every start and setting on the 1M set, and the real runs on two workers."""
    found = []
    curves = tables["curves"]
    name = curves[0]["ratings"]
    for at in STARTS:
        mine = where(curves, start=at, ratings=name)
        control = where(mine, setting=CONTROL)
        base = {kind: where(mine, setting=BASE, algorithm=kind) for kind in NAMES}
        for setting in SETTINGS:
            own = {kind: where(mine, setting=setting, algorithm=kind) for kind in NAMES}
            if setting == CONTROL or not own["as-lbfgs"]:
                continue
            for steps, length in LENGTHS.items():
                rows = {kind: where(own[kind] or base[kind], steps=steps) for kind in NAMES}
                if not all(rows.values()):
                    continue  # this setting was not run for so long
                words = f"{label(name)}, {STARTS[at]}, {SETTINGS[setting].words}, W = {WORKERS}, {length}"
                chosen = {**choices_of(setting, at), LENGTH: length}
                found += _four(rows, words, where(control, steps=steps), chosen)
    real = [r for r in tables.get("real", []) if r["workers"] == 2]
    if real:
        first = real[0]
        words = f"{label(name)}, {STARTS[first['start']]}, {first['engine']} with W = 2, not slowed"
        chosen = {**choices_of(BASE, first["start"]), LINK: "the memory of one machine, two workers"}
        chosen[LENGTH] = "for some hundred commits"
        rows = {kind: where(real, algorithm=kind) for kind in NAMES}
        found += _four(rows, words, [], chosen, busy=was_busy(real))
    return found


def _four(
    rows: dict[str, list[Record]],
    words: str,
    control: list[Record],
    choices: dict[str, str],
    busy: bool = False,
) -> list[Outcome]:
    """What runs say about the four claims; `busy`: the machine had other things to do, so that a real run's
    times say nothing."""
    runs = {kind: [where(r, seed=s) for s in distinct(r, "seed")] for kind, r in rows.items()}
    # What happened after the first of the three has ended is not compared.
    ends = [[run[-1]["time"] for run in r if not run[-1]["diverged"]] for r in runs.values()]
    end = min((float(np.median(times)) for times in ends if times), default=0.0)
    final = {kind: float(np.median([_at(run, end) for run in r])) for kind, r in runs.items()}
    sgd, mb, as_ = (final[kind] for kind in NAMES)
    at = f"median RMSE after {end:.2f} s: " + ", ".join(f"{NAMES[k]} {_told(v)}" for k, v in final.items())
    at += f"; {accepted_words(rows['as-lbfgs'])}"
    at += "; the machine was busy with other things, so this says nothing" if busy else ""
    lost = sum(bool(run[-1]["diverged"]) for run in runs["as-lbfgs"])
    at += f"; {lost} of its {len(runs['as-lbfgs'])} runs diverge" if lost else ""
    if control:
        last = [_at(where(control, seed=s), end) for s in distinct(control, "seed")]
        at += f"; with ρI alone (M = 0) it ends at {_told(float(np.median(last)))}"
    share = float(np.median([_first(run, mb) for run in runs["as-lbfgs"]])) / end if end else math.inf
    sooner = f"gets to mb-L-BFGS's last RMSE in {share:.2f} of its time"
    faster = f"{at}; as-L-BFGS {sooner if math.isfinite(share) else 'never gets to that of mb-L-BFGS'}"
    falling = float(np.median([_fall(run) for run in runs["mb-lbfgs"]]))
    settled = f"{at}; {100 * falling:.0f} % of mb-L-BFGS's fall were in the last fifth of its run"
    # Poor for good, not only late: a run that has settled makes little of its fall at the end.
    poorer = None if mb > max(as_, sgd) and falling >= 0.05 else mb > max(as_, sgd)
    if poorer is None:
        settled += ": it is behind, and has not settled"
    rough = {k: float(np.median([_roughness(run) for run in runs[k]])) for k in ("async-sgd", "as-lbfgs")}
    jitter = ", ".join(
        f"{NAMES[kind]} {_told(value, '.2%').replace('%', ' %')}" for kind, value in rough.items()
    )
    rougher = rough["as-lbfgs"] > 1.2 * rough["async-sgd"]
    trembles = f"jitter of the gradient norm around its trend in the second half: {jitter}"
    told = {
        "fig4-mb": (share < 0.67 if math.isfinite(mb) and not busy else None, faster),
        "fig4-rmse": (poorer if math.isfinite(mb) and not busy else None, settled),
        "fig4-gain": (None if busy else as_ < sgd, at),
        "fig4-fluctuates": (rougher if math.isfinite(as_) and math.isfinite(sgd) else None, trembles),
    }
    return [outcome(claim, words, holds, because, choices) for claim, (holds, because) in told.items()]


def longest(rows: list[Record]) -> list[Record]:
    """Of runs of several lengths the longest."""
    return where(rows, steps=max(distinct(rows, "steps"))) if rows else []


class BreakEven(NamedTuple):
    """RMSE levels, how many steps of a-SGD one of as-L-BFGS is worth there, and what it costs by steps."""

    levels: npt.NDArray[np.float64]
    worth: npt.NDArray[np.float64]
    step_ratio: float


def break_even(tables: Tables, at: str) -> BreakEven:
    """At equal RMSE: commits of a-SGD over those of as-L-BFGS, in the longest runs of which none diverged.
    Where a step of as-L-BFGS takes less than so many of a-SGD's, it wins."""
    name, kinds = tables["curves"][0]["ratings"], ("async-sgd", "as-lbfgs")
    every = [
        r for r in where(tables["curves"], setting=BASE, start=at, ratings=name) if r["algorithm"] in kinds
    ]
    gone = {row["steps"] for row in every if row["diverged"]}
    rows = longest([row for row in every if row["steps"] not in gone] or every)
    curves = {}
    for kind in kinds:
        mine = where(rows, algorithm=kind)
        runs = [where(mine, seed=s) for s in distinct(mine, "seed")]
        shortest = min(range(len(runs)), key=lambda k: len(runs[k]))
        grid = column(runs[shortest], "commit")
        values = [
            np.interp(grid, column(r, "commit"), np.nan_to_num(column(r, "rmse"), nan=1e9)) for r in runs
        ]
        curves[kind] = (grid, np.minimum.accumulate(np.median(values, axis=0)))
    top = min(float(v[1]) for _, v in curves.values())
    bottom = max(float(v[-1]) for _, v in curves.values())
    levels = np.linspace(top, bottom, 30)
    # np.interp wants rising abscissae: the curves fall.
    needed = {k: np.interp(-levels, -values, grid) for k, (grid, values) in curves.items()}
    times = {r["algorithm"]: r["worker"] + r["master"] for r in where(tables["timings"], ratings=name)}
    worth = needed["async-sgd"] / np.maximum(needed["as-lbfgs"], 1.0)
    return BreakEven(levels, worth, times["as-lbfgs"] / times["async-sgd"])


def headline(tables: Tables) -> list[str]:
    """The break-even ratio in a sentence."""
    found = {words: break_even(tables, at) for at, words in STARTS.items()}
    said = " and ".join(f"{np.median(one.worth):.2f} {words}" for words, one in found.items())
    costs = next(iter(found.values())).step_ratio
    return [
        "**On ratings** as-L-BFGS beats a-SGD where one of its steps costs less than it is worth. In steps "
        f"of a-SGD it is worth {said}. It costs {costs:.2f} as computed here, where "
        "gradients are cheap; 2 where the master's link is busy, since it sends twice the numbers; 1.33 "
        "where gradients are so slow that only rows count."
    ]


def _at(run: list[Record], time: float) -> float:
    """The RMSE at a time; infinite for a run that diverged."""
    if run[-1]["diverged"] or run[-1]["rmse"] is None:
        return math.inf
    return float(np.interp(time, column(run, "time"), column(run, "rmse")))


def _told(value: float, how: str = ".3f") -> str:
    return f"{value:{how}}" if math.isfinite(value) else "diverged"


def _first(run: list[Record], level: float) -> float:
    """When the RMSE first was at most `level`; never for a run that diverged."""
    hit = np.flatnonzero(column(run, "rmse") <= level)
    return float(run[int(hit[0])]["time"]) if hit.size and not run[-1]["diverged"] else math.inf


def _fall(run: list[Record]) -> float:
    """The share of a run's fall that was in its last fifth."""
    tail = column(run, "rmse")
    if not tail[0] > tail[-1]:
        return math.inf
    return float(tail[-1 - len(tail) // 5] - tail[-1]) / float(tail[0] - tail[-1])


def _roughness(rows: list[Record]) -> float:
    """Relative jitter of the gradient norm: third differences leave out a smooth trend, and the factor
    sqrt(20) is what they make of independent noise."""
    norms = np.log(column(rows, "grad_norm"))[len(rows) // 2 :]
    return float(np.sqrt(np.mean(np.diff(norms, 3) ** 2) / 20.0)) if norms.size > 3 else math.nan
