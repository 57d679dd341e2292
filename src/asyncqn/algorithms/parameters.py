"""The parameters that several algorithms share, described once each."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Counters, Rows

StepSize = Annotated[float, parameter(unit="1 / curvature", gt=0.0)]
BatchSize = Annotated[int, parameter(unit="rows", ge=1, le=2**31 - 1)]
Overlap = Annotated[int, parameter(unit="rows", ge=1, le=2**31 - 1)]
Sampling = Annotated[
    str,
    parameter(
        words="one of 'replacement', 'shuffled', 'blocks', or 'shards-8' for one of 8 shards per worker",
        pattern="^(replacement|shuffled|blocks|shards-0*[1-9][0-9]{0,17})$",
    ),
]

MemorySize = Annotated[int, parameter(ge=0, le=10_000)]
PairedMemorySize = Annotated[int, parameter(ge=1, le=10_000)]
Rho = Annotated[float, parameter(unit="1 / curvature", ge=0.0)]
Epsilon = Annotated[float, parameter(unit="curvature", gt=0.0)]
CosineFloor = Annotated[float, parameter(ge=0.0, lt=1.0)]
Scale = Annotated[float, parameter(unit="1 / curvature", gt=0.0)]
InitialScale = Literal["pair", "diagonal"] | Scale

CurvatureSize = Annotated[int, parameter(ge=1)]
Parts = Annotated[int, parameter(ge=1)]
Blocks = Annotated[int, parameter(ge=1)]
Pieces = Annotated[int, parameter(ge=1)]
BackupAfter = Annotated[float, parameter(gt=0.0, infinite=True)]


class OverlappingBatches(Checked):
    """Base of those whose workers keep `overlap` of the `batch` rows of a step for the pair of the next."""

    memory: int
    batch: int
    overlap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.overlap < self.batch,
            f"overlap must be an integer from 1 to batch - 1 = {self.batch - 1}, not {self.overlap}.",
        )

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        # The gradient on the previous overlap, which `learn` computes, counts as work of the same step.
        return np.full(
            read.size, self.batch + (self.overlap if self.memory else 0), np.int64
        )
