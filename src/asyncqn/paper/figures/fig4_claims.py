"""The claims of Fig. 4: four statements for every set of ratings and setting, judged from its tables."""

from __future__ import annotations

import math

import numpy as np

from asyncqn.paper.controls import accepted_words
from asyncqn.paper.experiment import UNTESTABLE, Claim, Tables, verdict
from asyncqn.paper.movielens import label
from asyncqn.paper.records import Record, column, distinct, where
from asyncqn.paper.settings import NAMES

WORKERS = 10
SETTINGS = {"paper": "the paper's parameters", "tuned": "tuned"}


def claims(tables: Tables) -> list[Claim]:
    """Four statements for every set of ratings and setting."""
    found = []
    for name in distinct(tables["curves"], "ratings"):
        for setting in SETTINGS:
            rows = where(tables["curves"], ratings=name, setting=setting)
            words = words_of(tables, setting, name)
            control = where(tables.get("controls", []), ratings=name, setting=setting)
            found += _four(rows, f"{label(name)}, {words}, W = {WORKERS}, time from measured steps", control)
    names = distinct(tables["curves"], "ratings")
    missing = ", ".join(s for s in ("1m", "10m", "20m") if not any(n.endswith(f"-{s}") for n in names))
    if missing:
        because = "run with --full, which takes the larger sets too"
        found.append(Claim("the same holds on the larger sets", missing, UNTESTABLE, because))
    return found


def words_of(tables: Tables, setting: str, name: str) -> str:
    """The setting, with the set that it was tuned on where that is another."""
    used = where(tables["parameters"], setting=setting, ratings=label(name))
    origin = used[0]["tuned on"] if used else None
    return SETTINGS[setting] + (f" on {origin}" if origin not in (None, label(name)) else "")


def _four(rows: list[Record], words: str, control: list[Record]) -> list[Claim]:
    curves = {kind: where(rows, algorithm=kind) for kind in NAMES}
    end = max(column(curve, "time")[-1] for curve in curves.values())
    final = {kind: _final(curve) for kind, curve in curves.items()}
    sgd, mb, as_ = (final[kind] for kind in ("async-sgd", "mb-lbfgs", "as-lbfgs"))
    at = f"RMSE after {end:.2f} s: " + ", ".join(
        f"{NAMES[kind]} {final[kind]:.3f}" if math.isfinite(final[kind]) else f"{NAMES[kind]} diverged"
        for kind in ("as-lbfgs", "mb-lbfgs", "async-sgd")
    )
    pairs = accepted_words(curves["as-lbfgs"])
    at += f"; {pairs}" if pairs else ""
    at += f"; with M = 0 it ends at {_final(control):.3f}" if control else ""
    text = "as-L-BFGS is clearly faster than mb-L-BFGS"
    if math.isfinite(mb):
        share = _first(curves["as-lbfgs"], mb) / end
        sooner = f"as-L-BFGS gets to mb-L-BFGS's last RMSE in {share:.2f} of its time"
        because = f"{at}; {sooner if math.isfinite(share) else 'it never gets to that of mb-L-BFGS'}"
        first = Claim(text, words, verdict(share < 0.67 and as_ < mb - 0.005, as_ < mb), because)
    else:
        first = Claim(text, words, UNTESTABLE, at)
    tail = column(curves["mb-lbfgs"], "rmse")
    falling = float(tail[-1 - len(tail) // 5] - tail[-1])
    share = falling / float(tail[0] - tail[-1]) if tail[0] > tail[-1] else math.inf
    settled = f"{at}; {100 * share:.0f} % of mb-L-BFGS's fall were in the last fifth of its run"
    # Poor for good, not only late: a run that has settled makes little of its fall at the end.
    poorer = verdict(mb > max(as_, sgd) and share < 0.05, mb > min(as_, sgd))
    commits = min(column(curves[kind], "commit")[-1] for kind in ("async-sgd", "as-lbfgs"))
    even = {
        kind: float(np.interp(commits, column(curves[kind], "commit"), column(curves[kind], "rmse")))
        for kind in ("async-sgd", "as-lbfgs")
    }
    ahead = even["async-sgd"] - even["as-lbfgs"]
    equal = f"{at}; after {commits:.0f} iterations {even['as-lbfgs']:.3f} against {even['async-sgd']:.3f}"
    rough = {kind: _roughness(curves[kind]) for kind in ("async-sgd", "as-lbfgs")}
    jitter = ", ".join(f"{NAMES[kind]} {100 * value:.2f} %" for kind, value in rough.items())
    more = rough["as-lbfgs"] / rough["async-sgd"]
    return [
        first,
        Claim("mb-L-BFGS ends with a poorer RMSE than both", words, poorer, settled),
        Claim("as-L-BFGS gains slightly on a-SGD", words, verdict(0 < sgd - as_ < 0.1, ahead > 0), equal),
        Claim(
            "as-L-BFGS fluctuates more than a-SGD",
            words,
            verdict(more > 1.2, more > 1.0),
            f"jitter of the gradient norm around its trend in the second half: {jitter}",
        ),
    ]


def _final(curve: list[Record]) -> float:
    """The last RMSE; infinite for a run that diverged."""
    last = curve[-1]["rmse"]
    return math.inf if curve[-1]["diverged"] or last is None else float(last)


def _first(curve: list[Record], level: float) -> float:
    """When the RMSE first was at most `level`."""
    hit = np.flatnonzero(column(curve, "rmse") <= level)
    return float(curve[int(hit[0])]["time"]) if hit.size else math.inf


def _roughness(rows: list[Record]) -> float:
    """Relative jitter of the gradient norm: third differences leave out a smooth trend, and the factor
    sqrt(20) is what they make of independent noise."""
    norms = np.log(column(rows, "grad_norm"))[len(rows) // 2 :]
    return float(np.sqrt(np.mean(np.diff(norms, 3) ** 2) / 20.0)) if norms.size > 3 else math.nan
