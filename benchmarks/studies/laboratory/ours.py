"""Our methods, with the parameters that their own rules choose for a problem and a cluster."""

from __future__ import annotations

import math
from typing import Any

import asyncqn as aq
from asyncqn.algorithms.defaults import default_algorithm, pieces_of_a_block


def our_methods(
    model: Any, workers: int, message: float, master: float = 0.1
) -> dict[str, Any]:
    """Return our methods by name; message and master are costs in units of a row's gradient.

    `default` is what `minimize` chooses where it may wait; `metric`, `difference` and `staged` are there
    where they are what it chooses.
    """
    pieces = pieces_of_a_block(model.dim, model.n_data, workers)
    least = max(1000, 10 * model.dim, 100 * workers)
    levels = max(1, min(4, int(math.log(max(model.n_data / least, 4.0), 4))))
    memory = 100 if model.dim <= 1000 else 20
    few = max(1, min(pieces, model.n_data // 4**levels // workers // 3))
    return {
        "table": aq.table_algorithm(model, workers, message, master),
        "default": default_algorithm(model, workers, message=message, master=master),
        "growing": aq.GrowingLBFGS(workers, levels, memory=memory, pieces=few),
        "growing by scatter": aq.GrowingLBFGS(
            workers, levels, pieces=few, initial_scale="scatter"
        ),
        "block": aq.BlockLBFGS(min(workers, model.n_data), memory, pieces=pieces),
    }
