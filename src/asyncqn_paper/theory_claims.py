"""What the tables of the theory say: its figures, and the outcomes of its claims."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncqn_paper.claims import Outcome, outcome
from asyncqn_paper.drawing import CONTROLS, STYLES, VARIANTS, few_decades, panels
from asyncqn_paper.experiment import Tables
from asyncqn_paper.records import Record, column, distinct, where

MEMORIES = {0: "H = I", 3: "pairs on, M = 3"}


class Study(NamedTuple):
    """One quantity that is varied: the claim it is about, its words on an axis, the slope of the bound."""

    claim: str
    words: str
    bound: float
    equal: bool
    """Whether the slope itself is claimed; else the bound is an upper one, and a gentler slope agrees."""


STUDIES = {
    "N": Study("ergodic", "iterations N", -1.0, True),
    "h": Study("bias", "step h of the SDE", 1.0, False),
    "l": Study("staleness", "workers W", 1.0, False),
    "beta": Study("temperature", "inverse temperature β", -1.0, True),
    "rate": Study("rate", "N, with h = 2/√N", -0.5, False),
}


def draw(tables: Tables) -> dict[str, Any]:
    """Six panels of the bound, and the law of the SDE with and without its correction."""
    return {"theory": _draw_bound(tables), "theory_law": _draw_law(tables["sde"])}


def _draw_bound(tables: Tables) -> Any:
    figure, axes = panels(2, 3, width=3.2, height=2.5)
    for axis, (name, study) in zip(axes.flat, STUDIES.items(), strict=False):
        titles = []
        for look, (memory, words) in zip((CONTROLS[1], VARIANTS[3]), MEMORIES.items(), strict=True):
            rows = where(tables["slopes"], study=name, memory=memory)
            x, y = column(rows, "x"), column(rows, "error")
            axis.loglog(x, y, label=words, **{**look, "markevery": 1 if len(x) < 10 else 4})
            end = -1 if study.bound < 0 else 0
            axis.loglog(x, y[end] * (x / x[end]) ** study.bound, color="black", linestyle=":", linewidth=0.9)
            titles.append(f"{rows[0]['slope']:.2f} ± {rows[0]['standard error']:.2f}")
        axis.set(xlabel=study.words, ylabel="ergodic error")
        axis.set_title(f"slopes {titles[0]} and {titles[1]}\n(bound {study.bound:g})", fontsize=8)
        if len(x) < 10:
            axis.set_xticks(x, [f"{value:g}" for value in x])
            axis.minorticks_off()
        few_decades(axis)
    axis = axes[1][2]
    for look, N in zip(CONTROLS, distinct(tables["speedup"], "N"), strict=False):
        rows = where(tables["speedup"], N=N)
        product = np.maximum(column(rows, "l_max N h²"), 0.005)
        axis.semilogx(product, column(rows, "ratio"), label=f"N = {N}", **look)
    axis.set(xlabel=r"$l_{max} N h^2$", ylabel="error over that of W = 1")
    axis.set_title("region of linear speedup, H = I", fontsize=8)
    axis.legend(fontsize=7)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _draw_law(sde: list[Record]) -> Any:
    warm = where(sde, beta=1.0)
    figure, axes = panels(1, len(distinct(warm, "dimensions")), width=4.0, height=3.0, sharey=True)
    for axis, dimensions in zip(axes[0], distinct(warm, "dimensions"), strict=True):
        mine = where(warm, dimensions=dimensions)
        for corrected, words, look in ((True, "with Γ", VARIANTS[3]), (False, "without Γ", CONTROLS[1])):
            for k, what in enumerate(distinct(mine, "what")):
                rows = where(mine, corrected=corrected, what=what)
                own = {**look, "linestyle": STYLES[k]["linestyle"], "marker": STYLES[k]["marker"]}
                h, ratio, spread = (column(rows, name) for name in ("h", "ratio", "spread"))
                axis.errorbar(h, ratio, 2.0 * spread, label=f"{words}, {what}", **own)
        for row in where(mine, corrected=False, h=mine[0]["h"]):
            if row["without"] is not None:
                axis.axhline(row["without"], color=CONTROLS[1]["color"], linestyle=":", linewidth=0.9)
        axis.axhline(1.0, color="black", linestyle=":", linewidth=0.9)
        pairs = "1 pair" if dimensions == "1" else f"{dimensions} pairs"
        axis.set(xlabel="step h of the SDE", title=f"d = {dimensions}, H(θ) of {pairs}", xlim=(0, None))
        axis.locator_params(axis="x", nbins=5)
        axis.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    axes[0][0].set_ylabel("mean over that of exp(−βU)")
    return figure


def outcomes(tables: Tables) -> list[Outcome]:
    """Bounds are upper bounds: a slope that is gentler than the bound's in h and l is no contradiction."""
    found = []
    for name, study in STUDIES.items():
        for memory, words in MEMORIES.items():
            row = where(tables["slopes"], study=name, memory=memory)[0]
            b, bound = row["slope"], row["bound"]
            allowed = 0.15 + 2.0 * row["standard error"]
            holds = abs(b - bound) < allowed if study.equal else b < bound + allowed
            because = f"fitted slope {b:.2f} ± {row['standard error']:.2f}, the bound's {bound:g}"
            if name == "beta" and memory:
                because += f"; {_cost(tables['sde'])}"
            found.append(outcome(study.claim, f"quadratic, {words}", holds, because))
    found += _law_outcomes(tables)
    inside = [r for r in tables["speedup"] if r["l_max N h²"] <= 0.5]
    outside = [r for r in tables["speedup"] if r["l_max N h²"] > 2.0]
    worst = max(r["ratio"] for r in inside)
    because = f"error over that of W = 1: at most {worst:.2f} while l_max N h² ≤ 0.5"
    if outside:
        because += f", up to {max(r['ratio'] for r in outside):.2f} where it exceeds 2"
    return [*found, outcome("linear-speedup", "quadratic, H = I", worst < 1.25, because)]


