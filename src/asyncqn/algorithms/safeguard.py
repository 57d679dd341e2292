"""The safeguard of methods with exact gradients: which trial is accepted, what follows a failure, the end.

`base` is the last accepted point, theta = base + s the current trial, g the exact gradient at both.  With

    a = g(base)'s,  b = g(theta)'s                        the slopes at both ends
    rise = U(theta) - U(base)                             (a + b) / 2 where rounding hides it
    accept theta if  U(base) + rise <= max(U of the last accepted points) + 1e-4 a

an accepted trial becomes the base, and the next trial is base - H g(base).  After a failure the next trial
starts from the same base: at first with the new pair in H, if U along s was nearly a quadratic, that is if
rise is near (a + b) / 2, so that no misleading pair enters H; then along s, shrinking.  A direction that
keeps failing, or whose steps do not move theta in floating point, empties the memory once for a scaled
gradient step; if that fails down to the last bit too, the method has stalled.  It has also stalled when many
trials in a row lowered neither U nor |g| beyond rounding.

Where U does not come with the gradient, it is computed, except while the pair (s, y) fits one quadratic with
all stored pairs: there (a + b) / 2 is exact.  At most `MAX_UNSEEN` points in a row are accepted so; if U
turns out to have risen on the way, the method returns to the last point whose U is known.

Read `advance` first: it is called once per version.  `_keep` accepts, `_fail` retreats, `_aim` sets the next
trial.

The rule is that of Grippo, Lampariello and Lucidi (1986); all else, the constants included, is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from asyncqn.kernels.vectors import dot, sum_of_squares
from asyncqn.types import Array, Standing

ARMIJO = 1e-4
"""Armijo constant, the usual one: the share of the decrease predicted by the slope that must be reached."""
ROUNDING = 100.0
"""Rounding error of U in units of eps |U|: values closer than this are not distinguishable."""
MAX_NEW_DIRECTIONS, MAX_FAILURES = 2, 8
"""Failures in a row after which the step only shrinks, and after which the memory is emptied: a pair is worth
two more directions, and eight shrinkings reach less than a thousandth of the step."""
SHRINK = (0.1, 0.5)
"""Least and largest factor on a failed step; the usual bounds of a backtracking search."""
FIRST = 0.01
"""Length of the first step relative to |base|, or the length at which the slope predicts a decrease of U
by 1, if that is longer."""
STEP_GROWTH, FIRST_STEP_GROWTH = 10.0, 1e10
"""A step is at most STEP_GROWTH times the longest so far, or times |base|; the first that knows any curvature
at most FIRST_STEP_GROWTH times, which keeps it within what the master calls an explosion."""
MAX_BEND = 0.25
"""How far a rise may be from (a + b) / 2, in shares of |a| + |b|, to be called nearly quadratic."""
MAX_UNSEEN, NEAR_STATIONARY = 4, 1e-4
"""Points accepted in a row without evaluating U; and U is always evaluated where |g| max(1, |theta|) is below
this share of max(1, |U|), because the end of the run is decided there."""
MAX_IDLE, LESS = 40, 0.9
"""Trials in a row without progress after which the memory is emptied, and after as many again the method has
stalled.  Progress is a U that is lower by more than rounding, or a |g| that is lower by the factor `LESS`."""


class Trial(NamedTuple):
    """The safeguard's knowledge of `base` and of the trial under way."""

    recent: tuple[float, ...]
    """U of the last accepted points whose U is known; -inf where there are none yet."""
    kept: int = 0
    failures: int = 0
    """Trials from this base that failed."""
    value: float = 0.0
    """U(base)."""
    unseen: int = 0
    """Points accepted since one whose U is known; where it is not 0, `value` comes from slopes."""
    anchored: float = 0.0
    """U at `anchor`, where `unseen` is not 0."""
    stride: float = 0.0
    """The longest step so far; 0: none yet, or the memory was emptied."""
    first_norm: float = 0.0
    """|g| at the first point judged."""
    best_value: float = math.inf
    best_norm: float = math.inf
    idle: int = 0
    """Trials since U fell below `best_value`, or |g| below `best_norm`, by more than rounding."""
    softness: float = math.inf
    """The largest s's / s'y of the pairs last in use."""
    restarted: bool = False
    """The memory was emptied for the sake of this base."""
    stalled: bool = False


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
    def anchor(self) -> Array:
        """(1 + k, d): the last base whose U is known, with its gradient, where base is another."""

    @property
    def trial(self) -> Trial: ...


