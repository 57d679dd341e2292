"""The parameters that several algorithms share, described once each."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Checked, parameter
from asyncqn.types import Counters, Problem, Rows

StepSize = Annotated[
    float, parameter("Step size for the sum U", unit="1 / curvature", gt=0.0)
]
BatchSize = Annotated[
    int,
    parameter(
        "N_Omega: rows of a stochastic gradient", unit="rows", ge=1, le=2**31 - 1
    ),
]
Overlap = Annotated[
    int,
    parameter(
        "N_O: rows of a batch that the next pair uses again",
        unit="rows",
        ge=1,
        le=2**31 - 1,
    ),
]
Sampling = Annotated[
    str,
    parameter(
        "How rows are drawn: independently, in shuffled passes, in passes over blocks, or from a shard",
        words="one of 'replacement', 'shuffled', 'blocks', or 'shards-8' for one of 8 shards per worker",
        pattern="^(replacement|shuffled|blocks|shards-0*[1-9][0-9]{0,17})$",
    ),
]
ByScatter = Annotated[
    bool, parameter("Whether steps are scaled by the scatter of the updates")
]

MemorySize = Annotated[
    int, parameter("M: largest number of curvature pairs in a memory", ge=0, le=10_000)
]
PairedMemorySize = Annotated[
    int,
    parameter("M: largest number of curvature pairs in the memory", ge=1, le=10_000),
]
Rho = Annotated[
    float,
    parameter(
        "Multiple of the identity that is added to H", unit="1 / curvature", ge=0.0
    ),
]
Epsilon = Annotated[
    float,
    parameter("Cautious rule: least s'y / |s|^2 of a pair", unit="curvature", gt=0.0),
]
CosineFloor = Annotated[
    float, parameter("Least cosine of the angle between s and y", ge=0.0, lt=1.0)
]
Scale = Annotated[float, parameter("c of H0 = c I", unit="1 / curvature", gt=0.0)]
InitialScale = Annotated[
    Literal["pair", "diagonal"] | Scale,
    parameter(
        "H0: 'pair' is (s'y / y'y) I of the newest pair, and I before there is one; a number c is c I; "
        "'diagonal' is 1 / curvature_diagonal(theta0) of the problem"
    ),
]

CurvatureSize = Annotated[int, parameter("The problem's `curvature_size`", ge=1)]
Parts = Annotated[int, parameter("Number of parts into which the rows are cut", ge=1)]
Blocks = Annotated[
    int,
    parameter(
        "Number of blocks into which the rows are cut; best is the number of workers",
        ge=1,
    ),
]
Pieces = Annotated[
    int,
    parameter(
        "Number of pieces into which a block is cut, so that idle workers can help",
        ge=1,
    ),
]
BackupAfter = Annotated[
    float,
    parameter(
        "How many usual durations late a block is before idle workers compute it too",
        gt=0.0,
        infinite=True,
    ),
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
        # The gradient on the previous overlap, which `learn` computes, counts as work of the same step.
        return np.full(
            read.size, self.batch + (self.overlap if self.memory else 0), np.int64
        )
