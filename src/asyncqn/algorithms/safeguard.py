"""The safeguard of methods with exact gradients: which trial is accepted, what follows a failure, the end.

`base` is the last accepted point, theta = base + s the current trial, g the exact gradient at both.  With

    a = g(base)'s,  b = g(theta)'s                        the slopes at both ends
    rise = U(theta) - U(base)                             (a + b) / 2 where rounding hides it
    accept theta if  U(base) + rise <= max(U of the last accepted points) + 1e-4 a

an accepted trial becomes the base, and the next trial is base - H g(base).  After a failure the next trial
starts from the same base: at first with the new pair in H, if U along s was nearly a quadratic, that is if
rise is near (a + b) / 2, so that no misleading pair enters H; then along s, shrinking.

Its states, and what leads from one to the next:

    START     no point was accepted yet; the first that is finite becomes the base
    SEARCH    trials of steps by H
    RESTART   H's steps kept failing from this base, or no longer moved theta in floating point, or many
              trials lowered neither U nor |g|: the memory was emptied for a scaled gradient step
    STALLED   that failed down to the last bit too, or many more trials lowered nothing

Any accepted trial leads back to SEARCH.  Read `advance` first: it is called once per version.  `_keep`
accepts, `_fail` retreats, `_aim` sets the next trial.

The rule is that of Grippo, Lampariello and Lucidi (1986); all else, the constants included, is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Standing

__all__ = ["Metric", "Trial", "advance", "standing"]

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
MAX_IDLE = 40
"""Trials in a row without progress after which the memory is emptied; after as many again it has stalled."""
LESS = 0.9
"""Progress is a U that is lower by more than rounding, or a |g| that is lower by this factor."""


class State(IntEnum):
    """The states of the safeguard, as the module explains them."""

    START = 0
    SEARCH = 1
    RESTART = 2
    STALLED = 3


class Trial(NamedTuple):
    """The safeguard's knowledge of `base` and of the trial under way."""

    recent: tuple[float, ...]
    """U of the last accepted points; -inf where there are none yet."""
    state: State = State.START
    kept: int = 0
    """Points accepted so far."""
    failures: int = 0
    """Trials from this base that failed."""
    idle: int = 0
    """Trials without progress."""
    value: float = 0.0
    """U(base)."""
    stride: float = 0.0
    """The longest step so far; 0: none yet, or the memory was emptied."""
    first_norm: float = 0.0
    """|g| at the first point judged."""
    best: tuple[float, float] = (math.inf, math.inf)
    """U and |g| at the last progress."""
    softness: float = math.inf
    """The largest s's / s'y of the pairs last in use."""


class Walk(Protocol):
    """The part of an iterate that the safeguard writes; all but `trial` in place."""

    @property
    def theta(self) -> Array: ...
    @property
    def base(self) -> Array: ...
    @property
    def at_base(self) -> Array:
        """(k, d): the gradient at base, and what else the metric needs of it."""

    @property
    def trial(self) -> Trial: ...


