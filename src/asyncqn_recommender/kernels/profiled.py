"""Factorization with one side eliminated: ridge problems of K unknowns, and the envelope gradient.

For a fixed item matrix F, user u's row minimises sum_{m in u} (y - f_m.g)^2 / 2 + lambda_u |g|^2 / 2, so it
solves (sum f f' + lambda_u I) g = sum y f.  Ratings are grouped: those of row r of the solved side are at
start[r]:start[r + 1] of `others` (the row on the fixed side) and `values`.

A user with n < K ratings has the same solution from n unknowns: g = A'(A A' + lambda_u I)^-1 y with the rows
f in A. The time of a pass therefore grows more slowly than K^2 once most users have fewer than K ratings.

A rating may have a weight w: then (sum w f f' + lambda_u I) g = sum y f, and the error is w f.g - y; see
`kernels.whitened` for the objective that this is the gradient of.

Rows of the fixed side are padded with zeros in front to `size` numbers, a multiple of eight: see
`kernels.tiles`, in which all sums are computed.  One compiled kernel serves every rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncqn.kernels import reducing_kernel, reducing_piece, stack_array
from asyncqn_recommender.kernels.factorization import row_add, row_dot
from asyncqn_recommender.kernels.tiles import (
    EIGHT,
    FOUR,
    ONE,
    SIDE,
    add_panel,
    add_rows,
    add_tile,
    four_dots,
    padded,
    solve,
)

IN_CACHE = 16_384
"""Numbers of the fixed side that are processed together, so that they are loaded from memory once."""


class Workspace(NamedTuple):
    """Scratch space for the normal equations of one row; each thread needs its own."""

    matrix: Any
    goal: Any
    """The right-hand side, and afterwards the solution, of `size` numbers."""
    pivots: Any
    across: Any
    """The rows f of a user with few ratings, one column each."""
    identity: Any
    ones: Any
    lead: Any
    """The number of padding zeros of a row."""


def workspace(rank: int, dtype: Any) -> Workspace:
    """Return the scratch space for rows of `rank` numbers."""
    size = padded(rank)
    return Workspace(
        np.zeros(size * size, dtype),
        np.zeros(size, dtype),
        np.zeros(size, dtype),
        np.zeros(size * size, dtype),
        np.arange(size, dtype=np.int32),
        np.ones(size, dtype),
        np.uintp(size - rank),
    )


def padded_rows(rows: Any, rank: int) -> Any:
    """Return a flat copy of the flat rows of `rank` numbers, with padding in front of each."""
    out = np.zeros((len(rows) // rank, padded(rank)), rows.dtype)
    out[:, padded(rank) - rank :] = rows.reshape(-1, rank)
    return out.reshape(-1)


def padded_matrix(matrix: Any, dtype: Any) -> Any:
    """Return a square matrix with its rows padded, flat."""
    return padded_rows(np.ascontiguousarray(matrix, dtype).ravel(), len(matrix))


class Visit(NamedTuple):
    """The rows of the solved side that are solved: order[i] for every i of `rows`, with their ridges."""

    order: Any
    rows: Any
    ridges: Any
    """Lambda of every row of that side."""


class Results(NamedTuple):
    """The arrays that `solve_rows` adds to; empty ones are left alone."""

    sums: Any
    """Shaped like the fixed side: scale * sum_{m in r} e g for row m."""
    second: Any
    """K x K: sum_r n_r g g', with weights sum_r g g'."""
    out: Any
    """The solved rows."""


def nothing(like: Any) -> Any:
    """Return an empty matrix, for a result that is not wanted."""
    return np.empty((0, 0), like.dtype)


@reducing_piece
def _set_across(side, weights, begin, count, n, fixed, work):
    """Write the rows f of `count` ratings to columns of `across`, and their y to the goal; n includes
    padding.

    With weights they are f sqrt(w) and y / sqrt(w).
    """
    real = fixed.dtype.type
    size = np.uintp(len(work.goal))
    lead = n - count
    for i in range(lead):
        for k in range(size):
            work.across[k * n + i] = real(0.0)
        work.goal[i] = real(0.0)
    for i in range(count):
        row = np.uintp(np.uint32(side.others[begin + i])) * size
        root = real(1.0)
        if weights is not None:
            root = real(np.sqrt(weights[begin + i]))
        for k in range(size):
            work.across[k * n + lead + i] = root * fixed[row + k]
        work.goal[lead + i] = real(side.values[begin + i]) / root


@reducing_piece
def fit_row(side, weights, begin, end, fixed, ridge, work):
    """Solve the ridge problem of the ratings begin:end; the solution is work.goal, padding included."""
    size = np.uintp(len(work.goal))
    eights = np.uintp(SIDE)
    zero = np.uintp(0)
    real = work.matrix.dtype.type
    unit = real(1.0)
    count = end - begin
    # With few ratings the system of n unknowns is smaller than that of K unknowns.
    few = count + eights <= size
    lead = (eights - count % eights) % eights if few else work.lead
    n = (count + np.uintp(SIDE - 1)) // eights * eights if few else size
    for k in range(n * n):
        work.matrix[k] = real(0.0)
    for k in range(size):
        work.goal[k] = real(0.0)
    if few:
        _set_across(side, weights, begin, count, n, fixed, work)
    rows, index = (work.across, work.identity) if few else (fixed, side.others)
    place, last = (zero, size) if few else (begin, end)
    # Several panels use the same rows, so a chunk of them must stay in the cache.
    chunk = np.uintp(IN_CACHE) // n + np.uintp(1) if n > zero else size
    while place < last and n > zero:
        here = min(chunk, last - place)
        for top in range(zero, n, eights):
            if weights is None:
                source = (rows, index, place, here, None)
                add_panel(work.matrix, top, lead, n, source, unit)
            else:
                heavy = work.ones if few else weights
                weighted = (rows, index, place, here, heavy)
                add_panel(work.matrix, top, lead, n, weighted, unit)
        if not few:
            # y takes the place of the weights, and the factors on the left are 1.
            targets = (fixed, side.others, place, here, side.values)
            left = (work.ones, zero, zero)
            add_rows(work.goal, zero, zero, size, left, targets, unit, ONE)
        place += here
    solve(work, lead, n, ridge)
    if few:
        for k in range(n):
            work.pivots[k] = work.goal[k]
        for k in range(size):
            total = real(0.0)
            for part in range(zero, n, eights):
                total += row_dot(work.across, k * n + part, work.pivots, part, EIGHT)
            work.goal[k] = total


@reducing_piece
def _term(dot, value, weights, place):
    """Return, for f.g = dot, the factor e of a rating's gradient e g, and twice its part of the objective."""
    if weights is None:
        error = dot - value
        return error, error * error
    miss = type(dot)(1.0) - dot
    return weights[place] * dot - value, value * miss * miss - dot * dot


