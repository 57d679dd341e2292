"""Bits must not depend on where arrays lie: a replay finds other memory than the run that it repeats.

Every kernel that Python calls in a run is called twice more, on copies that lie close together and far apart.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import VARIANTS, algorithm_for, problem_for
from numba import njit, types
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher
from scipy import sparse

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.kernels import jit
from asyncqn.kernels.jit import REDUCTION_FLAGS, reducing_kernel
from asyncqn.models import PROBLEMS
from asyncqn.models.linear_model import LinearModel

MODULES = [
    import_module(f"asyncqn.kernels.{p.stem}")
    for p in Path(jit.__file__).parent.glob("[a-z]*.py")
]
MOST, LARGEST = 40, 100_000
"""So many calls of a kernel are looked at, on arrays of so many bytes in all."""
GAPS = (0, 8), (1024, 64)
"""Bytes between two arrays: at least, and by how much they grow from one to the next."""


class Calls(threading.local):
    """What was seen of the calls of this thread."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.faults: list[str] = []
        self.rng = np.random.default_rng(0)


CALLS = Calls()


def arrays_in(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree]
    return (
        [a for child in tree for a in arrays_in(child)]
        if isinstance(tree, tuple)
        else []
    )


def with_arrays(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    if isinstance(tree, np.ndarray):
        return next(arrays)
    if not isinstance(tree, tuple):
        return tree
    children = [with_arrays(child, arrays) for child in tree]
    return tree._make(children) if hasattr(tree, "_make") else tuple(children)


def placed(arrays: list[np.ndarray], least: int, more: int) -> list[np.ndarray]:
    """Copies in one piece of memory, in any order, so many bytes apart."""
    pool = np.empty(
        sum(a.nbytes + least + 64 * more + 64 for a in arrays) + 64, np.uint8
    )
    copies, at = [np.empty(0)] * len(arrays), -pool.ctypes.data % 64
    for place, i in enumerate(CALLS.rng.permutation(len(arrays))):
        array = arrays[i]
        copy = pool[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copy.flags.writeable = array.flags.writeable
        copies[i], at = copy, at + array.nbytes + least + place % 8 * more
        at += -(pool.ctypes.data + at) % max(array.dtype.alignment, 8)
    return copies


class Relocating(CPUDispatcher):
    """A kernel that is computed on copies elsewhere, too, before it does what it was asked for."""

    def __call__(self, *given: Any) -> Any:
        arrays, name = arrays_in(given), self.py_func.__qualname__
        CALLS.count[name] += 1
        fit = (
            all(a.flags.c_contiguous and a.size for a in arrays)
            and sum(a.nbytes for a in arrays) < LARGEST
        )
        if CALLS.count[name] > MOST or not fit:
            return super().__call__(*given)
        found = []
        for gaps in GAPS:
            copies = placed(arrays, *gaps)
            result = super().__call__(*with_arrays(given, iter(copies)))
            found.append((repr(result), [copy.tobytes() for copy in copies]))
        before = [array.tobytes() for array in arrays]
        result = super().__call__(*given)
        after = [array.tobytes() for array in arrays]
        for i, array in enumerate(arrays):
            if after[i] != before[i]:
                others = [a for j, a in enumerate(arrays) if j != i]
                if any(np.may_share_memory(array, other) for other in others):
                    CALLS.faults.append(f"{name} writes an array that overlaps another")
        if any(other != (repr(result), after) for other in found):
            CALLS.faults.append(f"{name} depends on where its arrays lie")
        return result


@pytest.fixture
def relocating() -> Iterator[Calls]:
    kernels = {
        id(f): f for m in MODULES for f in vars(m).values() if type(f) is CPUDispatcher
    }
    CALLS.__init__()  # type: ignore[misc]
    for kernel in kernels.values():
        kernel.__class__ = Relocating
    yield CALLS
    for kernel in kernels.values():
        kernel.__class__ = CPUDispatcher


@pytest.mark.parametrize("name", [*ALGORITHMS, *VARIANTS])
def test_kernels_of_every_algorithm_compute_the_same_bits_wherever_arrays_lie(
    name, relocating
) -> None:
    cluster = aq.Cluster(workers=3)
    engine = aq.Simulator(cluster)
    aq.minimize(
        problem_for(name), algorithm_for(name), engine=engine, commits=30, tol=None
    )
    assert relocating.count
    assert relocating.faults == []


@pytest.mark.parametrize("kind", PROBLEMS)
def test_kernels_of_every_problem_compute_the_same_bits_wherever_arrays_lie(
    kind, relocating
) -> None:
    model = PROBLEMS[kind]
    problems = [model.example()]
    if issubclass(model, LinearModel):
        made, rng = model.random(80, 6, seed=2), np.random.default_rng(7)
        options = {"weights": rng.random(80) + 0.1, "intercept": True}
        thinned = np.where(rng.random(made.X.shape) < 0.4, made.X, 0.0)
        problems += [
            model(made.X, made.y, **options),
            model(sparse.csr_matrix(thinned), made.y, **options),
        ]
    for problem in problems:
        for batch in (3, 40):
            aq.minimize(problem, aq.AsyncSGD(h=1e-9, batch=batch), commits=20, seed=1)
        aq.minimize(problem, commits=12)
    assert relocating.faults == []


def mixed(prior, theta, d, weight, g, out):
    for j in range(out.size):
        out[j] = (prior * theta[j] if j < d else 0.0) + weight * g[j]


def test_a_reducing_kernel_does_not_choose_its_loop_by_where_arrays_lie() -> None:
    f, v = types.float64, types.float64[::1]
    signature = (f, v, types.int64, f, v, v)
    plain = njit(fastmath=REDUCTION_FLAGS, error_model="numpy")(mixed)
    plain.compile(signature)
    if "vector.body" not in plain.inspect_llvm(signature):
        return  # a processor without such vectors
    assert "memcheck" in plain.inspect_llvm(signature)
    made: Any = reducing_kernel(mixed)
    made._cache = type(plain._cache)()  # compiled here and now
    made.compile(signature)
    assert "vector.body" in made.inspect_llvm(signature)
    assert "memcheck" not in made.inspect_llvm(signature)


def test_a_reducing_kernel_may_not_allocate() -> None:
    def allocates(x):
        return np.zeros(x.size)

    made: Any = reducing_kernel(allocates)
    with pytest.raises(NumbaError):
        made.compile((types.float64[::1],))


def test_no_reducing_kernel_calls_a_strict_one() -> None:
    # numba would compile the callee as its caller, and store it so for whoever calls it next.
    kernels = [f for m in MODULES for f in vars(m).values() if type(f) is CPUDispatcher]
    for caller in kernels:
        names = caller.py_func.__code__.co_names
        callees = [caller.py_func.__globals__.get(name) for name in names]
        for callee in callees if "fastmath" in caller.targetoptions else []:
            if type(callee) is CPUDispatcher:
                assert "fastmath" in callee.targetoptions, (caller, callee)
