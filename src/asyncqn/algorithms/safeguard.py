"""The safeguard of methods with exact gradients: which trial is accepted, what follows a failure, the end.

`base` is the last accepted point, theta = base + s the current trial, g the exact gradient at both.  With

    a = g(base)'s,  b = g(theta)'s                        the slopes at both ends
    rise = U(theta) - U(base)                             (a + b) / 2 where rounding hides it
    accept theta if  U(base) + rise <= max(U of the last accepted points) + 1e-4 a

an accepted trial becomes the base, and the next trial is base - H g(base).  After a failure the next trial
starts from the same base: at first with the new pair in H, if U along s was nearly a quadratic, that is if
rise is near (a + b) / 2, so that no misleading pair enters H; then along s, shrinking.

Its states, and what leads from one to the next:

- START: no point was accepted yet; the first that is finite becomes the base.
- SEARCH: trials of steps by H.
- RESTART: H's steps kept failing from this base, or no longer moved theta in floating point: the memory was
  emptied for a scaled gradient step.
- STALLED: that failed down to the last bit too, or many trials lowered neither U nor |g|.

Any accepted trial leads back to SEARCH.  Read `advance` first: it is called once per version.  `keep` accepts,
`retreat` goes back, `aim` sets the next trial.

The rule is that of Grippo, Lampariello and Lucidi (1986); all else, the constants included, is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from asyncqn.algorithms.exact.inverse import InverseHessian
from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Standing

__all__ = ["Trial", "advance", "standing"]

Ask: TypeAlias = Callable[[Array], float]
"""U over all rows at a point, as the coordinator evaluates it."""

ARMIJO = 1e-4
"""Armijo constant, the usual one: the share of the decrease predicted by the slope that must be reached."""
ROUNDING = 100.0
"""Rounding error of U in units of eps |U|: values closer than this are not distinguishable."""
MAX_NEW_DIRECTIONS = 2
"""Failures in a row after which the step only shrinks: a pair is worth two more directions."""
MAX_FAILURES = 8
"""Failures in a row after which the memory is emptied: so many shrinkings leave a thousandth of the step."""
SHRINK = (0.1, 0.5)
"""Least and largest factor on a failed step; the usual bounds of a backtracking search."""
FIRST = 0.01
"""Length of the first step relative to |base|, or the length at which the slope predicts a decrease of U
by 1, if that is longer."""
STEP_GROWTH = 10.0
"""A step is at most this many times as long as the longest so far, or as |base|."""
FIRST_STEP_GROWTH = 1e10
"""The same for the first step that knows any curvature, within what the master calls an explosion."""
MAX_BEND = 0.25
"""How far a rise may be from (a + b) / 2, in shares of |a| + |b|, to be called nearly quadratic."""
MAX_IDLE = 80
"""Trials in a row without progress after which the search has stalled."""
LESS = 0.9
"""Progress is a U that is lower by more than rounding, or a |g| that is lower by this factor."""


class SearchState(IntEnum):
    """The states of the safeguard, as the module explains them."""

    START = 0
    SEARCH = 1
    RESTART = 2
    STALLED = 3


class Trial(NamedTuple):
    """The safeguard's knowledge of `base` and of the trial under way."""

    recent: tuple[float, ...] = (-math.inf,) * 5
    """U of the last accepted points, among which a trial may rise; -inf, never the largest, where there are
    none yet."""
    state: SearchState = SearchState.START
    kept: int = 0
    """Points accepted so far."""
    failures: int = 0
    """Trials from this base that failed."""
    idle: int = 0
    """Trials without progress."""
    stride: float = 0.0
    """The longest step so far; 0: none yet, or the memory was emptied."""
    first_norm: float = 0.0
    """|g| at the first point judged."""
    best: tuple[float, float] = (math.inf, math.inf)
    """U and |g| at the last progress."""
    softness: float = math.inf
    """The largest s's / s'y of the pairs last in use."""

    @property
    def value(self) -> float:
        """U(base)."""
        return self.recent[-1]


class GuardedIterate(Protocol):
    """The part of an iterate that the safeguard writes; all but `trial` in place."""

    @property
    def theta(self) -> Array: ...
    @property
    def base(self) -> Array: ...
    @property
    def at_base(self) -> Array:
        """(1, d): the gradient at base."""

    @property
    def trial(self) -> Trial: ...


def advance(
    walk: GuardedIterate,
    metric: InverseHessian,
    at: Array | None,
    value: float,
    ask: Ask | None,
) -> Trial:
    """Judge the trial, set the next one in `walk.theta`, and return the new knowledge.

    Parameters
    ----------
    walk : GuardedIterate
        Base, trial and gradients; written in place.
    metric : Inverse
        H, which learns from the trial.
    at : array of shape (1, d), or None
        The gradient at theta; None if it is not finite.
    value : float
        U(theta); NaN if it did not come with the gradient.
    ask : callable, or None
        Evaluates U; None if nobody can, and the slopes decide alone.
    """
    search = _Search(walk, metric)
    if walk.trial.state == SearchState.START:
        search.begin(at, value, ask)
    else:
        search.judge(at, value, ask)
    if search.trial.idle >= MAX_IDLE:
        search.stall()
    return search.trial


