"""Which problems the paper's table can have been used on: a rule that looks at no time.

The paper prints d, N_Y, sigma_x^2, W and the step sizes, and says that the posterior is strongly correlated;
it does not print its rows a_i.  A candidate is consistent with that if

1. a-SGD's step is stable at the staleness of W equal workers: h lambda_max < 2 sin(pi / (2 (2 W - 1)));
2. a-SGD can arrive: the mean error that its gradient noise keeps up, (h / 4) tr C / U*, is at most epsilon
   (C: covariance of the stochastic gradient at the optimum);
3. mb-L-BFGS's first step, which has H = I, is stable: h lambda_max < 2;
4. as-L-BFGS's friction is below the same limit as in 1, and its step is stable with some H0 = c I that moves
   the weakest direction: h c^2 lambda_max 2 (W - 1) < gamma for c >= 0.1;
5. the posterior is strongly correlated: its largest correlation is at least 0.4, twice what 600 rows drawn
   independently show.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from asyncqn.lab import delay_limit
from asyncqn_paper.problems import PROBLEMS
from asyncqn_paper.records import Record
from asyncqn_paper.settings import N_OMEGA, PAPER

WORKERS, TARGET, CORRELATED, SMALLEST_SCALE = 40, 0.05, 0.4, 0.1


class Consistency(NamedTuple):
    """The numbers of the rule for one problem."""

    largest: float
    """lambda_max of the posterior precision."""
    floor: float
    """The mean relative error that a-SGD's noise keeps up."""
    correlation: float

    @property
    def objections(self) -> list[str]:
        """What of the paper contradicts this problem; empty for one that is consistent."""
        sgd, mb, langevin = (PAPER[kind] for kind in ("async-sgd", "mb-lbfgs", "as-lbfgs"))
        limit = delay_limit(WORKERS - 1)
        found = []
        if sgd["h"] * self.largest >= limit:
            found.append(f"a-SGD's step is unstable: h λ = {sgd['h'] * self.largest:.3f}, limit {limit:.3f}")
        if self.floor > TARGET:
            found.append(f"a-SGD's noise keeps the error at {self.floor:.3f}")
        if mb["h"] * self.largest >= 2.0:
            found.append(f"mb-L-BFGS's first step is unstable: h λ = {mb['h'] * self.largest:.1f}")
        if langevin["gamma"] >= limit or self.scale < SMALLEST_SCALE:
            found.append("as-L-BFGS's step is unstable")
        if self.correlation < CORRELATED:
            found.append(f"its largest posterior correlation is {self.correlation:.2f}")
        return found

    @property
    def scale(self) -> float:
        """The largest c of H0 = c I with which as-L-BFGS's step is stable without pairs."""
        given = PAPER["as-lbfgs"]
        return math.sqrt(given["gamma"] / (given["h"] * 2 * (WORKERS - 1) * self.largest))


@cache
def consistency(problem: str) -> Consistency:
    """The numbers of the rule."""
    model = PROBLEMS[problem].model()
    gradients = model.A * ((model.A @ model.optimum_theta - model.y) / model.noise_var)[:, None]
    spread = model.n_data**2 / N_OMEGA * float(gradients.var(axis=0).sum())
    return Consistency(
        largest=float(np.linalg.eigvalsh(model.precision)[-1]),
        floor=PAPER["async-sgd"]["h"] / 4.0 * spread / model.optimum,
        correlation=float(model.posterior_correlation()["largest"]),
    )


def candidates() -> list[Record]:
    """Every problem with the numbers of the rule, and what contradicts it."""
    rows = []
    for name in PROBLEMS:
        found = consistency(name)
        words = {"scale": found.scale, "objections": "; ".join(found.objections)}
        rows.append({"problem": name, **found._asdict(), **words})
    return rows


CONSISTENT = (
    "rows-alike-2",
    "rows-alike-8",
    "rows-alike-8-draw-1",
    "rows-alike-20",
    "five-directions-8",
    "five-directions-20",
    "fifty-directions-8",
    "five-weak-10",
    "five-weak-10-draw-1",
)
"""The candidates without objection; a test compares this list with the rule."""
