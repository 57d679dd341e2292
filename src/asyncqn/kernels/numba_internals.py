"""All that we use of numba beyond its public interface, behind one switch.

With ``ASYNCQN_PLAIN_NUMBA=1`` in the environment every trick that only shortens the first `minimize` is off,
and kernels are compiled as numba itself would; compiled kernels in the cache are dropped when it changes.
What decides about bits is not switched: `ReducingCompiler`, and arrays on the stack.

Processor seconds that a trick saves in the first `minimize` of a process (imports included), where kernels
are compiled (cold) and where they are read from the cache (warm):

===========================================  =====================  ==========  ==========
trick                                        name here              cold        warm
===========================================  =====================  ==========  ==========
pieces are only linked into their callers    `PieceCompiler`        0.3 to 0.7  0.1 to 0.2
scipy.linalg is looked for, not loaded       `load_without_blas`    0.2 to 1.0  0.4 to 0.7
references are not counted                   `UNCOUNTED`            up to 0.8   up to 0.3
no wrapper for C                             `NO_C_WRAPPER`         0.3 to 0.7  0.1 to 0.2
no wrapper for Python                        `NO_PYTHON_WRAPPER`    0.3         up to 0.2
no garbage collection while compiling        `_WithoutCollecting`   0.2 to 0.6  0.1 to 0.6
all of them                                  `PLAIN`                0.2 to 3.2  0.5 to 0.7
===========================================  =====================  ==========  ==========

Two problems (the default on a linear Gaussian model: 3.3 to 3.8 s cold, and as-L-BFGS: 7.4 s), one or two
runs each with one trick off, on a busy machine: differences below 0.3 s are noise.
All tricks together saved 2.0 and 3.2 s there, but only 0.2, 0.5 and 1.2 s when the machine was less busy, so
the table must be measured again on a quiet one before a trick is kept or dropped by it.

A trick that saves less than half a second everywhere goes: leaving out numba's passes for closures, `with`
and array expressions saved nothing that could be measured (-0.4 to 0.3 s), and is gone.
"""

from __future__ import annotations

import gc
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


def _options(**options: Any) -> dict[str, Any]:
    """Return the options that this numba knows; none where the tricks are off."""
    return {} if PLAIN else {name: on for name, on in options.items() if hasattr(CPUTargetOptions, name)}


NO_C_WRAPPER: dict[str, Any] = _options(no_cfunc_wrapper=True)
"""Nobody hands a kernel to C as a pointer, so the wrapper for that need not be compiled."""
NO_PYTHON_WRAPPER: dict[str, Any] = _options(no_cpython_wrapper=True)
"""Of what only kernels call: no way in from Python, which would be compiled with each."""
UNCOUNTED: dict[str, Any] = _options(_nrt=False)
"""No references are counted, which takes time to compile and, in a queue that looks into records of its
arrays, to run.  Nothing may be allocated then: numba refuses to compile what does."""


class Piece(CPUDispatcher):  # type: ignore[misc]
    """What only kernels call.  It has no way in from Python: a call would end the process, and is refused."""

    def __call__(self, *given: object, **named: object) -> Any:
        raise TypeError(f"{self.py_func.__name__} is a piece of kernels and cannot be called from Python.")


class _NoMachineCode:
    """Stands for what keeps a library's machine code, in which numba would enter its environment."""

    def set_env(self, name: str, environment: Any) -> None:
        """Of use to code that makes Python objects, which a piece does not."""


class LinkedLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a piece with all that it calls, to be linked into kernels."""

    only_linked = True

    def finalize(self) -> None:
        """Gather what the piece calls; as numba does, should its libraries have other insides."""
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
        return _NoMachineCode() if self._finalized and self.only_linked else super().codegen


class ReducingCompiler(compiler.Compiler):  # type: ignore[misc]
    """Of kernels that may add in another order: their arrays are said not to overlap.

    LLVM would else compile a loop twice, in vectors and one by one, and choose by how near to each other the
    arrays lie.  The two may differ in the last bit (a product and a sum in one rounding, or the other product
    with it), so that bits would depend on where memory was found.  Of arrays that do overlap none may be
    written; and none is allocated, for of those nothing is known.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


class PieceCompiler(compiler.Compiler):  # type: ignore[misc]
    """Compiles a piece into a `LinkedLibrary`.

    numba optimises every function by itself and makes it machine code, also one that nobody can call; it then
    links the result into the callers, inlines it and does both once more.  A piece of ours is only linked:
    what calls it optimises it, once.
    """

    def define_pipelines(self) -> Any:
        if self.state.library is None and not PLAIN:
            name = self.state.func_id.func_qualname
            self.state.library = LinkedLibrary(self.state.targetctx.codegen(), name)
        return super().define_pipelines()


class _WithoutCollecting(event.Listener):
    """From the beginning of the outermost of our compilations to its end; numba's lock lets one thread in."""

    def __init__(self) -> None:
        self.depth, self.collects = 0, False

    def on_start(self, event: Any) -> None:
        if self.depth or event.data["dispatcher"].py_func.__module__.startswith(("asyncqn.", "asyncqn_")):
            self.depth += 1
            if self.depth == 1:
                self.collects = gc.isenabled()
                gc.disable()

    def on_end(self, event: Any) -> None:
        if self.depth:
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()


def no_compilation() -> AbstractContextManager[object]:
    """Return a context in which no other thread compiles a kernel.

    A process forked inside it can compile; one forked beside a compilation inherits numba's lock as taken,
    and waits for it forever.
    """
    context: AbstractContextManager[object] = global_compiler_lock
    return context


def compile_without_collecting() -> None:
    """From now on, collect no garbage while our kernels compile.

    A compiler makes many objects that live until it is done: looking for garbage among them finds little.
    """
    if not PLAIN:
        event.register("numba:compile", _WithoutCollecting())


def _is_there() -> None:
    if find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


def load_without_blas() -> bool:
    """Let numba load its own modules, with a look for scipy in place of loading it.

    numba loads scipy.linalg in every process to learn whether there is a BLAS, which takes longer than any
    kernel takes to compile; no kernel of ours calls one.  Functions of the user's own that numba compiles
    load it when they call it, as before.  Returns whether that was done.
    """
    if PLAIN or "numba.np.arraymath" in sys.modules:
        return False
    linalg: Any = import_module("numba.np.linalg")
    theirs = getattr(linalg, "ensure_blas", None)
    if theirs is None:
        return False  # another numba: it will do as it does
    linalg.ensure_blas = _is_there
    try:
        arrays: Any = import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = theirs
    if getattr(arrays, "ensure_blas", None) is _is_there:
        arrays.ensure_blas = theirs
    return True


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
"""A small array inside a kernel that is not allocated: it lives on the kernel's stack.

An allocation is a dozen functions of numba to be compiled, and references to be counted ever after; and of an
allocated array LLVM does not know that it overlaps no other."""
