"""While our kernels compile, flags are compared sooner, with the same answer; then numba is as before."""

from __future__ import annotations

import gc
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig

from asyncqn.kernels import compiling

SOME = ("nrt", "release_gil", "no_cpython_wrapper", "forceinline", "auto_parallel")


def flags(options: dict[str, bool]) -> Flags:
    made = Flags()
    for name, value in options.items():
        setattr(made, name, value)
    return made


chosen = st.dictionaries(st.sampled_from(SOME), st.booleans()).map(flags)


@given(chosen, chosen)
def test_flags_are_equal_and_hashed_as_numba_says(one: Flags, other: Flags) -> None:
    assert compiling.same_flags(one, other) == (one.values() == other.values()) == (one == other)
    assert compiling.hash_of_names(one) == hash(one)


def test_the_numba_at_hand_is_known_and_is_left_as_it_was() -> None:
    """After a compilation, and after one that failed, in a process that has compiled nothing before."""
    program = """
import gc, numpy as np, tempfile, numba
from numba.core.targetconfig import TargetConfig
theirs = TargetConfig.__eq__, TargetConfig.__hash__
from asyncqn.kernels.jit import kernel
from asyncqn.kernels import compiling
def during():
    seen.append((gc.isenabled(), TargetConfig.__eq__ is compiling.same_flags))
    return None
seen = []
@numba.extending.overload(during)
def _(): during(); return lambda: None
def works(x): during(); return x + 1
def fails(x): during(); return x.nothing
works.__module__ = fails.__module__ = "asyncqn.tried"
assert numba.njit(works)(1) == 2
try:
    numba.njit(fails)(1)
except numba.TypingError:
    seen.append("failed")
print(seen, (TargetConfig.__eq__, TargetConfig.__hash__) == theirs, gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seen, restored = done.stdout.split("] ")
    assert "(False, True)" in seen
    assert "failed" in seen
    assert "(True, False)" not in seen
    assert restored.split() == ["True", "True"]
    assert compiling._KNOWN
    assert gc.isenabled()
    assert TargetConfig.__eq__ is not compiling.same_flags