class Metric(Protocol):
    """H: the memory of a method, as the safeguard sees it.  `at` is (k, d), its first row a gradient."""

    def direction(self, at: Array, out: Array) -> bool:
        """Write H g to `out`; return False where H has no scale yet."""

    def learn(self, s: Array, change: Array) -> bool:
        """Offer the pair (s, change of `at`), which may be overwritten; return whether it was admitted."""

    def forget(self) -> None:
        """Empty the memory."""

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite where it is empty."""

    def keep(self) -> None:
        """Receive the news that the trial was accepted: the moment to change H0."""


def advance(
    walk: Walk, metric: Metric, at: Array | None, value: float, ask: Ask | None
) -> Trial:
    """Judge the trial, set the next one in `walk.theta`, and return the new knowledge.

    Parameters
    ----------
    walk : Walk
        Base, trial and gradients; written in place.
    metric : Metric
        H, which learns from the trial.
    at : array of shape (k, d), or None
        The gradient at theta, and all else that the metric needs there; None if it is not finite.
    value : float
        U(theta); NaN if it did not come with the gradient.
    ask : callable, or None
        Evaluates U; None if nobody can, and the slopes decide alone.
    """
    trial = walk.trial
    if trial.state == State.START:
        return _begin(walk, metric, at, value, ask)
    # Not the step that was aimed at: theta = base + s was rounded.
    step = walk.theta - walk.base
    length = _norm(step)
    # The method has stalled or is at a stationary point: nothing was tried.
    if length == 0.0:
        return trial
    trial = trial._replace(idle=trial.idle + 1)
    if at is None:
        return _fail(walk, metric, trial, step, SHRINK[0])
    a = dot(walk.at_base[0], step)
    b = dot(at[0], step)
    # The trapezoidal rule, exact for a quadratic.
    by_slopes = 0.5 * (a + b)
    if math.isnan(value):
        value = trial.value + by_slopes if ask is None else ask(walk.theta)
    if not math.isfinite(value):
        return _fail(walk, metric, trial, step, SHRINK[0])
    # Near the minimum U cannot tell two points apart any more; the slopes still can.
    noise = ROUNDING * _rounding(value, step)
    drowned = abs(value - trial.value) <= noise and abs(a + b) <= 4.0 * noise
    rise = by_slopes if drowned else value - trial.value
    # Armijo's condition against the highest of the last U, not the last: U may rise for a few points.
    fine = rise <= max(trial.recent) - trial.value + ARMIJO * a
    quadratic = abs(rise - by_slopes) <= MAX_BEND * (abs(a) + abs(b))
    # A rejected trial still teaches H, unless U was far from quadratic along it.
    # y = g(theta) - g(base), and the change of all else that the metric stores.
    paired = (fine or quadratic) and metric.learn(step, at - walk.at_base)
    if fine:
        trial = trial._replace(stride=max(trial.stride, length))
        trial = _keep(walk, metric, at, trial.value + rise if drowned else value, trial)
        # No curvature was seen and U still falls: the next step is twice as long.
        if paired or b >= 0.0:
            return _aim(walk, metric, trial, _longest(walk, trial))
        trial = _aim(walk, metric, trial, _longest(walk, trial), 2.0 * length)
        return trial if drowned else trial._replace(softness=math.inf)
    # H has learned from the failure: aim again with it, no farther than the failed step.
    if paired and trial.failures < MAX_NEW_DIRECTIONS:
        return _aim(walk, metric, _failed(trial), length)
    # The minimum of the quadratic with slopes a and b at the ends of the step, within bounds.
    shrink = min(max(-a / (b - a), SHRINK[0]), SHRINK[1]) if b > a else SHRINK[0]
    # `learn` may have overwritten the step.
    return _fail(walk, metric, trial, walk.theta - walk.base, shrink)


def accept_as_base(walk: Walk, metric: Metric, at: Array, value: float) -> Trial:
    """Make theta the base, whatever the last one was, and start the safeguard's counts anew.

    `at` is the gradient at theta with all that the metric needs, and `value` is U(theta).
    """
    trial = walk.trial
    fresh = Trial(
        (-math.inf,) * len(trial.recent),
        state=trial.state,
        kept=trial.kept,
        stride=trial.stride,
        # The tolerance is relative to the largest |g| of any start.
        first_norm=max(_norm(at[0]), trial.first_norm),
    )
    return _keep(walk, metric, at, value, fresh)


def aim_from_base(walk: Walk, metric: Metric, trial: Trial | None = None) -> Trial:
    """Set the next trial from the base; `trial` replaces the knowledge that the walk holds."""
    trial = walk.trial if trial is None else trial
    return _aim(walk, metric, trial, _longest(walk, trial))


def rebase(
    walk: Walk, metric: Metric, at: Array, value: float, ask: Ask | None
) -> Trial:
    """Make the trial the base whatever U was, because the objective has changed; the memory stays."""
    if math.isnan(value):
        value = 0.0 if ask is None else ask(walk.theta)
    return aim_from_base(walk, metric, accept_as_base(walk, metric, at, value))


def standing(walk: Walk) -> Standing | None:
    """Return where the method stands; None before the first point."""
    trial = walk.trial
    if trial.state == State.START:
        return None
    norm = _norm(walk.at_base[0])
    return Standing(
        point=walk.base,
        value=trial.value,
        grad_norm=norm,
        first_grad_norm=trial.first_norm,
        # |g|^2 / (2 lambda) estimates U - U*, with lambda the least curvature of the pairs.
        decrease=0.5 * norm * norm * trial.softness if norm > 0.0 else 0.0,
        stalled=trial.state == State.STALLED,
    )


def _begin(
    walk: Walk, metric: Metric, at: Array | None, value: float, ask: Ask | None
) -> Trial:
    """Take the first point as the base."""
    if at is not None and math.isnan(value):
        # Where nobody knows U the slopes decide, and U counts from 0.
        value = 0.0 if ask is None else ask(walk.theta)
    if at is None or not math.isfinite(value):
        # There is no base to return to: the master's test of theta ends the run.
        walk.theta[...] = math.nan
        return walk.trial
    trial = walk.trial
    trial = trial._replace(first_norm=max(_norm(at[0]), trial.first_norm))
    return _aim(walk, metric, _keep(walk, metric, at, value, trial), math.inf)


def _keep(walk: Walk, metric: Metric, at: Array, value: float, trial: Trial) -> Trial:
    """Make the trial the base."""
    walk.base[...] = walk.theta
    walk.at_base[...] = at
    metric.keep()
    norm = _norm(at[0])
    lowest, flattest = trial.best
    if value < lowest - 10.0 * _rounding(value, at) or norm < LESS * flattest:
        trial = trial._replace(best=(min(value, lowest), norm), idle=0)
    return trial._replace(
        state=State.SEARCH,
        recent=(*trial.recent[1:], value),
        value=value,
        kept=trial.kept + 1,
        failures=0,
    )


def _fail(
    walk: Walk, metric: Metric, trial: Trial, step: Array, shrink: float
) -> Trial:
    """Go back along the step or, where that does not help, down the gradient."""
    trial = _failed(trial)
    # The second half of the failures shrink by the most, so that a bad direction ends soon.
    step *= step.dtype.type(SHRINK[0] if trial.failures > MAX_FAILURES // 2 else shrink)
    np.add(walk.base, step, out=walk.theta)
    worn = trial.failures >= MAX_FAILURES and trial.state != State.RESTART
    # A step below the precision of theta would be tried forever.
    if worn or trial.idle >= 2 * MAX_IDLE or not _moves(walk):
        return _restart(walk, metric, trial)
    return trial


def _failed(trial: Trial) -> Trial:
    return trial._replace(failures=trial.failures + 1)


def _restart(walk: Walk, metric: Metric, trial: Trial) -> Trial:
    """Empty the memory for a scaled gradient step; where that was tried from this base, stay there."""
    if trial.state != State.SEARCH or trial.idle >= 2 * MAX_IDLE:
        walk.theta[...] = walk.base
        return trial._replace(state=State.STALLED)
    trial = _softened(metric, trial)
    metric.forget()
    trial = trial._replace(state=State.RESTART, failures=0, stride=0.0)
    return _aim(walk, metric, trial, math.inf)


def _aim(
    walk: Walk, metric: Metric, trial: Trial, longest: float, least: float = 0.0
) -> Trial:
    """Set the next trial: theta = base - H g, its step between `least` and `longest`; or a first step."""
    g = walk.at_base[0]
    norm = _norm(g)
    if norm == 0.0:
        walk.theta[...] = walk.base
        return trial
    tired = trial.idle == MAX_IDLE and trial.state == State.SEARCH
    if tired or trial.idle >= 2 * MAX_IDLE:
        return _restart(walk, metric, trial)
    trial = _softened(metric, trial)
    step = np.empty_like(walk.base)
    if metric.direction(walk.at_base, step):
        length = _norm(step)
        # H is positive definite except for rounding; where it is not, start again from the gradient.
        if not (0.0 < length < math.inf and dot(g, step) > 0.0):
            return _restart(walk, metric, trial)
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
    return trial if _moves(walk) else _restart(walk, metric, trial)


def _longest(walk: Walk, trial: Trial) -> float:
    """Return the longest step that is tried from the base."""
    # The step after the first is the first that knows any curvature: let it go.
    growth = STEP_GROWTH if trial.kept > 2 else FIRST_STEP_GROWTH
    return growth * max(trial.stride, _norm(walk.base))


def _softened(metric: Metric, trial: Trial) -> Trial:
    """Remember the least curvature of the pairs in use, as long as there are any."""
    softness = metric.softness()
    return trial._replace(softness=softness) if softness < math.inf else trial


def _moves(walk: Walk) -> bool:
    """Return whether the trial is another point than the base in floating point."""
    return bool((walk.theta != walk.base).any())


def _norm(v: Array) -> float:
    return math.sqrt(sum_of_squares(v))


def _rounding(value: float, like: Array) -> float:
    """Return the spacing of numbers of the size of U, in the precision of an array."""
    return float(np.finfo(like.dtype).eps) * abs(value)
