"""Streams: a function of (seed, worker, step) and of nothing else."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.core.streams import Stream

streams = st.builds(
    Stream,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
)


@given(streams, st.integers(1, 10**6), st.integers(0, 40))
def test_a_stream_gives_the_same_numbers_every_time_and_after_travel(
    stream, n_data, size
):
    def draws(s):
        return (
            s.rows(n_data, np.empty(size, np.int64)).tobytes(),
            s.normals(np.empty(size)).tobytes(),
            s.generator().random(size).tobytes(),
        )

    assert draws(stream) == draws(stream) == draws(pickle.loads(pickle.dumps(stream)))


@given(streams, streams)
def test_different_streams_give_different_numbers(a, b):
    if a != b:
        assert a.normals(np.empty(8)).tobytes() != b.normals(np.empty(8)).tobytes()
        assert (
            a.rows(2**31, np.empty(8, np.int64)).tobytes()
            != b.rows(2**31, np.empty(8, np.int64)).tobytes()
        )
        assert a.generator().random(4).tobytes() != b.generator().random(4).tobytes()


def test_a_worker_draws_from_its_own_shard_of_consecutive_rows() -> None:
    seen = [
        np.concatenate(
            [
                Stream(0, w, k).rows(103, np.empty(20, np.int32), "shards-4")
                for k in range(20)
            ]
        )
        for w in range(8)
    ]
    for w, rows in enumerate(seen):
        first, last = w % 4 * 103 // 4, (w % 4 + 1) * 103 // 4
        assert set(rows.tolist()) == set(range(first, last))
    assert (seen[0] != seen[4]).any(), "workers of one shard draw rows of their own"
    few = Stream(0, 7, 0).rows(3, np.empty(5, np.int32), "shards-8")
    assert (few == 1).all(), "more shards than rows: a row each"
