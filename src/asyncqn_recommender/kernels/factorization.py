"""Matrix factorization: gradients over ratings, and the row arithmetic they are made of.

A row of K numbers (one item or one user) is treated as one machine vector.  `width` says how: a tuple of
length K fixes K at compile time, and every row operation becomes a few vector instructions (masked if K is
not a power of two); an array of length K gives plain loops for large K.  Rows are read directly from theta,
which is our own choice: a padded copy of theta would cost as much as a subsample gradient.

A rating is one 12-byte record, so that a random access touches one cache line and not three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from asyncqn.kernels import REDUCTION_FLAGS, reducing_kernel

RATING = np.dtype([("user", np.int32), ("item", np.int32), ("value", np.float32)])
MAX_VECTOR_RANK = 32
"""Beyond this rank a row no longer fits the registers, and loops are as fast."""

_FLAGS = tuple(sorted(REDUCTION_FLAGS))
_I32 = ir.IntType(32)


def width(rank: int) -> Any:
    """Return the argument `width` of the kernels for rows of `rank` numbers."""
    # Numba specialises on the type: tuples of different lengths are different types, arrays are not.
    return (0,) * rank if rank <= MAX_VECTOR_RANK else np.zeros(rank, np.int8)


class VectorRow:
    """The K numbers from `start` of a flat array, loaded into and stored from a padded vector."""

    def __init__(
        self,
        context: Any,
        builder: Any,
        array_type: Any,
        array: Any,
        start: Any,
        rank: int,
    ) -> None:
        self.builder = builder
        self.align = array_type.dtype.bitwidth // 8
        self.rank = rank
        self.first = builder.gep(
            context.make_array(array_type)(context, builder, array).data, [start]
        )
        # Vectors have a power of two of lanes, and the mask hides those beyond the rank.
        lanes = 1 << (rank - 1).bit_length()
        self.type = ir.VectorType(context.get_value_type(array_type.dtype), lanes)
        self.pointer = builder.bitcast(self.first, self.type.as_pointer())
        # LLVM's names of intrinsics contain the type, such as v8f64.
        self.suffix = f"v{lanes}f{8 * self.align}"
        self.mask_type = ir.VectorType(ir.IntType(1), lanes)
        self.mask = ir.Constant(
            self.mask_type, [int(lane < rank) for lane in range(lanes)]
        )
        self.flags = _FLAGS
        self.zero = ir.Constant(self.type, [0.0] * lanes)

    def _call(
        self, name: str, result: Any, arguments: list[Any], flags: tuple[str, ...] = ()
    ) -> Any:
        signature = ir.FunctionType(result, [value.type for value in arguments])
        declare: Any = cgutils.get_or_insert_function
        function = declare(self.builder.module, signature, name)
        return self.builder.call(function, arguments, fastmath=flags)

    def load(self):
        if self.rank == self.type.count:
            return self.builder.load(self.pointer, align=self.align)
        arguments = [self.pointer, ir.Constant(_I32, self.align), self.mask, self.zero]
        return self._call(
            f"llvm.masked.load.{self.suffix}.p0{self.suffix}", self.type, arguments
        )

    def store(self, vector):
        if self.rank == self.type.count:
            self.builder.store(vector, self.pointer, align=self.align)
        else:
            arguments = [vector, self.pointer, ir.Constant(_I32, self.align), self.mask]
            self._call(
                f"llvm.masked.store.{self.suffix}.p0{self.suffix}",
                ir.VoidType(),
                arguments,
            )

    def number(self, k: int) -> Any:
        """Return the k-th number as a scalar, read from memory, from where broadcasting costs nothing."""
        return self.builder.load(self.builder.gep(self.first, [ir.Constant(_I32, k)]))

    def total(self, vector):
        start = ir.Constant(self.type.element, 0.0)
        name = f"llvm.vector.reduce.fadd.{self.suffix}"
        return self._call(name, self.type.element, [start, vector], _FLAGS)

    def picked(self, vector: Any, lane: int) -> Any:
        """Return one number of any vector, broadcast to a vector of this row's type."""
        pick = ir.Constant(
            ir.VectorType(_I32, self.type.count), [lane] * self.type.count
        )
        return self.builder.shuffle_vector(
            vector, ir.Constant(vector.type, ir.Undefined), pick
        )

    def splat(self, scalar):
        hole = ir.Constant(self.type, ir.Undefined)
        return self.picked(
            self.builder.insert_element(hole, scalar, ir.Constant(_I32, 0)), 0
        )

    def scaled(self, scalar, vector):
        return self.times(self.splat(scalar), vector)

    def times(self, a, b):
        return self.builder.fmul(a, b, flags=_FLAGS)

    def plus(self, a, b):
        return self.builder.fadd(a, b, flags=_FLAGS)


