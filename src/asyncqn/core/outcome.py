"""Outcome: how a run ended, what that means, and whether it is a success.

Every other file decides success by this one.  It imports nothing heavy, because the command line needs it
early.  A member is also the string that saved runs, JSON and older programs use.
"""

from __future__ import annotations

import math
from enum import StrEnum

_ROUNDING = 10.0
"""Rounding error of U in units of eps |U|, as in `core.stopping`; a smaller rise is not significant."""


class Outcome(StrEnum):
    """The outcome of a run.

    Members are strings: `run.status == "converged"` holds, and JSON stores the word. `meaning` explains a
    member in one sentence.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Simulator(aq.Cluster(workers=4)))
    >>> run.status, run.status.meaning
    ('converged', 'The run reached its tolerance or its target.')
    """

    CONVERGED = "converged"
    COMPLETED = "completed"
    STOPPED = "stopped"
    STALLED = "stalled"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def meaning(self) -> str:
        """The outcome in one sentence."""
        return _MEANINGS[self]

    def is_success(self, exact: bool) -> bool:
        """Return whether the reported point is a result to use.

        Parameters
        ----------
        exact : bool
            Whether the method computes exact gradients.  It can tell that it has converged, so making all
            commits without that is no success.  A stochastic method cannot: it succeeds by making them all,
            unless `risen` makes that a divergence.
        """
        return self is Outcome.CONVERGED or (self is Outcome.COMPLETED and not exact)


_MEANINGS = {
    Outcome.CONVERGED: "The run reached its tolerance or its target.",
    Outcome.COMPLETED: "The run made all commits or passes that it was asked for, or its patience ran out.",
    Outcome.STOPPED: "The run ended at a limit, at the callback's wish, or without workers.",
    Outcome.STALLED: "No step lowers the objective any more, but the gradient is not small.",
    Outcome.DIVERGED: "The objective ended above its start, or the iterate is beyond bounds or not finite.",
    Outcome.INTERRUPTED: "Ctrl-C (SIGINT) ended the run.",
    Outcome.TERMINATED: "SIGTERM ended the run.",
}


def outcome_of(word: str) -> Outcome | None:
    """Return the outcome that a saved run names, or None where there is no such outcome."""
    # A file may hold any text, so that the word is looked up and not converted.
    return Outcome(word) if word in _MEANINGS else None


def risen(start: float, end: float, noise: float, eps: float) -> bool:
    """Return whether U ended above its start by more than rounding and noise explain.

    Only the noise that a sampler adds explains a rise.  An optimizer may not rise, not even by the noise of
    its minibatches: what was asked for was a lower U, and a level of noise that is computed from the run's
    own matrices would excuse the rise that a bad matrix caused.

    Parameters
    ----------
    start, end : float
        U at theta0 and at the point that the run reports.  An end that is not finite has risen.
    noise : float
        How far the noise that a sampler adds may lift U (`thermal_rise`); 0 for an optimizer.
    eps : float
        The precision of theta's numbers.  Rounding is 10 eps times the larger of |start| and |end|.
    """
    if not math.isfinite(end):
        return True
    rounding = _ROUNDING * eps * max(abs(start), abs(end))
    # U itself is known only to about eps |U|: a smaller rise may be rounding of the sum over rows.
    return end - start > rounding + noise


def thermal_rise(dim: int, temperature: float) -> float:
    """Return how far noise of this temperature, 1 / beta, may lift U above its start: "a few d / beta".

    At a minimum of a quadratic the stationary law of beta (U - U_min) is half a chi-squared variable with
    `dim` degrees of freedom.  All but 3 in 10,000 draws of one dimension, and more of several, lie within
    this.
    """
    # The mean of half a chi-squared variable is dim / 2, so this allows about three times the mean plus 5.
    return (1.5 * dim + 5.0) * temperature