@reducing_piece
def _add_errors(side, weights, begin, end, fixed, scale, sums, work):
    """Add scale * e * g to sums[row] for every rating, with g = goal; return twice their objective.

    e = f.g - y, and e^2 is summed.  With weights, where y = 1 + w, e = w f.g - y and the term is y (1 -
    f.g)^2 - (f.g)^2.
    """
    size = np.uintp(len(work.goal))
    zero = np.uintp(0)
    four = np.uintp(4)
    eights = np.uintp(SIDE)
    real = fixed.dtype.type
    squares = 0.0
    rows = stack_array(4, zero)
    dots = stack_array(4, real(0.0))
    shares = stack_array(4, real(0.0))
    place = begin
    # Four ratings at a time share each load of g.
    while place < end:
        here = min(four, end - place)
        for i in range(four):
            # The last group is filled up with its first rating, of which the results are not used.
            rating = place + i if i < here else place
            rows[i] = np.uintp(np.uint32(side.others[rating])) * size
        four_dots(fixed, rows, work.goal, size, dots)
        terms = real(0.0)
        for i in range(here):
            value = real(side.values[place + i])
            error, term = _term(dots[i], value, weights, place + i)
            shares[i] = scale * error
            terms += term
        for part in range(zero, size, eights):
            for i in range(here):
                row_add(sums, rows[i] + part, shares[i], work.goal, part, EIGHT)
        # Four terms in the precision of theta, then float64: adding millions in float32 would lose digits.
        squares += float(terms)
        place += four
    return squares


