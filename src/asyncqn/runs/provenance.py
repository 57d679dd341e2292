"""Provenance: what the bits of a run depend on besides its inputs: code, versions, the processor.

A replay that differs names which of these have changed since the recording (`runs.replay`).
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@cache
def code_digest(package: str = "asyncqn") -> str:
    """Return the sha256 of the paths and contents of all Python files of a package, in the order of paths.

    Line ends are converted to those of Unix, so that checkouts on different systems have the same digest.
    """
    root = Path(sys.modules[package].__file__ or "").resolve().parent
    digest = hashlib.sha256()
    for name in sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*.py")
    ):
        content = (root / name).read_bytes().replace(b"\r\n", b"\n")
        # Name and length separate the files: moving bytes from one file to the next changes the digest.
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return versions and machine; cached, because the lookup takes longer than a short run."""
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
    """Return the processor that kernels are compiled for: vectorised sums have other bits on another one.

    NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override the processor of this machine.
    """
    import numba
    from llvmlite import binding

    config: Any = numba.config
    # LLVM's name of the processor: it decides the vector width, and thereby the order of sums.
    name = config.CPU_NAME or binding.get_host_cpu_name()
    return f"{name} with {config.CPU_FEATURES}" if config.CPU_FEATURES else str(name)
