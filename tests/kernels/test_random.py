"""Philox against its published vectors, normals and rows against their laws; all seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import stats

from asyncqn.kernels.random import (
    DELAYS,
    NOISE,
    fill_normals,
    fill_rows,
    philox,
)

ONES = 0xFFFFFFFF


@njit  # not kept on disk, where an edit of the kernels would not be seen
def philox_block(counter, key):
    return philox(counter[0], counter[1], counter[2], counter[3], key[0], key[1])


def normals(n, seed=0, k=0, worker=0, purpose=NOISE, dtype=np.float64):
    out = np.empty(n, dtype)
    fill_normals(seed, k, worker, purpose, out)
    return out


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    assert (
        list(philox_block(np.array(counter, np.uint64), np.array(key, np.uint64)))
        == words
    )


def words():
    rng = np.random.default_rng(0)
    edges = [0, 1, 2, 3, 4, 5, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
    near_sqrt = [
        int(2**e * np.sqrt(0.5)) + i for e in range(2, 33) for i in (-2, -1, 0, 1, 2)
    ]
    return np.array(
        [
            x
            for x in [*edges, *near_sqrt, *rng.integers(0, 2**32, 200_000)]
            if 0 <= x < 2**32
        ],
        np.uint64,
    )


def test_normals_have_the_tails_of_the_normal_law():
    n = 2_000_000
    z = np.abs(normals(n, seed=9))
    for limit in (2.0, 3.0, 4.0, 4.8):
        expected = n * 2 * stats.norm.sf(limit)
        # A count is Poisson: five standard deviations.
        assert abs((z > limit).sum() - expected) < 5 * np.sqrt(expected)
    assert z.max() <= np.sqrt(2 * 33 * np.log(2)) == pytest.approx(6.764, abs=1e-3)


@pytest.mark.parametrize("lag", [1, 2, 31, 32, 33, 64, 96, 128])
def test_normals_of_one_stream_are_uncorrelated_at_every_lag_of_the_block(lag):
    n = 200_000
    z = normals(n, seed=21)
    for a, b in [(z[:-lag], z[lag:]), (z[:-lag] ** 2 - 1, z[lag:] ** 2 - 1)]:
        # A product of independent variables: mean 0, standard deviation that of one times the other.
        assert abs((a * b).mean()) < 4.5 * a.std() * b.std() / np.sqrt(n)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 22},
        {"seed": 21 + 2**32},
        {"k": 1},
        {"worker": 1},
        {"purpose": DELAYS},
        {"k": 2**31},
    ],
)
def test_normals_of_two_streams_are_independent(other):
    n = 100_000
    a, b = normals(n, seed=21), normals(n, **{"seed": 21, **other})
    assert abs(a @ b) / n < 4.5 / np.sqrt(n)
    assert not np.isin(a[:2000], b).any(), "no block is shared"


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1_000_209])
def test_rows_are_uniform(n):
    out = np.empty(200_001, np.int64)
    fill_rows(7, 1, 2, n, out)
    assert out.min() >= 0
    assert out.max() < n
    bins = np.bincount(out * min(n, 100) // n, minlength=min(n, 100))
    if n > 1:
        edges = np.ceil(np.arange(bins.size + 1) * n / bins.size)
        assert stats.chisquare(bins, out.size * np.diff(edges) / n).pvalue > 1e-3


def test_rows_are_independent_across_neighbours_steps_and_workers():
    def draw(k, w):
        out = np.empty(100_000, np.int64)
        fill_rows(7, k, w, 10, out)
        return out

    a = draw(0, 0)
    for left, right in [
        (a[:-1], a[1:]),
        (a, draw(1, 0)),
        (a, draw(0, 1)),
        (draw(1, 0), draw(0, 1)),
    ]:
        counts = np.bincount(left * 10 + right, minlength=100)
        assert stats.chisquare(counts).pvalue > 1e-3
