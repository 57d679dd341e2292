"""The environment in which a new interpreter is started for a worker."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """Return this process's environment, with its import path.

    Without PYTHONSAFEPATH an interpreter that is started with -c or -m looks for modules in the current
    folder first, so that a file `socket.py` there would be run.
    """
    # An empty entry of sys.path means the current folder, which may be another one by then.
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
