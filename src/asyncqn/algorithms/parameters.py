"""The parameters that several algorithms share, described once each."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Checked, checked, parameter
from asyncqn.published import SETTINGS, PaperName, PaperRows
from asyncqn.types import Counters, Rows

StepSize = Annotated[float, parameter(gt=0.0)]
BatchSize = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Overlap = Annotated[int, parameter(ge=1, le=2**31 - 1)]
Sampling = Annotated[
    str,
    parameter(
        words="one of 'replacement', 'shuffled', 'blocks', or 'shards-8' for one of 8 shards per worker",
        pattern="^(replacement|shuffled|blocks|shards-0*[1-9][0-9]{0,17})$",
    ),
]

MemorySize = Annotated[int, parameter(ge=0, le=10_000)]
PairedMemorySize = Annotated[int, parameter(ge=1, le=10_000)]
Rho = Annotated[float, parameter(ge=0.0)]
Epsilon = Annotated[float, parameter(gt=0.0)]
CosineFloor = Annotated[float, parameter(ge=0.0, lt=1.0)]
Scale = Annotated[float, parameter(gt=0.0)]
InitialScale = Literal["pair", "diagonal"] | Scale
Beta = Annotated[float, parameter(gt=0.0, infinite=True)]

Parts = Annotated[int, parameter(ge=1)]
Blocks = Annotated[int, parameter(ge=1)]
Pieces = Annotated[int, parameter(ge=1)]
BackupAfter = Annotated[float, parameter(gt=0.0, infinite=True)]


class Published:
    """Base of the paper's three algorithms: their numbers in its tables."""

    published: str
    """Name of the algorithm in `asyncqn.published`."""

    @classmethod
    @checked
    def from_paper(cls, name: PaperName, n_data: PaperRows = None) -> Self:
        """Return the algorithm with the numbers of the paper's table.

        Parameters
        ----------
        name : "linear-gaussian", "ml-1m", "ml-10m" or "ml-20m"
            The experiment. Timeouts of MovieLens are in seconds, as the clocks of real engines are.
        n_data : int, optional
            Observations N_Y, of which a batch has a hundredth; None: those of the paper.

        Returns
        -------
        algorithm
            Where the paper is silent, with our defaults (H0, the cautious constant, the quorum).

        Notes
        -----
        With these defaults as-L-BFGS diverges on the draw of `LinearGaussian.random()`: the paper publishes
        neither its draw nor its H0.  `cosine_floor` and `initial_scale` tame the pairs.

        Examples
        --------
        >>> import asyncqn as aq
        >>> algorithm = aq.ASLBFGS.from_paper("linear-gaussian")
        >>> algorithm.h, algorithm.gamma, algorithm.beta, algorithm.memory, algorithm.batch, algorithm.overlap
        (0.0004, 0.03, 500.0, 3, 6, 2)
        """
        return cls(**SETTINGS[name].parameters(cls.published, n_data))


class OverlappingBatches(Checked):
    """Base of those whose workers keep `overlap` of the `batch` rows of a step for the pair of the next.

    Parameters
    ----------
    memory : int
        M: largest number of curvature pairs in the memory.
    batch : int
        N_Omega: rows of one stochastic gradient.
    overlap : int
        N_O: rows of a batch that are used again for the next curvature pair; less than `batch`.
    rho : float, default 0.0
        Multiple of the identity that is added to H, in units of 1 / curvature.
    epsilon : float, default 0.0001
        Cautious rule: a pair is accepted where s'y >= epsilon |s|^2, in units of curvature. The default is
        our own choice: where gradients contain a prior, an epsilon below its curvature rejects nothing.
    initial_scale : "pair", "diagonal" or float, default "pair"
        The initial inverse H0. "pair" is (s'y / y'y) I of the newest pair, and I before there is one; a
        number c is c I; "diagonal", of as-L-BFGS alone, is 1 / curvature_diagonal(theta0) of the problem.
    cosine_floor : float, default 0.0
        A pair is accepted where the cosine of the angle between s and y is at least this; our own addition.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.
    """

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
