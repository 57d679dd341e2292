"""Products of matrices and Cholesky solves in tiles of up to 4 x 16 numbers that stay in registers.

Everything consists of one operation, a sum of outer products of pieces of rows:

    out[r, c] += scale * sum_i  w_i a_i[r] b_i[c]          r = 0..3 (or 0..1, or 0), c = 0..15 (or 0..7)

so that a few compiled loops serve every rank: zeros in front make rows a multiple of eight long, and only the
number of tiles depends on the rank.  Matrix rows that belong to the padding are skipped, so that one more
rank costs one more row.  The order of all sums depends on the sizes alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from asyncqn.kernels import reducing_call, reducing_piece
from asyncqn_recommender.kernels.factorization import (
    VectorRow,
    operation,
    row_add,
    row_dot,
    sums_of_four,
)

cgutils: Any = untyped_cgutils

SIDE = 8
"""Rows and columns of a tile."""
EIGHT = (0,) * SIDE
"""`width` of a row of a tile, for the row operations of `kernels.factorization`."""
SIXTEEN = (0,) * (2 * SIDE)
"""Two pieces side by side, which share each loaded number."""
FOUR = (0,) * 4
TWO = (0,) * 2
ONE = (0,)
"""Numbers of rows of a tile."""


def padded(rank: int) -> int:
    """Return the length of a row of `rank` numbers with the padding in front of it."""
    return -(-rank // SIDE) * SIDE


def _add_tile(
    _,
    out,
    at,
    step,
    a,
    left,
    a_step,
    b,
    right,
    b_step,
    index,
    begin,
    count,
    scale,
    weights,
    height,
    columns,
):
    """out[at + r step + c] += scale * sum over j = index[i], i in begin:begin + count, of
    weights[i] a[left + j a_step + r] b[right + j b_step + c],
    for r over the tuple `height` and c over `columns`.

    `weights` may be None, which means that all are 1.
    """
    signature = types.void(
        out,
        at,
        step,
        a,
        left,
        a_step,
        b,
        right,
        b_step,
        index,
        begin,
        count,
        scale,
        weights,
        height,
        columns,
    )

    def generate(context, builder, sig, args):
        at, step, left, a_step, right, b_step, begin, count = (
            args[i] for i in (1, 2, 4, 5, 7, 8, 10, 11)
        )
        word = at.type
        lanes = len(sig.args[15])
        numbers = context.make_array(sig.args[9])(context, builder, args[9]).data

        def row(place: int, start: Any, length: int = lanes) -> VectorRow:
            return VectorRow(
                context, builder, sig.args[place], args[place], start, length
            )

        first = row(0, at)
        # Sums of 64 float32 or 32 float64 numbers fill half the registers.
        tall = len(sig.args[14])
        rows = min(tall, SIDE * SIDE * 32 // sig.args[0].dtype.bitwidth // lanes)
        for top in range(0, tall, rows):
            totals = [
                cgutils.alloca_once_value(builder, first.zero) for _ in range(rows)
            ]
            with cgutils.for_range(builder, count, intp=word) as loop:
                place = builder.add(begin, loop.index)
                # Zero extension of an int32: indices are never negative.
                j = builder.zext(builder.load(builder.gep(numbers, [place])), word)
                of_a = row(3, builder.add(left, builder.mul(j, a_step)))
                vector = row(6, builder.add(right, builder.mul(j, b_step))).load()
                if sig.args[13] != types.none:
                    weight = context.make_array(sig.args[13])(
                        context, builder, args[13]
                    ).data
                    vector = first.scaled(
                        builder.load(builder.gep(weight, [place])), vector
                    )
                for r, total in enumerate(totals):
                    product = first.scaled(of_a.number(top + r), vector)
                    builder.store(first.plus(builder.load(total), product), total)
            for r, total in enumerate(totals):
                shift = builder.mul(step, ir.Constant(word, top + r))
                target = row(0, builder.add(at, shift))
                target.store(
                    target.plus(
                        target.load(), target.scaled(args[12], builder.load(total))
                    )
                )
        return context.get_dummy_value()

    return signature, generate


def _add_sum(_, out, at, b, right, b_step, index, begin, count, weights, columns):
    """out[at + c] += sum over j = index[i], for `count` values of i from begin, of
    weights[i] b[right + j b_step + c], for c over `columns`.
    """
    signature = types.void(
        out, at, b, right, b_step, index, begin, count, weights, columns
    )

    def generate(context, builder, sig, args):
        at, right, b_step, begin, count = (args[i] for i in (1, 3, 4, 6, 7))
        word = at.type
        lanes = len(sig.args[9])
        target = VectorRow(context, builder, sig.args[0], args[0], at, lanes)
        index, weights = (
            context.make_array(sig.args[i])(context, builder, args[i]).data
            for i in (5, 8)
        )
        total = cgutils.alloca_once_value(builder, target.zero)
        with cgutils.for_range(builder, count, intp=word) as loop:
            place = builder.add(begin, loop.index)
            j = builder.load(builder.gep(index, [place]))
            j = builder.zext(j, word) if j.type != word else j
            start = builder.add(right, builder.mul(j, b_step))
            vector = VectorRow(
                context, builder, sig.args[2], args[2], start, lanes
            ).load()
            weight = builder.load(builder.gep(weights, [place]))
            # Ratings are float32, and theta may be float64.
            weight = (
                builder.fpext(weight, target.type.element)
                if weight.type != target.type.element
                else weight
            )
            builder.store(
                target.plus(builder.load(total), target.scaled(weight, vector)), total
            )
        target.store(target.plus(target.load(), builder.load(total)))
        return context.get_dummy_value()

    return signature, generate


def _four_dots(_, a, starts, goal, size, out):
    """Write to `out` the inner products of the rows at the four `starts` of `a` with goal[:size]."""
    signature = types.void(a, starts, goal, size, out)

    def generate(context, builder, sig, args):
        size = args[3]
        word = args[3].type
        like = VectorRow(
            context, builder, sig.args[2], args[2], ir.Constant(word, 0), SIDE
        )
        starts, out = (
            context.make_array(sig.args[i])(context, builder, args[i]).data
            for i in (1, 4)
        )
        places = [ir.Constant(ir.IntType(32), i) for i in range(4)]
        rows = [builder.load(builder.gep(starts, [place])) for place in places]
        totals = [cgutils.alloca_once_value(builder, like.zero) for _ in rows]
        with cgutils.for_range_slice(
            builder, ir.Constant(word, 0), size, ir.Constant(word, SIDE), intp=word
        ) as (part, _count):
            g = VectorRow(context, builder, sig.args[2], args[2], part, SIDE).load()
            for start, total in zip(rows, totals):
                f = VectorRow(
                    context,
                    builder,
                    sig.args[0],
                    args[0],
                    builder.add(start, part),
                    SIDE,
                ).load()
                builder.store(like.plus(builder.load(total), like.times(f, g)), total)
        dots = sums_of_four([builder.load(total) for total in totals], like)
        for place in places:
            builder.store(
                builder.extract_element(dots, place), builder.gep(out, [place])
            )
        return context.get_dummy_value()

    return signature, generate


def _scale(_, out, i, scale, width):
    """out[i row] *= scale."""

    def emit(row, args):
        target = row(0, args[1])
        target.store(target.scaled(args[2], target.load()))

    return operation(types.void, (out, i, scale, width), None, emit)


add_tile: Any = intrinsic(_add_tile)
row_scale: Any = intrinsic(_scale)
add_sum: Any = intrinsic(_add_sum)
four_dots: Any = intrinsic(_four_dots)


@reducing_piece
def _add_rows(out, size, rows, row, left, index, begin, count, scale, weights, height):
    """Add to the rows from `row` of a `size` x `size` matrix, from column `left` on: see `add_panel`."""
    side = left
    while side + np.uintp(2 * SIDE) <= size:
        add_tile(
            out,
            row * size + side,
            size,
            rows,
            row,
            size,
            rows,
            side,
            size,
            index,
            begin,
            count,
            scale,
            weights,
            height,
            SIXTEEN,
        )
        side += np.uintp(2 * SIDE)
    if side < size:
        add_tile(
            out,
            row * size + side,
            size,
            rows,
            row,
            size,
            rows,
            side,
            size,
            index,
            begin,
            count,
            scale,
            weights,
            height,
            EIGHT,
        )


@reducing_call
def add_panel(out, top, lead, size, rows, index, begin, count, scale, weights):
    """Add scale * sum of w f f' to eight rows of a `size` x `size` matrix.

    The rows begin at `top`, but not before `lead`; columns begin with their diagonal tile.  The f are the
    rows index[begin:begin + count], of length `size`; w comes from `weights` at the same positions, or is 1.
    """
    zero = np.uintp(0)
    two = np.uintp(2)
    four = np.uintp(4)
    row = max(top, lead)
    end = top + np.uintp(SIDE)
    # One row, then two, then fours: together any number from 1 to 8, without a masked tile.
    if (end - row) % two > zero:
        _add_rows(out, size, rows, row, top, index, begin, count, scale, weights, ONE)
        row += np.uintp(1)
    if (end - row) % four > zero:
        _add_rows(out, size, rows, row, top, index, begin, count, scale, weights, TWO)
        row += two
    while row < end:
        _add_rows(out, size, rows, row, top, index, begin, count, scale, weights, FOUR)
        row += four


@reducing_piece
def solve(matrix, lead, size, ridge, goal, pivots, identity):
    """goal <- (matrix + ridge I)^-1 goal, by Cholesky; the upper tiles of the matrix are read and
    overwritten.

    Eight rows of the factor are computed at a time; the contribution of the rows above is a sum of tiles.
    The first `lead` rows and columns are padding, zeros.  `pivots` has room for `size` numbers; `identity` is
    0, 1, 2, ..., of at least that length.
    """
    zero = np.uintp(0)
    one = np.uintp(1)
    eights = np.uintp(SIDE)
    unit = matrix.dtype.type(1.0)
    nothing = matrix.dtype.type(0.0)
    for top in range(zero, size, eights):
        # The rows above this panel are final: their contribution, a sum of outer products, is subtracted at
        # once.
        if top > zero:
            add_panel(
                matrix, top, lead, size, matrix, identity, lead, top - lead, -unit, None
            )
        for k in range(max(top, lead), top + eights):
            row = k * size
            # The ridge is added here, so that one matrix serves rows with different ridges.
            pivot = unit / np.sqrt(matrix[row + k] + ridge)
            pivots[k] = pivot
            for p in range(top, k + one):
                matrix[row + p] = nothing  # zeros, so that whole pieces can be summed
            known = goal[k] * pivot
            goal[k] = known
            for part in range(top, size, eights):
                row_scale(matrix, row + part, pivot, EIGHT)
                row_add(goal, part, -known, matrix, row + part, EIGHT)
                for below in range(k + one, top + eights):
                    row_add(
                        matrix,
                        below * size + part,
                        -matrix[row + below],
                        matrix,
                        row + part,
                        EIGHT,
                    )
    # Back substitution; padding rows have no unknowns.
    for back in range(size - lead):
        k = size - one - back
        total = goal[k]
        for part in range(k // eights * eights, size, eights):
            total -= row_dot(matrix, k * size + part, goal, part, EIGHT)
        goal[k] = total * pivots[k]
