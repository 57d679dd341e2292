"""H v against the dense BFGS recursion and a two-loop recursion, at every offset of the ring."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import dense_bfgs, two_loop

from asyncqn.algorithms.pair_memory import CompactMemory, PairRule
from asyncqn.core.streams import Stream
from asyncqn.kernels.compact_memory import Langevin, langevin_update

RULE = PairRule(1e-4)


class Diagonal:
    """A problem as far as `initial_scale="diagonal"` asks."""

    def __init__(self, curvature):
        self.curvature = curvature

    def curvature_diagonal(self, theta):
        return self.curvature


def filled(M, count, d, seed, scale="pair", dtype=np.float64, rule=RULE):
    """A memory after `count` accepted pairs, with the list of those pairs and the dense H0."""
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(0.5, 2.0, d)
    memory = CompactMemory.empty(M, np.zeros(d, dtype), scale, Diagonal(curvature))
    root = rng.standard_normal((d, min(d, 12))) / np.sqrt(min(d, 12))
    pairs = []
    for _ in range(count):
        theta_old, g_old = rng.standard_normal((2, d)).astype(dtype)
        s = rng.standard_normal(d) * rng.uniform(0.1, 3.0)
        y = (
            root @ (root.T @ s)
            + 0.5 * s
            + 0.1 * np.linalg.norm(s) / np.sqrt(d) * rng.standard_normal(d)
        )
        theta, g = (theta_old + s).astype(dtype), (g_old + y).astype(dtype)
        if memory.consider(rule, scale == "pair", theta, theta_old, g, g_old):
            pairs.append(((theta - theta_old).astype(float), (g - g_old).astype(float)))
    kept = pairs[len(pairs) - min(M, len(pairs)) :]
    if scale == "diagonal":
        h0 = 1.0 / curvature
    elif scale == "pair":
        h0 = np.full(
            d,
            (kept[-1][0] @ kept[-1][1]) / (kept[-1][1] @ kept[-1][1]) if kept else 1.0,
        )
    else:
        h0 = np.full(d, float(scale))
    return memory, kept, h0


def error_bound(H, v, dtype):
    """Roundings of sums over d and M terms, amplified by at most the condition of the small algebra."""
    return 1e4 * np.finfo(dtype).eps * np.linalg.norm(H) * np.linalg.norm(v)


@settings(max_examples=80)
@given(
    M=st.integers(0, 6), count=st.integers(0, 20), d=st.integers(1, 12), seed=st.integers(0, 10**6),
    scale=st.sampled_from(["pair", 0.3, 7.0, "diagonal"]), dtype=st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_the_product_is_that_of_the_dense_recursion_at_every_ring_offset(
    M, count, d, seed, scale, dtype
):
    memory, pairs, h0 = filled(M, count, d, seed, scale, dtype)
    H = dense_bfgs(pairs, np.diag(h0))
    v = np.random.default_rng(seed + 1).standard_normal(d).astype(dtype)
    out = np.full(d, np.nan, dtype)
    memory.product(v, out)
    bound = error_bound(H, v, dtype)
    assert np.linalg.norm(out - H @ v) <= bound
    np.testing.assert_allclose(
        two_loop(pairs, h0, v), H @ v, atol=error_bound(H, v, np.float64)
    )


@settings(max_examples=60)
@given(
    M=st.integers(0, 6), count=st.integers(0, 15), d=st.sampled_from([1, 5, 127, 128, 513, 1100]),
    seed=st.integers(0, 10**6), scale=st.sampled_from(["pair", 0.3, "diagonal"]),
    rho=st.sampled_from([0.0, 3.0]), noise=st.sampled_from([0.0, 0.7]),
    dtype=st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_the_fused_update_is_both_equations_of_the_paper(
    M, count, d, seed, scale, rho, noise, dtype
):
    memory, pairs, h0 = filled(M, count, d, seed, scale, dtype)
    rng = np.random.default_rng(seed + 2)
    u, g_O, g_S = rng.standard_normal((3, d)).astype(dtype)
    h, gamma, share = 0.2, 0.1, 1 / 3
    d_theta, d_u = np.full(d, np.nan, dtype), np.full(d, np.nan, dtype)
    before = (u.tobytes(), g_O.tobytes(), g_S.tobytes(), memory.pairs.tobytes())
    numbers = Langevin(rho, h, gamma, noise, share)
    stream = tuple(Stream(5, 2, 7))
    update, work = (d_theta, d_u), np.empty(8 * M)
    langevin_update(memory.matrix, tuple(numbers), u, g_O, g_S, stream, update, work)
    assert (u.tobytes(), g_O.tobytes(), g_S.tobytes(), memory.pairs.tobytes()) == before
    g = share * g_O.astype(float) + (1 - share) * g_S
    Z = Stream(5, 2, 7).normals(np.empty(d))
    assert d_theta.dtype == d_u.dtype == dtype
    Hu, Hg = (two_loop(pairs, h0, v) + rho * v for v in (u, g))
    # |H| by its terms: h0 and rho, and s s'/s'y of every pair, which bound what cancels.
    size = h0.max() + rho + sum((s @ s) / (s @ y) for s, y in pairs)
    bound = 1e4 * np.finfo(dtype).eps * size * (np.linalg.norm(u) + np.linalg.norm(g))
    assert np.linalg.norm(d_theta - Hu) <= bound
    expected = -h * Hg - gamma * u + noise * Z
    assert np.linalg.norm(d_u - expected) <= bound + 10 * np.finfo(
        dtype
    ).eps * np.linalg.norm(expected)


@given(
    st.integers(1, 6), st.integers(1, 20), st.integers(2, 12), st.integers(0, 10**6),
    st.sampled_from(["pair", 0.3, "diagonal"]),
)  # fmt: skip
def test_the_secant_equation_holds_for_the_newest_pair(M, count, d, seed, scale):
    memory, pairs, h0 = filled(M, count, d, seed, scale)
    if not pairs:
        return
    s, y = pairs[-1]
    out = np.empty(d)
    memory.product(y, out)
    assert np.linalg.norm(out - s) <= error_bound(
        dense_bfgs(pairs, np.diag(h0)), y, np.float64
    )


@given(
    st.integers(1, 5), st.integers(1, 12), st.integers(1, 8), st.integers(0, 10**6),
    st.sampled_from(["pair", 2.0, "diagonal"]),
)  # fmt: skip
def test_the_matrix_is_symmetric_and_positive_definite_after_every_pair(
    M, count, d, seed, scale
):
    memory, _, _ = filled(M, count, d, seed, scale)
    H = np.array([memory.product(e, np.empty(d)) for e in np.eye(d)])
    assert np.abs(H - H.T).max() <= 1e-9 * np.abs(H).max()
    assert np.linalg.eigvalsh((H + H.T) / 2).min() > 0


def consider(s, y, rule, size=2):
    s, y = np.asarray(s, float), np.asarray(y, float)
    memory = CompactMemory.empty(size, s, "pair")
    accepted = memory.consider(rule, True, s, np.zeros_like(s), y, np.zeros_like(y))
    assert memory.ring.accepted + memory.ring.rejected == 1
    assert memory.stored == memory.ring.accepted == int(accepted)
    return accepted


@pytest.mark.parametrize(
    ("s", "y", "accepted"),
    [
        (
            [2.0, 0.0],
            [1.0, 5.0],
            True,
        ),  # s'y = 2 = epsilon |s|^2: the rule includes equality
        ([2.0, 0.0], [1.0 - 1e-12, 5.0], False),
        ([2.0, 0.0], [-1.0, 0.0], False),
        (
            [0.0, 0.0],
            [0.0, 0.0],
            False,
        ),  # s = 0 satisfies the inequality but is no pair
        ([0.0, 0.0], [1.0, 0.0], False),
        ([1.0, 0.0], [np.nan, 0.0], False),
        ([np.nan, 0.0], [1.0, 0.0], False),
        ([1.0, 0.0], [np.inf, 0.0], False),
        ([1e200, 0.0], [1e200, 0.0], False),  # |s|^2 overflows
    ],
)
def test_the_cautious_rule_admits_exactly_what_it_says(s, y, accepted):
    assert consider(s, y, PairRule(0.5)) == accepted


@pytest.mark.parametrize("scale", ["pair", 0.3, "diagonal"])
def test_a_cleared_memory_is_a_new_one_that_keeps_its_counts(scale):
    memory, _, _ = filled(3, 7, 6, 2, scale)
    memory.forget()
    if scale == "pair":
        memory.scale[0] = 1.0
    fresh, _, h0 = filled(3, 0, 6, 2, scale)
    v = np.arange(6.0)
    np.testing.assert_array_equal(
        memory.product(v, np.empty(6)), fresh.product(v, np.empty(6))
    )
    np.testing.assert_allclose(memory.product(v, np.empty(6)), h0 * v, rtol=1e-15)
    assert memory.stored == 0
    assert memory.ring.newest == -1
    assert memory.ring.accepted == 7
