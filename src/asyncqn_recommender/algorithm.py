"""The algorithm of a fit: L-BFGS without staleness and with a fixed order of sums, on any number of
threads."""

from __future__ import annotations

import math
from typing import Any

from asyncqn import StagedLBFGS

_PER_ITEM = 8
"""Smallest number of ratings per item in a block, if a batch is cut into blocks at all."""
STEP_BLOCKS = 8
"""Blocks of a pass, whatever the number of workers: the sums then have the same order everywhere."""


def in_step_algorithm(problem: Any, ratings_per_item: float = math.inf) -> StagedLBFGS:
    """Return the algorithm of a fit, whose result does not depend on the number of workers.

    The warm-up is one pass in 16 batches, fewer if these had less than 8 points each; passes in eight blocks
    follow. An update takes time for every item besides that for its ratings, so a batch is cut into as many
    blocks, up to eight, as leave each block about eight ratings per item.
    """
    n = int(problem.n_data)
    # Data points are users here, not ratings.
    batches = max(1, min(16, n // 8))
    most = min(STEP_BLOCKS, n, ratings_per_item / (_PER_ITEM * batches))
    return StagedLBFGS(
        batches=batches,
        warmup=batches if batches >= 4 else 0,
        blocks=min(STEP_BLOCKS, n),
        curvature=int(problem.curvature_size),
        in_step=True,
        batch_blocks=max(1, int(most)),
    )
