"""The tournament that says who gets which block, against a scan of all parts."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncqn.kernels.block_rule import (
    Parts,
    choose,
    deliver,
    new_parts,
    open_version,
    settle,
    take_up,
)


def scan(parts: Parts, home: int, now: float, wait: float, pieces: int) -> int:
    """The rule in its plainest form: every piece of every block is looked at."""
    best, oldest, helped, B = -1, 0, -1, len(parts.block)
    copies, handed = parts.part["copies"], parts.part["handed"]
    missing = parts.block["missing"]
    for j in range(B):
        b = (home + j) % B
        if missing[b] == 0:
            continue
        if copies[b * pieces] == 0:
            age = parts.part["delivered"][b * pieces : (b + 1) * pieces].min()
            if best < 0 or age < oldest:
                best, oldest = b * pieces, age
            continue
        for q in reversed(range(b * pieces, (b + 1) * pieces)):
            if parts.part["done"][q] or now < handed[q] + wait:
                continue
            key = (copies[q], -missing[b], handed[q])
            if helped < 0 or key < (
                copies[helped],
                -missing[helped // pieces],
                handed[helped],
            ):
                helped = q
    return best if best >= 0 else helped


@settings(max_examples=150)
@given(
    st.sampled_from([1, 2, 3, 11]),
    st.integers(1, 4),
    st.sampled_from([0.0, 2.0, 5.0]),
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 3), st.integers(0, 99)),
        min_size=20,
        max_size=60,
    ),
)
def test_the_tournament_chooses_what_a_scan_of_all_parts_chooses(
    n_blocks, pieces, wait, events
):
    parts, now, version, out = new_parts(n_blocks, pieces), 0.0, 0, []
    open_version(parts, pieces)
    for home, kind, pick in events:
        now += pick % 3
        if kind < 2:
            q = choose(parts, home % n_blocks, now, wait, pieces)
            assert q == scan(parts, home % n_blocks, now, wait, pieces)
            if q >= 0:
                out += range(q, take_up(parts, q, now, pieces) + 1)
        elif kind == 2 and out:
            deliver(parts, out.pop(pick % len(out)), version, pieces)
        elif out:  # whoever computed it is gone
            q = out.pop(pick % len(out))
            if not parts.part["done"][q]:
                parts.part["copies"][q] -= 1
                parts.part["handed"][q] = -math.inf
                settle(parts, q // pieces, pieces)
        if not parts.block["missing"].any():
            version, out = version + 1, []
            open_version(parts, pieces)
    np.testing.assert_array_equal(
        parts.block["missing"],
        (parts.part["done"].reshape(n_blocks, pieces) == 0).sum(axis=1),
    )
