"""The pictures of the remarks: where momentum helps, and what rho does."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncqn.paper.drawing import CONTROLS, VARIANTS, panels
from asyncqn.paper.experiment import Tables
from asyncqn.paper.records import column, distinct, where


def draw(tables: Tables) -> dict[str, Any]:
    """Share of runs that arrive against the drift, and RMSE against the step."""
    figure, axes = panels(1, 2, width=4.4, height=3.2)
    left, right = axes[0]
    rows = tables["momentum"]
    looks = {
        None: CONTROLS[1],
        **dict(zip([g for g in distinct(rows, "gamma") if g is not None], VARIANTS[1::2], strict=False)),
    }
    for gamma, look in looks.items():
        mine = [r for r in rows if r["gamma"] == gamma]
        rates = sorted(distinct(mine, "rate"))
        shares = [np.mean([r["status"] == "reached" for r in where(mine, rate=q)]) for q in rates]
        left.plot(rates, shares, label="none, H once" if gamma is None else f"γ = {gamma:g}", **look)
    rates = sorted(distinct(tables["twice"], "rate"))
    shares = [np.mean([r["status"] == "reached" for r in where(tables["twice"], rate=q)]) for q in rates]
    left.plot(rates, shares, label="none, H twice", **CONTROLS[2])
    left.set(xscale="log", xlabel="drift of the stiffest direction per commit", ylim=(-0.03, 1.03))
    left.set_xticks(rates, [f"{q:g}" for q in rates])
    left.minorticks_off()
    left.set(ylabel="share of the runs that arrive", title="as-L-BFGS and the same without momentum")
    start = where(tables["rho"], start="from the prior", ratings=tables["rho"][0]["ratings"])
    for rho, look in zip(distinct(start, "rho"), (CONTROLS[1], *VARIANTS[1::2]), strict=False):
        steps = sorted(distinct(start, "h"))
        means = [column(where(start, rho=rho, h=h), "rmse").mean() for h in steps]
        right.plot(steps, means, label=f"ρ = {rho:g}", **look)
    right.set(xscale="log", xlabel="step h", ylabel="RMSE (gaps: a run diverged)", title="H + ρI")
    for axis in (left, right):
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    return {"remarks": figure}