class Metric(Protocol):
    """H: the memory of a method, as the safeguard sees it.  `at` is (k, d), its first row a gradient."""

    def direction(self, at: Array, out: Array) -> bool:
        """Write H g to `out`; return False where H has no scale yet."""

    def learn(self, s: Array, change: Array) -> bool:
        """Offer the pair (s, change of `at`), which may be overwritten; return whether it was admitted."""

    def fits(self, s: Array, y: Array) -> bool:
        """Return whether one quadratic fits this pair and all stored ones, of which there are at least
        two."""

    def forget(self) -> None:
        """Empty the memory."""

    def softness(self) -> float:
        """Return the largest s's / s'y in memory; infinite where it is empty."""

    def keep(self) -> None:
        """Receive the news that the trial was accepted: the moment to change H0."""


def advance(
    walk: Walk,
    metric: Metric,
    at: Array | None,
    value: float,
    ask: Callable[[Array], float] | None,
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
    theta, base, trial = walk.theta, walk.base, walk.trial
    if trial.kept == 0:
        if at is not None and math.isnan(value):
            value = 0.0 if ask is None else ask(theta)
        if at is None or not math.isfinite(value):
            # U is not finite even at the start: the master's test of theta ends the run.
            # There is no base to return to.
            theta[...] = math.nan
            return trial
        return _aim(walk, metric, _keep(walk, metric, at, value, trial), math.inf)
    # From here on there is a base, and theta is a trial.
    # Not the step that was aimed at: theta = base + s was rounded.
    step = theta - base
    length = math.sqrt(sum_of_squares(step))
    # The method has stalled or is at a stationary point: nothing was tried.
    if length == 0.0:
        return trial
    trial = trial._replace(idle=trial.idle + 1)
    if at is None:
        return _fail(walk, metric, trial, step, ask, SHRINK[0])
    a, b = dot(walk.at_base[0], step), dot(at[0], step)
    # y = g(theta) - g(base), and the change of all else that the metric stores.
    change = at - walk.at_base
    value, seen = _see(walk, metric, at[0], value, ask, step, a, b, change[0])
    if not math.isfinite(value):
        return _fail(walk, metric, trial, step, ask, SHRINK[0])
    # Near the minimum U cannot tell two points apart any more; the slopes still can.
    noise = ROUNDING * float(np.finfo(theta.dtype).eps) * abs(value)
    drowned = abs(value - trial.value) <= noise and abs(a + b) <= 4.0 * noise
    rise = 0.5 * (a + b) if drowned else value - trial.value
    # Armijo's condition against the highest of the last U, not the last: U may rise for a few points.
    fine = rise <= max(trial.recent) - trial.value + ARMIJO * a
    bent = not abs(rise - 0.5 * (a + b)) <= MAX_BEND * (abs(a) + abs(b))
    # A rejected trial still teaches H, unless U was far from quadratic along it.
    paired = (fine or not bent) and metric.learn(step, change)
    if fine:
        # No curvature was seen and U still falls: the next step is twice as long.
        straight = not paired and b < 0.0
        trial = trial._replace(
            stride=max(trial.stride, length), unseen=0 if seen else trial.unseen + 1
        )
        trial = _keep(walk, metric, at, trial.value + rise if drowned else value, trial)
        far = max(trial.stride, math.sqrt(sum_of_squares(base)))
        # The step after the first is the first that knows any curvature: let it go.
        longest = (STEP_GROWTH if trial.kept > 2 else FIRST_STEP_GROWTH) * far
        trial = _aim(walk, metric, trial, longest, 2.0 * length if straight else 0.0)
        return trial._replace(softness=math.inf) if straight and not drowned else trial
    # `learn` may have overwritten the step.
    np.subtract(theta, base, out=step)
    # H has learned from the failure: aim again with it, no farther than the failed step.
    if paired and trial.failures < MAX_NEW_DIRECTIONS and not trial.unseen:
        return _aim(walk, metric, trial._replace(failures=trial.failures + 1), length)
    # The minimum of the quadratic with slopes a and b at the ends of the step, within bounds.
    shrink = min(max(-a / (b - a), SHRINK[0]), SHRINK[1]) if b > a else SHRINK[0]
    return _fail(walk, metric, trial, step, ask, shrink)


def _see(
    walk: Walk,
    metric: Metric,
    g: Array,
    value: float,
    ask: Callable[[Array], float] | None,
    step: Array,
    a: float,
    b: float,
    y: Array,
) -> tuple[float, bool]:
    """Return U at the trial, and whether it was evaluated rather than taken from the slopes."""
    trial = walk.trial
    # The trapezoidal rule, exact for a quadratic.
    guess = trial.value + 0.5 * (a + b)
    if not math.isnan(value):
        return value, True
    if ask is None:
        return guess, True
    near = math.sqrt(sum_of_squares(g)) * max(
        1.0, math.sqrt(sum_of_squares(walk.theta))
    )
    # Skip the evaluation of U only where nothing has failed and the slope has at least halved.
    calm = trial.failures == 0 and trial.unseen < MAX_UNSEEN and abs(b) <= -0.5 * a
    if calm and near > NEAR_STATIONARY * max(1.0, abs(guess)) and metric.fits(step, y):
        return guess, False
    return ask(walk.theta), True


def _keep(walk: Walk, metric: Metric, at: Array, value: float, trial: Trial) -> Trial:
    """Make the trial the base."""
    norm = math.sqrt(sum_of_squares(at[0]))
    # The base is left for a point whose U is not known: remember where to return to.
    if trial.unseen == 1:
        walk.anchor[0], walk.anchor[1:] = walk.base, walk.at_base
        trial = trial._replace(anchored=trial.value)
    walk.base[...], walk.at_base[...] = walk.theta, at
    metric.keep()
    least = trial.best_value - 10.0 * float(np.finfo(at.dtype).eps) * abs(value)
    if trial.kept == 0:
        trial = trial._replace(first_norm=max(norm, trial.first_norm))
    if value < least or norm < LESS * trial.best_norm:
        trial = trial._replace(
            best_value=min(value, trial.best_value), best_norm=norm, idle=0
        )
    if trial.unseen == 0:
        trial = trial._replace(recent=(*trial.recent[1:], value))
    return trial._replace(
        value=value, kept=trial.kept + 1, failures=0, restarted=False, stalled=False
    )


def _fail(
    walk: Walk,
    metric: Metric,
    trial: Trial,
    step: Array,
    ask: Callable[[Array], float] | None,
    shrink: float,
) -> Trial:
    """Go back to where U is known, or along the step, or, where neither helps, down the gradient."""
    if trial.unseen and ask is not None:
        value, highest = ask(walk.base), max(trial.recent)
        rounding = ROUNDING * float(np.finfo(step.dtype).eps) * abs(highest)
        trial = trial._replace(unseen=0)
        if not value <= highest + rounding:
            walk.base[...], walk.at_base[...] = walk.anchor[0], walk.anchor[1:]
            metric.forget()
            return _aim(
                walk, metric, trial._replace(value=trial.anchored, stride=0.0), math.inf
            )
        trial = trial._replace(value=value, recent=(*trial.recent[1:], value))
    trial = trial._replace(failures=trial.failures + 1)
    # The second half of the failures shrink by the most, so that a bad direction ends soon.
    step *= step.dtype.type(SHRINK[0] if trial.failures > MAX_FAILURES // 2 else shrink)
    np.add(walk.base, step, out=walk.theta)
    # A step below the precision of theta would be tried forever.
    moves = bool((walk.theta != walk.base).any())
    worn = (
        trial.failures >= MAX_FAILURES and not trial.restarted
    ) or trial.idle >= 2 * MAX_IDLE
    return trial if moves and not worn else _restart(walk, metric, trial)


def _restart(walk: Walk, metric: Metric, trial: Trial) -> Trial:
    """Empty the memory for a scaled gradient step; where that was tried from this base, stay there."""
    # Even the plain gradient has failed from this base.
    if trial.restarted or trial.idle >= 2 * MAX_IDLE:
        walk.theta[...] = walk.base
        return trial._replace(stalled=True)
    trial = _softened(metric, trial)._replace(restarted=True, failures=0, stride=0.0)
    metric.forget()
    return _aim(walk, metric, trial, math.inf)


def _aim(
    walk: Walk, metric: Metric, trial: Trial, longest: float, least: float = 0.0
) -> Trial:
    """Set the next trial: theta = base - H g, its step between `least` and `longest`; or a first step."""
    g, base = walk.at_base[0], walk.base
    norm = math.sqrt(sum_of_squares(g))
    if norm == 0.0:
        walk.theta[...] = base
        return trial
    if trial.idle >= 2 * MAX_IDLE or (trial.idle == MAX_IDLE and not trial.restarted):
        return _restart(walk, metric, trial)
    trial = _softened(metric, trial)
    step = np.empty_like(base)
    if metric.direction(walk.at_base, step):
        length = math.sqrt(sum_of_squares(step))
        # H is positive definite except for rounding; where it is not, start again from the gradient.
        if not (0.0 < length < math.inf and dot(g, step) > 0.0):
            return _restart(walk, metric, trial)
        # -H g, shortened to `longest`, or lengthened to `least`.
        step *= step.dtype.type(
            -max(min(1.0, longest / length), min(least, longest) / length)
        )
    else:
        far = math.sqrt(sum_of_squares(base))
        # Without a scale: a decrease of U by 1 (1 / |g|) or FIRST of |base|, at most max(1, |base|).
        length = max(
            min(max(1.0 / norm, FIRST * far), max(1.0, far)), 2.0 * trial.stride, least
        )
        np.multiply(g, step.dtype.type(-min(length, longest) / norm), out=step)
    np.add(base, step, out=walk.theta)
    return trial if (walk.theta != base).any() else _restart(walk, metric, trial)


def _softened(metric: Metric, trial: Trial) -> Trial:
    """Remember the least curvature of the pairs in use, as long as there are any."""
    softness = metric.softness()
    return trial._replace(softness=softness) if softness < math.inf else trial


def accept_as_base(walk: Walk, metric: Metric, at: Array, value: float) -> Trial:
    """Make theta the base, whatever the last one was, and start the safeguard's counts anew.

    `at` is the gradient at theta with all that the metric needs, and `value` is U(theta).
    """
    trial = walk.trial
    norm = max(math.sqrt(sum_of_squares(at[0])), trial.first_norm)
    fresh = Trial(
        (-math.inf,) * len(trial.recent),
        kept=trial.kept,
        stride=trial.stride,
        first_norm=norm,
    )
    return _keep(walk, metric, at, value, fresh)


def aim_from_base(walk: Walk, metric: Metric, trial: Trial | None = None) -> Trial:
    """Set the next trial from the base; `trial` replaces the knowledge that the walk holds."""
    trial = walk.trial if trial is None else trial
    far = max(trial.stride, math.sqrt(sum_of_squares(walk.base)))
    return _aim(
        walk,
        metric,
        trial,
        (STEP_GROWTH if trial.kept > 2 else FIRST_STEP_GROWTH) * far,
    )


def rebase(
    walk: Walk,
    metric: Metric,
    at: Array,
    value: float,
    ask: Callable[[Array], float] | None,
) -> Trial:
    """Make the trial the base whatever U was, because the objective has changed; the memory stays."""
    if math.isnan(value):
        value = 0.0 if ask is None else ask(walk.theta)
    return aim_from_base(walk, metric, accept_as_base(walk, metric, at, value))


def standing(walk: Walk) -> Standing | None:
    """Return where the method stands; None before the first point, and where U is not known."""
    trial = walk.trial
    if trial.kept == 0 or trial.unseen:
        return None
    norm = math.sqrt(sum_of_squares(walk.at_base[0]))
    decrease = 0.5 * norm * norm * trial.softness if norm > 0.0 else 0.0
    return Standing(
        walk.base, trial.value, norm, trial.first_norm, decrease, trial.stalled
    )
