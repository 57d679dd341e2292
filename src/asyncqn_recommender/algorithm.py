"""The algorithm of a fit: stale-free L-BFGS in a fixed order of sums, on any number of threads."""

from __future__ import annotations

import math
from typing import Any

from asyncqn import StagedLBFGS

_PER_ITEM = 8
"""The fewest ratings for every item in a block of a batch, where a batch is cut at all."""
STEP_BLOCKS = 8
"""Blocks of a pass in step, however many workers there are."""


def in_step_algorithm(problem: Any, ratings_per_item: float = math.inf) -> StagedLBFGS:
    """Return the algorithm of a fit, whose result does not depend on the number of workers.

    One pass of warm-up in 16 batches, fewer where that leaves less than 8 points each, then passes in eight
    blocks.  An update costs time for every item besides that for its ratings, so a batch is cut into no more
    blocks, up to eight, than leave each about eight ratings for every item.
    """
    n = int(problem.n_data)
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
