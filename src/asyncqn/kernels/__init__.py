"""Compiled free functions, arrays in and arrays out, and the decorators that compile them.

Reading order: `jit` (the decorators); `two_loop` (L-BFGS); `random` and `shuffling`
(random numbers); then the kernels of the models.

The names in `__init__.pyi` are public: another package may compile its own models with them, as asyncqn does.
This is the only room that uses numba.

May import: nothing of asyncqn but `lazy_names`.
"""

import os

from asyncqn import lazy_names

# Where colorama is installed, numba colours its errors with it, and every process then writes an escape code
# to its terminal when it exits.  mpiexec gives each rank a terminal, so that code would follow the output of
# --json.  Numba reads this at its import, which is why it is set here and not in one of the modules.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

__getattr__, __dir__, __all__ = lazy_names(__name__)
