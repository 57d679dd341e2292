"""Is the quasi-Newton part on?  The share of accepted pairs, and the same run without any (M = 0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncqn_paper.records import Record, column, distinct, summary, where


def without_pairs(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The control: the same parameters with M = 0, so that H stays H0.  What admits pairs is left out: runs
    that differ in it alone are one."""
    kept = {name: value for name, value in parameters.items() if name not in ("epsilon", "cosine_floor")}
    return {**kept, "memory": 0}


def accepted_words(rows: Sequence[Record]) -> str:
    """How many of the offered pairs were accepted, in the mean of the runs that say so."""
    known = [r for r in rows if r.get("pairs") is not None]
    if not known:
        return ""
    percent = 100 * float(column(known, "pairs").mean())
    shown = f"{percent:.0f}" if percent >= 1 else f"{percent:.2g}"
    return f"{shown} % of its pairs are accepted"


def control_words(rows: Sequence[Record], controls: Sequence[Record]) -> str:
    """The share of accepted pairs of as-L-BFGS, and the times of the same with M = 0."""
    runs = where(rows, algorithm="as-lbfgs")
    words = accepted_words(runs)
    times = [_number(summary(where(controls, variance=v), "time")[0]) for v in distinct(controls, "variance")]
    words += f"; with M = 0 it takes {', '.join(times)}" if times else ""
    return f"; {words}" if words else ""


def _number(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "(not reached)"