def _law_outcomes(tables: Tables) -> list[Outcome]:
    found = []
    for W in distinct(tables["law"], "workers"):
        mine = where(tables["law"], workers=W)
        theta, p = column(where(mine, what="theta"), "ratio"), column(where(mine, what="p"), "ratio")[0]
        allowed, h = mine[0]["allowed"], mine[0]["h"]
        because = (
            f"variances over those of exp(−βU − βp²/2): θ {theta.min():.2f} to {theta.max():.2f}, p {p:.2f} "
            f"(h = {h:g}; 1/(1 − 2 l h λ) = {allowed:.2f} at the largest curvature)"
        )
        holds = min(theta.min(), p) > 0.85 and max(theta.max(), p) < 1.15 * allowed
        found.append(outcome("law", f"as-L-BFGS, H = I, where Γ vanishes, W = {W}", bool(holds), because))
    warm = where(tables["sde"], beta=1.0)
    finest = min(distinct(warm, "h"))
    for dimensions in distinct(warm, "dimensions"):
        ends = {c: where(warm, dimensions=dimensions, corrected=c, h=finest) for c in (True, False)}
        setting = f"the SDE with an L-BFGS matrix H(θ), d = {dimensions}"
        words = {
            c: "means over those of exp(−βU): "
            + ", ".join(f"{r['what']} {r['ratio']:.2f} ± {r['spread']:.2f}" for r in rows)
            + f" at h = {finest:g}"
            for c, rows in ends.items()
        }
        near = all(abs(r["ratio"] - 1.0) < finest + 3.0 * r["spread"] for r in ends[True])
        found.append(outcome("law", f"{setting}, with Γ", near, words[True]))
        far = any(abs(r["ratio"] - 1.0) > finest + 5.0 * r["spread"] for r in ends[False])
        known = [r for r in ends[False] if r["without"] is not None]
        if known:
            words[False] += "; exp(−βU)/H predicts " + ", ".join(
                f"{r['what']} {r['without']:.2f}" for r in known
            )
            far = far and all(abs(r["ratio"] - r["without"]) < finest + 3.0 * r["spread"] for r in known)
        found.append(outcome("law-needs-gamma", f"{setting}, without Γ", far, words[False]))
    return found


def _cost(sde: list[Record]) -> str:
    """What leaving out Gamma changes in E U, warm and cold."""
    at = {}
    for beta in distinct(sde, "beta"):
        rows = where(sde, beta=beta, corrected=False, what="U", dimensions="2")
        row = min(rows, key=lambda r: float(r["h"]))
        at[beta] = f"{(row['ratio'] - 1.0) * row['law']:+.2g} at β = {beta:g}"
    return f"in the SDE, leaving out Γ changes E U by {', '.join(at.values())}"
