"""Factorization with one side eliminated: ridge problems of K unknowns, and the envelope gradient.

For a fixed item matrix F, user u's row minimises sum_{m in u} (y - f_m.g)^2 / 2 + lambda_u |g|^2 / 2, so
it solves (sum f f' + lambda_u I) g = sum y f.  Ratings come grouped: those of row r of the solved
side stand at start[r]:start[r + 1] of `others` (the row on the fixed side) and `values`.

The normal equations of one row live in `system`, (K + 2) rows of `stride` numbers: the K x K
matrix, the right-hand side, which `solve` replaces by the solution, and a row that `solve` works with.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from asyncqn.kernels.factorization import operation, pieces, row_add, row_dot, sums_of_four
from asyncqn.kernels.jit import reducing_kernel, reducing_piece


def scratch(rank: int, dtype: Any) -> Any:
    """A `system` for rows of `rank` numbers; each thread needs its own."""
    return np.zeros((rank + 2) * stride(rank), dtype)


def stride(rank: int) -> int:
    """The distance between rows of a `system`: a power of two, so that vectors need no mask."""
    return 1 << (rank - 1).bit_length()


def _index(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _cuts(rank: int, bits: int) -> list[tuple[int, int]]:
    """Where a row of `rank` numbers is cut so that each part fits a machine vector of 256 bits."""
    lanes = 256 // bits
    return [(first, min(first + lanes, rank)) for first in range(0, rank, lanes)]


def _add_products(_: Any, system: Any, fixed: Any, rows: Any, values: Any, step: Any, width: Any) -> Any:
    """Add sum_i f_i f_i' and sum_i y_i f_i to `system`, for the rows that start at rows[i] of `fixed`.

    The matrix is symmetric, and only its upper half is certain to be right.
    Several ratings at a time: each row of the system is then loaded and stored once for all.
    """

    def loops(system: Any, fixed: Any, rows: Any, values: Any, step: Any, width: Any) -> None:
        rank = np.uintp(len(width))
        for i in range(len(rows)):
            for k in range(rank):
                scale = fixed[rows[i] + k]
                for l in range(rank):
                    system[k * step + l] += scale * fixed[rows[i] + l]
            for l in range(rank):
                system[rank * step + l] += values[i] * fixed[rows[i] + l]

    def emit(row: Any, args: Any) -> None:
        rank, lanes = len(width), stride(len(width))
        builder = row(0, _index(0)).builder
        starts = [builder.extract_value(args[2], i) for i in range(len(rows))]
        scales = [row(1, start) for start in starts]
        cuts = _cuts(rank, fixed.dtype.bitwidth)
        sources = {
            first: [row(1, builder.add(start, _index(first)), last - first).load() for start in starts]
            for first, last in cuts
        }
        for k in range(rank + 1):
            for first, last in cuts:
                if last <= k < rank:
                    continue  # of the matrix, only what is right of the diagonal is needed
                target = row(0, _index(k * lanes + first), stride(last - first))
                total = target.load()
                products = [
                    target.scaled(scale.number(k) if k < rank else builder.extract_value(args[3], i), vector)
                    for i, (scale, vector) in enumerate(zip(scales, sources[first]))
                ]
                # Adding the products first keeps the chain from one store to the next load short.
                target.store(target.plus(total, functools.reduce(target.plus, products)))

    return operation(types.void, (system, fixed, rows, values, step, width), loops, emit)


def _add_errors(
    _: Any, out: Any, theta: Any, rows: Any, values: Any, place: Any, scale: Any, system: Any, goal: Any,
    width: Any,
) -> Any:  # fmt: skip
    """For four ratings at `place` of `values`, with error e = f.g - y: out[row] += scale * e * g; sum e^2.

    g is the row at `goal` of `system`.  Four inner products are summed up together, which takes half
    the shuffles of one after the other.
    """

    def loops(
        out: Any, theta: Any, rows: Any, values: Any, place: Any, scale: Any, system: Any, goal: Any,
        width: Any,
    ) -> Any:  # fmt: skip
        rank = np.uintp(len(width))
        squares = out.dtype.type(0.0)
        for i in range(np.uintp(4)):
            error = -out.dtype.type(values[place + i])
            for k in range(rank):
                error += theta[rows[i] + k] * system[goal + k]
            for k in range(rank):
                out[rows[i] + k] += scale * error * system[goal + k]
            squares += error * error
        return squares

    def emit(row: Any, args: Any) -> Any:
        start = args[7]
        solved, builder = row(6, start), row(6, start).builder
        g = solved.load()
        starts = [builder.extract_value(args[2], i) for i in range(4)]
        dots = sums_of_four([solved.times(row(1, place).load(), g) for place in starts], solved)
        four = row(3, args[4], 4)
        targets = four.load()
        if targets.type != dots.type:
            targets = builder.fpext(targets, dots.type)
        errors = builder.fsub(dots, targets, flags=solved.flags)
        line = row(6, start, 4)
        steps = line.times(errors, line.splat(args[5]))
        shares = [piece.load() for piece in pieces(row, 6, start, width)]
        for i, place in enumerate(starts):
            for target, share in zip(pieces(row, 0, place, width), shares):
                step = target.picked(steps, i)
                target.store(target.plus(target.load(), target.times(step, share)))
        return line.total(line.times(errors, errors))

    signature = (out, theta, rows, values, place, scale, system, goal, width)
    return operation(out.dtype, signature, loops, emit)


def _metric(
    _: Any,
    out: Any,
    v: Any,
    i: Any,
    basis: Any,
    transposed: Any,
    spectrum: Any,
    base: Any,
    n: Any,
    width: Any,
) -> Any:
    """out[i row] = Q diag[1 / (base + n * spectrum)] Q' v[i row], Q flat in `basis`, Q' in `transposed`."""

    def loops(
        out: Any, v: Any, i: Any, basis: Any, transposed: Any, spectrum: Any, base: Any, n: Any, width: Any
    ) -> None:
        rank = np.uintp(len(width))
        for l in range(rank):
            out[i + l] = out.dtype.type(0.0)
        for k in range(rank):
            share = v[i] * transposed[k * rank]
            for l in range(np.uintp(1), rank):
                share += v[i + l] * transposed[k * rank + l]
            share /= base + n * spectrum[k]
            for l in range(rank):
                out[i + l] += share * transposed[k * rank + l]

    def emit(row: Any, args: Any) -> None:
        places = [_index(k * len(width)) for k in range(len(width))]
        target, source = row(0, args[2]), row(1, args[2])
        lines = [target.scaled(source.number(k), row(3, place).load()) for k, place in enumerate(places)]
        shares = functools.reduce(target.plus, lines)
        curvature = target.plus(target.splat(args[6]), target.scaled(args[7], row(5, places[0]).load()))
        shares = target.builder.fdiv(shares, curvature)
        lines = [target.times(target.picked(shares, k), row(4, p).load()) for k, p in enumerate(places)]
        target.store(functools.reduce(target.plus, lines))

    signature = (out, v, i, basis, transposed, spectrum, base, n, width)
    return operation(types.void, signature, loops, emit)


add_products: Any = intrinsic(_add_products)
add_errors: Any = intrinsic(_add_errors)
metric_row: Any = intrinsic(_metric)


@reducing_piece
def solve(system: Any, stride: Any, ridge: Any, width: Any) -> None:
    """Cholesky: row K of `system` becomes (matrix + ridge I)^-1 times what it was.

    The matrix is read in its upper half.
    """
    if len(width) <= 8:
        _solve_by_entries(system, int(stride), ridge, width)
    else:
        _solve_by_rows(system, stride, ridge, width)


@reducing_piece
def _solve_by_entries(system: Any, step: Any, ridge: Any, width: Any) -> None:
    """For a matrix so small that all loops vanish; the factor goes to the lower half."""
    rank = len(width)
    goal = rank * step
    for k in range(rank):
        row = k * step
        for l in range(k):
            total = system[l * step + k]
            for p in range(l):
                total -= system[row + p] * system[l * step + p]
            system[row + l] = total * system[l * step + l]
        total = system[row + k] + ridge
        for p in range(k):
            total -= system[row + p] * system[row + p]
        # The diagonal keeps the reciprocal: one division a row instead of one an entry.
        system[row + k] = system.dtype.type(1.0) / np.sqrt(total)
        total = system[goal + k]
        for p in range(k):
            total -= system[row + p] * system[goal + p]
        system[goal + k] = total * system[row + k]
    for back in range(rank):
        k = rank - 1 - back
        total = system[goal + k]
        for p in range(k + 1, rank):
            total -= system[p * step + k] * system[goal + p]
        system[goal + k] = total * system[k * step + k]


@reducing_piece
def _solve_by_rows(system: Any, step: Any, ridge: Any, width: Any) -> None:
    """In whole vectors of eight: each row of the factor is subtracted from all rows below at once."""
    eight = (0, 0, 0, 0, 0, 0, 0, 0)
    one, eights = np.uintp(1), np.uintp(8)
    rank = np.uintp(len(width))
    goal, pivots = rank * step, (rank + one) * step
    end = (rank + np.uintp(7)) // eights * eights
    for k in range(rank):
        row, first = k * step, k // eights * eights
        for p in range(first, k):
            system[row + p] = system.dtype.type(0.0)
        pivot = system.dtype.type(1.0) / np.sqrt(system[row + k] + ridge)
        system[pivots + k] = pivot
        for p in range(first, end):
            system[row + p] *= pivot
        known = system[goal + k] * pivot
        for part in range(first, end, eights):
            for below in range(k + one, min(rank, part + eights)):
                row_add(system, below * step + part, -system[row + below], system, row + part, eight)
            row_add(system, goal + part, -known, system, row + part, eight)
        system[goal + k] = known
        system[row + k] = system.dtype.type(0.0)
    for back in range(rank):
        last = rank - one - back
        total = system[goal + last]
        for part in range(last // eights * eights, end, eights):
            total -= row_dot(system, last * step + part, system, goal + part, eight)
        system[goal + last] = total * system[pivots + last]


@reducing_piece
def fit_row(
    others: Any, values: Any, begin: Any, end: Any, fixed: Any, ridge: Any, system: Any, width: Any
) -> None:
    """Solve the ridge problem of the ratings begin:end; the solution is row K of `system`."""
    rank, one, two, three, four = np.uintp(len(width)), np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    step = np.uintp(len(system)) // (rank + two)
    real = system.dtype.type
    for k in range(np.uintp(len(system))):
        system[k] = real(0.0)
    place = begin
    while place + four <= end:
        rows = (
            np.uintp(np.uint32(others[place])) * rank,
            np.uintp(np.uint32(others[place + one])) * rank,
            np.uintp(np.uint32(others[place + two])) * rank,
            np.uintp(np.uint32(others[place + three])) * rank,
        )
        targets = (
            real(values[place]),
            real(values[place + one]),
            real(values[place + two]),
            real(values[place + three]),
        )
        add_products(system, fixed, rows, targets, step, width)
        place += four
    while place < end:
        rows1 = (np.uintp(np.uint32(others[place])) * rank,)
        add_products(system, fixed, rows1, (real(values[place]),), step, width)
        place += one
    solve(system, step, ridge, width)


@reducing_kernel
def solve_rows(
    start: Any,
    others: Any,
    values: Any,
    first: int,
    last: int,
    fixed: Any,
    ridges: Any,
    system: Any,
    out: Any,
    width: Any,
) -> None:
    """out[row] = the solution of every row in first:last, given the other side `fixed`."""
    rank = np.uintp(len(width))
    goal = np.uintp(len(system)) // (rank + np.uintp(2)) * rank
    for row in range(np.uintp(first), np.uintp(last)):
        begin, end = np.uintp(start[row]), np.uintp(start[row + np.uintp(1)])
        fit_row(others, values, begin, end, fixed, ridges[row], system, width)
        for k in range(rank):
            out[row * rank + k] = system[goal + k]


@reducing_kernel
def gradient(
    start: Any,
    items: Any,
    values: Any,
    order: Any,
    rows: Any,
    theta: Any,
    ridges: Any,
    scale: Any,
    out: Any,
    second: Any,
    system: Any,
    width: Any,
) -> tuple[bool, float, float, int]:
    """Add scale * sum_{m in u} (f_m.g_u - y) g_u to row m of `out`, for every u of order[rows].

    By the envelope theorem the solved g_u counts as a constant.  `second` (K x K, flat) receives
    sum_u n_u g_u g_u' on top.  Returns whether all rows exist, the sum of squared errors,
    sum_u lambda_u |g_u|^2, and sum_u n_u.
    """
    rank, n_users = np.uintp(len(width)), np.uint64(len(start) - 1)
    goal = np.uintp(len(system)) // (rank + np.uintp(2)) * rank
    one, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    valid, squares, penalty, ratings = True, 0.0, 0.0, 0
    for position in range(len(rows)):
        row = np.uint64(rows[position])
        if row >= n_users:
            valid = False
            continue
        user = np.uint64(order[row])
        begin, end = np.uintp(start[user]), np.uintp(start[user + np.uint64(1)])
        fit_row(items, values, begin, end, theta, ridges[user], system, width)
        penalty += float(ridges[user] * row_dot(system, goal, system, goal, width))
        ratings += int(end - begin)
        weight = theta.dtype.type(end - begin)
        for k in range(rank):
            row_add(second, k * rank, weight * system[goal + k], system, goal, width)
        place = begin
        while place + four <= end:
            rated = (
                np.uintp(np.uint32(items[place])) * rank,
                np.uintp(np.uint32(items[place + one])) * rank,
                np.uintp(np.uint32(items[place + two])) * rank,
                np.uintp(np.uint32(items[place + three])) * rank,
            )
            squares += float(add_errors(out, theta, rated, values, place, scale, system, goal, width))
            place += four
        while place < end:
            item = np.uintp(np.uint32(items[place])) * rank
            error = row_dot(theta, item, system, goal, width) - theta.dtype.type(values[place])
            row_add(out, item, scale * error, system, goal, width)
            squares += float(error) * float(error)
            place += one
    return valid, squares, penalty, ratings


@reducing_kernel
def apply_metric(
    v: Any, basis: Any, transposed: Any, spectrum: Any, counts: Any, base: Any, out: Any, width: Any
) -> None:
    """out[m] = Q diag[1 / (base_m + n_m Lambda)] Q' v[m] for every item row m; `out` must not be `v`."""
    rank = np.uintp(len(width))
    for item in range(np.uintp(len(counts))):
        row = item * rank
        metric_row(out, v, row, basis, transposed, spectrum, base[item], counts[item], width)