def accept_as_base(
    walk: GuardedIterate, metric: InverseHessian, at: Array, value: float
) -> Trial:
    """Make theta the base, whatever the last one was, and start the safeguard's counts anew.

    `at` is the gradient at theta, and `value` is U(theta).
    """
    last = walk.trial
    search = _Search(walk, metric)
    # The tolerance is relative to the largest |g| of any start.
    largest = max(_norm(at[0]), last.first_norm)
    search.trial = Trial(kept=last.kept, stride=last.stride, first_norm=largest)
    search.keep(at, value)
    return search.trial


def aim_from_base(
    walk: GuardedIterate, metric: InverseHessian, trial: Trial | None = None
) -> Trial:
    """Set the next trial from the base; `trial` replaces the knowledge that the walk holds."""
    search = _Search(walk, metric)
    search.trial = trial or walk.trial
    search.aim(search.longest())
    return search.trial


def rebase(
    walk: GuardedIterate,
    metric: InverseHessian,
    at: Array,
    value: float,
    ask: Ask | None,
) -> Trial:
    """Make the trial the base whatever U was, because the objective has changed; the memory stays."""
    trial = accept_as_base(walk, metric, at, _value_at(walk, value, ask))
    return aim_from_base(walk, metric, trial)


def standing(walk: GuardedIterate) -> Standing | None:
    """Return where the method stands; None before the first point."""
    trial = walk.trial
    if trial.state == SearchState.START:
        return None
    norm = _norm(walk.at_base[0])
    return Standing(
        point=walk.base,
        value=trial.value,
        grad_norm=norm,
        first_grad_norm=trial.first_norm,
        # |g|^2 / (2 lambda) estimates U - U*, with lambda the least curvature of the pairs.
        decrease=0.5 * norm * norm * trial.softness if norm > 0.0 else 0.0,
        stalled=trial.state == SearchState.STALLED,
    )


