"""What we change in numba while our kernels compile: its answers stay, and another numba is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python

LEFT_ALONE = """
import numpy as np, sys
from numba.core.cpu import CPUTargetOptions
{change}
from asyncqn.kernels import jit, two_loop
out = np.ones(3)
two_loop.second_loop(np.ones((2, 1, 3)), np.full(1, 0.5), 0, np.full(1, 18.0), out)
print(out[0], bool(jit.UNCOUNTED), "scipy.linalg" in sys.modules)
"""


@pytest.mark.parametrize(
    ("change", "counted", "uncounted"),
    [
        ("", {}, "True"),
        ("del CPUTargetOptions.__mro__[1]._nrt", {}, "False"),
        ("", {"ASYNCQN_PLAIN_NUMBA": "1"}, "False"),
    ],
    ids=["ours", "another numba", "plain"],
)
def test_kernels_compile_with_our_changes_and_with_a_numba_that_has_none_of_them(
    tmp_path: Path, change: str, counted: dict[str, str], uncounted: str
) -> None:
    done = python(
        "-c",
        LEFT_ALONE.format(change=change),
        **counted,
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    # Without our changes numba loads scipy.linalg to look for a BLAS.
    blas = str(bool(counted))
    assert done.stdout.split() == ["13.0", uncounted, blas], done.stderr


GIVEN_BACK = """
import gc
import numba, numpy as np
from numba.core.runtime import rtsys
import asyncqn as aq
from engines.runs import EVERY, make_problem
for name, algorithm in EVERY.items():
    for engine in (aq.Threads(1), aq.Simulator(aq.Cluster(3))):
        aq.minimize(make_problem(name), algorithm, engine=engine, commits=20, tol=None)
gc.collect()
# A control: allocations are counted.
numba.njit(lambda n: np.ones(n).sum())(3)
counts = rtsys.get_allocation_stats()
print(counts.alloc > 0, counts.alloc - counts.free, counts.mi_alloc - counts.mi_free)
"""


def test_kernels_give_back_what_they_allocate_and_hold_no_argument() -> None:
    done = python("-c", GIVEN_BACK, NUMBA_NRT_STATS="1")
    assert done.stdout.split() == ["True", "0", "0"]