def operation(
    result: Any,
    signature: tuple[Any, ...],
    loops: Callable[..., Any] | None,
    emit: Callable[..., Any],
) -> Any:
    """Return the type and the code of a row operation: `emit`, or `loops` if K is known only at run time.

    An operation without `loops` requires that K is always known.  `emit(row, args)` receives the LLVM values
    of the arguments and `row(place, start)`, which makes the `VectorRow` at `start` of the array in that
    position. `width` is always the last argument.
    """

    def generate(context, builder, sig, args):
        # The branch is taken while compiling, so that it costs nothing at run time.
        if loops is not None and isinstance(sig.args[-1], types.Array):
            return context.compile_internal(builder, loops, sig, args)
        rank = len(sig.args[-1])

        def row(place: int, start: Any, lanes: int = rank) -> VectorRow:
            return VectorRow(
                context, builder, sig.args[place], args[place], start, lanes
            )

        value = emit(row, args)
        return context.get_dummy_value() if value is None else value

    return result(*signature), generate


def pieces(row: Any, place: int, start: Any, width: Any) -> Iterator[VectorRow]:
    """Yield the row as vectors of 2^j numbers, largest first, because masked stores are far slower."""
    done = 0
    rank = len(width)
    builder = row(place, start).builder
    while done < rank:
        lanes = 1 << ((rank - done).bit_length() - 1)
        yield row(place, builder.add(start, ir.Constant(start.type, done)), lanes)
        done += lanes


def sums_of_four(vectors: list[Any], like: VectorRow) -> Any:
    """Return the sums of four vectors of the row's type, as one vector of four."""
    builder = like.builder

    def shuffled(a: Any, b: Any, pick: list[int]) -> Any:
        return builder.shuffle_vector(
            a, b, ir.Constant(ir.VectorType(_I32, len(pick)), pick)
        )

    def folded(vector: Any) -> Any:
        while (lanes := vector.type.count) > 4:
            none = ir.Constant(vector.type, ir.Undefined)
            half = lanes // 2
            vector = like.plus(
                shuffled(vector, none, list(range(half))),
                shuffled(vector, none, list(range(half, lanes))),
            )
        return vector

    def added(a: Any, b: Any) -> Any:
        """Return the sums of neighbours in a, then those in b; single numbers are put side by side."""
        lanes = a.type.count
        if lanes == 1:
            return shuffled(a, b, [0, 1])
        even = list(range(0, 2 * lanes, 2))
        odd = list(range(1, 2 * lanes, 2))
        return like.plus(shuffled(a, b, even), shuffled(a, b, odd))

    a, b, c, d = (folded(vector) for vector in vectors)
    if a.type.count == 4:
        return added(added(a, b), added(c, d))
    ab = added(a, b)
    cd = added(c, d)
    return shuffled(ab, cd, [0, 1, 2, 3])


def _dot(_, a, i, b, j, width):
    """Return the inner product of the row at `i` of `a` and the row at `j` of `b`."""

    def loops(a, i, b, j, width):
        total = a[i] * b[j]
        for k in range(np.uintp(1), np.uintp(len(width))):
            total += a[i + k] * b[j + k]
        return total

    def emit(row, args):
        x = row(0, args[1])
        y = row(2, args[3])
        return x.total(x.times(x.load(), y.load()))

    return operation(a.dtype, (a, i, b, j, width), loops, emit)


def _add(_, out, i, scale, b, j, width):
    """out[i row] += scale * b[j row]."""

    def loops(out, i, scale, b, j, width):
        for k in range(np.uintp(len(width))):
            out[i + k] += scale * b[j + k]

    def emit(row, args):
        for target, source in zip(
            pieces(row, 0, args[1], width), pieces(row, 3, args[4], width)
        ):
            target.store(
                target.plus(target.load(), target.scaled(args[2], source.load()))
            )

    return operation(types.void, (out, i, scale, b, j, width), loops, emit)


row_dot: Any = intrinsic(_dot)
row_add: Any = intrinsic(_add)


@reducing_kernel
def gradient(ratings, theta, first_user, scale, out, width):
    """Add scale * d/dtheta of sum (f.g - y)^2 / 2 over the ratings to `out`; return sum (f.g - y)^2.

    theta holds the item rows and, from `first_user` on, the user rows.
    """
    rank = np.uintp(len(width))
    users = np.uintp(first_user)
    squares = 0.0
    for row in range(np.uintp(len(ratings))):
        rating = ratings[row]
        item = np.uintp(np.uint32(rating.item)) * rank
        user = users + np.uintp(np.uint32(rating.user)) * rank
        error = row_dot(theta, item, theta, user, width) - theta.dtype.type(
            rating.value
        )
        row_add(out, item, scale * error, theta, user, width)
        row_add(out, user, scale * error, theta, item, width)
        squares += float(error) * float(error)
    return squares


@reducing_kernel
def squared_error(ratings, theta, first_user, width):
    """Return the sum of (f.g - y)^2 over all of `ratings`."""
    rank = np.uintp(len(width))
    users = np.uintp(first_user)
    squares = 0.0
    for row in range(np.uintp(len(ratings))):
        rating = ratings[row]
        item = np.uintp(np.uint32(rating.item)) * rank
        user = users + np.uintp(np.uint32(rating.user)) * rank
        error = row_dot(theta, item, theta, user, width) - theta.dtype.type(
            rating.value
        )
        squares += float(error) * float(error)
    return squares
