"""A problem's first calls: `value`, `grad` and the extras compared with each other before a run begins.

With a wrong gradient a run would end at a wrong point, without a message.  Everything is compared near the
start, at theta0 plus a tenth of each coordinate's size, because at the start itself a prior is often flat.

* purity: arguments are left as they are, equal arguments give equal bits, `out` is written and not read;
* rows: |A| grad(A) + |B| grad(B) = (|A| + |B|) grad(A with B), which holds if and only if the rows are
  weighted by n_data / len(rows) and the prior is counted once;
* slope: along a direction v, U(theta + v) - U(theta - v) = 2 v'grad + O(v^3), where U is `value_rows` on a
  few rows if there is one, else `value`, with `grad` over all rows;
* flatness: a gradient that is exactly zero at two points where U differs leads nowhere.

Shorter and shorter steps tell curvature, kinks, oscillation and rounding from a mistake: a wrong gradient is
off by the same share over every step that rounding allows, and the others are not.  What cannot be judged,
because a function raises an error or is not finite, passes.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np

from asyncqn.checks.observed_calls import MARK, NothingToJudge, ObservedCalls, Vector
from asyncqn.core.problem import is_ours
from asyncqn.errors import BadInput, require
from asyncqn.types import Array, Problem, Rows

_ADAPTERS = "asyncqn.models.adapters."
"""The package of our classes that call functions of users."""
_ROWS_PER_SAMPLE = 8
"""Rows of each of the two samples that are compared with both together."""
_ROWS_PER_CALL = 4096
"""Rows of one call where all rows are used, so that a copy of their data stays small."""
_SEED = 0xC4EC
"""The checks draw the same rows and directions in every run: a mistake is found each time or never."""
_OTHER_SIZE = 0.1
"""A gradient counts as scaled by a factor where that differs from 1 by more than this; a small prior that is
missing changes it by less."""
_USUAL_LENGTHS, _LENGTHS = 3, 15
"""Step lengths of a slope, each a quarter of the one before: as many as a right gradient needs at most, and
as a wrong one has to be wrong over."""


def check_first_calls(problem: Problem, theta0: Array) -> None:
    """Compare a user's functions as the top of this file says; our tests compare our own.

    For a problem without mistakes the calls are few.  `grad` is called five times on at most 16 rows.  If the
    problem has `value_rows`, this is called at most 15 times on as few rows, and once on all of them;
    `grad_with_value` is called once.  Without `value_rows`, `grad` is called once on all rows.  `value` is
    called at most 16 times, and twice more if it is not finite near the start.
    """
    if _calls_functions_of_users(problem):
        compare_functions(problem, theta0)


def mistake_at_the_end(problem: Problem, theta0: Array, theta: Array) -> str | None:
    """Return a sentence if a user's gradient is clearly not that of `value` at the end of a run, or None.

    A gradient that becomes zero too early makes a run converge where U still falls.
    """
    if not _calls_functions_of_users(problem):
        return None
    comparison = _Comparison(
        ObservedCalls(problem), theta0, np.random.default_rng(_SEED)
    )
    try:
        with np.errstate(all="ignore"):
            return comparison.mistake_at(theta)
    except NothingToJudge:
        return None


def _calls_functions_of_users(problem: Problem) -> bool:
    kind = type(problem)
    return not is_ours(kind) or kind.__module__.startswith(_ADAPTERS)


def compare_functions(problem: Problem, theta0: Array, *, strict: bool = False) -> None:
    """Raise `BadInput` with a sentence that names the mistake, where there clearly is one.

    With `strict`, a function that raises an error or is not finite is a mistake as well.
    """
    calls = ObservedCalls(problem)
    rng = np.random.default_rng(_SEED)
    try:
        with np.errstate(all="ignore"):
            _Comparison(calls, theta0, rng).run()
    except NothingToJudge as nothing:
        if strict:
            cause = nothing.__cause__
            reason = "it is not finite"
            if cause is not None:
                reason = f"{type(cause).__name__}: {cause}"
            raise BadInput(
                f"{calls.name} cannot be checked near theta ({reason})."
            ) from cause


class _Slope(NamedTuple):
    """One step d: U(theta + d) - U(theta - d) by values and by the gradient, with its uncertainty."""

    step: Vector
    """2d."""
    values: float
    gradient: float
    unsure: float
    """Largest difference of the two that curvature, noise and rounding explain."""
    rounding: float
    """The part of it that shorter steps do not reduce."""

    @property
    def off(self) -> float:
        return abs(self.values - self.gradient)

    @property
    def wrong(self) -> bool:
        return self.off > self.unsure

    @property
    def share_off(self) -> float:
        """Difference of the two, for a step of length one."""
        return (self.values - self.gradient) / _norm(self.step)


class _Comparison:
    """The checks of one problem from one start."""

    def __init__(
        self, calls: ObservedCalls, theta0: Array, rng: np.random.Generator
    ) -> None:
        self.calls = calls
        self.theta0 = theta0
        self.rng = rng
        self.name = calls.name
        self.n = int(calls.problem.n_data)
        self.eps = float(np.finfo(theta0.dtype).eps)
        # Gradients computed in single precision, or by differences, pass in float64 too.
        self.rows_tolerance = max(1e-5, 500 * self.eps)
        self.value_tolerance = max(1e-6, 1e4 * self.eps)
        self.slope_tolerance = max(1e-6, 200 * self.eps)
        # Coordinates near 0 are moved by a tenth, larger ones by a tenth of their size.
        self.size = np.maximum(np.abs(theta0.astype(np.float64)), 1.0)

    def run(self) -> None:
        A, B = self._samples()
        self._check_purity(A)
        self._move_away()
        self._check_rows(A, B)
        if self.calls.has("value_rows"):
            self._check_value_rows(A, B)
            both = np.concatenate([A, B])
            self._check_flat("value_rows", both, self.gradient)
            self._check_slope("value_rows", both, self.gradient)
        else:
            whole = self._whole_gradient()
            self._check_flat("value", None, whole)
            self._check_slope("value", None, whole)
        # Last, so that many other calls lie between the two: hidden state would show.
        for theta, before in (
            (self.theta0, self.start_value),
            (self.theta, self.value),
        ):
            again = self.calls.number("value", theta)
            require(
                struct.pack("d", again) == struct.pack("d", before),
                f"{self.name}.value is not pure: the same theta gave another number the second time.",
            )

    def mistake_at(self, theta: Array) -> str | None:
        """Return the sentence for a gradient over all rows that is wrong at `theta`, or None."""
        A, _ = self._samples()
        # What rounding may leave of a gradient is judged by its size at the start.
        self.gradient_size = _norm(_finite(self.calls.grad(self.theta0, A)))
        self.theta = theta
        self.reach = 0.1 * np.maximum(np.abs(theta.astype(np.float64)), 1.0)
        self.value = self.calls.number("value", theta)
        g = _finite(self._whole_gradient())
        slopes = self._wrong_slopes("value", None, g)
        return _mistake(self.name, "value", slopes) if slopes else None

    def _samples(self) -> tuple[Rows, Rows]:
        """Return two small samples; the last row of the second is the first row of the first."""
        count = min(self.n, 2 * _ROWS_PER_SAMPLE - 1)
        rows = self.rng.choice(self.n, count, replace=False).astype(np.int64)
        half = (count + 1) // 2
        return rows[:half], np.append(rows[half:], rows[0])

    def _check_purity(self, A: Rows) -> None:
        self.start_value = self.calls.number("value", self.theta0)
        # The two calls find different numbers in `out`, which a pure gradient overwrites.
        first = self.calls.grad(self.theta0, A, MARK)
        second = self.calls.grad(self.theta0, A)
        if first.tobytes() == second.tobytes():
            return
        require(
            not bool((np.isnan(second) & ~np.isnan(first)).any()),
            f"{self.name}.grad reads out, or leaves entries of it unwritten: write every one, out[:] = ...",
        )
        raise BadInput(
            f"{self.name}.grad is not pure: the same theta and rows gave other bits."
        )

    def _move_away(self) -> None:
        """Choose `theta` near the start, nearer where the objective is not finite."""
        draw = self.rng.standard_normal(self.theta0.size)
        # A barrier, such as a logarithm, may be near the start.
        for share in (0.1, 1e-3, 1e-5):
            self.reach = share * self.size
            self.theta = (self.theta0 + self.reach * draw).astype(self.theta0.dtype)
            self.value = self.calls.number("value", self.theta)
            if math.isfinite(self.value):
                return
        raise NothingToJudge

    # -- rows

    def _check_rows(self, A: Rows, B: Rows) -> None:
        theta, calls = self.theta, self.calls
        both = np.concatenate([A, B])
        gA, gB, gC = (_finite(calls.grad(theta, rows)) for rows in (A, B, both))
        self.gradient = gC
        self.gradient_size = max(map(_norm, (gA, gB, gC)))
        # Relative to the terms and not to the difference: large terms may cancel.
        terms = (A.size * gA, B.size * gB, both.size * gC)
        allowed = self.rows_tolerance * sum(map(_norm, terms))
        # One equation holds exactly if rows are scaled and the prior is counted once.
        if _norm(terms[0] + terms[1] - terms[2]) <= allowed:
            return
        raise BadInput(
            f"{self.name}.grad weights rows wrongly, for two samples disagree with both together: multiply "
            "the sum over the rows by n_data / len(rows), count a row that occurs twice as two, and the "
            "prior once."
        )

    def _whole_gradient(self) -> Vector:
        """Return the gradient over all rows, as the weighted mean over parts that `_check_rows` allows."""
        parts = np.array_split(np.arange(self.n), -(-self.n // _ROWS_PER_CALL))
        whole = sum(
            part.size / self.n * self.calls.grad(self.theta, part) for part in parts
        )
        return _finite(np.asarray(whole))

    # -- value_rows and grad_with_value

    def _check_value_rows(self, A: Rows, B: Rows) -> None:
        name, n = self.name, self.n
        theta, calls = self.theta, self.calls
        both = np.concatenate([A, B])
        vA, vB, vC = (calls.number("value_rows", theta, rows) for rows in (A, B, both))
        if not all(map(math.isfinite, (vA, vB, vC))):
            raise NothingToJudge
        self.rows_value = vC
        allowed = self.value_tolerance * (abs(vA) + abs(vB) + abs(vC))
        require(
            abs(A.size * vA + B.size * vB - both.size * vC) <= both.size * allowed,
            f"{name}.value_rows weights rows wrongly, for two samples disagree with both together: multiply "
            "the sum over the rows by n_data / len(rows), and count the prior once.",
        )
        if calls.has("grad_with_value"):
            gradient, value = calls.grad_with_value(theta, both)
            require(
                abs(value - vC) <= allowed,
                f"{name}.grad_with_value returns {value:.6g} where {name}.value_rows says {vC:.6g}.",
            )
            require(
                _norm(gradient - self.gradient)
                <= self.rows_tolerance * _norm(self.gradient),
                f"{name}.grad_with_value writes another gradient than {name}.grad.",
            )
        whole = calls.number("value_rows", theta, np.arange(n))
        allowed = self.value_tolerance * (abs(whole) + abs(self.value) + abs(vC))
        if math.isfinite(whole) and abs(whole - self.value) > allowed:
            raise BadInput(
                f"{name}.value_rows of all rows is {whole:.6g} where {name}.value is {self.value:.6g}: both "
                "must be the sum over the rows, with the same prior."
            )

    # -- slopes

    def _check_slope(self, function: str, rows: Rows | None, g: Vector) -> None:
        """Refuse a gradient that is clearly not that of the values."""
        slopes = self._wrong_slopes(function, rows, g)
        if slopes:
            raise BadInput(_mistake(self.name, function, slopes))

    def _check_flat(self, function: str, rows: Rows | None, g: Vector) -> None:
        """Refuse a gradient that is exactly zero here and at the start, although the values differ."""
        if g.any():
            return
        here = self.value if rows is None else self.rows_value
        there = self.calls.number(function, self.theta0, rows)
        all_rows = np.arange(self.n) if rows is None else rows
        if here != there and not self.calls.grad(self.theta0, all_rows).any():
            raise BadInput(
                f"{self.name}.grad is exactly zero where {self.name}.{function} changes: values that jump, "
                "such as a count of errors, have no slope to follow; minimise a smooth loss instead."
            )

    def _wrong_slopes(
        self, function: str, rows: Rows | None, g: Vector
    ) -> list[_Slope]:
        """Return the slopes that disagree, if most of four directions do; one suffices to pass."""
        first = self._slope(function, rows, g, self._direction(_finite(g)))
        if not first.wrong:
            return []
        none = np.zeros_like(g)
        # Random, with a share along theta alone.
        others = [
            self._slope(function, rows, g, self._direction(none)) for _ in range(3)
        ]
        slopes = [slope for slope in [first, *others] if slope.wrong]
        return slopes if len(slopes) >= 3 else []

    def _slope(
        self, function: str, rows: Rows | None, g: Vector, direction: Vector
    ) -> _Slope:
        """Measure the slope along `direction`, over shorter and shorter steps while it disagrees."""
        before: _Slope | None = None
        wrong: _Slope | None = None
        small = 0
        # The first step is far above rounding.
        for k, length in enumerate(10 * self.eps**0.25 / 4.0 ** np.arange(_LENGTHS)):
            slope = self._measured(function, rows, g, length * direction)
            if slope is None:
                continue
            if slope.off <= slope.rounding:
                return slope
            if wrong is None:
                # Noise is not off by the same share over two steps.
                alike = before and _near(before.share_off, slope.share_off, 0.15)
                wrong = slope if slope.wrong and alike else None
                before = slope
                if wrong is None and k + 1 >= _USUAL_LENGTHS:
                    return slope._replace(unsure=math.inf)
                continue
            # What a wrong gradient is off by shrinks with the step alone.
            share = 0.1 * abs(wrong.share_off) * _norm(slope.step)
            small = small + 1 if slope.off <= share else 0
            if small == 3:  # one may agree by chance
                return slope._replace(unsure=math.inf)
            if slope.rounding > share:
                break
        if before is None:
            raise NothingToJudge
        return before if wrong is None else wrong

    def _measured(
        self, function: str, rows: Rows | None, g: Vector, d: Vector
    ) -> _Slope | None:
        """Return the slope from differences over d and 2d; None if a value is not finite."""
        theta = self.theta.astype(np.float64)
        points = [(theta + k * d).astype(self.theta.dtype) for k in (-2, -1, 1, 2)]
        U = [self.calls.number(function, point, rows) for point in points]
        # U(theta) is known for every step length.
        U.insert(2, self.value if rows is None else self.rows_value)
        # The steps as rounded to theta's type, not as intended: in float32 they differ.
        left2, left, right, right2 = (point.astype(np.float64) for point in points)
        near, far = right - left, right2 - left2
        off_near, off_far = U[3] - U[1] - float(g @ near), U[4] - U[0] - float(g @ far)
        # A wrong slope e adds 2e and 4e to these, curvature c adds 2c and 16c: e without c, then c alone.
        off, bent = (8 * off_near - off_far) / 6, abs(off_far - 2 * off_near)
        # The fourth difference, which no smooth U has at this step: noise, or oscillation.
        rough = 2 * abs(U[0] + U[4] - 4 * (U[1] + U[3]) + 6 * U[2])
        size = max(self.gradient_size, _norm(g)) if g.any() else 0.0
        # 16 eps |U| is a generous bound on the rounding of a sum over a few rows.
        noise = 16 * self.eps * max(map(abs, U))
        rounding = noise + self.slope_tolerance * size * _norm(near)
        unsure = 2 * (bent + rough) + noise + rounding
        if not math.isfinite(unsure):
            return None
        return _Slope(near, float(g @ near) + off, float(g @ near), unsure, rounding)

    def _direction(self, g: Vector) -> Vector:
        """Return a random direction of the size of `reach`, with shares along theta (for priors) and g."""
        theta, long = self.theta.astype(np.float64), _norm(self.reach)
        v: Vector = self.reach * self.rng.standard_normal(g.size)
        for other in (theta, g):
            size = _norm(other)
            # Squares of tiny numbers underflow.
            if size > 0.0:
                v += other * (long / size)
        return v


def _mistake(name: str, function: str, slopes: list[_Slope]) -> str:
    """Return the sentence for slopes that disagree, which a factor may explain."""
    values = np.array([slope.values for slope in slopes])
    gradients = np.array([slope.gradient for slope in slopes])
    if not gradients.any():
        return f"{name}.grad is zero where {name}.{function} changes: write the derivative into out[:]."
    factor = float(values @ gradients) / float(gradients @ gradients)
    allowed = 1e-3 * np.abs(values).max() + np.array([s.unsure for s in slopes])
    explained = bool((np.abs(values - factor * gradients) <= allowed).all())
    if explained and abs(factor - 1.0) > _OTHER_SIZE:
        return (
            f"{name}.grad is {1.0 / factor:.4g} times the gradient of {name}.{function}: one of them misses a "
            "factor, such as n_data / len(rows), a sign, or the 1/2 of a square."
        )
    return (
        f"{name}.grad is not the gradient of {name}.{function}: along a line it says {gradients[0]:.6g} and "
        f"differences say {values[0]:.6g}, so a derivative is wrong, or a term such as the prior is in one "
        "of them alone, or not with the same weight."
    )


def _finite(g: Vector) -> Vector:
    """Return g if it is finite; raise `NothingToJudge` otherwise."""
    if not math.isfinite(_norm(g)):
        raise NothingToJudge
    return g


def _norm(g: Vector) -> float:
    return float(np.linalg.norm(g))


def _near(a: float, b: float, share: float) -> bool:
    """Return whether b differs from a by at most this share of a."""
    return abs(a - b) <= share * abs(a)
