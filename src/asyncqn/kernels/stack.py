"""Small arrays inside a kernel that are not allocated: they live on its stack.

An allocation is a dozen functions of numba to be compiled, and references to be counted ever after.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

cgutils: Any = untyped_cgutils


def _stack_array(_, count, like):
    """`count` numbers, a constant, of the type of `like`; not set to anything, and gone with the kernel."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    array_type = types.Array(like, 1, "C")

    def generate(context, builder, signature, args):
        number = context.get_data_type(like)
        room = cgutils.alloca_once(builder, ir.ArrayType(number, count.literal_value))
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(number))
        array = context.make_array(array_type)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(room, number.as_pointer()),
            shape=[context.get_constant(types.intp, count.literal_value)],
            strides=[itemsize],
            itemsize=itemsize,
            meminfo=None,
        )
        return array._getvalue()

    return array_type(count, like), generate


stack_array: Any = intrinsic(prefer_literal=True)(_stack_array)
