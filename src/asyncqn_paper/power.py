"""Compute the power of every test: `python -m asyncqn_paper.power [FOLDER]`.

The power is the probability that a claim which is true to the extent that `rules` states passes its test, at
the error that the published runs have.  Claims without runs are computed and have no error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from asyncqn_paper.catalogue import find
from asyncqn_paper.cells import Store
from asyncqn_paper.rules import CLAIMS, HOLDS, POWER, Outcome, power_of


def error_of(outcomes: list[Outcome]) -> float:
    """Return the standard error at which a claim is judged: that of its stated setting, or the median."""
    # The error of a square grows with the square, and the power is asked where the claim is true.
    near = [o for o in outcomes if o.end == HOLDS] or outcomes
    errors = [o.error for o in near if np.isfinite(o.error) and o.error > 0.0]
    return float(np.median(errors)) if errors else 0.0


def powers(folder: Path) -> dict[str, tuple[float, float]]:
    """Return the error and the power of every claim that has runs."""
    store = Store(folder, any_code=True)
    found: dict[str, list[Outcome]] = {}
    for experiment in find([]):
        stated = experiment.stated(store.get, True) if experiment.stated else []
        # Errors of the stated setting count where there is one.
        for name in {o.claim for o in stated}:
            found[name] = [o for o in stated if o.claim == name]
        for outcome in experiment.outcomes(store.get, True):
            if outcome.claim not in {o.claim for o in stated}:
                found.setdefault(outcome.claim, []).append(outcome)
    table = {}
    for name, claim in CLAIMS.items():
        error = error_of(found.get(name, []))
        if error and not claim.parts:
            table[name] = (error, power_of(claim, error))
    return table


def main(folder: Path) -> int:
    """Print the table; the exit code is 1 if a test has too little power."""
    weak = 0
    for name, (error, power) in powers(folder).items():
        mark = "" if power >= POWER else f"  below {POWER}"
        weak += power < POWER
        print(f"{name:18} error {error:.3g}  power {power:.2f}{mark}")
    return int(weak > 0)


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:] or ["docs/results/tables"])))
