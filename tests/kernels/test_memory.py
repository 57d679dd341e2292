"""H v against the dense BFGS recursion at every offset of the ring, and the rule that admits a pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import dense_bfgs

from asyncqn.algorithms.pair_memory import PairMemory, PairRule, pair_totals


def filled(M, count, d, seed, dtype=np.float64):
    """A memory over a diagonal H0 after `count` pairs, with the list of those that it keeps."""
    rng = np.random.default_rng(seed)
    memory = PairMemory.empty(M, np.zeros(d, dtype), rng.uniform(0.5, 2.0, d))
    root = rng.standard_normal((d, d)) / np.sqrt(d)
    pairs = []
    for _ in range(count):
        s = rng.standard_normal(d).astype(dtype)
        y = (root @ (root.T @ s) + 0.5 * s).astype(dtype)
        if memory.admit(PairRule(1e-4), s, y):
            pairs.append((s, y))
    return memory, pairs[max(0, len(pairs) - M) :]


@settings(max_examples=80)
@given(
    M=st.integers(0, 6), count=st.integers(0, 20), d=st.integers(1, 12), seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_the_product_is_that_of_the_dense_recursion_at_every_ring_offset(
    M, count, d, seed, dtype
):
    memory, pairs = filled(M, count, d, seed, dtype)
    H = dense_bfgs(pairs, np.diag(memory.scale))
    v = np.random.default_rng(seed + 1).standard_normal(d).astype(dtype)
    out = memory.product(v, np.full(d, np.nan, dtype))
    # Roundings of sums over d and M terms, amplified by at most the condition of the small algebra.
    bound = 1e4 * np.finfo(dtype).eps * np.linalg.norm(H) * np.linalg.norm(v)
    assert np.linalg.norm(out - H @ v) <= bound
    assert np.linalg.eigvalsh(H).min() > 0


@pytest.mark.parametrize(
    ("s", "y", "admitted"),
    [
        # s'y = 2 = epsilon |s|^2: the rule includes equality.
        ([2.0, 0.0], [1.0, 5.0], True),
        ([2.0, 0.0], [1.0 - 1e-12, 5.0], False),
        ([2.0, 0.0], [-1.0, 0.0], False),
        # s = 0 satisfies the inequality but is no pair.
        ([0.0, 0.0], [0.0, 0.0], False),
        ([1.0, 0.0], [np.nan, 0.0], False),
        ([np.nan, 0.0], [1.0, 0.0], False),
        ([1.0, 0.0], [np.inf, 0.0], False),
        # |s|^2 overflows.
        ([1e200, 0.0], [1e200, 0.0], False),
    ],
)
def test_the_cautious_rule_admits_exactly_what_it_says(s, y, admitted):
    memory = PairMemory.empty(2, np.zeros(2))
    assert memory.admit(PairRule(0.5), np.array(s), np.array(y)) == admitted
    totals = {"pairs_accepted": int(admitted), "pairs_rejected": int(not admitted)}
    assert pair_totals([memory]) == totals
    assert memory.stored == int(admitted)


def test_a_cleared_memory_is_h0_alone_and_keeps_its_counts():
    memory, _ = filled(3, 7, 6, 2)
    memory.forget()
    v = np.arange(6.0)
    np.testing.assert_array_equal(memory.product(v, np.empty(6)), memory.scale * v)
    assert memory.stored == 0
    assert pair_totals([memory])["pairs_accepted"] == 7
