"""How numba compiles our functions: pieces into their kernels alone, and without steps that find nothing.

numba optimises every function by itself and makes it machine code, also one that nobody can call; it then
links the result into the callers, inlines it and does both once more.  A piece of ours is only linked: what
calls it optimises it, once.

Some of numba's steps look for what no kernel contains, as functions inside functions and arithmetic with
whole arrays.
"""

from __future__ import annotations

from typing import Any

from numba.core import codegen as untyped_codegen
from numba.core import compiler as untyped_compiler

codegen: Any = untyped_codegen
compiler: Any = untyped_compiler

NOTHING_FOUND = {
    "inline_closure_likes",
    "make_function_op_code_to_jit_function",
    "with_lifting",
    "literal_unroll",
    "find_literally",
    "nopython_rewrites",
    "dump_parfor_diagnostics",
}
"""Steps of numba for closures, `with`, `literal_unroll`, `literally`, array expressions and `prange`.

`ir_legalization` is none of them: it ends the life of variables, and with it their references."""


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
        """Nowhere."""
        self._ensure_finalized()
        return 0 if self.only_linked else int(super().get_pointer_to_function(name))

    @property
    def codegen(self) -> Any:
        return _NoMachineCode() if self._finalized and self.only_linked else super().codegen


class KernelCompiler(compiler.Compiler):  # type: ignore[misc]
    """numba's compiler without the steps that find nothing."""

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            kept = [step for step in pipeline.passes if getattr(step[0], "_name", "") not in NOTHING_FOUND]
            pipeline.passes = kept
        return pipelines


class ReducingCompiler(KernelCompiler):
    """Of kernels that may add in another order: their arrays are said not to overlap.

    LLVM would else compile a loop twice, in vectors and one by one, and choose by how near to each other the
    arrays lie.  The two may differ in the last bit (a product and a sum in one rounding, or the other product
    with it), so that bits would depend on where memory was found.  Of arrays that do overlap none may be
    written; and none is allocated, for of those nothing is known.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


class PieceCompiler(KernelCompiler):
    """Into a `LinkedLibrary`."""

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            name = self.state.func_id.func_qualname
            self.state.library = LinkedLibrary(self.state.targetctx.codegen(), name)
        return super().define_pipelines()
