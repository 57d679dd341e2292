"""The settings of Figs. 5 and S1, and what each of them says about their claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asyncqn.lab import delay_limit
from asyncqn_paper.claim_list import ENGINE, START, STEP
from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.controls import accepted_words
from asyncqn_paper.experiment import Tables
from asyncqn_paper.movielens import STARTS, label
from asyncqn_paper.real_runs import was_busy
from asyncqn_paper.records import Record, column, distinct, where

WORKERS = (1, 2, 5, 10, 15, 20)
BASE = "link"
STEADY = 0.01
"""A run is stable when it ends within this share of its lowest RMSE; one that swings ever less may be."""


@dataclass(frozen=True)
class Setting:
    """One cluster, simulated or real, and one start."""

    short: str
    engine: str
    start: str = "mean"
    link: bool = True
    uneven: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    workers: tuple[int, ...] = ()
    """Of real runs: how many there are."""
    stretched: bool = False


_CAUTIOUS = {"epsilon": 30.0}
"""From the prior a cautious constant of 1e-4 diverges at any W: see Fig. 4."""
SETTINGS = {
    BASE: Setting("10 Gbit/s link", "simulated, a link of 10 Gbit/s that messages keep"),
    "free": Setting("messages do not wait", "simulated, messages do not wait for each other", link=False),
    "uneven": Setting("uneven workers, messages do not wait",
                      "simulated, uneven workers, messages do not wait for each other",
                      link=False, uneven=True),
    "link-prior": Setting("10 Gbit/s link, from the prior",
                          "simulated, a link of 10 Gbit/s that messages keep", "prior", changes=_CAUTIOUS),
    "free-prior": Setting("messages do not wait, from the prior",
                          "simulated, messages do not wait for each other", "prior",
                          link=False, changes=_CAUTIOUS),
    "real": Setting("real, not slowed", "real workers, not slowed", workers=(1, 2)),
    "stretched": Setting("real, stretched", "real workers, computation stretched to fit the processors",
                         workers=(1, 10, 20), stretched=True),
}  # fmt: skip


def reach(curves: list[Record]) -> list[Record]:
    """Per run: when its setting's target was first reached, the best and the last RMSE.

    The target is the RMSE of one worker in the middle of its commits, in the mean of the seeds, rounded up.
    """
    rows = []
    for setting in distinct(curves, "setting"):
        mine = where(curves, setting=setting)
        first = where(mine, role="paper", workers=1)
        middles = [_middle(where(first, seed=s)) for s in distinct(first, "seed")]
        target = float(np.ceil(100.0 * np.mean(middles)) / 100.0)
        for role in distinct(mine, "role"):
            for W in distinct(where(mine, role=role), "workers"):
                group = where(mine, role=role, workers=W)
                rows += [_reached(where(group, seed=s), target) for s in distinct(group, "seed")]
    return rows


def _middle(run: list[Record]) -> float:
    return float(column(run, "rmse")[len(run) // 2])


def _reached(run: list[Record], target: float) -> Record:
    rmse = column(run, "rmse")
    hit = np.flatnonzero(rmse <= target)
    first, last = run[int(hit[0])] if hit.size else None, run[-1]
    kept = ("setting", "role", "workers", "h", "gamma", "seed", "pairs", "engine", "because", "load")
    lowest = float(np.nanmin(rmse))
    lost = last["status"] == "diverged" or last["rmse"] is None
    return {
        **{name: last.get(name) for name in kept},
        "target": target,
        "commits": first["commit"] if first else None,
        "time": first["time"] if first else None,
        "last rmse": None if lost else last["rmse"],
        "lowest rmse": lowest,
        "stable": not lost and last["rmse"] < lowest * (1.0 + STEADY),
    }


def speedups(tables: Tables, setting: str, what: str) -> dict[int, float]:
    """The speedup over W = 1 by W, in `time`, in `commits` or in commits `per worker`.

    Medians over the seeds, only where most runs get to the target and are stable.
    """
    mine = where(tables["reach"], setting=setting, role="paper")
    found = {}
    for W in distinct(mine, "workers"):
        runs = where(mine, workers=W)
        values = column(runs, "time" if what == "time" else "commits")
        # A run that swings may touch the target on its way out.
        if np.isfinite(values).mean() > 0.5 and np.mean([r["stable"] for r in runs]) > 0.5:
            found[int(W)] = float(np.nanmedian(values)) / (W if what == "per worker" else 1)
    return {W: found[1] / value for W, value in found.items()} if 1 in found else {}


def outcomes(tables: Tables) -> list[Outcome]:
    """Speedup in time and in iterations, instability at W = 20, and its cure, for every setting."""
    found = []
    for setting, chosen in SETTINGS.items():
        mine = where(tables["reach"], setting=setting, role="paper")
        if not mine:
            continue
        words = f"{label(tables['curves'][0]['ratings'])}, {chosen.short}"
        engine = chosen.engine.replace("real workers", str(mine[0]["engine"]))
        choices = {ENGINE: engine, START: STARTS[chosen.start], STEP: "the paper's step"}
        found += _speedup_outcomes(tables, setting, words, choices)
        if where(mine, workers=20):
            found += _stability_outcomes(tables, setting, words, choices)
    return found


def _speedup_outcomes(tables: Tables, setting: str, words: str, choices: dict[str, str]) -> list[Outcome]:
    mine = where(tables["reach"], setting=setting, role="paper")
    most = max(W for W in distinct(mine, "workers") if W <= 10)
    target = f"RMSE {mine[0]['target']:g}"
    time, steps = speedups(tables, setting, "time"), speedups(tables, setting, "commits")
    if most not in time:
        because = f"{target} is not reached by most runs with W = {most}"
        return [outcome(claim, words, False, because, choices) for claim in ("fig5-linear", "s1")]
    tail = _controls(tables, setting)
    busy = was_busy(mine)
    if busy:
        tail += "; the machine was busy with other things, so this says nothing"
    because = f"{time[most]:.1f} times faster to {target} with {most} workers{tail}"
    # Near linear: seven tenths of it, as 7 at W = 10.
    linear = None if busy else time[most] > 0.7 * most
    needed = f"W = {most} needs {1 / steps[most]:.2f} times the iterations of W = 1 in all"
    even = f"{needed}, {steps[most] * most:.1f} times fewer per worker"
    return [
        outcome("fig5-linear", words, linear, because, choices),
        outcome("s1", words, steps[most] > 0.7, f"{even}, to {target}", choices),
    ]


def _stability_outcomes(tables: Tables, setting: str, words: str, choices: dict[str, str]) -> list[Outcome]:
    reached = where(tables["reach"], setting=setting)
    at = {W: where(reached, role="paper", workers=W) for W in (10, 20)}
    stable = {W: float(np.mean([r["stable"] for r in rows])) for W, rows in at.items()}
    gamma = at[20][0]["gamma"]
    because = (
        f"γ = {gamma:g} against the limit of stale friction {delay_limit(19):.3f} at W = 20 and "
        f"{delay_limit(9):.3f} at W = 10; stable runs {100 * stable[10]:.0f} % at W = 10, "
        f"{100 * stable[20]:.0f} % at W = 20; last RMSE {_last(at[10])} and {_last(at[20])}"
    )
    found = [outcome("fig5-unstable", words, stable[10] > 0.5 > stable[20], because, choices)]
    steps = {"half": "the step h of the SDE halved: h'/4 and γ'/2", "h' alone": "h'/4 with γ' as it was"}
    for role, step in steps.items():
        rows = where(reached, role=role)
        if not rows:
            continue
        good = float(np.mean([r["stable"] for r in rows]))
        because = f"stable runs {100 * good:.0f} %, last RMSE {_last(rows)}, at W = 10 {_last(at[10])}"
        # Where nothing is unstable there is nothing to cure.
        holds = None if stable[20] > 0.5 else good > 0.5
        found.append(outcome("fig5-step", f"{words}, {step}", holds, because, {**choices, STEP: step}))
    return found


def _last(rows: list[Record]) -> str:
    values = column(rows, "last rmse")
    return f"{np.nanmedian(values):.3g}" if np.isfinite(values).mean() > 0.5 else "none (diverged)"


def _controls(tables: Tables, setting: str) -> str:
    """The share of accepted pairs, and the last RMSE with and without any."""
    rows = where(tables["reach"], setting=setting)
    words = accepted_words(where(rows, role="paper"))
    for control in where(rows, role="no pairs"):
        W = control["workers"]
        with_ = where(rows, role="paper", workers=W, seed=control["seed"])[0]["last rmse"]
        last = ["none" if r is None else f"{r:.4f}" for r in (with_, control["last rmse"])]
        words += f"; last RMSE at W = {W}: {last[0]}, with ρI alone {last[1]}"
    return f"; {words}" if words else ""
