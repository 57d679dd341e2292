"""What the bits of a run may depend on besides its inputs: the package's own code, versions, the processor.

A replay that differs names what has changed of these since the recording (`runs.replay`).
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from pathlib import Path

import numpy as np


@cache
def code_digest(package: str = "asyncqn") -> str:
    """Return the sha256 of the paths and contents of all Python files of a package, in the order of paths.

    Line ends are those of Unix, so that a checkout on another system gives the same.
    """
    root = Path(sys.modules[package].__file__ or "").resolve().parent
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py")):
        content = (root / name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions and machine; looked up once, for it takes longer than a short run."""
    import numba

    from asyncqn import __version__

    return {
        "asyncqn": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _processor() -> str:
    """The processor that kernels are compiled for: those with vectorised sums give other bits on another.

    NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name another than the one at hand.
    """
    import numba
    from llvmlite import binding

    name, features = (getattr(numba.config, f"CPU_{what}") for what in ("NAME", "FEATURES"))
    return f"{name or binding.get_host_cpu_name()}{f' with {features}' if features else ''}"
