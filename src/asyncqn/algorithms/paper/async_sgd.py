"""a-SGD: asynchronous SGD with consistent reads (Lian, Huang, Li, Liu 2015).

A worker computes d_theta = -h g on a fresh Omega at the theta it received; the master adds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncqn.algorithms.parameters import BatchSize, Sampling, StepSize
from asyncqn.algorithms.stochastic_gradient import StochasticGradient
from asyncqn.parameters import checked
from asyncqn.published import SETTINGS, PaperName, PaperRows
from asyncqn.types import Problem


@dataclass(frozen=True)
class AsyncSGD(StochasticGradient):
    """Asynchronous SGD: the master adds each worker's gradient step as it arrives.

    Parameters
    ----------
    h : float
        Step size for the sum U, in units of 1 / curvature; docs/guide/step-size.md searches for one.
    batch : int
        N_Omega: rows of one stochastic gradient.
    sampling : str, default "replacement"
        How a worker draws its rows. "replacement" draws independent rows, as in the paper. "shuffled" makes
        passes over the data, each in a random order of the worker's own. "blocks" makes passes over blocks of
        consecutive rows, in random order. "shards-K" draws independent rows of the worker's own shard, one of
        K.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> algorithm = aq.AsyncSGD(h=1e-4, batch=20)
    >>> run = aq.minimize(problem, algorithm, engine=aq.Simulator(aq.Cluster(workers=4)), commits=300)
    >>> run.success and run.fun < problem.value(run.theta0)
    True
    """

    h: StepSize
    batch: BatchSize
    sampling: Sampling = "replacement"

    @classmethod
    @checked
    def from_paper(cls, name: PaperName, n_data: PaperRows = None) -> AsyncSGD:
        """Return a-SGD with the numbers of the paper's table.

        Parameters
        ----------
        name : "linear-gaussian", "ml-1m", "ml-10m" or "ml-20m"
            The experiment.
        n_data : int, optional
            Observations N_Y, of which a batch has a hundredth; None: those of the paper.

        Returns
        -------
        AsyncSGD
            Where the paper is silent, with our defaults.

        Examples
        --------
        >>> import asyncqn as aq
        >>> algorithm = aq.AsyncSGD.from_paper("linear-gaussian")
        >>> algorithm.h, algorithm.batch
        (0.001, 6)
        """
        return cls(**SETTINGS[name].parameters("async-sgd", n_data))

    @classmethod
    def example(cls, problem: Problem) -> AsyncSGD:
        """Small parameters that run on `LinearGaussian.example`, for tests."""
        return cls(h=1e-5, batch=10)
