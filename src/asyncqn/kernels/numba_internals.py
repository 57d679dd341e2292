"""All uses of numba beyond its public interface, behind one switch.

With ``ASYNCQN_PLAIN_NUMBA=1`` in the environment the two tricks that only shorten the first `minimize` are
off; a change of the switch empties the cache.  Two parts affect bits and are not switched:
`ReducingCompiler`, and arrays on the stack.

In the first `minimize` of a process, `load_without_blas` saves 0.4 to 0.5 processor seconds if kernels are
compiled, and 0.3 to 0.5 if they are read from the cache; `UNCOUNTED` saves 0.4 and 0.0.  A trick that saves
less than half a second everywhere is removed.  `UNCOUNTED` stays because with it numba refuses to compile a
reducing kernel that allocates, on which its bits would depend.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.core import compiler as untyped_compiler
from numba.core import event as event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUTargetOptions
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

cgutils: Any = untyped_cgutils
compiler: Any = untyped_compiler

PLAIN = os.environ.get("ASYNCQN_PLAIN_NUMBA", "0") not in ("", "0")
"""Whether the tricks are off."""

UNCOUNTED: dict[str, Any] = (
    {} if PLAIN or not hasattr(CPUTargetOptions, "_nrt") else {"_nrt": False}
)
"""Turns reference counting off, which takes time to compile and, in a queue that reads records of its arrays,
to run.  Such a kernel may not allocate: numba refuses to compile one that does."""


class ReducingCompiler(compiler.Compiler):  # type: ignore[misc]
    """Compiles kernels that may reorder sums: their arrays are declared not to overlap.

    Without that, LLVM compiles a loop twice, vectorised and scalar, and chooses by the distance of the
    arrays. The two may differ in the last bit (a product and a sum may be rounded once or twice), so that
    bits would depend on the addresses of memory.  Arrays that do overlap must not be written, and none may be
    allocated, because LLVM knows nothing about those.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


def no_compilation() -> AbstractContextManager[object]:
    """Return a context in which no other thread compiles a kernel.

    A process forked inside it can compile; one forked during a compilation inherits numba's lock as taken,
    and waits for it forever.
    """
    context: AbstractContextManager[object] = global_compiler_lock
    return context


def _is_there() -> None:
    if find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


def load_without_blas() -> bool:
    """Load numba's own modules while scipy is searched for but not imported; return whether that worked.

    numba imports scipy.linalg in every process to find out whether there is a BLAS, which takes longer than
    compiling any kernel; no kernel of ours needs it.  A user's function that numba compiles imports it when
    it needs it, as before.
    """
    if PLAIN or "numba.np.arraymath" in sys.modules:
        return False
    linalg: Any = import_module("numba.np.linalg")
    theirs = getattr(linalg, "ensure_blas", None)
    if theirs is None:
        return False  # a numba with other internals, which is left alone
    # numba asks this function at import; ours only looks whether scipy could be found.
    linalg.ensure_blas = _is_there
    try:
        arrays: Any = import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = theirs
    if getattr(arrays, "ensure_blas", None) is _is_there:
        arrays.ensure_blas = theirs
    return True


def _stack_array(_, count, like):
    """Make an uninitialised array of `count` (a constant) numbers of the type of `like`, on the stack."""
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
"""A small array inside a kernel, on its stack instead of the heap.

An allocation makes numba compile a dozen functions and count references; and LLVM cannot know that an
allocated array overlaps no other."""
