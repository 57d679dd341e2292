"""Starting MPI jobs from benchmarks: the launcher beside this interpreter, local ranks only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def start(
    ranks: int, arguments: Sequence[str], options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """This Python under mpiexec, in a session of its own; output is piped."""
    # In a container the only user may be root, which Open MPI refuses without these variables.
    root = {
        f"{name}_ALLOW_RUN_AS_ROOT{more}": "1"
        for name in ("OMPI", "PRTE")
        for more in ("", "_CONFIRM")
    }
    launcher = str(Path(sys.executable).parent / "mpiexec")
    return subprocess.Popen(
        [launcher, *options, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable,
         *arguments],
        cwd=ROOT, env={**os.environ, **root, "OMPI_MCA_btl": "self,sm", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
