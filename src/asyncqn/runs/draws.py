"""Draws: the iterates that a run stored, for analysing it as a sampler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.request import Request
from asyncqn.errors import BadInput, require
from asyncqn.storage.growing import GrowingRows


@dataclass(frozen=True, eq=False)
class Draws:
    """Every k-th iterate of a run.

    Attributes
    ----------
    every : int
        k: commits between two stored iterates.
    theta : ndarray of shape (n, dim)
        Row i is the iterate after commit (i + 1) * every. Beyond 256 MB it is a memory-mapped file.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
    >>> engine = aq.Simulator(aq.Cluster(workers=2))
    >>> run = aq.minimize(problem, aq.SGLD(h=1e-3, beta=1.0, batch=30), engine=engine, commits=50, keep=5)
    >>> run.keep.theta.shape, run.keep.commit[:3].tolist(), type(run.keep).__name__
    ((10, 3), [5, 10, 15], 'Draws')
    """

    every: int
    theta: npt.NDArray[Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def commit(self) -> npt.NDArray[np.int64]:
        """The commit after which each iterate was stored."""
        return self.every * np.arange(1, len(self) + 1)

    def to_arviz(self, *others: Draws, burn_in: int = 0) -> Any:
        """Return these draws, and those of other runs, as the chains of an ArviZ data tree.

        It needs the extra `arviz`.

        Parameters
        ----------
        *others : Draws
            Draws of the same problem, best with other seeds.
        burn_in : int, default 0
            Number of draws at the start of each chain that are left out.

        Returns
        -------
        xarray.DataTree
            The chains in the group "posterior", cut to the length of the shortest.

        Examples
        --------
        >>> import asyncqn as aq
        >>> problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)
        >>> def chain(seed):
        ...     engine, method = aq.Simulator(aq.Cluster(workers=1)), aq.SGLD(h=1e-3, beta=1.0, batch=30)
        ...     return aq.minimize(problem, method, engine=engine, commits=60, keep=2, seed=seed).keep
        >>> tree = chain(0).to_arviz(chain(1), chain(2), burn_in=10)
        >>> dict(tree["posterior"].sizes)
        {'chain': 3, 'draw': 20, 'theta_dim': 3}
        """
        try:
            from arviz_base import from_dict
        except ImportError:
            raise BadInput(
                "to_arviz needs ArviZ: pip install 'asyncqn[arviz]'."
            ) from None
        chains = (self, *others)
        require(
            all(
                isinstance(draws, Draws) and draws.theta.shape[1] == self.theta.shape[1]
                for draws in chains
            ),
            "the chains must be the draws of runs of one problem, as in run.keep.to_arviz(other.keep).",
        )
        # ArviZ needs a rectangular array; chains of one run may differ by a draw.
        shortest = min(map(len, chains))
        require(
            0 <= burn_in < shortest,
            f"burn_in must be at least 0 and below the shortest chain ({shortest} draws), not {burn_in!r}.",
        )
        # The stack is a copy in memory of draws that may be memory maps.
        theta = np.stack([draws.theta[burn_in:shortest] for draws in chains])
        return from_dict(
            {"posterior": {"theta": theta}},
            dims={"theta": ["theta_dim"]},
            coords={"draw": self.commit[burn_in:shortest]},
        )


def rows_to_keep(request: Request) -> GrowingRows | None:
    """Return an empty store for the iterates that a run is to keep, or None where it keeps none."""
    theta0 = request.theta0
    return None if request.keep is None else GrowingRows(theta0.size, theta0.dtype)
