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


def _add_tile(_, target, left, right, over, scale, height, columns):
    """out[at + r step + c] += scale * sum over j = index[i], i in begin:begin + count, of
    weights[i] a[first_a + j a_step + r] b[first_b + j b_step + c],
    for r over the tuple `height` and c over `columns`.

    The tuples are target (out, at, step), left (a, first_a, a_step), right (b, first_b, b_step), and over
    (index, begin, count, weights), in which `weights` may be None: then all are 1.
    """
    signature = types.void(target, left, right, over, scale, height, columns)

    def generate(context, builder, sig, args):
        unpacked = [cgutils.unpack_tuple(builder, group) for group in args[:4]]
        (_out, at, step), (_a, left, a_step), (_b, right, b_step), over = unpacked
        _index, begin, count, _weights = over
        index_type, _, _, weight_type = sig.args[3]
        word = at.type
        lanes = len(sig.args[6])

        def pointer(place: int, kind: Any) -> Any:
            return context.make_array(kind)(context, builder, over[place]).data

        def row(group: int, start: Any) -> VectorRow:
            kind, array = sig.args[group][0], unpacked[group][0]
            return VectorRow(context, builder, kind, array, start, lanes)

        def number_at(place: int, kind: Any, position: Any) -> Any:
            return builder.load(builder.gep(pointer(place, kind), [position]))

        first = row(0, at)
        # Sums of 64 float32 or 32 float64 numbers fill half the registers.
        tall = len(sig.args[5])
        bits = sig.args[0][0].dtype.bitwidth
        rows = min(tall, SIDE * SIDE * 32 // bits // lanes)
        for top in range(0, tall, rows):
            totals = [
                cgutils.alloca_once_value(builder, first.zero) for _ in range(rows)
            ]
            with cgutils.for_range(builder, count, intp=word) as loop:
                place = builder.add(begin, loop.index)
                j = number_at(0, index_type, place)
                # Zero extension of an int32: indices are never negative.
                j = builder.zext(j, word) if j.type != word else j
                of_a = row(1, builder.add(left, builder.mul(j, a_step)))
                vector = row(2, builder.add(right, builder.mul(j, b_step))).load()
                if weight_type != types.none:
                    weight = number_at(3, weight_type, place)
                    # Ratings are float32, and theta may be float64.
                    if weight.type != first.type.element:
                        weight = builder.fpext(weight, first.type.element)
                    vector = first.scaled(weight, vector)
                for r, total in enumerate(totals):
                    product = first.scaled(of_a.number(top + r), vector)
                    builder.store(first.plus(builder.load(total), product), total)
            for r, total in enumerate(totals):
                shift = builder.mul(step, ir.Constant(word, top + r))
                to = row(0, builder.add(at, shift))
                share = to.scaled(args[4], builder.load(total))
                to.store(to.plus(to.load(), share))
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
four_dots: Any = intrinsic(_four_dots)


@reducing_piece
def add_rows(out, at, first, size, left, source, scale, height):
    """Add scale * sum of w a b' to rows of a matrix that begin at `at`, from column `first` on.

    The b are rows of `size` numbers, and the a, of the tuple `height`, stand in `left`: see `add_panel` and
    `_add_tile`.
    """
    rows, index, begin, count, weights = source
    over = (index, begin, count, weights)
    side = first
    while side + np.uintp(2 * SIDE) <= size:
        target = (out, at + side, size)
        add_tile(target, left, (rows, side, size), over, scale, height, SIXTEEN)
        side += np.uintp(2 * SIDE)
    if side < size:
        target = (out, at + side, size)
        add_tile(target, left, (rows, side, size), over, scale, height, EIGHT)


@reducing_call
def add_panel(out, top, lead, size, source, scale):
    """Add scale * sum of w f f' to eight rows of a `size` x `size` matrix.

    The rows begin at `top`, but not before `lead`; columns begin with their diagonal tile.  `source` is the
    tuple (rows, index, begin, count, weights): the f are rows index[begin:begin + count], of length `size`,
    and w comes from `weights` at the same positions, or is 1 where that is None.
    """
    zero = np.uintp(0)
    two = np.uintp(2)
    four = np.uintp(4)
    rows = source[0]
    row = max(top, lead)
    end = top + np.uintp(SIDE)
    # One row, then two, then fours: together any number from 1 to 8, without a masked tile.
    if (end - row) % two > zero:
        add_rows(out, row * size, top, size, (rows, row, size), source, scale, ONE)
        row += np.uintp(1)
    if (end - row) % four > zero:
        add_rows(out, row * size, top, size, (rows, row, size), source, scale, TWO)
        row += two
    while row < end:
        add_rows(out, row * size, top, size, (rows, row, size), source, scale, FOUR)
        row += four


@reducing_piece
def solve(work, lead, size, ridge):
    """goal <- (matrix + ridge I)^-1 goal, by Cholesky; the upper tiles of work.matrix are read and
    overwritten.

    Eight rows of the factor are computed at a time; the contribution of the rows above is a sum of tiles.
    The first `lead` rows and columns are padding, zeros.
    """
    zero = np.uintp(0)
    one = np.uintp(1)
    eights = np.uintp(SIDE)
    matrix = work.matrix
    goal = work.goal
    unit = matrix.dtype.type(1.0)
    for top in range(zero, size, eights):
        # The rows above this panel are final: their contribution, a sum of outer products, is subtracted at
        # once.
        if top > zero:
            source = (matrix, work.identity, lead, top - lead, None)
            add_panel(matrix, top, lead, size, source, -unit)
        for k in range(max(top, lead), top + eights):
            row = k * size
            # The ridge is added here, so that one matrix serves rows with different ridges.
            pivot = unit / np.sqrt(matrix[row + k] + ridge)
            work.pivots[k] = pivot
            for p in range(top, k + one):
                # Zeros, so that whole pieces can be summed.
                matrix[row + p] = matrix.dtype.type(0.0)
            known = goal[k] * pivot
            goal[k] = known
            for part in range(top, size, eights):
                row_scale(matrix, row + part, pivot, EIGHT)
                row_add(goal, part, -known, matrix, row + part, EIGHT)
                for below in range(k + one, top + eights):
                    share = -matrix[row + below]
                    at = below * size + part
                    row_add(matrix, at, share, matrix, row + part, EIGHT)
    # Back substitution; padding rows have no unknowns.
    for back in range(size - lead):
        k = size - one - back
        total = goal[k]
        for part in range(k // eights * eights, size, eights):
            total -= row_dot(matrix, k * size + part, goal, part, EIGHT)
        goal[k] = total * work.pivots[k]