@reducing_kernel
def solve_rows(side, weights, visit, fixed, scale, results, work):
    """Solve the rows of a visit, given the padded other side `fixed`.

    By the envelope theorem the solution g counts as a constant in `results`.  Returns whether all rows exist,
    the sum of `_add_errors`, sum_r lambda_r |g|^2, and sum_r n_r (with weights, the number of rows).
    """
    size = np.uintp(len(work.goal))
    n_rows = np.uint64(len(side.start) - 1)
    zero = np.uintp(0)
    eights = np.uintp(SIDE)
    real = work.goal.dtype.type
    sums, second, out = results
    valid = True
    squares = 0.0
    penalty = 0.0
    counted = 0
    for position in range(len(visit.rows)):
        place = np.uint64(visit.rows[position])
        if place >= n_rows:
            valid = False
            continue
        row = np.uint64(visit.order[place])
        begin = np.uintp(side.start[row])
        end = np.uintp(side.start[row + np.uint64(1)])
        fit_row(side, weights, begin, end, fixed, visit.ridges[row], work)
        if len(out):
            for k in range(out.shape[1]):
                out[row, k] = work.goal[work.lead + np.uintp(k)]
        if not len(sums):
            continue
        # |g|^2, for the penalty of the row.
        norm = real(0.0)
        for part in range(zero, size, eights):
            norm += row_dot(work.goal, part, work.goal, part, EIGHT)
        penalty += float(visit.ridges[row] * norm)
        count = int(end - begin) if weights is None else 1
        counted += count
        for k in range(second.shape[0]):
            # The weight of a user in C is its number of ratings.
            share = real(count) * work.goal[work.lead + np.uintp(k)]
            for l in range(second.shape[1]):
                second[k, l] += share * work.goal[work.lead + np.uintp(l)]
        squares += _add_errors(side, weights, begin, end, fixed, scale, sums, work)
    return valid, squares, penalty, counted


@reducing_piece
def rows_to_columns(rows, first, here, step, work, columns):
    """Write rows first:first + here of `rows`, which are `step` numbers long, to eight columns."""
    size = np.uintp(len(work.goal))
    eights = np.uintp(SIDE)
    missing = size - step  # nonzero for rows without padding
    for k in range(size):
        for i in range(eights):
            inside = i < here and k >= work.lead
            columns[k * eights + i] = (
                rows[(first + i) * step + k - missing]
                if inside
                else columns.dtype.type(0.0)
            )


@reducing_piece
def add_turned(columns, matrix, work, out):
    """out += M' columns for eight columns; M is padded in front of its rows and of each row."""
    size = np.uintp(len(work.goal))
    zero = np.uintp(0)
    eights = np.uintp(SIDE)
    right = (columns, work.lead * eights, eights)
    over = (work.identity, zero, size - work.lead, None)
    for top in range(zero, size, np.uintp(4)):
        target = (out, top * eights, eights)
        left = (matrix, top, size)
        unit = columns.dtype.type(1.0)
        add_tile(target, left, right, over, unit, FOUR, EIGHT)


@reducing_kernel
def apply_metric(v, basis, transposed, spectrum, counts, base, out, work):
    """out[m] = Q diag[1 / (base_m + n_m Lambda)] Q' v[m] for every item row m; `out` must not be `v`.

    Q is in `basis` and Q' in `transposed`, padded; eight items are processed at a time, one per column of
    `work`.
    """
    rank = np.uintp(len(spectrum))
    size = np.uintp(len(work.goal))
    zero = np.uintp(0)
    eights = np.uintp(SIDE)
    n_items = np.uintp(len(counts))
    real = out.dtype.type
    columns = work.across
    shares = work.matrix
    for first in range(zero, n_items, eights):
        here = min(eights, n_items - first)
        rows_to_columns(v, first, here, rank, work, columns)
        for k in range(size * eights):
            shares[k] = real(0.0)
        add_turned(columns, basis, work, shares)
        for k in range(rank):
            for i in range(eights):
                # Columns beyond the last item hold zeros; they are divided by the last item's number to avoid
                # a branch.
                item = min(first + i, n_items - np.uintp(1))
                shares[(work.lead + k) * eights + i] /= (
                    base[item] + counts[item] * spectrum[k]
                )
                columns[(work.lead + k) * eights + i] = real(0.0)
        add_turned(shares, transposed, work, columns)
        for i in range(here):
            for k in range(rank):
                out[(first + i) * rank + k] = columns[(work.lead + k) * eights + i]
