"""The parameters that several algorithms share, described once each."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Counters, Problem, Rows

StepSize = Annotated[float, parameter("Step size for the sum U", unit="1 / curvature", gt=0.0)]
BatchSize = Annotated[
    int, parameter("N_Omega: rows of a stochastic gradient", unit="rows", ge=1, le=2**31 - 1)
]
Overlap = Annotated[
    int, parameter("N_O: rows of a batch that the next pair uses, too", unit="rows", ge=1, le=2**31 - 1)
]
Sampling = Annotated[
    str,
    parameter(
        "How rows are drawn: see `core.streams.SAMPLING`",
        words="one of 'replacement', 'shuffled', 'blocks', or 'shards-8' for one of 8 shards per worker",
        pattern="^(replacement|shuffled|blocks|shards-0*[1-9][0-9]{0,17})$",
    ),
]
ByScatter = Annotated[bool, parameter("Whether to take steps in the metric of `algorithms.scatter`")]

MemorySize = Annotated[int, parameter("M: the most curvature pairs in a memory", ge=0, le=10_000)]
PairedMemorySize = Annotated[int, parameter("M: the most curvature pairs in the memory", ge=1, le=10_000)]
Rho = Annotated[float, parameter("rho of H + rho I", unit="1 / curvature", ge=0.0)]
Epsilon = Annotated[
    float, parameter("The least s'y / |s|^2 of a pair: the cautious rule", unit="curvature", gt=0.0)
]
CosineFloor = Annotated[float, parameter("The least cosine of the angle between s and y", ge=0.0, lt=1.0)]
Scale = Annotated[float, parameter("c of H0 = c I", unit="1 / curvature", gt=0.0)]
InitialScale = Annotated[
    Literal["pair", "diagonal"] | Scale,
    parameter(
        "H0: 'pair' is (s'y / y'y) I of the newest pair, and I before there is one; a number c is c I; "
        "'diagonal' is 1 / curvature_diagonal(theta0) of the problem"
    ),
]

CurvatureSize = Annotated[int, parameter("The problem's `curvature_size`", ge=1)]
Parts = Annotated[int, parameter("Into how many parts the rows are cut", ge=1)]
Blocks = Annotated[int, parameter("Into how many blocks the rows are cut, best as many as workers", ge=1)]
Pieces = Annotated[int, parameter("Into how many pieces a block is cut, for others to help with", ge=1)]
BackupAfter = Annotated[
    float,
    parameter("How late a block is before others compute it, too: see `core.stages`", gt=0.0, infinite=True),
]


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

    def check(self, problem: Problem) -> None:
        pass

    def rows_of(self, n_data: int, read: Counters, part: Counters) -> Rows:
        return np.full(read.size, self.batch + (self.overlap if self.memory else 0), np.int64)
