"""Public names of the kernels: decorators, and small kernels that models outside this package share."""

from .gram import add_gram, cholesky, invert_lower
from .jit import (
    REDUCTION_FLAGS,
    drop_stale_cache,
    kernel,
    reducing_call,
    reducing_kernel,
    reducing_piece,
    strict_piece,
)
from .numba_internals import stack_array
from .vectors import add_one, add_scaled, dot, is_range, sum_of_squares

__all__ = [
    "REDUCTION_FLAGS",
    "add_gram",
    "add_one",
    "add_scaled",
    "cholesky",
    "dot",
    "drop_stale_cache",
    "invert_lower",
    "is_range",
    "kernel",
    "reducing_call",
    "reducing_kernel",
    "reducing_piece",
    "stack_array",
    "strict_piece",
    "sum_of_squares",
]
