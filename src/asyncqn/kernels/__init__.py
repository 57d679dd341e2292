"""Compiled free functions: arrays in, arrays out; the only room that knows numba.

May import: nothing of asyncqn.
"""

import os

# Where colorama is installed, numba colours its errors with it, and every process then writes an escape code
# to its terminal when it exits.  mpiexec gives each rank a terminal, so that code would follow the output of
# --json.  Numba reads this at its import, which is why it is set here and not in one of the modules.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
