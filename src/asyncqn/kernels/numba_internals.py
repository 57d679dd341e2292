"""All uses of numba beyond its public interface, behind one switch.

With ``ASYNCQN_PLAIN_NUMBA=1`` in the environment, every trick that only shortens the first `minimize` is off,
and kernels are compiled as numba itself would; a change of the switch empties the cache.  Two parts affect
bits and are not switched: `ReducingCompiler`, and arrays on the stack.

Processor seconds that a trick saves in the first `minimize` of a process (imports included), if kernels are
compiled (cold) or read from the cache (warm):

===========================================  =====================  ============  ============
trick                                        name here              cold          warm
===========================================  =====================  ============  ============
pieces are only linked into their callers    `PieceCompiler`        0.1 and 1.3   0.1 and 0.0
scipy.linalg is looked for, not loaded       `load_without_blas`    0.5 and 0.4   0.5 and 0.3
references are not counted                   `UNCOUNTED`            0.4 and 0.4   0.0 and 0.0
all of them                                  `PLAIN`                1.2 and 2.9   0.4 and 0.3
===========================================  =====================  ============  ============

The two numbers are for two calls: the default on a logistic regression, and as-L-BFGS on a simulated cluster
(4.4 and 5.9 s cold).  They are medians of four runs each, interleaved, with one trick off; runs of one
variant differ by 0.1 to 0.3 s from their median.

A trick that saves less than half a second everywhere is removed.  Four were: leaving out numba's passes for
closures, `with` and array expressions (nothing measurable), its wrappers for C (0.1 s) and for Python (0.1 to
0.2 s), and garbage collection while compiling (0.1 to 0.2 s).  `UNCOUNTED` stays for two other reasons: with
it numba refuses to compile a reducing kernel that allocates, on which its bits would depend, and the event
queue takes 0.89 of the time (`python -m benchmarks.against`, 15 interleaved pairs).
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
from numba.core import codegen as untyped_codegen
from numba.core import compiler as untyped_compiler
from numba.core import event as event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUTargetOptions
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

cgutils: Any = untyped_cgutils
codegen: Any = untyped_codegen
compiler: Any = untyped_compiler

PLAIN = os.environ.get("ASYNCQN_PLAIN_NUMBA", "0") not in ("", "0")
"""Whether the tricks are off."""


UNCOUNTED: dict[str, Any] = (
    {} if PLAIN or not hasattr(CPUTargetOptions, "_nrt") else {"_nrt": False}
)
"""Turns reference counting off, which takes time to compile and, in a queue that reads records of its arrays,
to run.  Such a kernel may not allocate: numba refuses to compile one that does."""


class Piece(CPUDispatcher):  # type: ignore[misc]
    """A function that only kernels call; a call from Python would crash the process, and is refused."""

    def __call__(self, *given: object, **named: object) -> Any:
        raise TypeError(
            f"{self.py_func.__name__} is a piece of kernels and cannot be called from Python."
        )


class _NoMachineCode:
    """Stands in for the object that holds a library's machine code, where numba registers its environment."""

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only code that makes Python objects needs an environment, and a piece makes none."""


class LinkedLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a piece and of all that it calls, to be linked into kernels."""

    only_linked = True

    def finalize(self) -> None:
        """Link in what the piece calls; fall back to numba's own way if its libraries have other
        internals."""
        try:
            self._gather()
        except (AttributeError, TypeError):
            self.only_linked = False
            super().finalize()

    def _gather(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return a null pointer: a piece has no machine code."""
        self._ensure_finalized()
        return 0 if self.only_linked else int(super().get_pointer_to_function(name))

    @property
    def codegen(self) -> Any:
        return (
            _NoMachineCode()
            if self._finalized and self.only_linked
            else super().codegen
        )


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


class PieceCompiler(compiler.Compiler):  # type: ignore[misc]
    """Compiles a piece into a `LinkedLibrary`.

    numba optimises every function separately and compiles it to machine code, even one that cannot be called;
    it then links the result into the callers, inlines it and does both once more.  A piece of ours is only
    linked: its caller optimises it, once.
    """

    def define_pipelines(self) -> Any:
        if self.state.library is None and not PLAIN:
            name = self.state.func_id.func_qualname
            self.state.library = LinkedLibrary(self.state.targetctx.codegen(), name)
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
