"""Bits must not depend on whether a process compiles its kernels or reads them from the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import hashlib
import numpy as np
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization

rng = np.random.default_rng(0)
users, items = rng.integers(0, 200, 6000), rng.integers(0, 50, 6000)
values = rng.integers(1, 6, 6000).astype(np.float32)
problem = ProfiledFactorization(users, items, values, n_users=200, n_items=50, rank=5, dtype=np.float32)
out = np.empty(problem.dim, np.float32)
problem.grad(problem.initial(rng), np.arange(200), out)
print(hashlib.sha256(out.tobytes()).hexdigest())
"""


def test_a_process_that_compiles_and_one_that_reads_the_cache_compute_the_same_bits(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    first, second = (
        subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbc"))
    assert first == second
