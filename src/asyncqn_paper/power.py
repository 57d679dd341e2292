"""Compute the power of every test: `python -m asyncqn_paper.power [FOLDER]`.

The power is the probability that a claim which is true to the extent that `rules` states passes its test, at
the error that the published runs have.  Claims without runs are computed and have no error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from asyncqn_paper.cells import Store
from asyncqn_paper.experiment import find
from asyncqn_paper.page import judged
from asyncqn_paper.rules import CLAIMS, HOLDS, POWER, power_of


def powers(store: Store) -> dict[str, tuple[float, float]]:
    """Return the error and the power of every claim that has runs."""
    table = {}
    for name, (_, outcomes, stated) in judged(find(), store).items():
        claim = CLAIMS[name]
        # Errors of the stated setting count where there is one.
        mine = outcomes if stated is None else [stated]
        # The error of a square grows with the square, and the power is asked where the claim is true.
        near = [o for o in mine if o.end == HOLDS] or mine
        errors = [o.error for o in near if np.isfinite(o.error) and o.error > 0.0]
        if errors and not claim.parts:
            error = float(np.median(errors))
            table[name] = (error, power_of(claim, error))
    return table


def main(folder: Path) -> int:
    """Print the table; the exit code is 1 if a test has too little power."""
    weak = 0
    for name, (error, power) in powers(Store(folder)).items():
        mark = "" if power >= POWER else f"  below {POWER}"
        weak += power < POWER
        print(f"{name:18} error {error:.3g}  power {power:.2f}{mark}")
    return int(weak > 0)


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:] or ["docs/results/tables"])))