class _Search:
    """The judgement of one trial: `trial` is the knowledge as it grows, and `walk` is written in place."""

    def __init__(self, walk: GuardedIterate, metric: InverseHessian) -> None:
        self.walk = walk
        self.metric = metric
        self.trial = walk.trial

    def note(self, **fields: Any) -> None:
        """Replace fields of the trial."""
        self.trial = self.trial._replace(**fields)

    def begin(self, at: Array | None, value: float, ask: Ask | None) -> None:
        """Take the first point as the base."""
        if at is not None:
            value = _value_at(self.walk, value, ask)
        if at is None or not math.isfinite(value):
            # There is no base to return to: the master's test of theta ends the run.
            self.walk.theta[...] = math.nan
            return
        self.note(first_norm=max(_norm(at[0]), self.trial.first_norm))
        self.keep(at, value)
        self.aim(math.inf)

    def judge(self, at: Array | None, value: float, ask: Ask | None) -> None:
        """Accept or reject the trial, and set the next one."""
        walk = self.walk
        last = self.trial
        # Not the step that was aimed at: theta = base + s was rounded.
        step = walk.theta - walk.base
        length = _norm(step)
        # The method has stalled or is at a stationary point: nothing was tried.
        if length == 0.0:
            return
        self.note(idle=last.idle + 1)
        if at is None:
            self.retreat(step, SHRINK[0])
            return
        a = dot(walk.at_base[0], step)
        b = dot(at[0], step)
        # The trapezoidal rule, exact for a quadratic.
        by_slopes = 0.5 * (a + b)
        if math.isnan(value):
            value = last.value + by_slopes if ask is None else ask(walk.theta)
        if not math.isfinite(value):
            self.retreat(step, SHRINK[0])
            return
        # Near the minimum U cannot tell two points apart any more; the slopes still can.
        noise = ROUNDING * _rounding(value, step)
        hidden = abs(value - last.value) <= noise and abs(a + b) <= 4.0 * noise
        rise = by_slopes if hidden else value - last.value
        # Armijo's condition against the highest of the last U, not the last: U may rise for a few points.
        fine = rise <= max(last.recent) - last.value + ARMIJO * a
        quadratic = abs(rise - by_slopes) <= MAX_BEND * (abs(a) + abs(b))
        # A rejected trial still teaches H, unless U was far from quadratic along it.
        paired = (fine or quadratic) and self.metric.learn(step, at - walk.at_base)
        if fine:
            self.note(stride=max(last.stride, length))
            self.keep(at, last.value + rise if hidden else value)
            if paired or b >= 0.0:
                self.aim(self.longest())
                return
            # No curvature was seen and U still falls: the next step is twice as long.
            self.aim(self.longest(), 2.0 * length)
            if not hidden:
                self.note(softness=math.inf)
        elif paired and last.failures < MAX_NEW_DIRECTIONS:
            # H has learned from the failure: aim again with it, no farther than the failed step.
            self.note(failures=last.failures + 1)
            self.aim(length)
        else:
            # The minimum of the quadratic with slopes a and b at the ends of the step, within bounds.
            least = -a / (b - a) if b > a else 0.0
            self.retreat(step, min(max(least, SHRINK[0]), SHRINK[1]))

    def keep(self, at: Array, value: float) -> None:
        """Make the trial the base."""
        self.walk.base[...] = self.walk.theta
        self.walk.at_base[...] = at
        self.metric.keep()
        norm = _norm(at[0])
        lowest, flattest = self.trial.best
        if value < lowest - 10.0 * _rounding(value, at) or norm < LESS * flattest:
            self.note(best=(min(value, lowest), norm), idle=0)
        self.note(
            state=SearchState.SEARCH,
            recent=(*self.trial.recent[1:], value),
            kept=self.trial.kept + 1,
            failures=0,
        )

    def retreat(self, step: Array, shrink: float) -> None:
        """Go back along the step or, where that does not help, down the gradient."""
        failures = self.trial.failures + 1
        self.note(failures=failures)
        # The second half of the failures shrink by the most, so that a bad direction ends soon.
        if failures > MAX_FAILURES // 2:
            shrink = SHRINK[0]
        step *= step.dtype.type(shrink)
        np.add(self.walk.base, step, out=self.walk.theta)
        worn = failures >= MAX_FAILURES and self.trial.state == SearchState.SEARCH
        # A step below the precision of theta would be tried forever.
        if worn or not _moves(self.walk):
            self.restart()

    def restart(self) -> None:
        """Empty the memory for a scaled gradient step; where that was tried from this base, stay there."""
        if self.trial.state != SearchState.SEARCH:
            self.stall()
            return
        self.metric.forget()
        self.note(state=SearchState.RESTART, failures=0, stride=0.0)
        self.aim(math.inf)

    def stall(self) -> None:
        """Stay at the base for good."""
        self.walk.theta[...] = self.walk.base
        self.note(state=SearchState.STALLED)

    def aim(self, longest: float, least: float = 0.0) -> None:
        """Set the next trial: theta = base - H g, its step between `least` and `longest`; or a first step."""
        walk = self.walk
        trial = self.trial
        g = walk.at_base[0]
        norm = _norm(g)
        if norm == 0.0:
            walk.theta[...] = walk.base
            return
        self.note_softness()
        step = np.empty_like(walk.base)
        if self.metric.direction(walk.at_base, step):
            length = _norm(step)
            # H is positive definite except for rounding; where it is not, start again from the gradient.
            if not (0.0 < length < math.inf and dot(g, step) > 0.0):
                self.restart()
                return
            # -H g, shortened to `longest`, or lengthened to `least`.
            factor = max(min(1.0, longest / length), min(least, longest) / length)
            step *= step.dtype.type(-factor)
        else:
            far = _norm(walk.base)
            # Without a scale: a decrease of U by 1 (1 / |g|) or FIRST of |base|, at most max(1, |base|).
            length = min(max(1.0 / norm, FIRST * far), max(1.0, far))
            length = min(max(length, 2.0 * trial.stride, least), longest)
            np.multiply(g, step.dtype.type(-length / norm), out=step)
        np.add(walk.base, step, out=walk.theta)
        if not _moves(walk):
            self.restart()

    def longest(self) -> float:
        """Return the longest step that is tried from the base."""
        # The step after the first is the first that knows any curvature: let it go.
        growth = STEP_GROWTH if self.trial.kept > 2 else FIRST_STEP_GROWTH
        return growth * max(self.trial.stride, _norm(self.walk.base))

    def note_softness(self) -> None:
        """Remember the least curvature of the pairs in use, as long as there are any."""
        softness = self.metric.softness()
        if softness < math.inf:
            self.note(softness=softness)


def _value_at(walk: GuardedIterate, value: float, ask: Ask | None) -> float:
    """Return U(theta); where nobody knows U the slopes decide, and U counts from 0."""
    if not math.isnan(value):
        return value
    return 0.0 if ask is None else ask(walk.theta)


def _moves(walk: GuardedIterate) -> bool:
    """Return whether the trial is another point than the base in floating point."""
    return bool((walk.theta != walk.base).any())


def _norm(v: Array) -> float:
    return math.sqrt(sum_of_squares(v))


def _rounding(value: float, like: Array) -> float:
    """Return the spacing of numbers of the size of U, in the precision of an array."""
    return float(np.finfo(like.dtype).eps) * abs(value)
